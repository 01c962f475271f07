"""Output of the commands: tables and messages that survive a closed pipe, as in `regard audit | head`."""

from __future__ import annotations

import os
import sys

from rich import console as rich_console

__all__ = ["Console", "emit"]


def _discard() -> None:
    """Drops what is written to standard output from now on, because the other end of the pipe is closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Console(rich_console.Console):
    """rich's console, without its colors for numbers. A closed pipe does not end the command or change its status."""

    def __init__(self, *, soft_wrap: bool = False, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(highlight=False, soft_wrap=soft_wrap, stderr=stderr, quiet=quiet)

    def on_broken_pipe(self) -> None:
        """Called by rich when the other end of the pipe is closed."""
        self.quiet = True
        _discard()


def emit(text: str) -> None:
    """Prints text as it is."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _discard()
