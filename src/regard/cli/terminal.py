"""The terminal: output that survives a closed pipe, as in `regard audit | head`; progress, and a deferred Ctrl-C."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from rich import console as rich_console
from rich.padding import Padding
from rich.text import Text

from ..lens.runs.labels import words


def discard() -> None:
    """Drops what is written to standard output from now on: the pipe is closed, or the disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Console(rich_console.Console):
    """rich's console, without its colors for numbers. A closed pipe does not end the command or change its status."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    def say(self, text: str, style: str = "", **options: Any) -> None:
        """Prints a text in a style; signs that would act on the terminal are shown."""
        self.print(Text(words(text), style), **options)

    def on_broken_pipe(self) -> None:
        """Called by rich when the other end of the pipe is closed."""
        self.quiet = True
        discard()


def emit(text: str) -> None:
    """Prints text as it is."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard()


def emit_json(value: Any) -> None:
    """Prints a value as JSON. NaN and infinity, which JSON lacks, become null; it is ASCII, for any terminal."""
    emit(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def named_lines(rows: Iterable[tuple[str, str]], style: str = "") -> Padding:
    """Names in dim characters, each with its words in the style beside it, indented; signs without effect are shown."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, text in rows:
        table.add_row(Text(name, "dim"), Text(words(text), style))
    return Padding(table, (0, 0, 0, 2))


# The colors of what a finding is.
COLORS = {"fault": "bold red", "law": "bold red", "warning": "yellow", "unexpected-pass": "yellow"}


def show_finding(console: Console, kind: str, title: str, name: str, rows: Iterable[tuple[str, str]]) -> None:
    """Prints the title of a finding in the color of what it is, its name, and what is said about it."""
    console.print()
    console.print(Text.assemble((title, COLORS.get(kind, "cyan")), " ", (name, "bold")))
    console.print(named_lines(rows))


@contextmanager
def interruptible() -> Iterator[Event]:
    """Defers the first SIGINT or SIGTERM, so that a step can be finished and saved; a second one interrupts.

    Yields whether the user has requested a stop.
    """
    requested = Event()

    def handle(number: int, frame: Any) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def bar(
    console: rich_console.Console, columns: Iterable[str], total: int, done: int = 0
) -> Iterator[Callable[..., None]]:
    """Shows a progress bar with these text columns; yields a function (done, **columns) that updates it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    fields = [TextColumn(f"{{task.fields[{name}]}}") for name in columns]
    blank: dict[str, Any] = dict.fromkeys(columns, "")
    with Progress(
        BarColumn(24),
        MofNCompleteColumn(),
        *fields,
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=total, completed=done, **blank)
        yield lambda now, **values: progress.update(task, completed=now, **values)
