"""A connection to the server that is not held for nothing: who does not say in time what is asked is hung up on."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connection"]

PATIENCE = 5.0  # seconds from the beginning, or from the last answer, until a question has been said


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with a limit to the time that the headers of a question may take, however they
    trickle in.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc) -> None:
        self._rest()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers are complete
            self._rest()

    def on_response_complete(self) -> None:
        self._wait()  # before the next question is read, which may be there already
        super().on_response_complete()

    def _wait(self) -> None:
        self._rest()
        self._late = self.loop.call_later(PATIENCE, self.transport.abort)

    def _rest(self) -> None:
        if self._late is not None:
            self._late.cancel()
