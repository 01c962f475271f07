"""Shared by the commands that train: a progress bar, and deferred handling of Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Interrupt:
    """Whether the user has requested a stop."""

    requested = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Defers the first SIGINT or SIGTERM, so that a step can be finished and saved; a second one interrupts."""
    interrupt = Interrupt()

    def handle(number: int, frame: Any) -> None:
        if interrupt.requested:
            raise KeyboardInterrupt
        interrupt.requested = True

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def bar(console: Console, columns: Iterable[str], total: int, done: int) -> Iterator[Callable[..., None]]:
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
