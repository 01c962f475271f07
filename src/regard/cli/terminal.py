"""Output of the commands: tables, messages and JSON that survive a closed pipe, as in `regard audit | head`."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

from rich import console as rich_console


def discard() -> None:
    """Drops what is written to standard output from now on: the pipe is closed, or the disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Console(rich_console.Console):
    """rich's console, without its colors for numbers. A closed pipe does not end the command or change its status."""

    def __init__(self, *, soft_wrap: bool = False, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(highlight=False, soft_wrap=soft_wrap, stderr=stderr, quiet=quiet)

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
