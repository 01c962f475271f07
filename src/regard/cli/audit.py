"""`regard audit`: checks the attention of a model or a recorded run; the exit status is 1 if there are findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..common.text.units import counted
from ..lens.runs.labels import words
from .arguments import Inputs, flag, model_of, option, read_text
from .terminal import Console, emit_json, named_lines, show_finding

if TYPE_CHECKING:
    from ..audits import Audit


def audit(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Model folder (a configuration alone gets random weights), Hugging Face model id, FILE.py:CLASS, "
            "or folder of a recorded run.",
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
    inputs: Inputs = None,
    checks: Annotated[str | None, option("Run only these checks (comma-separated).", "all that apply")] = None,
    as_json: Annotated[bool, flag("--json", "Print the report as JSON.")] = False,
    strict: Annotated[bool, flag("--strict", "Exit with status 1 for notes, too.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what was measured in checks that passed, too.")
    ] = False,
    explain: Annotated[str | None, option("Say what this check does and cannot see.", "run the audit")] = None,
) -> None:
    """Check the attention of a model or a recorded run.

    Reports what was measured, where, the likely cause, and a fix.

    Exit status: 0 healthy, 1 faults or warnings, 2 invalid arguments.
    """
    if explain is not None:
        from ..audits.checks import explained

        typer.echo(explained(explain))
        return
    names = None if checks is None else [name.strip() for name in checks.split(",") if name.strip()]
    with Console(stderr=True).status("loading torch and the model") as status:
        from ..audits import audit as run_audit  # heavy imports follow the parsing of the arguments

        what, given = model_of("audit", model, inputs)
        status.update("running the model fifty to ninety times")
        report = run_audit(what, None if text is None else read_text("audit", text), inputs=given, checks=names)
    if as_json:
        emit_json(report.to_json())
    else:
        _show(report, verbose, verbose or strict)
    if not report.healthy or (strict and report.findings):
        raise typer.Exit(1)


def _show(report: Audit, verbose: bool, notes: bool) -> None:
    """Prints faults and warnings with cause and fix, then which checks noted something, passed or did not apply.

    verbose: whether each other check has a line · notes: whether notes are printed in full as well
    """
    from ..audits.finding import SEVERITIES

    console = Console()
    counts = Counter(finding.severity for finding in report.findings)
    summary = ", ".join(counted(counts[name], name) for name in SEVERITIES if counts[name])
    console.say(f"{report.model}: {summary or 'healthy'}", "bold")
    follow = [("follows", f"{each.check}, {each.where}") for each in report.findings if each.follows]
    groups = defaultdict(list)
    for each in report.findings:
        if not each.follows and (notes or each.severity != "note"):
            groups[each.severity, each.check, each.cause].append(each)
    for (severity, check, _), findings in groups.items():
        seen = [row for each in findings for row in (("where", each.where), ("measured", each.measured))]
        show_finding(console, severity, severity, check, [*seen, *findings[0].rows[1:], *follow])
        follow = []
    for title, rows in (
        ("notes", [] if notes else [(each.check, "") for each in report.findings if each.severity == "note"]),
        ("passed", [(each.check, each.measured) for each in report.passed]),
        ("did not apply", [(each.check, each.reason) for each in report.skipped]),
    ):
        if rows and not verbose:
            times = Counter(name for name, _ in rows)
            listed = ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in times.items())
            console.print()
            console.print(Text.assemble((f"{title}: ", "dim bold"), (words(listed), "dim")))
        elif rows:
            console.print()
            console.say(title, "dim bold")
            console.print(named_lines(rows, "dim"))
    if not verbose:
        console.say("--verbose says what was measured, and why a check did not apply", "dim")
