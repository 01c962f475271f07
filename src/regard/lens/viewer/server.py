"""The local server of a page, for runs that are too long to be embedded: it computes the data that the page requests.

It listens on 127.0.0.1, answers only requests that contain the secret of its address, and serves no files. Requests are
checked against the runs before anything is computed, and the number of concurrent computations is limited.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
import urllib.parse
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...common.errors import Refused, refuse
from ...common.optional import requires_extra
from ..runs.run import Run
from .held_runs import HeldRuns
from .html import page, policy
from .live import LONGEST, Findings, Live
from .routes import ROUTES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Server", "application", "serve"]

EXPENSIVE = ("tile", "overview")  # routes with a concurrency limit of their own, so that others never wait for them
EXPENSIVE_LIMIT, CHEAP_LIMIT = 2, 4
CONNECTIONS = 64
LIVE = (["live", "text"], ["live", "rules"])  # the addresses of new runs
JSON = ("walk", "live")
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


def serve(
    run: Run,
    other: Run | None = None,
    *,
    port: int = 0,
    findings: Sequence[Mapping[str, Any]] = (),
    start: Mapping[str, int] | None = None,
    record: Callable[[str], Run] | None = None,
    find: Callable[[Run], Findings] | None = None,
    open_browser: bool = False,
    tell: Callable[[str], object] = print,
) -> None:
    """Serves the page of a run until Ctrl-C. Arguments as for `page`; port 0 chooses a free port.

    record, find: the run of another text, and the findings about a run, for `Live` · tell: called with the address
    before the server starts.
    """
    server = Server(run, other, port=port, findings=findings, start=start, record=record, find=find)
    tell(server.address)
    if open_browser:
        webbrowser.open(server.address)
    server.run()


class Server:
    """The page of a run at `address`, which contains the secret. `run()` serves until Ctrl-C, `with` during its block.

    Refused: whatever `page` refuses; a port that is not available.
    """

    def __init__(
        self,
        run: Run,
        other: Run | None = None,
        *,
        port: int = 0,
        findings: Sequence[Mapping[str, Any]] = (),
        start: Mapping[str, int] | None = None,
        record: Callable[[str], Run] | None = None,
        find: Callable[[Run], Findings] | None = None,
    ):
        with requires_extra("serve", "look"):
            import uvicorn

            from .timeouts import Connection
        live = record is not None
        html = page(run, other, findings=findings, start=start, served=True, live=live)
        self._socket = _listening(port)
        secret, port = secrets.token_urlsafe(24), self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/{secret}/"
        runs = HeldRuns([run] if other is None else [run, other])
        app = application(Live(runs, record, find), html, secret, port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )

    def run(self) -> None:
        with suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._socket])

    def __enter__(self) -> Server:
        self._thread = threading.Thread(target=self.run, name="regard server", daemon=True)
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._server.should_exit = True
        self._thread.join()


def application(live: Live, html: str, secret: str, port: int) -> Guard:
    """The ASGI application at /SECRET/…: the page, the routes that its script requests, and live/… for new runs."""
    import anyio
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    whole = html.encode("utf-8", "replace")
    headers = {"Content-Security-Policy": f"{policy(True)}; frame-ancestors 'none'"}
    expensive, cheap = anyio.CapacityLimiter(EXPENSIVE_LIMIT), anyio.CapacityLimiter(CHEAP_LIMIT)
    new = anyio.CapacityLimiter(1)

    begin = f"/{secret}/".encode()

    async def answer(request: Request) -> Response:
        # A name may contain a slash, so the path is split before it is decoded.
        route, *words = (
            urllib.parse.unquote(word) for word in request.scope["raw_path"][len(begin) :].decode("latin-1").split("/")
        )
        if not route and not words:
            return Response(whole, media_type="text/html", headers=headers)
        if request.method == "POST":
            if [route, *words] not in LIVE:
                return JSONResponse({"error": NOT_FOUND}, 404)
            given = await _body(request)
            if given is None:
                return JSONResponse({"error": f"the request is longer than {LONGEST:,} bytes"}, 413)
            ask, limit = partial(live.answer, words[0], given), new
        elif len(words) != len(ROUTES.get(route, ())) or not words:
            return JSONResponse({"error": NOT_FOUND}, 404)
        else:
            ask, limit = partial(live.responder.answer, route, *words), expensive if route in EXPENSIVE else cheap
        response = Response(status_code=499)  # the client has disconnected; a request that still waits is not computed
        async with anyio.create_task_group() as group:

            async def leave_with_the_client() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(leave_with_the_client)
            try:
                found = await anyio.to_thread.run_sync(ask, limiter=limit)
                response = Response(found, media_type=f"application/{'json' if route in JSON else 'octet-stream'}")
            except Refused as refused:
                response = JSONResponse({"error": _sentence(refused)}, 400)
            group.cancel_scope.cancel()
        return response

    async def fault(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "internal error in regard; the terminal of the server shows it"}, 500)

    routes = [Route("/{rest:path}", answer, methods=["GET", "POST"])]
    return Guard(Starlette(routes=routes, exception_handlers={Exception: fault}), begin, port)


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is too long."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > LONGEST:
            return None
    return found


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


def _sentence(refused: Refused) -> str:
    return "; ".join(f"{reason.what}: {reason.given}; expected {reason.expected}" for reason in refused.reasons)


def _listening(port: int) -> socket.socket:
    """A listening socket that is reachable only from this machine."""
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY); otherwise each may wait for 40 ms.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen(CONNECTIONS)  # clients may connect as soon as they have the address
    except (OSError, OverflowError) as error:
        found.close()
        raise refuse(
            "serve",
            "the port is not available",
            given=f"{port}: {error}",
            expected="a free port above 1023",
            fix="choose another port, or leave --port out for any free one",
        ) from error
    return found
