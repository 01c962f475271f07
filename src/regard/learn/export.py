"""The course as notebooks and as scripts, written from the chapters."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..common.errors import refuse
from ..common.files.output import check_folder
from ..sandbox.foreign import said
from .chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text
from .folder import writing
from .forms import FORMS
from .running import NEEDS, installed, outcome, reveal


def given(question: Question) -> str:
    """What a question shows to choose from."""
    fields = question.fields
    match question.form:
        case "choice":
            return "\n".join(f"{at}. {each['text']}" for at, each in enumerate(fields["choices"], 1))
        case "pairs":
            left = "\n".join(f"- **{chr(65 + at)}** {text}" for at, text in enumerate(fields["left"]))
            return left + "\n\n" + "\n".join(f"{at}. {text}" for at, text in enumerate(fields["right_side"], 1))
        case "table":
            return f"Rows: {', '.join(map(str, fields['rows']))}. Columns: {', '.join(map(str, fields['columns']))}."
        case "line":
            lines = fields["code"].strip("\n").splitlines()
            width = len(str(len(lines)))
            return "```text\n" + "\n".join(f"{at:{width}} {line}" for at, line in enumerate(lines, 1)) + "\n```"
    return ""


def whys(question: Question) -> Iterator[str]:
    """Why the other answers are wrong."""
    fields = question.fields
    match question.form:
        case "choice":
            for at, each in enumerate(fields["choices"], 1):
                if each.get("why"):
                    yield f"{at}: {each['why']}"
        case "pairs" | "table":
            for name, why in zip(fields["left" if question.form == "pairs" else "rows"], fields["why"]):
                yield f"{name}: {why}"
        case _:
            for each in fields.get("wrong", ()):
                yield f"{each['answer']}: {each['why']}"


FOLDER = "exercises"  # where the cells of the exercises write their files, beside the notebook
STEPS = re.compile(r"^steps = \d+", re.M)  # how long a reveal trains

MATH = re.compile(r"^```math$", re.M)  # some viewers read TeX in such a block; formulas of the course are plain text

Cell = dict[str, Any]


def write_notebooks(folder: Path, chapters: Sequence[Chapter]) -> list[Path]:
    """Writes a notebook for each chapter. Raises Refused, and writes nothing, if one of the files exists."""
    check_folder("learn", folder)
    paths = [folder / f"{chapter.path.stem}.ipynb" for chapter in chapters]
    there = [path for path in paths if path.exists()]
    if there:
        given = ", ".join(map(str, there))
        fix = "name another folder, or move these files: a notebook may hold your answers"
        raise refuse("learn", "the notebook exists", given, "a folder without them", fix)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path, chapter in zip(paths, chapters):
            path.write_text(json.dumps(notebook(chapter), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return paths


def notebook(chapter: Chapter, steps: int | None = None) -> dict[str, Any]:
    """A chapter in the format of Jupyter (nbformat 4.5), not yet run.

    steps: how many steps reveals train; None: as many as the chapter says
    """
    cells = [*_head(chapter), *(cell for part in chapter.parts for cell in _cells(chapter, part))]
    for number, cell in enumerate(cells):
        text = MATH.sub("```text", "".join(cell["source"]))
        if steps is not None and cell["cell_type"] == "code":
            text = STEPS.sub(f"steps = {steps}", text)
        cell["source"] = text.strip("\n").splitlines(keepends=True)
        cell["id"] = hashlib.sha256(f"{chapter.number}/{number}".encode()).hexdigest()[:8]
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


def _markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> Cell:
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": text}


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text.strip()}\n\n</details>"


def _head(chapter: Chapter) -> Iterator[Cell]:
    needed = {part.needs for part in chapter.parts if isinstance(part, (Reveal, Claim, Exercise))}
    needed |= {question.reveal.needs for question in chapter.questions if question.reveal}
    install = next((NEEDS[name][1] for name in ("demo", "torch") if name in needed), "pip install regard")
    yield _markdown(
        f"# Chapter {chapter.number}: {chapter.title}\n\n"
        f"About {' + '.join(map(str, chapter.minutes))} minutes. It needs `{install}`. Answer each prediction before "
        "you run the cell below it."
    )


def _cells(chapter: Chapter, part: Part) -> Iterator[Cell]:
    match part:
        case Text():
            text = re.sub(r"^# .*\n", "", part.text)
            if text.strip():  # a comment after the title ends the first part
                yield _markdown(text)
        case Question():
            yield from _question(part)
        case Reveal():
            yield _code(part.code)
        case Claim():
            yield from _claim(part)
        case Exercise():
            yield from _exercise(chapter, part)


def _question(question: Question) -> Iterator[Cell]:
    form, fields = FORMS[question.form], question.fields
    kind = "Predict" if question.predicts else "Question"
    yield _markdown(f"**{kind}.** {question.ask}\n\n{given(question)}".rstrip())
    yield _code(f"my_answer = ...  # {form.how(fields)}")
    if question.reveal:
        yield _code(question.reveal.code)
    answers = [f"The answer is {form.shown(fields)}.", fields.get("right", ""), *whys(question)]
    yield _markdown(_folded("The answer", "\n\n".join(each for each in answers if each)))


def _claim(claim: Claim) -> Iterator[Cell]:
    source = f" ({claim.source})" if claim.source else ""
    yield _markdown(f"**Claim.** “{claim.statement}”{source} Is it true?")
    yield _code(claim.code)
    words = {"holds": "It holds.", "holds if": f"It holds if {claim.condition}.", "fails": "It fails."}
    yield _markdown(_folded("Is it true?", words[claim.outcome]))


def _exercise(chapter: Chapter, exercise: Exercise) -> Iterator[Cell]:
    file = chapter.file_of(exercise)
    yield _markdown(
        f"**Exercise: {exercise.function}** (about {exercise.minutes} minutes)\n\n{exercise.task}\n\n"
        f"The next cell writes your file `{FOLDER}/{file}`, the one after it checks it."
    )
    for number, hint in enumerate(exercise.hints, 1):
        yield _markdown(_folded(f"Hint {number}", hint))
    yield _code(f'import sys\nfrom pathlib import Path\n\nPath("{FOLDER}").mkdir(exist_ok=True)')
    yield _code(f"%%writefile {FOLDER}/{file}\n{exercise.start}")
    yield _code(f'!"{{sys.executable}}" -m regard learn --check {FOLDER}/{file}')
    if exercise.after:
        yield _markdown(_folded("Once it is right", exercise.after))


def write_scripts(folder: Path, chapters: Sequence[Chapter]) -> Iterator[Path]:
    """Writes `03-scores/NAME.py` for each reveal and claim, and yields its path; each runs once, for its output.

    A chapter's scripts are written when all of them have run, so that what is there is whole. Raises Refused if a
    folder of a chapter exists, and then writes nothing, or if the code of a chapter fails.
    """
    check_folder("learn", folder)
    there = [str(folder / chapter.path.stem) for chapter in chapters if (folder / chapter.path.stem).exists()]
    if there:
        given, fix = ", ".join(there), "name another folder, or move these away"
        raise refuse("learn", "the scripts exist", given, "a folder without them", fix)
    for chapter in chapters:
        own = folder / chapter.path.stem
        texts = {
            own / f"{name}.py": f"{_start(chapter, says)}\n\n{part.code.strip()}\n\n{_output(chapter, name, part)}"
            for name, says, part in scripts(chapter)
        }
        with writing(folder):
            own.mkdir(parents=True, exist_ok=True)
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
        yield from texts


def scripts(chapter: Chapter) -> Iterator[tuple[str, str, Reveal | Claim]]:
    """The name of each script, what it answers or shows, and its part."""
    for part in chapter.parts:
        match part:
            case Question(reveal=Reveal() as shown):
                yield part.name, part.ask, shown
            case Reveal():
                yield part.name, "", part
            case Claim():
                yield part.name, "", part


def _start(chapter: Chapter, says: str) -> str:
    return _comment(f"Chapter {chapter.number}, {chapter.title}\n\n{says}").rstrip("\n")


def _output(chapter: Chapter, name: str, part: Reveal | Claim) -> str:
    """What a script prints, as comments at its end."""
    missing = installed(part.needs)
    if missing:
        return f"# Its output is not here, because it needs a package: {missing}\n"
    try:
        if isinstance(part, Reveal):
            return _comment("It prints:\n" + reveal(part).text)
        ran = outcome(part)
    except Exception as error:  # a teacher's own code may raise anything
        given = f"{name} in {chapter.path.name}: {said(error)}"
        fix = f"python -m regard.learn.proof {chapter.path}"
        raise refuse("learn", "the code of a chapter fails", given, "code that runs", fix) from error
    so = f"holds if {part.condition}" if ran.outcome == "holds if" else ran.outcome
    return _comment(f"It prints:\n{ran.text}\nSo the claim {so}.")


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.rstrip("\n").splitlines())
