"""Notebooks: a chapter as a Jupyter notebook, one cell after another as the lesson has its parts.

A prediction comes before the cell that runs; its explanation is folded up below that. An exercise is a cell that writes
the learner's file, and a cell that checks it with `regard learn --check`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...common.errors import refuse
from ...common.files.output import check_folder
from ..chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text
from ..folder import writing
from ..forms import FORMS
from ..running import NEEDS
from .question_text import given, whys

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
