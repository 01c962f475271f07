"""Connection timeouts of the server: clients that send no request in time are disconnected."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connection"]

PATIENCE = 5.0  # seconds from connecting, or from the last response, to the end of the request's headers


class Connection(H11Protocol):
    """The HTTP/1.1 protocol of uvicorn with a limit on the time that the headers of a request may take."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc) -> None:
        self._cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers are complete
            self._cancel()

    def on_response_complete(self) -> None:
        self._wait()  # before the next request is read, which may have arrived already
        super().on_response_complete()

    def _wait(self) -> None:
        self._cancel()
        self._late = self.loop.call_later(PATIENCE, self.transport.abort)

    def _cancel(self) -> None:
        if self._late is not None:
            self._late.cancel()
