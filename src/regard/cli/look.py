"""`regard look`: one text through a trained model, its attention in the terminal and on a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import refuse

__all__ = ["look"]


def look(
    text: Annotated[str | None, typer.Argument(help="The text; - reads it from standard input.", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option(help="Read the text from this file (UTF-8).", show_default=False)] = None,
    model: Annotated[
        str | None, typer.Option(help="A model folder or a hub id.", show_default="MiniLM, 6 layers, offline")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the page is written.")] = Path("attention.html"),
    layer: Annotated[int | None, typer.Option(help="Show this layer first.", show_default="the most telling")] = None,
    head: Annotated[int | None, typer.Option(help="Show this head first.", show_default="the most telling")] = None,
    token: Annotated[
        str | None, typer.Option(help="Show this token first: position or word.", show_default="the most telling")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
) -> None:
    """Run a text through a trained model and look at its attention."""
    words = _text(text, file)
    _check_out(out)

    from rich.console import Console  # here and below: what is heavy loads after the arguments are known to be good
    from rich.progress import BarColumn, Progress, TextColumn

    quiet = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(30), console=quiet, transient=True, disable=not quiet.is_terminal
    ) as steps:
        waiting = steps.add_task("loading the model", total=None)
        from ..lens import choice as choices
        from ..lens import models, page, survey

        loaded = models.load(model)
        steps.update(waiting, description="running the text")
        run = models.observe(loaded, words)
        steps.remove_task(waiting)
        surveys = survey(run, lambda layers: steps.track(layers, description="reading the weights"))
        chosen = choices.choose(run, surveys, layer, head, token)
        made = page(run, surveys, layer=chosen.layer, head=chosen.head, token=chosen.token)
    try:
        out.write_text(made, encoding="utf-8")
    except OSError as error:
        raise refuse("look", "the page cannot be written", f"{out}: {error.strerror}", "a place that can be written",
                     "choose another with --out") from error  # fmt: skip

    from ..lens.terminal import summary

    console = Console(highlight=False)
    summary(console, run, surveys, chosen)
    console.print()
    console.print(f"The page is in {out} ({_size(len(made.encode()))}): open it in a browser.", markup=False, soft_wrap=True)
    if open_page:
        import webbrowser

        webbrowser.open(out.resolve().as_uri())


def _text(text: str | None, file: Path | None) -> str:
    """The text that was asked for, from the one place it was asked from."""
    if text is not None and file is not None:
        raise refuse("look", "two texts", "a text and --file", "one of them", "leave one out")
    if file is not None:
        try:
            raw, source = file.read_bytes(), str(file)
        except OSError as error:
            raise refuse(
                "look", "the file cannot be read", f"{file}: {error.strerror}", "a text file", "check the path"
            ) from error
    elif text is None and sys.stdin.isatty():
        raise refuse("look", "no text", "nothing", "a text", "write it behind the command in quotes, or use --file")
    elif text is None or text == "-":
        raw, source = sys.stdin.buffer.read(), "standard input"
    else:
        raw, source = text.encode("utf-8", "surrogateescape"), "the argument"
    try:
        words = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse("look", "the text is not UTF-8", f"byte {error.start} of {source}", "UTF-8",
                     "convert it, with iconv for example") from error  # fmt: skip
    if not words.strip():
        raise refuse("look", "no text", f"{source} holds no words", "a text", "give some words")
    return words


def _check_out(out: Path) -> None:
    """Pages are written over without asking; anything else is not."""
    if out.is_dir():
        raise refuse("look", "the page cannot be written", f"{out} is a folder", "the name of a file",
                     f"use --out {out / 'attention.html'}")  # fmt: skip
    if not out.parent.is_dir():
        raise refuse("look", "the page cannot be written", f"no folder {out.parent}", "a folder that is there", "make it first")
    if out.is_file() and out.stat().st_size:
        with out.open("rb") as file:
            if b'name="generator" content="regard"' not in file.read(2000):
                raise refuse("look", "a file is in the way", f"{out} is not a page of regard's", "a new name, or a page of regard's",
                             "choose another name with --out, or remove the file")  # fmt: skip


def _size(bytes_: int) -> str:
    return f"{bytes_ / 1e6:.1f} MB" if bytes_ >= 1e6 else f"{bytes_ / 1e3:.0f} kB"
