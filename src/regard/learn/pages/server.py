"""The server of the course: its pages, with the learner's folder, for the browser of this machine.

It serves no files: pages are made of the chapters, and a path in a request is compared with their names.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import Refused
from ...common.optional import needs
from ...common.web.html_page import json_for_html
from ...common.web.local_server import NOT_FOUND, LocalServer, body_of, sentence, unless_left
from ..chapter import Chapter
from ..folder import writing
from ..running import AT_ONCE, Recorded, installed, runnable
from .checks import Checks
from .programs import Programs
from .requests import FIELDS, Requests
from .site import FILES, TITLE, chapter_page, contents, name_of, page, policy

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LONGEST = 1 << 16  # bytes of a request
WAITING = 100  # pages that wait for changes at once, each in a thread; one that has left is waited for, too
WAIT = 25.0  # seconds after which a page that waits for changes is answered in any case
HERE = "the learner's data"  # marks where these come in a page
PACKAGES = ("markdown_it", "pygments", "starlette", "uvicorn")


class CourseServer(LocalServer):
    """The course at `address`, which contains the secret. `run()` serves until Ctrl-C, `with` during its block.

    Refused: packages that are missing; a folder that cannot be written; a port that is not available.
    """

    def __init__(self, folder: Path, chapters: Sequence[Chapter], *, port: int = 0):
        needs("learn --serve", "learn", *PACKAGES)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        programs, checks = Programs(), Checks(folder, chapters)

        def end() -> None:
            checks.close()
            programs.close()

        requests = Requests(folder, chapters, programs, checks)
        super().__init__(partial(application, requests, pages(chapters)), port, end)
        checks.start()


def pages(chapters: Sequence[Chapter]) -> dict[str, Callable[[], str]]:
    """What makes each page of the course, by name, once; HERE is in place of the learner's data."""
    more = {"learner": HERE}
    index = cache(partial(page, TITLE, contents(chapters), {"contents": True} | more, served=True))
    found: dict[str, Callable[[], str]] = {"": index, "index.html": index}
    for chapter in chapters:
        results = {each.name: Recorded(missing=installed(each.needs)) for each in runnable(chapter)}
        found[name_of(chapter)] = cache(partial(chapter_page, chapter, chapters, results, more))
    return found


def application(requests: Requests, pages: Mapping[str, Callable[[], str]], begin: bytes) -> Starlette:
    """The ASGI application at /SECRET/…: pages, their script and style, changes/N, and the requests of a page.

    pages: those of `pages` · begin: how the addresses begin, "/SECRET/"
    """
    import anyio
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    headers = {"Content-Security-Policy": f"{policy(True)}; frame-ancestors 'none'"}
    slow, waiting = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(WAITING)

    def html(name: str) -> str:
        before, _, after = pages[name]().rpartition(json.dumps(HERE))
        return before + json_for_html(requests.learner()) + after

    async def answer(request: Request) -> Response:
        path = urllib.parse.unquote(request.scope["raw_path"][len(begin) :].decode("latin-1"))
        if request.method == "POST":
            return await posted(request, path)
        if path in FILES:
            kind = "text/javascript" if path.endswith(".js") else "text/css"
            return Response(FILES[path](), media_type=kind)
        if path in pages:
            try:
                text = await anyio.to_thread.run_sync(html, path)
            except Refused as refused:  # the progress cannot be read
                return Response(str(refused), 500, media_type="text/plain")
            return Response(text, media_type="text/html", headers=headers)
        route, _, number = path.partition("/")
        if route == "changes" and number.isascii() and number.isdecimal() and len(number) < 16:
            return await changed(int(number))
        return JSONResponse({"error": NOT_FOUND}, 404)

    async def posted(request: Request, what: str) -> Response:
        if what not in FIELDS:
            return JSONResponse({"error": NOT_FOUND}, 404)
        body = await body_of(request, LONGEST)
        if body is None:
            return JSONResponse({"error": f"the request is longer than {LONGEST:,} bytes"}, 413)
        ask = partial(requests.answer, what, body)
        if what == "run":
            return await unless_left(request, partial(computed, ask, slow))
        return await computed(ask)  # what is to be kept is kept, also if the page is closed meanwhile

    async def computed(ask: Callable[[], dict[str, Any]], limiter: anyio.CapacityLimiter | None = None) -> Response:
        try:
            return JSONResponse(await anyio.to_thread.run_sync(ask, limiter=limiter))
        except Refused as refused:
            fix = "; ".join(reason.fix for reason in refused.reasons)
            return JSONResponse({"error": f"{sentence(refused)}. To go on: {fix}"}, 400)

    async def changed(known: int) -> Response:
        """What the learner has done, as soon as it is newer than the version that a page knows."""
        await anyio.to_thread.run_sync(requests.checks.wait, known, WAIT, limiter=waiting)
        return await computed(requests.learner)

    async def fault(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "internal error in regard; the terminal of the server shows it"}, 500)

    routes = [Route("/{rest:path}", answer, methods=["GET", "POST"])]
    return Starlette(routes=routes, exception_handlers={Exception: fault})
