"""The server of a page: it computes what the page asks about runs that are too long to be written into it, for this
machine alone.

It listens on 127.0.0.1, tells nothing to whom does not know the secret in its address, and serves no file. What is
asked is checked against the runs before anything is computed, and only so much is computed at once.
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
from typing import TYPE_CHECKING, Any

from ...common.errors import Refused, refuse
from ..runs.run import Run
from .html import page, policy
from .routes import QUESTIONS, Desk

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Server", "application", "serve"]

DEAR = ("tile", "picture")  # of these so many are computed at once; the others never wait for them
DEAR_AT_ONCE, CHEAP_AT_ONCE = 2, 4
CONNECTIONS = 64
NOTHING = "there is nothing here"
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
    open_browser: bool = False,
    tell: Callable[[str], object] = print,
) -> None:
    """Serves the page of a run until Ctrl-C. Its address is told first; arguments as for `page`; port 0 takes a free
    one.
    """
    server = Server(run, other, port=port, findings=findings, start=start)
    tell(server.address)
    if open_browser:
        webbrowser.open(server.address)
    server.run()


class Server:
    """The page of a run at `address`, which holds the secret. `run()` serves until Ctrl-C, `with` while its block runs.

    Refused: what `page` refuses; a port that cannot be had.
    """

    def __init__(
        self,
        run: Run,
        other: Run | None = None,
        *,
        port: int = 0,
        findings: Sequence[Mapping[str, Any]] = (),
        start: Mapping[str, int] | None = None,
    ):
        try:
            import uvicorn

            from .timeouts import Connection
        except ImportError as error:
            raise refuse(
                "serve",
                "there is no server",
                given=str(error),
                expected="starlette and uvicorn",
                fix="pip install 'regard[look]'",
            ) from error
        html = page(run, other, findings=findings, start=start, served=True)
        self._socket = _listening(port)
        secret, port = secrets.token_urlsafe(24), self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/{secret}/"
        app = application([run] if other is None else [run, other], html, secret, port)
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


def application(runs: Sequence[Run], html: str, secret: str, port: int) -> Guard:
    """What answers at /SECRET/…: the page, and an address for each question that its script asks."""
    import anyio
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    desk = Desk(runs)
    body = html.encode("utf-8", "replace")
    headers = {"Content-Security-Policy": f"{policy(True)}; frame-ancestors 'none'"}
    dear, cheap = anyio.CapacityLimiter(DEAR_AT_ONCE), anyio.CapacityLimiter(CHEAP_AT_ONCE)

    begin = f"/{secret}/".encode()

    async def answer(request: Request) -> Response:
        # A name may have a slash in it, so words are told apart before they are decoded.
        question, *words = (
            urllib.parse.unquote(word) for word in request.scope["raw_path"][len(begin) :].decode("latin-1").split("/")
        )
        if not question and not words:
            return Response(body, media_type="text/html", headers=headers)
        if len(words) != len(QUESTIONS.get(question, ())) or not words:
            return JSONResponse({"error": NOTHING}, 404)
        response = Response(status_code=499)  # who asked has gone; a question that still waits is never computed then
        async with anyio.create_task_group() as group:

            async def leave_with_the_client() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(leave_with_the_client)
            try:
                found = await anyio.to_thread.run_sync(
                    desk.answer, question, *words, limiter=dear if question in DEAR else cheap
                )
                response = Response(
                    found, media_type="application/json" if question == "walk" else "application/octet-stream"
                )
            except Refused as refused:
                response = JSONResponse({"error": _sentence(refused)}, 400)
            group.cancel_scope.cancel()
        return response

    async def fault(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "this cannot be computed: a fault in regard, which its terminal shows"}, 500)

    return Guard(Starlette(routes=[Route("/{rest:path}", answer)], exception_handlers={Exception: fault}), begin, port)


class Guard:
    """Lets in who asks the right host, from this page or by hand, with GET and the secret; all others learn nothing."""

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
        """(status, why), or (200, "") for who may come in."""

        def given(name: bytes) -> list[bytes]:
            return [value.lower() for header, value in scope["headers"] if header.lower() == name]

        if len(given(b"host")) != 1 or given(b"host")[0] not in self.hosts:
            return 403, "this is another host"
        if any(origin not in [b"http://" + host for host in self.hosts] for origin in given(b"origin")):
            return 403, "this was asked from another origin"
        if any(site not in (b"same-origin", b"none") for site in given(b"sec-fetch-site")):
            return 403, "this was asked from another site"
        # Compared in the same time wherever it differs.
        if not hmac.compare_digest(scope["raw_path"][: len(self.begin)], self.begin):
            return 404, NOTHING
        return (200, "") if scope["method"] == "GET" else (405, "only GET is answered")


def _sentence(refused: Refused) -> str:
    return "; ".join(f"{reason.what}: {reason.given}; expected {reason.expected}" for reason in refused.reasons)


def _listening(port: int) -> socket.socket:
    """A socket on which only this machine can call."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen(CONNECTIONS)  # who is told the address may call at once
    except (OSError, OverflowError) as error:
        found.close()
        raise refuse(
            "serve",
            "the port cannot be had",
            given=f"{port}: {error}",
            expected="a free one above 1023",
            fix="leave --port out for any",
        ) from error
    return found
