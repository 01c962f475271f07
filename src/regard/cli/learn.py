"""`regard learn`: the course in the terminal and the learner's editor, its arguments, and the teacher's part."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.errors import Reason, refuse, refuse_all
from ..common.text.units import counted
from ..learn.folder import USUAL
from .arguments import flag, option, passed
from .terminal import Console, bar, emit_json

if TYPE_CHECKING:
    from ..learn.chapter import Chapter
    from ..learn.screen import Screen


ACTIONS = (
    "--list", "--check", "--hint", "--show", "--fast", "--reset", "--claim", "--read", "--notebooks",
    "--scripts", "--grade", "--serve", "--site", "--slides",
)  # fmt: skip
USES = {
    "--only": ("--grade", "--notebooks", "--scripts", "--site"), "--json": ("--grade",), "--csv": ("--grade",),
    "--port": ("--serve",), "--open": ("--serve",), "--out": ("--slides",),
}  # fmt: skip


def learn(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] [CHAPTER] | ask QUESTION",
            help="The folder with your files, and the number of a chapter; or a question for your notes.",
            show_default="this folder if it is one of the course, else attention-course; where you stopped",
        ),
    ] = None,
    listed: Annotated[bool, flag("--list", "List the chapters and how far you are.")] = False,
    check: Annotated[bool, flag("--check", "Check the exercise, or the FILE that is named.")] = False,
    hint: Annotated[bool, flag("--hint", "Show the next of three hints for the exercise.")] = False,
    show: Annotated[bool, flag("--show", "Show the solution, after a try; this is noted.")] = False,
    fast: Annotated[bool, flag("--fast", "For those who know: the files of all exercises of a chapter.")] = False,
    reset: Annotated[int | None, option("Begin a chapter anew; your files are moved to old/.")] = None,
    claim: Annotated[str | None, option("Run the program of a claim, or check a card; `all` lists claims.")] = None,
    preview: Annotated[
        Path | None,
        typer.Option(
            "--read", help="Read a chapter's file as a learner would, without noting anything.", show_default=False
        ),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option("--chapters", help="Add the chapters of a folder of your own.", show_default=False),
    ] = None,
    notebooks: Annotated[Path | None, option("Write a Jupyter notebook per chapter into a folder.")] = None,
    scripts: Annotated[
        Path | None,
        option("Write each result and claim as a script, with its output."),
    ] = None,
    serve: Annotated[bool, flag("--serve", "The course in your browser, with your files; Ctrl-C ends it.")] = False,
    port: Annotated[int | None, option("The port of --serve.", "any free one", min=0, max=65535)] = None,
    open_page: Annotated[bool, flag("--open/--no-open", "Open the page of --serve in a browser.")] = False,
    site: Annotated[
        Path | None,
        option("Write the course as pages that need no server into a folder."),
    ] = None,
    slides: Annotated[
        int | None,
        option("Write a chapter as slides with speaker notes.", metavar="<chapter>"),
    ] = None,
    out: Annotated[
        Path | None,
        option("The file of the slides.", "slides-03.html in this folder", metavar="<file>"),
    ] = None,
    grade: Annotated[bool, flag("--grade", "For teachers: grade the folders that are named.")] = False,
    only: Annotated[
        str | None,
        option("Chapters to grade or to write: 3,5-7.", "all", metavar="<chapters>"),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print the grades as JSON.")] = False,
    as_csv: Annotated[bool, flag("--csv", "Print the grades as CSV.")] = False,
) -> None:
    """Learn self-attention: read, predict, run, write, and be checked.

    `regard learn` goes on where you stopped. `regard learn --check` checks what you wrote, and
    `regard learn --check 03_scores.py` the file that you name.

    Exit status: 0, 1 if a checked exercise is not right, 2 if something could not be run.
    """
    from ..learn.course import Course
    from ..learn.screen import Screen
    from ..learn.source import chapter_of, chapters

    options = passed(context)
    chosen = [name for name in ACTIONS if name in options]
    _refuse_unused(chosen, [name for name in USES if name in options])
    screen = Screen(Console())
    if chosen == ["--grade"]:
        form = "json" if as_json else "csv" if as_csv else "text"
        print_grades([Path(word) for word in words or []], own, only, screen, form)
        return
    said = parsed(words or [], check, chosen)
    for folder, write in ((site, write_pages), (notebooks, write_notebooks), (scripts, write_scripts)):
        if folder is not None:
            write(folder, selected(own, only), screen)
            return
    if slides is not None:
        write_slides(chapter_of(chapters(own), slides), out, screen)
        return
    course = Course(said.folder, screen, own)
    if said.question is not None:
        course.ask(said.question)
    elif listed:
        course.list_chapters()
    elif check:
        right = course.check(said.file, said.chapter)
        raise typer.Exit(0 if right else 1)
    elif hint:
        course.hint(said.chapter)
    elif show:
        course.show(said.chapter)
    elif fast:
        course.fast(said.chapter)
    elif serve:
        course.serve(said.chapter, port or 0, open_page)
    elif reset is not None:
        course.reset(reset)
    elif claim is not None:
        if not Path(claim).is_file():
            course.claim(claim)
        elif not course.card(Path(claim)):
            raise typer.Exit(1)
    elif preview is not None:
        course.preview(preview)
    else:
        course.go_on(said.chapter)


def _refuse_unused(chosen: list[str], given: list[str]) -> None:
    """Raises Refused for what only other options use, and for two formats at once."""
    reasons = [
        Reason(f"{name} has no use", name, f"{' or '.join(USES[name])} with it", f"omit {name}")
        for name in given
        if not set(USES[name]) & set(chosen)
    ]
    if {"--json", "--csv"} <= set(given):
        reasons.append(Reason("two formats", "--json --csv", "one of them", "run one after the other"))
    refuse_all("learn", reasons)


ASK = "ask"
# What has no use for a learner's folder.
PLACELESS = ("--claim", "--read", "--notebooks", "--scripts", "--site", "--slides")
WHOLE = ("ask", "--check FILE", "--list", "--reset", "--grade", *PLACELESS)  # what has no use for a chapter's number


@dataclass
class Said:
    """What the words of the command mean."""

    folder: Path = USUAL
    chapter: int | None = None
    file: Path | None = None
    question: str | None = None


def parsed(words: list[str], check: bool, chosen: list[str]) -> Said:
    """Folder, chapter, file or question. Raises `Refused` for anything else."""
    said, reasons, folders = Said(), [], []
    if len(chosen) > 1:
        reasons.append(Reason("two options that do different things", " ".join(chosen), "one of them", "run one"))
    if ASK in words[:2] and not chosen:
        words, question = words[: words.index(ASK)], words[words.index(ASK) + 1 :]
        said.question = " ".join(question)
        if not said.question.strip():
            fix = 'regard learn ask "Why is the scale a root?"'
            reasons.append(Reason("no question", "regard learn ask", "a question", fix))
    for word in words:
        if word.isdecimal() and said.chapter is None:
            said.chapter = int(word)
        elif check and word.endswith(".py"):
            said.file = Path(word)
        elif f"--{word}" in ACTIONS:
            fix = f"regard learn --{word}; for a folder of this name: ./{word}"
            reasons.append(Reason("an option without its hyphens", word, f"--{word}", fix))
        else:
            folders.append(word)
    if len(folders) > 1:
        fix = 'a question of your own: regard learn ask "…"'
        reasons.append(Reason("more than one folder", " ".join(folders), "one folder", fix))
    option = "ask" if said.question is not None else "--check FILE" if said.file is not None else "".join(chosen[:1])
    if said.chapter is not None and option in WHOLE:
        given = f"{option} with {said.chapter}"
        reasons.append(Reason("the number of a chapter has no use", given, f"{option} without one", "omit it"))
    if folders and option in PLACELESS:
        given = f"{option} with {folders[0]}"
        reasons.append(Reason("a folder has no use", given, f"{option} without a learner's folder", "omit it"))
    refuse_all("learn", reasons)
    here = Path("progress.json").is_file() and any(Path().glob("[0-9][0-9]_*.py"))
    if folders:
        said.folder = Path(folders[0])
    elif said.file is not None:
        said.folder = said.file.parent
    elif here:
        said.folder = Path()
    return said


def ranges(text: str) -> list[tuple[int, int]]:
    """The first and the last number of each range of "3,5-7". Raises `Refused` for anything else."""
    found = []
    for each in text.split(","):
        first, _, last = (word.strip() for word in each.partition("-"))
        if not first.isdecimal() or not (last.isdecimal() or not last) or int(last or first) < int(first):
            expected, fix = "numbers of chapters and ranges, such as 3,5-7", "regard learn --list shows the numbers"
            raise refuse("learn", "the chapters cannot be read", f"--only {text}", expected, fix)
        found.append((int(first), int(last or first)))
    return found


def selected(own: Path | None, only: str | None) -> list[Chapter]:
    """The chapters of the course and of a teacher's folder, or those of them that are named."""
    from ..learn.source import chapter_of, chapters

    found = chapters(own)
    if only is None:
        return found
    wanted = [(chapter_of(found, first).number, chapter_of(found, last).number) for first, last in ranges(only)]
    return [chapter for chapter in found if any(first <= chapter.number <= last for first, last in wanted)]


def print_grades(folders: list[Path], own: Path | None, only: str | None, screen: Screen, form: str) -> None:
    """Grades folders and prints a table for each chapter, or JSON, or CSV; the progress goes to stderr."""
    from ..learn.teacher import as_csv, as_data, grades, of_chapters, summary

    course = selected(own, None)
    chapters = course if only is None else selected(own, only)
    count = len(folders) * sum(len(each.exercises) for each in chapters)
    with bar(Console(stderr=True), (), count) as update:
        learners = grades(folders, chapters, update, course)
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


def write_notebooks(folder: Path, chapters: list[Chapter], screen: Screen) -> None:
    """Writes notebooks, and says where."""
    from ..learn import export

    for path in export.write_notebooks(folder, chapters):
        screen.note(str(path))
    screen.right(f"{counted(len(chapters), 'notebook')}, not run yet: jupyter lab {shlex.quote(str(folder))}")


def write_scripts(folder: Path, chapters: list[Chapter], screen: Screen) -> None:
    """Writes scripts, and says where."""
    from ..learn import export

    count = 0
    for path in export.write_scripts(folder, chapters):
        screen.note(str(path))
        count += 1
    screen.right(f"{counted(count, 'script')}, each with what it prints.")


def write_pages(folder: Path, chapters: list[Chapter], screen: Screen) -> None:
    """Writes the course as pages, and says where."""
    from ..learn.pages.site import write_site

    with Console(stderr=True).status("running the code of the chapters"):
        size = sum(path.stat().st_size for path in write_site(folder, chapters))
    index = folder / "index.html"
    screen.right(f"{counted(len(chapters), 'chapter')}, {size / 1e6:.1f} MB. To read them, open {index}")


def write_slides(chapter: Chapter, out: Path | None, screen: Screen) -> None:
    """Writes a chapter's slides, and says where."""
    from ..learn.pages import slides

    path = slides.write_slides(chapter, out)
    screen.right(f"Slides written to {path} ({path.stat().st_size / 1000:.0f} kB). Open them in a browser.")
