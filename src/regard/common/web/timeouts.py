"""Connection limits of the server: clients that send no request in time are disconnected, and the oldest of those that
have not shown the secret make way for others.
"""

from __future__ import annotations

import asyncio
import hmac

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["CONNECTIONS", "Connection"]

CONNECTIONS = 64  # that are open and have not shown the secret
PATIENCE = 5.0  # seconds from connecting, or from the last response, to the end of the request's headers


class Connection(H11Protocol):
    """The HTTP/1.1 protocol of uvicorn with a limit on the time that the headers of a request may take.

    Any program on this machine can open connections without the secret, so they are not counted against those of
    the page: beyond CONNECTIONS of them, the oldest is closed. A connection has shown the secret once a request on it
    was for an address that begins with it.
    """

    _late: asyncio.TimerHandle | None = None
    unproven: dict[Connection, None]  # of one server, the oldest first
    begin: bytes

    @classmethod
    def of(cls, begin: bytes) -> type[Connection]:
        """The protocol of a server whose addresses begin with this."""
        return type("Connection", (cls,), {"unproven": {}, "begin": begin})

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._wait()
        self.unproven[self] = None
        if len(self.unproven) > CONNECTIONS:
            oldest = next(iter(self.unproven))
            del self.unproven[oldest]
            oldest.transport.abort()

    def connection_lost(self, exc) -> None:
        self._cancel()
        self.unproven.pop(self, None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers are complete
            self._cancel()
            path = self.scope["raw_path"] if self.scope else b""
            if hmac.compare_digest(path[: len(self.begin)], self.begin):
                self.unproven.pop(self, None)

    def on_response_complete(self) -> None:
        self._wait()  # before the next request is read, which may have arrived already
        super().on_response_complete()

    def _wait(self) -> None:
        self._cancel()
        self._late = self.loop.call_later(PATIENCE, self.transport.abort)

    def _cancel(self) -> None:
        if self._late is not None:
            self._late.cancel()
