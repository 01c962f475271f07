"""The local server of a page, for runs that are too long to be embedded: it computes the data that the page requests.

It listens on 127.0.0.1, answers only requests that contain the secret of its address, and serves no files. Requests are
checked against the runs before anything is computed, and the number of concurrent computations is limited.
"""

from __future__ import annotations

import urllib.parse
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...common.errors import Refused
from ...common.optional import needs
from ...common.web.local_server import NOT_FOUND, LocalServer, body_of, sentence, unless_left
from ..open_model import OpenModel
from ..runs.run import Run
from .html import page, policy
from .live import LONGEST, Findings, Live
from .routes import ROUTES, HeldRuns, Responder

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

EXPENSIVE = ("tile", "overview")  # routes with a concurrency limit of their own, so that others never wait for them
EXPENSIVE_LIMIT, CHEAP_LIMIT = 2, 4
LIVE = (["live", "text"], ["live", "without"], ["live", "rules"])  # the addresses of new runs
JSON = ("walk", "live")


def serve(
    run: Run,
    other: Run | None = None,
    *,
    open_browser: bool = False,
    tell: Callable[[str], object] = print,
    **more: Any,
) -> None:
    """Serves the page of a run until Ctrl-C.

    tell: called with the address before the server starts · more: further arguments of `Server`.
    """
    server = Server(run, other, **more)
    tell(server.address)
    if open_browser:
        webbrowser.open(server.address)
    server.run()


class Server(LocalServer):
    """The page of a run at `address`, which contains the secret. `run()` serves until Ctrl-C, `with` during its block.

    Arguments as for `page`. port: 0 for any that is free · record, find: the model of the run, and the findings
    about a run, for `Live`.

    Refused: whatever `page` refuses; a port that is not available.
    """

    def __init__(
        self,
        run: Run,
        other: Run | None = None,
        *,
        port: int = 0,
        findings: Sequence[Mapping[str, Any]] = (),
        start: Mapping[str, Any] | None = None,
        record: OpenModel | None = None,
        find: Callable[[Run], Findings] | None = None,
    ):
        needs("serve", "look", "starlette", "uvicorn")
        html = page(run, other, findings=findings, start=start, served=True, live=record is not None)
        live = Live(HeldRuns([run] if other is None else [run, other]), record, find)
        super().__init__(partial(application, live, html), port)


def application(live: Live, html: str, begin: bytes) -> Starlette:
    """The ASGI application at /SECRET/…: the page, the routes that its script requests, and live/… for new runs.

    begin: how the addresses begin, "/SECRET/"
    """
    import anyio
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    whole = html.encode("utf-8", "replace")
    headers = {"Content-Security-Policy": f"{policy(True)}; frame-ancestors 'none'"}
    expensive, cheap = anyio.CapacityLimiter(EXPENSIVE_LIMIT), anyio.CapacityLimiter(CHEAP_LIMIT)
    new, responder = anyio.CapacityLimiter(1), Responder(live.runs)

    async def answer(request: Request) -> Response:
        # Split before it is decoded: a slash in code is a part of a word.
        route, *words = (
            urllib.parse.unquote(word) for word in request.scope["raw_path"][len(begin) :].decode("latin-1").split("/")
        )
        if not route and not words:
            return Response(whole, media_type="text/html", headers=headers)
        if request.method == "POST":
            if [route, *words] not in LIVE:
                return JSONResponse({"error": NOT_FOUND}, 404)
            given = await body_of(request, LONGEST)
            if given is None:
                return JSONResponse({"error": f"the request is longer than {LONGEST:,} bytes"}, 413)
            ask, limit = partial(live.answer, words[0], given), new
        elif len(words) != ROUTES.get(route):
            return JSONResponse({"error": NOT_FOUND}, 404)
        else:
            ask, limit = partial(responder.answer, route, *words), expensive if route in EXPENSIVE else cheap

        async def computed() -> Response:
            try:
                found = await anyio.to_thread.run_sync(ask, limiter=limit)
            except Refused as refused:
                return JSONResponse({"error": sentence(refused)}, 400)
            return Response(found, media_type=f"application/{'json' if route in JSON else 'octet-stream'}")

        return await unless_left(request, computed)

    async def fault(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "internal error in regard; the terminal of the server shows it"}, 500)

    routes = [Route("/{rest:path}", answer, methods=["GET", "POST"])]
    return Starlette(routes=routes, exception_handlers={Exception: fault})
