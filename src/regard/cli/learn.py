"""`regard learn`: the course on self-attention, in the terminal and the learner's editor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["learn"]

ASK = "ask"


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
) -> None:
    """Learn self-attention: read, predict, run, write, and be checked.

    Go on where you stopped:  regard learn
    Check what you wrote:     regard learn --check, or regard learn --check 03_scores.py

    Exit status: 0, 1 if a checked exercise is not right, 2 if something could not be run.
    """
    from ..learn.course import Course
    from .lesson_screen import Terminal

    options = {
        "--list": listed, "--check": check, "--watch": watch, "--hint": hint, "--show": show, "--fast": fast,
        "--reset": reset is not None, "--claim": claim is not None, "--read": preview is not None,
    }  # fmt: skip
    chosen = [name for name, given in options.items() if given]
    said = _parsed(words or [], check, chosen)
    course = Course(said.folder, Terminal())
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
    elif reset is not None:
        course.reset(reset)
    elif claim is not None:
        course.claim(claim)
    elif preview is not None:
        course.preview(preview)
    else:
        course.go_on(said.chapter)


class _Said:
    """What the words of the command mean."""

    def __init__(self) -> None:
        from ..learn.folder import USUAL

        self.folder = USUAL
        self.chapter: int | None = None
        self.file: Path | None = None
        self.question: str | None = None


def _parsed(words: list[str], check: bool, chosen: list[str]) -> _Said:
    """Folder, chapter, file or question. Raises `Refused` for anything else."""
    from ..common.errors import Reason, Refused

    said, reasons, folders = _Said(), [], []
    if len(chosen) > 1:
        given, expected = " ".join(chosen), "one of them"
        reasons.append(Reason("two options that do different things", given=given, expected=expected, fix="run one"))
    if ASK in words[:2] and not chosen:
        words, question = words[: words.index(ASK)], words[words.index(ASK) + 1 :]
        said.question = " ".join(question)
        if not said.question.strip():
            fix = 'regard learn ask "Why is the scale a root?"'
            reasons.append(Reason("no question", given="regard learn ask", expected="a question", fix=fix))
    for word in words:
        if word.isdecimal() and said.chapter is None:
            said.chapter = int(word)
        elif check and word.endswith(".py"):
            said.file = Path(word)
        else:
            folders.append(word)
    if len(folders) > 1:
        given, expected = " ".join(folders), "one folder"
        fix = 'a question of your own: regard learn ask "…"'
        reasons.append(Reason("more than one folder", given=given, expected=expected, fix=fix))
    option = "ask" if said.question is not None else "--check FILE" if said.file is not None else "".join(chosen[:1])
    if said.chapter is not None and option in ("ask", "--check FILE", "--list", "--reset", "--claim", "--read"):
        given, expected = f"{option} with {said.chapter}", f"{option} without the number of a chapter"
        reasons.append(Reason("the number of a chapter has no use", given=given, expected=expected, fix="omit it"))
    if folders and option in ("--claim", "--read"):
        given, expected = f"{option} with {folders[0]}", f"{option} without a folder"
        reasons.append(Reason("a folder has no use", given=given, expected=expected, fix="omit it"))
    if reasons:
        raise Refused("learn", reasons)
    here = Path("progress.json").is_file() and any(Path().glob("[0-9][0-9]_*.py"))
    if folders:
        said.folder = Path(folders[0])
    elif said.file is not None:
        said.folder = said.file.parent
    elif here:
        said.folder = Path()
    return said
