"""Table 1 as rows of text, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .crossover import Crossover
from .rows import KINDS, TAPS, WINDOW, Row, exponents

__all__ = ["caption", "crossover_lines", "lines", "summary_lines", "to_json"]

Lines = list[tuple[str, ...]]


def caption(width: int) -> str:
    """What the symbols and columns of the table mean."""
    return (
        f"d = {width} numbers per position, k = {TAPS} taps, r = {WINDOW} positions in a window\n"
        "operations: of the products, two for each multiply-add\n"
        "steps: the longest chain of products; in attentions, scores and then values\n"
        "path: layers from the first position to the last; of the recurrence, steps\n"
    )


def summary_lines(table: Sequence[Row]) -> Lines:
    """The paper's table with the measured exponents over n; the first line is the heading."""
    heading = ("layer", "operations", "∝n^", "steps", "∝n^", "path", "∝n^")
    grown = exponents(table)
    timed = any("seconds" in each for each in grown.values())
    found: Lines = [(*heading, "time ∝n^") if timed else heading]
    for kind in KINDS:
        if kind.name in grown:
            rates = grown[kind.name]
            values = [f"{rates[name]:.2f}" for name in ("operations", "steps", "path")]
            papers = (f"O({each})" for each in (kind.complexity, kind.sequential, kind.maximum))
            line = (kind.name, *(cell for pair in zip(papers, values, strict=True) for cell in pair))
            found.append((*line, f"{rates['seconds']:.2f}") if timed else line)
    return found


def lines(table: Sequence[Row]) -> Lines:
    """Every row: formula and count of each column, and time; the first line is the heading."""
    heading = ("layer", "n", "operations", "counted", "steps", "found", "path", "found")
    timed = any(row.seconds is not None for row in table)
    found: Lines = [(*heading, "µs") if timed else heading]
    for row in table:
        numbers = (*row.operations, *row.steps, *row.path)
        line = (row.kind, str(row.length), *(f"{number:,}" for number in numbers))
        found.append((*line, "" if row.seconds is None else f"{1e6 * row.seconds:,.0f}") if timed else line)
    return found


def crossover_lines(found: Sequence[Crossover]) -> Lines:
    """The crossover of each width; the first line is the heading."""
    heading = ("d", "2·d", "counted n", "operations of each")
    timed = any(each.measured is not None for each in found)
    result: Lines = [(*heading, "measured n", "measured / 2·d") if timed else heading]
    for each in found:
        line = tuple(f"{number:,}" for number in (each.width, each.formula, each.counted, each.operations))
        times = ("", "") if each.measured is None else (f"{each.measured:,.0f}", f"{each.ratio:.2f}")
        result.append((*line, *times) if timed else line)
    return result


def to_json(table: Sequence[Row], found: Sequence[Crossover]) -> dict[str, Any]:
    """Everything as data: pairs are objects with formula and found."""
    pairs = ("operations", "steps", "path")
    return {
        "window": WINDOW,
        "taps": TAPS,
        "rows": [
            asdict(row)
            | {name: dict(zip(("formula", "found"), getattr(row, name), strict=True)) for name in pairs}
            | {"faults": row.faults}
            for row in table
        ],
        "exponents": exponents(table),
        "crossover": [asdict(each) | {"ratio": each.ratio} for each in found],
    }
