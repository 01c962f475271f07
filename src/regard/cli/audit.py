"""`regard audit`: checks the attention of a model or a recorded run; the exit status is 1 if there are findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .text_argument import read_text

if TYPE_CHECKING:
    from ..audits import Audit, Finding

COLORS = {"fault": "bold red", "warning": "yellow", "note": "cyan"}


def audit(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Model folder, Hugging Face model id, or folder of a recorded run.",
            show_default="MiniLM, if installed",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT | FILE | -]",
            help="Text to run the model on, a text file, or - for standard input.",
            show_default="random tokens",
        ),
    ] = None,
    checks: Annotated[
        str | None, typer.Option(help="Run only these checks (comma-separated).", show_default="all that apply")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 for notes, too.")] = False,
) -> None:
    """Check the attention of a model or a recorded run.

    Reports what was measured, where, the likely cause, and a fix.

    Exit status: 0 healthy, 1 faults or warnings, 2 invalid arguments.
    """
    from ..audits import audit as run_audit  # heavy imports follow the parsing of the arguments
    from .terminal import emit_json

    names = None if checks is None else [name.strip() for name in checks.split(",") if name.strip()]
    report = run_audit(model, None if text is None else read_text("audit", text), checks=names)
    if as_json:
        emit_json(report.to_json())
    else:
        _show(report)
    if not report.healthy or (strict and report.findings):
        raise typer.Exit(1)


def _show(report: Audit) -> None:
    """Prints every finding with its cause and fix, then a line for each check that passed or did not apply."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from ..lens.runs.labels import visible
    from .terminal import Console

    console = Console()
    counts = ", ".join(f"{number} {name}{'s' * (number != 1)}" for name in COLORS if (number := _count(report, name)))
    console.print(Text(f"{visible(report.model)}: {counts or 'healthy'}", "bold"))
    for (severity, check, cause, fix), findings in _grouped(report.findings).items():
        console.print()
        console.print(Text.assemble((severity, COLORS[severity]), " ", (check, "bold")))
        table = Table(box=None, show_header=False, pad_edge=False)
        for finding in findings:
            table.add_row(Text("where", "dim"), Text(_plain(finding.where)))
            table.add_row(Text("measured", "dim"), Text(_plain(finding.measured)))
        table.add_row(Text("cause", "dim"), Text(_plain(cause)))
        table.add_row(Text("fix", "dim"), Text(_plain(fix)))
        console.print(Padding(table, (0, 0, 0, 2)))
    for title, rows in (
        ("passed", [(each.check, each.measured) for each in report.passed]),
        ("did not apply", [(each.check, each.reason) for each in report.skipped]),
    ):
        if rows:
            table = Table(box=None, show_header=False, pad_edge=False)
            for name, words in rows:
                table.add_row(Text(name, "dim"), Text(_plain(words), "dim"))
            console.print()
            console.print(Text(title, "dim bold"))
            console.print(Padding(table, (0, 0, 0, 2)))


def _grouped(findings: Sequence[Finding]) -> dict[tuple[str, str, str, str], list[Finding]]:
    """The findings by (severity, check, cause, fix)."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.severity, each.check, each.cause, each.fix), []).append(each)
    return groups


def _count(report: Audit, severity: str) -> int:
    return sum(finding.severity == severity for finding in report.findings)


def _plain(words: str) -> str:
    """A message with control characters escaped, because it may quote tokens."""
    from ..lens.runs.labels import visible

    return " ".join(visible(word) for word in words.split(" ") if word)
