"""`regard conform`: which laws an attention function keeps; the exit status is 1 if it breaks one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from ..common.errors import Reason, refuse_all
from ..lens.runs.labels import words
from .arguments import flag, option
from .terminal import Console, emit, emit_json, named_lines, show_finding

if TYPE_CHECKING:
    from ..conformance import Report

STATUSES = ("pass", "fail", "unexpected-pass", "expected", "refused", "absent")


def conform(
    function: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:FUNCTION | FILE.py:FUNCTION]", help="The attention function to judge.", show_default=False
        ),
    ] = None,
    adapter: Annotated[
        Path | None,
        option("JSON file with the conventions of the function.", "those that it declares"),
    ] = None,
    infer: Annotated[
        bool,
        flag("--infer", "Measure the conventions and print an adapter to read and confirm; judge nothing."),
    ] = False,
    level: Annotated[
        int,
        option("Highest level: 0 runs, 1 textbook, 2 edges, 3 gradients, 4 isolation, 5 scale.", min=0, max=5),
    ] = 3,
    seed: Annotated[int, option("Seed of the cases.", min=0)] = 0,
    seconds: Annotated[float, option("Time that one call may take.", min=0.1)] = 10.0,
    as_json: Annotated[bool, flag("--json", "Print the report as JSON.")] = False,
    junit: Annotated[bool, flag("--junit", "Print the report as JUnit XML.")] = False,
    markdown: Annotated[bool, flag("--markdown", "Print the report as Markdown.")] = False,
    badge: Annotated[bool, flag("--badge", "Print an SVG badge with the level.")] = False,
    mistakes: Annotated[
        bool, flag("--mistakes", "Print the catalog of known mistakes, and which probes reject each.")
    ] = False,
) -> None:
    """Judge an attention function: which laws it keeps, which it breaks, and why.

    Every finding has the likely cause, a fix, and the smallest counterexample as a Python script.
    What the function declares nothing about must be as in the laws.

    Exit status: 0 right, 1 mistakes, 2 the function could not be run.
    """
    known = {"--json": as_json, "--junit": junit, "--markdown": markdown, "--badge": badge}
    formats = [name for name, wanted in known.items() if wanted]
    refuse_all("conform", _problems(function, infer, mistakes, formats))
    if mistakes:
        from ..laws.probes import lines

        for line in lines():
            emit(line)
        return
    from .. import conformance

    assert function is not None
    declared = None if adapter is None else conformance.read_adapter(adapter)
    if infer:
        found = conformance.infer(function, adapter=declared, seconds=seconds)
        emit(found.text)
        for line in found.notes:
            typer.echo(line, err=True)
        return
    report = conformance.conform(function, adapter=declared, level=level, seed=seed, seconds=seconds)
    writers = {"--junit": conformance.junit, "--markdown": conformance.markdown, "--badge": conformance.badge}
    if as_json:
        emit_json(report.to_json())
    elif formats:
        emit(writers[formats[0]](report).rstrip())
    else:
        _show(report)
    if not report.right:
        raise typer.Exit(1)


def _problems(function: str | None, infer: bool, mistakes: bool, formats: list[str]) -> Iterator[Reason]:
    """What is wrong with arguments that exclude each other."""

    if len(formats) > 1:
        expected = "one of --json, --junit, --markdown, --badge"
        yield Reason("two formats", " ".join(formats), expected, "run it once for each")
    if mistakes and (function is not None or infer or formats):
        given = " ".join([*([function] if function else []), *(["--infer"] if infer else []), *formats])
        what = "--mistakes judges no function"
        yield Reason(what, given, "--mistakes alone", "omit the others")
    if infer and formats:
        what, given = "--infer prints an adapter, not a report", " ".join(["--infer", *formats])
        yield Reason(what, given, "--infer without a format", "omit one of them")
    if function is None and not mistakes:
        expected = "MODULE:FUNCTION or FILE.py:FUNCTION"
        yield Reason("no function is named", "nothing", expected, "regard conform mine.py:attention")


def _show(report: Report) -> None:
    """Prints the level, the findings with their counterexamples, and what was not tested."""
    from ..conformance import LEVELS
    from ..conformance.conventions.fields import ROLES

    console = Console()
    reached = f"level {report.mark} ({LEVELS[report.level]})" if report.level >= 0 else "no level reached"
    console.say(f"{report.adapter.name or report.target}: {reached}", "bold")
    console.say(_meaning(report), "bold")
    console.say(report.measured, "dim")
    counts = report.counts
    listed = ", ".join(f"{counts[status]} {status}" for status in sorted(counts, key=STATUSES.index))
    console.say(f"{len(report.results)} cases in {report.seconds:.1f} s: {listed}", "dim")
    if report.stopped:
        console.say(report.stopped, "yellow")
    if not report.isolated:
        console.say("not isolated: the function cannot be imported by name, so it ran in this process", "yellow")
    for finding in report.findings:
        title = f"law {finding.law}" if finding.law else "before the laws"
        rows = [("measured", finding.measured), *finding.rows]
        show_finding(console, finding.kind, title, finding.mistake or "", rows)
        if finding.counterexample:
            console.print()
            for line in finding.counterexample.rstrip().splitlines():
                console.say(line, soft_wrap=True)
    rows = [(each.case.id, each.words) for each in report.results if each.status in ("refused", "expected")]
    if rows:
        console.print()
        console.say("not judged", "dim bold")
        console.print(named_lines(rows, "dim"))
    if report.noticed:
        console.print()
        console.say("noticed", "dim bold")
        for line in report.noticed:
            console.print(Padding(Text(words(line), "dim"), (0, 0, 0, 2)))
    absent = [each.words for each in report.results if each.status == "absent"]
    roles = [role for role in ROLES if any(f" for {role}" in said for said in absent)]
    if roles:
        console.print()
        console.say(f"no arguments for {', '.join(roles)}", "dim")


# What a function does that reached a level, by its number.
REACHED = (
    "it runs, changes nothing else, and gives the same bits twice",
    "it computes the formula",
    "it also keeps the laws at the edges",
    "its gradients are right too",
    "a row depends on nothing but what it attends to",
    "it holds at any size",
)


def _meaning(report: Report) -> str:
    """What the level says, and what is between it and the next one."""
    from ..conformance import LEVELS

    said = REACHED[report.level] if report.level >= 0 else ""
    if report.level == 3 and report.adapter.gradients == "none":
        said = f"{REACHED[2]}; it has no gradients to judge"
    lowest = [each for each in report.findings if each.level == report.level + 1 and each.kind != "unexpected-pass"]
    if not lowest:
        return said
    declared = [each.declares for each in lowest if each.declares]
    if len(declared) == len(lowest):
        return f"{said}; if its conventions are meant, declare {', '.join(declared)} to judge the rest"
    count = "1 finding below keeps" if len(lowest) == 1 else f"{len(lowest)} findings below keep"
    return f"{said}{'; ' if said else ''}{count} it from level {report.level + 1} ({LEVELS[report.level + 1]})"
