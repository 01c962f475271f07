"""A chapter of the course, as it was read from its file: sections of text, and what runs between them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """Anything that a chapter consists of.

    name: unique in the chapter · line: its place in the file · chapter: the number of the chapter
    """

    name: str
    line: int
    chapter: int

    @property
    def key(self) -> str:
        """Its name in the progress: "3/scores"."""
        return f"{self.chapter}/{self.name}"


@dataclass(frozen=True)
class Text(Part):
    """A section of Markdown with its heading.

    after_break: "break" or "deeper" if a new part of the chapter begins with it, else ""
    """

    text: str
    after_break: str = ""

    @property
    def says(self) -> bool:
        """Whether there is more than headings."""
        return bool(re.search(r"^[^#\n]", self.text, re.M))


@dataclass(frozen=True)
class Program(Part):
    """What has code that runs. needs: a package, or "" """

    code: str
    needs: str


ANSWER = re.compile(r"^( *if [^\n]*:\n)? *answer = [^\n]*\n?", re.M)


@dataclass(frozen=True)
class Reveal(Program):
    """Code that prints; it leaves the answer of its question in `answer`.

    folded: whether its result is shown without the code
    """

    folded: bool = False

    @property
    def shown(self) -> str:
        """The code without the line that only keeps the answer."""
        kept = ANSWER.sub("", self.code)
        return self.code if "answer" in kept else kept


@dataclass(frozen=True)
class Question(Part):
    """A prediction, or a question at the end; `fields` are those of its form.

    predicts: whether it precedes what it is about · reveal: the code that answers it, or None
    """

    ask: str
    form: str
    fields: dict[str, Any]
    predicts: bool
    reveal: Reveal | None

    @property
    def title(self) -> str:
        """What it is called above it."""
        return "Predict" if self.predicts else "Question"


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer as a learner writes it.

    mistake: a name in the catalog, or one of its own with cause and fix
    """

    mistake: str
    code: str
    description: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Exercise(Part):
    """A function or class that the learner writes.

    function: its name · file: the learner's file without number and ending · difficulty: "easy", "medium" or "hard" ·
    task: what to do · shape: completes "the result must have the shape …" · hints: three, each closer to the line ·
    tests_of: the exercise that the learner writes tests for, or "" · start, solution, cases, result: code · laws: code
    by what it says · after: what is shown once it is passed · conform: the level of `regard conform` that it has to
    pass, or None
    """

    function: str = ""
    file: str = ""
    minutes: int = 10
    difficulty: str = "medium"
    task: str = ""
    shape: str = ""
    hints: tuple[str, ...] = ()
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

    @property
    def file_name(self) -> str:
        """The name of the learner's file."""
        return f"{self.chapter:02d}_{self.file}.py"


OUTCOMES = ("holds", "holds if", "fails")


@dataclass(frozen=True)
class Claim(Program):
    """A statement with the program that shows whether it is true.

    condition: on which it is true, or "" · source: who made it, or "" · outcome: "holds", "holds if" or "fails", as the
    chapter says; running the code confirms it
    """

    statement: str
    condition: str
    source: str
    outcome: str

    @property
    def quotation(self) -> str:
        """The statement, and who made it."""
        return f"“{self.statement}”" + (f" ({self.source})" if self.source else "")

    def conclusion(self, outcome: str) -> str:
        """An outcome in words, with the condition if it is true on one: "holds if it is a row"."""
        return f"{outcome} {self.condition}" if outcome == "holds if" else outcome

    @property
    def program(self) -> str:
        """The code without its doc string."""
        return self.code.split('"""', 2)[-1].strip("\n")


@dataclass(frozen=True)
class Visual(Program):
    """A figure that the reader can change, on the pages of the course.

    kind: a name of `regard.common.web.visuals.KINDS` · caption: what it shows, and what to try; the code computes its
    data, in variables with the names of the kind's fields
    """

    kind: str
    caption: str


@dataclass(frozen=True)
class Chapter:
    """A chapter. minutes: between its breaks · parts: in the order in which a learner meets them · path: its file."""

    number: int
    title: str
    minutes: tuple[int, ...]
    parts: tuple[Part, ...]
    path: Path

    @property
    def time(self) -> str:
        """The minutes as they are shown; a + is a break."""
        return " + ".join(map(str, self.minutes))

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

    @property
    def deeper(self) -> Part | None:
        """The section that begins what the short path leaves out; None if the chapter is not on the short path."""
        return next((part for part in self.parts if isinstance(part, Text) and part.after_break == "deeper"), None)

    def part(self, name: str) -> Part | None:
        """The part of this name."""
        return next((part for part in self.parts if part.name == name), None)


BACK = (1, 3)  # after so many chapters, a question that was answered wrong comes back


def returning(chapter: Chapter, chapters: Iterable[Chapter]) -> list[Question]:
    """The questions of earlier chapters that come back in a chapter if they were answered wrong."""
    numbers = {chapter.number - distance for distance in BACK}
    return [question for each in chapters if each.number in numbers for question in each.questions]


def files(chapters: Iterable[Chapter]) -> dict[str, tuple[Chapter, Exercise]]:
    """The exercise of each file, by the file's name."""
    return {exercise.file_name: (chapter, exercise) for chapter in chapters for exercise in chapter.exercises}
