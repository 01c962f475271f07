"""`regard cost table1`: Table 1 of "Attention Is All You Need", counted and shown by running."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ...common.errors import Reason, Refused, refuse
from ...common.files.output import FIGURE, check_output
from ...common.optional import needs

__all__ = ["table1"]


def table1(
    lengths: Annotated[
        str, typer.Option(help="Numbers of positions n (comma-separated).")
    ] = "8,16,32,64,128,256,512,1024",
    width: Annotated[int, typer.Option(help="Numbers per position d.")] = 64,
    plot: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the table as a plot over n to this PNG file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the layers, and find by time where attention overtakes.")
    ] = False,
) -> None:
    """Show what self-attention, recurrence, convolution and restricted attention cost over the length.

    Operations are counted while the layers run, sequential steps are the longest chain of products in the graph of
    autograd, and the path length is found by derivatives. The second table is the length from which attention costs
    more than its projections: twice the width.

    Exit status: 0 formulas and counts agree, 1 they differ.
    """
    _check(plot)
    needs("cost table1", "hf", "torch", "transformers")
    from ...ledger.table1 import output
    from ...ledger.table1.crossover import crossover
    from ...ledger.table1.rows import rows
    from ..terminal import emit, emit_json

    table = rows(_numbers(lengths), width, measure=measure)
    found = crossover(measure=measure)
    if plot is not None:
        from ...ledger.table1.plot import plot as draw

        draw(plot, table, found)
    if as_json:
        emit_json(output.to_json(table, found))
    else:
        emit(output.caption(width))
        _show([output.summary_lines(table), output.lines(table), output.crossover_lines(found)])
    faults = [f"{row.kind}, n = {row.length}: {', '.join(row.faults)}" for row in table if row.faults]
    faults += [f"crossover, d = {each.width}" for each in found if each.counted != each.formula]
    for fault in faults:
        typer.echo(f"formula and count differ: {fault}", err=True)
    if faults:
        raise typer.Exit(1)


def _check(plot: Path | None) -> None:
    """Raises `Refused` before the work if the plot cannot be written."""
    if plot is None:
        return
    if plot.suffix.lower() != ".png":
        fix = f"write {plot.with_suffix('.png').name}" if plot.name else "pass a file"
        expected = "a name that ends in .png"
        raise refuse("cost table1", "not a PNG file", given=str(plot), expected=expected, fix=fix)
    check_output("cost table1", "--plot", plot, what="a plot", mark=FIGURE)
    needs("cost table1", "look", "matplotlib")


def _numbers(text: str) -> list[int]:
    """The integers of a comma-separated list."""
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not re.fullmatch(r"\d{1,9}", part, re.ASCII)]
    if wrong:
        expected = "integers, separated by commas"
        fix = "write them as 8,64,1024"
        raise Refused(
            "cost table1", [Reason("not a length", given=repr(each)[:60], expected=expected, fix=fix) for each in wrong]
        )
    return [int(part) for part in parts]


def _show(tables: list[list[tuple[str, ...]]]) -> None:
    from rich.table import Table

    from ..terminal import Console

    console = Console()
    for heading, *rows in tables:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for number, name in enumerate(heading):
            table.add_column(name, justify="left" if number == 0 and name == "layer" else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()
