"""The teacher's side of `regard learn`: the chapters that are meant, grades on the screen, notebooks and scripts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..terminal import Console, emit_json
from .words import ranges

if TYPE_CHECKING:
    from ...learn.chapter import Chapter
    from .screen import Terminal


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
    from ...learn.teacher.tables import as_csv, as_data, of_chapters, summary
    from ..progress import bar

    course = selected(own, None)
    chapters = course if only is None else selected(own, only)
    count = len(folders) * sum(len(each.exercises) for each in chapters)
    with bar(Console(stderr=True), (), count, 0) as update:
        learners = grades(folders, chapters, lambda done, of: update(done), course)
    if form == "json":
        emit_json(as_data(learners))
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


def written_site(folder: Path, chapters: list[Chapter], screen: Terminal) -> None:
    """Writes the course as pages, and says where."""
    from ...learn.pages.site import write_site

    size = 0
    with Console(stderr=True).status("running the code of the chapters"):
        for path in write_site(folder, chapters):
            size += path.stat().st_size
    count = "1 chapter" if len(chapters) == 1 else f"{len(chapters)} chapters"
    screen.right(f"{count}, {size / 1e6:.1f} MB. To read them, open {folder / 'index.html'}")


def written_slides(number: int, out: Path | None, own: Path | None, screen: Terminal) -> None:
    """Writes a chapter's slides, and says where."""
    from ...learn.pages.slides import write_slides
    from ...learn.source import chapter_of, chapters

    path = write_slides(chapter_of(chapters(own), number), out)
    screen.right(f"Slides written to {path} ({path.stat().st_size / 1000:.0f} kB). Open them in a browser.")
