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
from ..sandbox.messages import said
from .chapter import Chapter, Claim, Exercise, Part, Program, Question, Reveal, Text, Visual
from .folder import writing
from .forms import FORMS, options, right_answer, whys
from .lesson import ASKS
from .running import NEEDS, run, runnable

FOLDER = "exercises"  # where the cells of the exercises write their files, beside the notebook

MATH = re.compile(r"^```math$", re.M)  # some viewers read TeX in such a block; formulas of the course are plain text

Cell = dict[str, Any]


def write_notebooks(folder: Path, chapters: Sequence[Chapter]) -> list[Path]:
    """Writes a notebook for each chapter. Raises Refused, and writes nothing, if one of the files exists."""
    paths = [folder / f"{chapter.path.stem}.ipynb" for chapter in chapters]
    fix = "name another folder, or move these files: a notebook may hold your answers"
    _check_new(folder, paths, "the notebook exists", fix)
    with writing(folder):
        for path, chapter in zip(paths, chapters):
            path.write_text(json.dumps(notebook(chapter), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return paths


def _check_new(folder: Path, paths: Sequence[Path], what: str, fix: str) -> None:
    """Raises Refused if one of the paths exists, or the folder cannot be written."""
    check_folder("learn", folder)
    there = [str(path) for path in paths if path.exists()]
    if there:
        raise refuse("learn", what, ", ".join(there), "a folder without them", fix)


def notebook(chapter: Chapter) -> dict[str, Any]:
    """A chapter in the format of Jupyter (nbformat 4.5), not yet run."""
    cells = [*_head(chapter), *(cell for part in chapter.parts for cell in _cells(part))]
    for number, cell in enumerate(cells):
        text = MATH.sub("```text", cell["source"])
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
    needed = {each.needs for each in chapter.exercises} | {block.needs for block in scripts(chapter)}
    install = next((f", then `{NEEDS[name][1]}`" for name in ("demo", "torch") if name in needed), "")
    yield _markdown(
        f"# Chapter {chapter.number}: {chapter.title}\n\n"
        f"About {chapter.time} minutes. It needs regard, installed from a clone{install}. "
        "Answer each prediction before you run the cell below it."
    )


def _cells(part: Part) -> Iterator[Cell]:
    match part:
        case Text():
            yield _markdown(part.text)
        case Question():
            yield from _question(part)
        case Reveal():
            yield _code(ASKS.sub(r'""  # \1', part.code))  # a cell that waits ends a run of all cells
        case Claim():
            yield from _claim(part)
        case Exercise():
            yield from _exercise(part)


def _question(question: Question) -> Iterator[Cell]:
    fields = question.fields
    yield _markdown(f"**{question.title}.** {question.ask}\n\n{options(question)}".rstrip())
    yield _code(f"my_answer = ...  # {FORMS[question.form].how(fields)}")
    if question.reveal:
        yield _code(question.reveal.code)
    answers = [f"The answer is {right_answer(question)}.", fields.get("right", ""), *whys(question)]
    yield _markdown(_folded("The answer", "\n\n".join(each for each in answers if each)))


def _claim(claim: Claim) -> Iterator[Cell]:
    yield _markdown(f"**Claim.** {claim.quotation} Is it true?")
    yield _code(claim.code)
    yield _markdown(_folded("Is it true?", f"It {claim.conclusion(claim.outcome)}."))


def _exercise(exercise: Exercise) -> Iterator[Cell]:
    file = exercise.file_name
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
    paths = [folder / chapter.path.stem for chapter in chapters]
    _check_new(folder, paths, "the scripts exist", "name another folder, or move these away")
    for chapter, own in zip(chapters, paths):
        head = f"Chapter {chapter.number}, {chapter.title}\n\n"
        questions = {each.name: each for each in chapter.questions}
        texts = {}
        for part in scripts(chapter):
            says = questions[part.name].ask if part.name in questions else ""
            code = f"{_comment(head + says)}\n{part.code.strip()}\n\n{_output(chapter, part)}"
            texts[own / f"{part.name}.py"] = code
        with writing(own):
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
        yield from texts


def scripts(chapter: Chapter) -> Iterator[Program]:
    """What each script holds: the code of a question, of a result of its own, or of a claim."""
    return (block for block in runnable(chapter) if not isinstance(block, Visual))


def _output(chapter: Chapter, part: Program) -> str:
    """What a script prints, as comments at its end."""
    try:
        found = run(part)
    except Exception as error:  # a teacher's own code may raise anything
        given = f"{part.name} in {chapter.path.name}: {said(error)}"
        fix = f"python -m regard.learn.proof {chapter.path}"
        raise refuse("learn", "the code of a chapter fails", given, "code that runs", fix) from error
    if found.missing:
        return f"# Its output is not here, because it needs a package: {found.missing}\n"
    claim = f"\nSo the claim {part.conclusion(found.outcome)}." if isinstance(part, Claim) else ""
    return _comment(f"It prints:\n{found.text}{claim}")


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.rstrip("\n").splitlines())
