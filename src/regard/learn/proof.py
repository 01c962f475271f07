"""Proves a chapter: runs every reveal, claim, solution and wrong answer.

python -m regard.learn.proof [CHAPTER.md …]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .chapter import Chapter, Exercise, Question, Reveal
from .checking.check import check
from .checking.problem import Problem
from .forms import FORMS
from .running import installed, reveal, verdict
from .source import CHAPTERS, read_chapter

__all__ = ["proved"]


def proved(chapter: Chapter) -> Iterator[tuple[str, str]]:
    """What was run, and "" or what is wrong with it."""
    for question in chapter.questions:
        yield f"{question.form} {question.name}", "; ".join(_question(question))
    for part in chapter.parts:
        if isinstance(part, Reveal) and not installed(part.needs):
            reveal(part)
            yield f"reveal {part.name}", ""
    for claim in chapter.claims:
        if not installed(claim.needs):
            found = verdict(claim).verdict
            yield f"claim {claim.name}", "" if found == claim.verdict else f"it {found}, stated: {claim.verdict}"
    for exercise in chapter.exercises:
        if not installed(exercise.needs):
            yield from _exercise(chapter, exercise)


def _question(question: Question) -> Iterator[str]:
    """The stated answer is right, the explained ones are wrong, and code computes the stated one."""
    form, fields = FORMS[question.form], question.fields
    answer = fields["answer"][0] if question.form == "line" and isinstance(fields["answer"], list) else fields["answer"]
    if not form.judge(answer, fields).right:
        yield "its own answer is judged wrong"
    for each in fields.get("wrong", ()):
        judged = form.judge(each["answer"], fields)
        if judged.right or judged.why != each["why"]:
            yield f"the wrong answer {each['answer']} is not explained as stated"
    if question.reveal and not installed(question.reveal.needs):
        computed = reveal(question.reveal).answer
        if computed is None or not form.agrees(computed, fields):
            yield f"the code gives {computed}, stated: {form.shown(fields)}"


def _exercise(chapter: Chapter, exercise: Exercise) -> Iterator[tuple[str, str]]:
    """The start is not right, the solution is, and each wrong answer is rejected with its name."""
    problem = _checked(chapter, exercise, exercise.solution)
    yield f"solution {exercise.name}", "" if problem is None else _words(problem)
    problem = _checked(chapter, exercise, exercise.start)
    yield f"start {exercise.name}", "it passes" if problem is None else ""
    if exercise.tests_of or not exercise.cases:
        return
    for wrong in exercise.wrong:
        problem = _checked(chapter, exercise, wrong.code)
        what = f"{wrong.mistake} in {exercise.name}"
        if problem is None:
            yield what, "it passes"
        else:
            yield what, "" if wrong.mistake in (*problem.mistakes, *problem.alike) else f"not named: {_words(problem)}"


def _checked(chapter: Chapter, exercise: Exercise, code: str) -> Problem | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, chapter.file_of(exercise))
        path.write_text(code, encoding="utf-8")
        return check(chapter, exercise, path)


def _words(problem: Problem) -> str:
    return " / ".join([problem.kind, problem.what, *problem.details, *problem.mistakes])


def main() -> None:
    """Prints what was run; the exit status is 1 if something is wrong."""
    failed = False
    for path in [Path(each) for each in sys.argv[1:]] or sorted(CHAPTERS.glob("*.md")):
        for what, wrong in proved(read_chapter(path)):
            print(f"{'FAILS' if wrong else 'ok':5}  {path.stem}  {what}{': ' + wrong if wrong else ''}", flush=True)
            failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
