"""`regard audit`: what is wrong with the attention of a model or of a recorded run; the exit code says whether
something is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..audits import Audit, Finding

__all__ = ["audit"]

COLOURS = {"fault": "bold red", "warning": "yellow", "note": "cyan"}


def audit(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model folder, a hub id, or the folder of a recorded run.", show_default="MiniLM, offline"
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Argument(help="The text to audit it with.", show_default="tokens at random")
    ] = None,
    checks: Annotated[
        str | None, typer.Option(help="Only these checks, as a,b,c.", show_default="all that apply")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Notes count as findings, too.")] = False,
) -> None:
    """Audit the attention of a model: what was measured, where, the likely cause, and what to do.

    Exit status: 0 healthy, 1 faults or warnings, 2 refused.
    """
    from ..audits import audit as audited  # what is heavy loads after the arguments are known to be good

    names = None if checks is None else [name.strip() for name in checks.split(",") if name.strip()]
    found = audited(model, text, checks=names)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        _show(found)
    if not found.healthy or (strict and found.findings):
        raise typer.Exit(1)


def _show(found: Audit) -> None:
    """Prints every finding with its cause and fix, then one line for each check that passed or did not apply."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from ..lens.runs.labels import visible

    console = Console(highlight=False)
    counts = ", ".join(f"{number} {name}{'s' * (number != 1)}" for name in COLOURS if (number := _count(found, name)))
    console.print(Text(f"{visible(found.model)}: {counts or 'healthy'}", "bold"))
    for (severity, check, cause, fix), findings in _alike(found.findings).items():
        console.print()
        console.print(Text.assemble((severity, COLOURS[severity]), " ", (check, "bold")))
        table = Table(box=None, show_header=False, pad_edge=False)
        for finding in findings:
            table.add_row(Text("where", "dim"), Text(_plain(finding.where)))
            table.add_row(Text("measured", "dim"), Text(_plain(finding.measured)))
        table.add_row(Text("cause", "dim"), Text(_plain(cause)))
        table.add_row(Text("fix", "dim"), Text(_plain(fix)))
        console.print(Padding(table, (0, 0, 0, 2)))
    for title, rows in (
        ("passed", [(each.check, each.measured) for each in found.passed]),
        ("did not apply", [(each.check, each.reason) for each in found.skipped]),
    ):
        if rows:
            table = Table(box=None, show_header=False, pad_edge=False)
            for name, words in rows:
                table.add_row(Text(name, "dim"), Text(_plain(words), "dim"))
            console.print()
            console.print(Text(title, "dim bold"))
            console.print(Padding(table, (0, 0, 0, 2)))


def _alike(findings: Sequence[Finding]) -> dict[tuple[str, str, str, str], list[Finding]]:
    """Findings that differ in their place and measure only, under what they share."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.severity, each.check, each.cause, each.fix), []).append(each)
    return groups


def _count(found: Audit, severity: str) -> int:
    return sum(finding.severity == severity for finding in found.findings)


def _plain(words: str) -> str:
    """Words that may quote a token: nothing in them acts on the terminal, spaces stay spaces."""
    from ..lens.runs.labels import visible

    return " ".join(visible(word) for word in words.split(" ") if word)
