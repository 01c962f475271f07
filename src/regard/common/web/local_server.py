"""A server for the browser of this machine: it listens on 127.0.0.1, and its address contains a secret."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ..errors import Refused, refuse

NOT_FOUND = "there is nothing at this address"
HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}


class Guard:
    """Accepts requests with the right host and secret: GET from this page or typed by hand, POST of JSON from this
    page; rejects all others.
    """

    def __init__(self, app, begin: bytes, port: int):
        self.app, self.begin = app, begin
        self.hosts = [f"{host}:{port}".encode() for host in ("127.0.0.1", "localhost")]

    async def __call__(self, scope, receive, send) -> None:
        async def guarded(message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*(HEADERS | dict(message["headers"])).items()]
            await send(message)

        status, error = self.refusal(scope)
        if not error:
            await self.app(scope, receive, guarded)
            return
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await guarded({"type": "http.response.start", "status": status, "headers": headers})
        await guarded({"type": "http.response.body", "body": body})

    def refusal(self, scope) -> tuple[int, str]:
        """(status, reason) of a rejected request, or (200, "")."""

        def given(name: bytes) -> list[bytes]:
            return [value.lower() for header, value in scope["headers"] if header.lower() == name]

        if len(given(b"host")) != 1 or given(b"host")[0] not in self.hosts:
            return 403, "the request is for another host"
        if any(origin not in [b"http://" + host for host in self.hosts] for origin in given(b"origin")):
            return 403, "the request comes from another origin"
        if any(site not in (b"same-origin", b"none") for site in given(b"sec-fetch-site")):
            return 403, "the request comes from another site"
        # A comparison in constant time.
        if not hmac.compare_digest(scope["raw_path"][: len(self.begin)], self.begin):
            return 404, NOT_FOUND
        if scope["method"] == "POST" and given(b"content-type") != [b"application/json"]:
            return 415, "only JSON is supported"  # which no other site can send without asking this server first
        return (200, "") if scope["method"] in ("GET", "POST") else (405, "only GET and POST are supported")


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
