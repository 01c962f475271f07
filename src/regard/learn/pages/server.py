"""The server of the course: its pages, with the learner's folder, for the browser of this machine.

It serves no files: pages are made of the chapters, and a path in a request is compared with their names. FIELDS are
what a page may request, by names of the course, never by paths of files.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...common.errors import Refused, refuse
from ...common.files.strict_json import wrong
from ...common.optional import needs
from ...common.web.html_page import json_for_html
from ...common.web.local_server import NOT_FOUND, LocalServer, body_of, sentence, unless_left
from ..chapter import OUTCOMES, Chapter, Claim, Exercise, Part
from ..folder import Progress, add_note, changing, place_in, read, starts, writing
from ..forms import Unreadable, judge
from ..running import AT_ONCE, Recorded, installed, runnable
from .checks import Checks
from .programs import Programs
from .site import FILES, TITLE, chapter_page, contents, name_of, page, policy

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


PART: dict[str, type] = {"chapter": int, "name": str}
FIELDS: dict[str, dict[str, type]] = {
    "run": PART,
    "answer": {"key": str, "given": str},
    "again": {"key": str, "given": str, "chapter": int},
    "claim": {**PART, "given": str},
    "start": PART,
    "check": PART,
    "hint": {**PART, "number": int},
    "show": PART,
    "note": {**PART, "text": str},
    "place": PART,
}  # what each request holds, no less and no more
LONGEST_TEXT = 4000  # characters of an answer, and of a note

Kind = TypeVar("Kind", bound=Part)
Answer = dict[str, Any]  # types of JSON


class Requests:
    """The requests of the pages of one learner, from any number of threads."""

    def __init__(self, folder: Path, chapters: Sequence[Chapter], programs: Programs, checks: Checks):
        self.folder, self.programs, self.checks = folder, programs, checks
        self.chapters = {chapter.number: chapter for chapter in chapters}
        self.questions = {each.key: each for chapter in chapters for each in chapter.questions}

    def answer(self, what: str, body: bytes) -> Answer:
        """The answer to one of FIELDS, as types of JSON. Raises Refused for all that is not understood."""
        given = _read(what, body)
        if "chapter" in given:
            number = given["chapter"]
            if number not in self.chapters:
                raise _unknown("chapter", str(number))
            given["chapter"] = self.chapters[number]
        return getattr(self, f"_{what}")(**given) or {}

    def learner(self) -> Answer:
        """What a page knows of the learner: progress, results of checks, the folder."""
        return {"progress": read(self.folder).to_json(), "folder": str(self.folder), **self.checks.state()}

    # ---- what runs ---------------------------------------------------------------------------------------------------

    def _run(self, chapter: Chapter, name: str) -> Answer:
        """What a program prints, or the data of a visual."""
        if name not in {each.name for each in runnable(chapter)}:
            raise _unknown("program", name)
        found = self.programs.run(chapter, name)
        return {"text": found.text, "data": found.data}

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, key: str, given: str) -> Answer:
        right = self._judged(key, given)
        with changing(self.folder) as progress:
            progress.answered(key, given, right)  # the first answer stays, also that of another page or terminal
        return progress.answers[key]

    def _again(self, key: str, given: str, chapter: Chapter) -> None:
        right = self._judged(key, given)
        with changing(self.folder) as progress:
            if key not in progress.answers:
                raise _unknown("answer", key)
            if chapter.number not in {each["chapter"] for each in progress.answers[key]["again"]}:
                progress.again(key, chapter.number, right)

    def _judged(self, key: str, given: str) -> bool:
        if key not in self.questions:
            raise _unknown("question", key)
        question = self.questions[key]
        if not given.strip():  # the learner wanted to see the answer
            return False
        try:
            return judge(question, given).right
        except Unreadable as error:
            what = "the answer cannot be read"
            raise refuse("learn", what, given[:40], str(error), "type it anew") from None

    def _claim(self, chapter: Chapter, name: str, given: str) -> None:
        key = _part(chapter, name, Claim).key
        if given not in OUTCOMES:
            raise _unknown("outcome", given)
        with changing(self.folder) as progress:
            progress.claims.setdefault(key, given)

    # ---- exercises ---------------------------------------------------------------------------------------------------

    def _start(self, chapter: Chapter, name: str) -> None:
        starts(self.folder, _part(chapter, name, Exercise))

    def _check(self, chapter: Chapter, name: str) -> None:
        exercise = _part(chapter, name, Exercise)
        self.checks.check(chapter, exercise, starts(self.folder, exercise))

    def _hint(self, chapter: Chapter, name: str, number: int) -> None:
        exercise = _part(chapter, name, Exercise)
        if not 1 <= number <= len(exercise.hints):
            raise _unknown("hint", str(number))
        with changing(self.folder) as progress:
            noted = progress.exercise(exercise.key)
            noted["hints"] = max(noted["hints"], number)

    def _show(self, chapter: Chapter, name: str) -> None:
        exercise = _part(chapter, name, Exercise)
        with changing(self.folder) as progress:
            progress.note_shown(exercise, "save your file, or press Check now")

    # ---- place and notes ---------------------------------------------------------------------------------------------

    def _note(self, chapter: Chapter, name: str, text: str) -> Answer:
        part = _part(chapter, name, Part)
        words = " ".join(text.split())
        if not words:
            raise refuse("learn", "no question", "an empty text", "a question", "write one")
        return {"path": str(add_note(self.folder, words, place_in(chapter, part.name)))}

    def _place(self, chapter: Chapter, name: str) -> None:
        """Where the reader is, which only goes forward. name: a part, or "" for the end of the chapter."""
        number, order = chapter.number, [*(part.name for part in chapter.parts), ""]
        if name not in order:
            raise _unknown("part", name)
        with changing(self.folder) as progress:
            before = progress.place.get(str(number))
            if before == "":  # the chapter is done, and stays so when something is looked up
                return
            if name == "" and self._left(chapter, progress):
                name = order[-2]
            if before not in order or order.index(name) > order.index(before):
                progress.place[str(number)] = name
            following = min((each for each in self.chapters if each > number), default=number)
            progress.current = following if name == "" else number

    def _left(self, chapter: Chapter, progress: Progress) -> bool:
        """Whether a question or an exercise of a chapter is left."""
        answered = all(each.key in progress.answers for each in chapter.questions)
        return not answered or not all(progress.passed(each.key) for each in chapter.exercises)


def _part(chapter: Chapter, name: str, kind: type[Kind]) -> Kind:
    part = chapter.part(name)
    if not isinstance(part, kind):
        raise _unknown(kind.__name__.lower(), name)
    return part


def _unknown(what: str, given: str) -> Exception:
    expected, fix = f"a {what} of the course", "reload the page"
    return refuse("learn", f"no such {what}", repr(given[:40]), expected, fix)


def _read(what: str, body: bytes) -> dict[str, Any]:
    wanted = FIELDS[what]
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if any(wrong(given, wanted, what)) or any(len(str(each)) > LONGEST_TEXT for each in given.values()):
        fields = ", ".join(f"{name}: {kind.__name__}" for name, kind in wanted.items())
        expected = f"{fields}, texts of at most {LONGEST_TEXT:,} characters"
        raise refuse("learn", f"the request {what} is not understood", repr(body[:40]), expected, "reload the page")
    return given


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
            pass
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
