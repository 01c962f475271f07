"""Proves a chapter: runs each reveal, claim, solution and wrong answer.

python -m regard.learn.proof [CHAPTER.md …]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ..sandbox.messages import said
from .chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text, Visual
from .checking.check import Checker
from .checking.problem import Problem
from .forms import FORMS
from .running import execute, installed, run
from .source import chapters, read_chapter

COLUMNS = 78  # of what a reveal prints, and of blocks that are shown as they are
LINES = 25  # of a section of text

Found = tuple[str, str]


def proved(chapter: Chapter, part: Part) -> list[Found]:
    """What of a part was run, and "" or what is wrong with it. It stops at code of the chapter that raises an error;
    what needs a package that is not installed is left out.
    """
    found: list[Found] = []
    try:
        found.extend(_part(chapter, part))
    except (Exception, SystemExit) as error:  # the chapter's code may raise anything
        found.append((f"{type(part).__name__.lower()} {part.name}", f"line {part.line}: {said(error)}"))
    return found


def _part(chapter: Chapter, part: Part) -> Iterator[Found]:
    if missing := installed(getattr(part, "needs", "")):
        yield f"{part.name} is not run: {missing}", ""
        return
    match part:
        case Text():
            yield f"text, line {part.line}", "; ".join(_section(part))
        case Question():
            yield f"{part.form} {part.name}", "; ".join(_question(part))
        case Reveal():
            yield f"reveal {part.name}", "; ".join(_wide(run(part).text))
        case Claim():
            ran = run(part).outcome
            yield f"claim {part.name}", "" if ran == part.outcome else f"it {ran}, stated: {part.outcome}"
        case Visual():
            run(part)
            yield f"visual {part.name}", ""
        case Exercise():
            yield from _exercise(chapter, part)


def _section(section: Text) -> Iterator[str]:
    """A section of text is one screen; blocks in it do not count, and their lines fit into a terminal."""
    inside, count = False, 0
    for line in section.text.splitlines():
        fence = line.startswith(("```", "~~~"))
        inside ^= fence
        count += bool(line.strip()) and not inside and not fence
        if inside and len(line) > COLUMNS:
            yield f"a line of a block has {len(line)} columns, more than {COLUMNS}: {line.strip()[:20]}…"
    if count > LINES:
        yield f"it has {count} lines, more than {LINES}"


def _wide(printed: str) -> Iterator[str]:
    for number, line in enumerate(printed.splitlines(), 1):
        if len(line) > COLUMNS:
            yield f"line {number} that is printed has {len(line)} columns, more than {COLUMNS}"


def _question(question: Question) -> Iterator[str]:
    """The stated answer is right, the explained ones are wrong, and code computes the stated one."""
    form, fields = FORMS[question.form], question.fields
    if not form.judge(fields["answer"], fields).right:
        yield "its own answer is judged wrong"
    for each in fields.get("wrong", ()):
        judged = form.judge(each["answer"], fields)
        if judged.right or judged.why != each["why"]:
            yield f"the wrong answer {each['answer']} is not explained as stated"
    if question.reveal and not installed(question.reveal.needs):
        names, text = execute(question.reveal)
        yield from _wide(text)
        answer = names.get("answer")
        if answer is None or not form.judge(answer, fields).right:
            yield f"the code gives {answer}, stated: {form.shown(fields)}"


def _exercise(chapter: Chapter, exercise: Exercise) -> Iterator[Found]:
    """The start is not right, the solution is, and each wrong answer is rejected with its name."""
    with Checker(chapter, exercise) as checker:
        problem = _problem(checker, exercise.solution)
        yield f"solution {exercise.name}", "" if problem is None else _words(problem)
        problem = _problem(checker, exercise.start)
        yield f"start {exercise.name}", "it passes" if problem is None else ""
        for wrong in exercise.wrong if exercise.cases else ():
            problem = _problem(checker, wrong.code)
            what = f"{wrong.mistake} in {exercise.name}"
            if problem is None:
                yield what, "it passes"
            else:
                named = wrong.mistake in (*problem.mistakes, *problem.alike)
                yield what, "" if named else f"not named: {_words(problem)}"


def _problem(checker: Checker, code: str) -> Problem | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, checker.exercise.file_name)
        path.write_text(code, encoding="utf-8")
        return checker.checked(path).problem


def _words(problem: Problem) -> str:
    return " / ".join([problem.kind, problem.what, *problem.details, *problem.mistakes])


def main() -> None:
    """Prints what was run, in order, on all cores; the exit status is 1 if something is wrong."""
    failed = False
    named = dict.fromkeys(path.replace(".checks.md", ".md") for path in sys.argv[1:])  # checks are those of a chapter
    read = [read_chapter(Path(path)) for path in named] or chapters()
    parts = [(chapter, part) for chapter in read for part in chapter.parts]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for (chapter, _), found in zip(parts, pool.map(proved, *zip(*parts))):
            for what, wrong in found:
                print(f"{'FAILS' if wrong else 'ok':5}  {chapter.path.stem}  {what}{': ' + wrong if wrong else ''}")
                failed = failed or bool(wrong)
            sys.stdout.flush()
    sys.exit(failed)


if __name__ == "__main__":
    main()
