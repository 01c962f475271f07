"""A chapter of the course, as it was read from its file: sections of text, and what runs between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """Anything that a chapter consists of.

    name: unique in the chapter · line: its place in the file · covers: the items of the sources that it holds
    """

    name: str
    line: int
    covers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text(Part):
    """A section of Markdown with its heading. after_break: whether a new part of the chapter begins with it."""

    text: str = ""
    after_break: bool = False


@dataclass(frozen=True)
class Reveal(Part):
    """Code that runs and prints; it leaves the answer of its question in `answer`. needs: a package, or ""."""

    code: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Question(Part):
    """A prediction, or a question at the end; `fields` are those of its form.

    predicts: whether it precedes what it is about · reveal: the code that answers it, or None
    """

    ask: str = ""
    form: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    predicts: bool = True
    reveal: Reveal | None = None


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer as a learner writes it. mistake: a name in the catalog, or one of its own with cause and fix."""

    mistake: str
    line: int
    code: str
    description: str = ""
    cause: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Exercise(Part):
    """A function or class that the learner writes.

    function: its name · file: the learner's file without number and ending · task: what to do · shape: completes "the
    result must have the shape …" · hints: three, each closer to the line · computes: the step of attention that it is,
    or "" · mistakes: those of the catalog that have to be recognized · tests_of: the exercise that the learner writes
    tests for, or "" · start, solution, cases, result: code · laws: code by what it says · after: what is shown once it
    is passed · conform: the level of `regard conform` that it has to pass, or None
    """

    function: str = ""
    file: str = ""
    minutes: int = 10
    task: str = ""
    shape: str = ""
    hints: tuple[str, ...] = ()
    computes: str = ""
    mistakes: tuple[str, ...] = ()
    tests_of: str = ""
    conform: int | None = None
    needs: str = ""
    start: str = ""
    solution: str = ""
    cases: str = ""
    result: str = ""
    laws: tuple[tuple[str, str], ...] = ()
    wrong: tuple[WrongAnswer, ...] = ()
    after: str = ""


@dataclass(frozen=True)
class Claim(Part):
    """A statement with the program that shows whether it is true.

    condition: on which it is true, or "" · source: who made it, or "" · outcome: "holds", "holds if" or "fails", as the
    chapter says; running the code confirms it
    """

    statement: str = ""
    condition: str = ""
    source: str = ""
    outcome: str = ""
    code: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Visual(Part):
    """A figure that the reader can change, on the pages of the course.

    kind: a name of `regard.common.web.visuals.KINDS` · caption: what it shows, and what to try · code: computes its
    data, in variables with the names of the kind's fields · needs: a package, or ""
    """

    kind: str = ""
    caption: str = ""
    code: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Chapter:
    """A chapter. minutes: between its breaks · parts: in the order in which a learner meets them · path: its file."""

    number: int
    title: str
    minutes: tuple[int, ...]
    parts: tuple[Part, ...]
    path: Path

    @property
    def exercises(self) -> list[Exercise]:
        return [part for part in self.parts if isinstance(part, Exercise)]

    @property
    def questions(self) -> list[Question]:
        return [part for part in self.parts if isinstance(part, Question)]

    @property
    def claims(self) -> list[Claim]:
        return [part for part in self.parts if isinstance(part, Claim)]

    @property
    def breaks(self) -> list[Part]:
        """The sections before which a learner may stop."""
        return [part for part in self.parts if isinstance(part, Text) and part.after_break]

    def part(self, name: str) -> Part | None:
        """The part of this name."""
        return next((part for part in self.parts if part.name == name), None)

    def covered(self) -> Iterator[tuple[str, Part]]:
        """The items of the sources, each with the part that holds it."""
        for part in self.parts:
            for item in part.covers:
                yield item, part

    def file_of(self, exercise: Exercise) -> str:
        """The name of the learner's file."""
        return f"{self.number:02d}_{exercise.file}.py"


def key_of(chapter: Chapter, part: Part) -> str:
    """The name of a part in the progress: "3/scores"."""
    return f"{chapter.number}/{part.name}"
