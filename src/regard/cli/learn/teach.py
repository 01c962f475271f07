"""The teacher's side of `regard learn`: the chapters that are meant, grades on the screen, notebooks and scripts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..terminal import Console, emit
from .words import ranges

if TYPE_CHECKING:
    from ...learn.chapter import Chapter
    from .screen import Terminal

__all__ = ["printed_grades", "selected", "written"]


def selected(own: Path | None, only: str | None) -> list[Chapter]:
    """The chapters of the course and of a teacher's folder, or those of them that are named."""
    from ...learn.source import chapter_of, chapters

    found = chapters(own)
    if only is None:
        return found
    wanted = [(chapter_of(found, first).number, chapter_of(found, last).number) for first, last in ranges(only)]
    return [chapter for chapter in found if any(first <= chapter.number <= last for first, last in wanted)]


def printed_grades(folders: list[Path], own: Path | None, only: str | None, screen: Terminal, form: str) -> None:
    """Grades folders and prints a table for each chapter, or JSON, or CSV; the progress goes to stderr."""
    from ...learn.teacher.grades import grades
    from ...learn.teacher.tables import as_csv, as_json, of_chapters, summary
    from ..progress import bar

    course = selected(own, None)
    chapters = course if only is None else selected(own, only)
    count = len(folders) * sum(len(each.exercises) for each in chapters)
    with bar(Console(stderr=True), (), count, 0) as update:
        learners = grades(folders, chapters, lambda done, of: update(done), course)
    if form == "json":
        emit(as_json(learners))
    elif form == "csv":
        sys.stdout.write(as_csv(learners))
    else:
        titles = {chapter.number: chapter.title for chapter in chapters}
        for number, rows in of_chapters(learners):
            screen.heading(f"Chapter {number}: {titles[number]}")
            screen.table(rows)
        screen.heading("All of these chapters")
        screen.table(summary(learners))
    for learner in learners:
        if learner.problem:
            typer.echo(f"{learner.name}: {learner.problem}", err=True)


def written(notebooks: Path | None, scripts: Path | None, chapters: list[Chapter], screen: Terminal) -> None:
    """Writes notebooks or scripts, and says where."""
    from ...learn.export.notebooks import write_notebooks
    from ...learn.export.scripts import write_scripts

    if notebooks is not None:
        for path in write_notebooks(notebooks, chapters):
            screen.note(str(path))
        count = "1 notebook" if len(chapters) == 1 else f"{len(chapters)} notebooks"
        screen.right(f"{count}, not run yet: jupyter lab {shlex.quote(str(notebooks))}")
    if scripts is not None:
        names = []
        for path in write_scripts(scripts, chapters):
            screen.note(str(path))
            names.append(path)
        screen.right(f"{len(names)} {'script' if len(names) == 1 else 'scripts'}, each with what it prints.")
