"""`regard learn`: the course on self-attention, in the terminal and the learner's editor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def learn(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] [CHAPTER] | ask QUESTION",
            help="The folder with your files, and the number of a chapter; or a question for your notes.",
            show_default="this folder if it is one of the course, else attention-course; where you stopped",
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the chapters and how far you are.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check the exercise, or the FILE that is named.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Check a file each time you save it.")] = False,
    hint: Annotated[bool, typer.Option("--hint", help="Show the next of three hints for the exercise.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the solution, after a try; this is noted.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="For those who know: one file with all exercises of a chapter.")
    ] = False,
    reset: Annotated[
        int | None, typer.Option(help="Begin a chapter anew; your files are moved to old/.", show_default=False)
    ] = None,
    claim: Annotated[
        str | None, typer.Option(help="Run the program of a claim; `all` lists them.", show_default=False)
    ] = None,
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
    notebooks: Annotated[
        Path | None, typer.Option(help="Write a Jupyter notebook per chapter into a folder.", show_default=False)
    ] = None,
    scripts: Annotated[
        Path | None,
        typer.Option(help="Write each result and claim as a script, with its output.", show_default=False),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="The course in your browser, with your files; Ctrl-C ends it.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="The port of --serve.", min=0, max=65535, show_default="any free one")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page of --serve in a browser.")] = False,
    site: Annotated[
        Path | None,
        typer.Option(help="Write the course as pages that need no server into a folder.", show_default=False),
    ] = None,
    slides: Annotated[
        int | None,
        typer.Option(metavar="<chapter>", help="Write a chapter as slides with speaker notes.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="<file>", help="The file of the slides.", show_default="slides-03.html in this folder"),
    ] = None,
    grade: Annotated[bool, typer.Option("--grade", help="For teachers: grade the folders that are named.")] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="<chapters>", help="Chapters to grade or to write: 3,5-7.", show_default="all"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the grades as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the grades as CSV.")] = False,
) -> None:
    """Learn self-attention: read, predict, run, write, and be checked.

    `regard learn` goes on where you stopped. `regard learn --check` checks what you wrote, and
    `regard learn --check 03_scores.py` the file that you name.

    Exit status: 0, 1 if a checked exercise is not right, 2 if something could not be run.
    """
    from ...learn.course import Course
    from .screen import Terminal
    from .words import parsed

    options = {
        "--list": listed, "--check": check, "--watch": watch, "--hint": hint, "--show": show, "--fast": fast,
        "--reset": reset is not None, "--claim": claim is not None, "--read": preview is not None,
        "--notebooks": notebooks is not None, "--scripts": scripts is not None, "--grade": grade,
        "--serve": serve, "--site": site is not None, "--slides": slides is not None,
    }  # fmt: skip
    chosen = [name for name, given in options.items() if given]
    used = {"--only": only is not None, "--json": as_json, "--csv": as_csv, "--port": port is not None}
    used |= {"--out": out is not None}
    _refuse_unused(chosen, used | {"--open": open_page})
    screen = Terminal()
    if grade or notebooks is not None or scripts is not None or site is not None:
        from .teach import printed_grades, selected, written, written_site

        if grade and len(chosen) == 1:
            form = "json" if as_json else "csv" if as_csv else "text"
            printed_grades([Path(word) for word in words or []], own, only, screen, form)
        elif site is not None:
            parsed(words or [], check, chosen)
            written_site(site, selected(own, only), screen)
        else:
            parsed(words or [], check, chosen)
            written(notebooks, scripts, selected(own, only), screen)
        return
    said = parsed(words or [], check, chosen)
    if slides is not None:
        from .teach import written_slides

        written_slides(slides, out, own, screen)
        return
    course = Course(said.folder, screen, own)
    if said.question is not None:
        course.ask(said.question)
    elif listed:
        course.list_chapters()
    elif check:
        right = course.check(said.file, said.chapter)
        raise typer.Exit(0 if right else 1)
    elif watch:
        course.watch(said.chapter)
    elif hint:
        course.hint(said.chapter)
    elif show:
        course.show(said.chapter)
    elif fast:
        course.fast(said.chapter)
    elif serve:
        say = "Press Ctrl-C to stop. Open in a browser on this machine: "
        course.serve(
            said.chapter, port=port or 0, open_browser=open_page, tell=lambda address: typer.echo(say + address)
        )
    elif reset is not None:
        course.reset(reset)
    elif claim is not None:
        course.claim(claim)
    elif preview is not None:
        course.preview(preview)
    else:
        course.go_on(said.chapter)


def _refuse_unused(chosen: list[str], given: dict[str, bool]) -> None:
    """Raises Refused for what only other options use, and for two formats at once."""
    from ...common.errors import Reason, Refused

    uses = {
        "--only": ("--grade", "--notebooks", "--scripts", "--site"), "--json": ("--grade",), "--csv": ("--grade",),
        "--port": ("--serve",), "--open": ("--serve",), "--out": ("--slides",),
    }  # fmt: skip
    reasons = [
        Reason(f"{name} has no use", name, f"{' or '.join(uses[name])} with it", f"omit {name}")
        for name, wanted in given.items()
        if wanted and not set(uses[name]) & set(chosen)
    ]
    if given["--json"] and given["--csv"]:
        reasons.append(Reason("two formats", "--json --csv", "one of them", "run one after the other"))
    if reasons:
        raise Refused("learn", reasons)
