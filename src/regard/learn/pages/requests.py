"""Requests: what a page of the course may ask of the server. Names are those of the course, never paths of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...common.errors import refuse
from ...common.files.strict_json import wrong
from ..chapter import OUTCOMES, Chapter, Claim, Exercise, Part
from ..folder import add_note, place_in, starts
from ..forms import Unreadable, judge
from ..progress import Progress, changing, read
from ..running import runnable
from .checks import Checks
from .programs import Programs

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
LONGEST = 4000  # characters of an answer, and of a note

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
    if any(wrong(given, wanted, what)) or any(len(str(each)) > LONGEST for each in given.values()):
        fields = ", ".join(f"{name}: {kind.__name__}" for name, kind in wanted.items())
        what, expected = f"the request {what} is not understood", f"{fields}, texts of at most {LONGEST:,} characters"
        raise refuse("learn", what, repr(body[:40]), expected, "reload the page")
    return given
