"""What commands that train share: a progress bar, Ctrl-C that waits for the end of a step, the libraries they need."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..common.errors import Reason, Refused

__all__ = ["Interrupt", "bar", "interruptible", "needs"]


def needs(where: str, *names: str) -> None:
    """Refuses before any work what could not be finished for want of a library."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(
            where,
            [
                Reason(
                    f"{name} is not installed",
                    given=f"no package {name}",
                    expected="the libraries that training needs",
                    fix="pip install 'regard[train]'",
                )
                for name in missing
            ],
        )


class Interrupt:
    """Whether somebody has asked to stop."""

    asked = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Ctrl-C (or SIGTERM) is noted, so that the step can be finished and saved; a second one stops at once."""
    interrupt = Interrupt()

    def note(number, frame):
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def bar(console, columns: Iterable[str], total: int, done: int):
    """A progress bar with these fields behind it -> a function (done, **fields) that moves it."""
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
