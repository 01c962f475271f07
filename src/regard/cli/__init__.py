"""The command line: one file per command."""

from __future__ import annotations

import io
import os
import sys

import typer

from ..common.errors import Refused
from .audit import audit
from .bench import bench
from .classify import classify
from .generate import generate
from .look import look
from .models import models
from .train import train

__all__ = ["app", "main"]

app = typer.Typer(help="Self-attention that is exact, fast and visible.", no_args_is_help=True, add_completion=False,
                  pretty_exceptions_enable=False, rich_markup_mode=None)  # fmt: skip
app.command()(look)
app.command()(audit)
app.command()(bench)
app.command()(train)
app.command()(generate)
app.command()(classify)
app.command()(models)


@app.callback()
def regard() -> None:
    """Self-attention that is exact, fast and visible."""
    if os.environ.get("REGARD_TARGET"):  # a wrong one is refused before any work; LLVM is loaded only where it is set
        from ..engines.jit.code.target import offered

        offered()


def main() -> None:
    """Runs the command; a refusal becomes one sentence per reason and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these letters shows question marks
    try:
        app()
    except Refused as refused:
        from ..lens.runs.labels import words

        for reason in refused.reasons:
            told = f"regard: {reason.what}: {reason.given}; expected {reason.expected}; fix: {reason.fix}."
            print("\n".join(map(words, told.split("\n"))), file=sys.stderr)  # names out of foreign files are among it
        sys.exit(2)
