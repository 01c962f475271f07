"""The `regard` command: one module per subcommand."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated

import typer

from ..common.errors import Refused
from ..lens.runs.labels import words
from .audit import audit
from .classify import classify
from .conform import conform
from .cost import cost
from .generate import generate
from .learn import learn
from .look import look
from .plan import plan
from .terminal import discard
from .train import train
from .what_if import what_if

__all__ = ["app", "main"]

HELP = "Exact self-attention: inspect, audit and price models, train small models."
app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
for command in (look, learn, audit, conform, cost, plan, train, generate, classify):
    app.command()(command)
app.command("what-if")(what_if)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {sys.modules['regard'].__version__}")
        raise typer.Exit


@app.callback(help=HELP)
def regard(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Checks the environment before any command."""
    if os.environ.get("REGARD_TARGET"):  # rejects an invalid target before any work; LLVM is loaded only if it is set
        from ..engines.jit.code.target import offered

        offered()


def main() -> None:
    """Runs the command line.

    `Refused` is printed as one line per reason on standard error, with exit status 2; so is a full disk.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal cannot encode are shown as ?
    try:
        app()
    except Refused as refused:
        for reason in refused.reasons:
            message = f"regard: {reason.what}: {reason.given}; expected {reason.expected}; fix: {reason.fix}."
            print("\n".join(map(words, message.split("\n"))), file=sys.stderr)  # names in foreign files are escaped
        sys.exit(2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard()
        message = f"the output cannot be written: {error.filename or 'standard output'}: {error.strerror}"
        print(f"regard: {message}; fix: free some space, or write it elsewhere.", file=sys.stderr)
        sys.exit(2)
