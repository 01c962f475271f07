"""A server for the browser of this machine: it listens on 127.0.0.1, and its address contains a secret."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ..errors import Refused, refuse
from .guard import Guard

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

BACKLOG = 128  # connections that the system keeps until the server accepts them


class LocalServer:
    """Serves an application at `address`. `run()` serves until Ctrl-C, `with` during its block.

    application: the ASGI application for addresses that begin with what it is given, "/SECRET/" · port: 0 for any that
    is free · ending: called when the server begins to end, so that requests that wait are answered at once
    """

    def __init__(
        self, application: Callable[[bytes], Any], port: int = 0, ending: Callable[[], object] = lambda: None
    ) -> None:
        import uvicorn

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                ending()
                await super().shutdown(sockets)

        self._socket = _listening(port)
        secret, port = secrets.token_urlsafe(24), self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/{secret}/"
        begin = f"/{secret}/".encode()
        self._server = Server(
            uvicorn.Config(
                Guard(application(begin), begin, port),
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )

    def run(self) -> None:
        with suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.run, name="regard server", daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._server.should_exit = True
        self._thread.join()


async def unless_left(request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
    """What `answer` gives; if the client disconnects, `answer` is cancelled: one that still waits is never computed."""
    import anyio
    from starlette.responses import Response

    response = Response(status_code=499)  # the client has disconnected
    async with anyio.create_task_group() as group:

        async def leave_with_the_client() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(leave_with_the_client)
        response = await answer()
        group.cancel_scope.cancel()
    return response


async def body_of(request: Request, longest: int) -> bytes | None:
    """The body of a request; None if it is too long."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > longest:
            return None
    return found


def sentence(refused: Refused) -> str:
    """The reasons of a refusal in one line, for a page."""
    return "; ".join(f"{reason.what}: {reason.given}; expected {reason.expected}" for reason in refused.reasons)


def _listening(port: int) -> socket.socket:
    """A listening socket that is reachable only from this machine."""
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY); otherwise each may wait for 40 ms.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen(BACKLOG)  # clients may connect as soon as they have the address
    except (OSError, OverflowError) as error:
        found.close()
        raise refuse(
            "serve",
            "the port is not available",
            f"{port}: {error}",
            "a free port above 1023",
            "choose another port, or leave --port out for any free one",
        ) from error
    return found
