"""A classifier's report in the terminal: the figures per class, and who was taken for whom."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..models.training.report import Report

__all__ = ["show"]

SQUARE = 12  # classes that a matrix shows; of more, the most frequent mistakes are listed


def show(console: Console, report: Report, rows: str) -> None:
    """Accuracy beside the baseline, a line per class, and the confusions."""
    console.print(f"accuracy {report.accuracy:.1%} of {report.count} {rows}", markup=False)
    console.print(
        f"always answering {report.classes[report.majority]!r} would give {report.baseline:.1%}", markup=False
    )
    console.print()
    table = Table("class", box=None, header_style="", pad_edge=False)
    for name in ("precision", "recall", "F1", "rows"):
        table.add_column(name, justify="right")
    for number, name in enumerate(report.classes):
        figures = (report.precision[number], report.recall[number], report.f1[number])
        table.add_row(_plain(name), *map(_share, figures), str(report.support[number]))
    table.add_row(
        "mean",
        *map(_share, (_mean(report.precision), _mean(report.recall), report.macro_f1)),
        str(report.count),
        style="dim",
    )
    console.print(table)
    console.print()
    console.print(_matrix(report) if len(report.classes) <= SQUARE else _mistakes(report))


def _matrix(report: Report) -> Table:
    """Rows are the true classes, columns what they were taken for."""
    table = Table("true \\ found", box=None, header_style="", pad_edge=False)
    for name in report.classes:
        table.add_column(_plain(name), justify="right")
    for number, name in enumerate(report.classes):
        cells = [
            f"[bold]{count}[/]" if place == number else str(count) if count else "[dim]·[/]"
            for place, count in enumerate(report.confusion[number])
        ]
        table.add_row(_plain(name), *cells)
    return table


def _mistakes(report: Report, most: int = 10) -> Table:
    wrong = report.confusion * (1 - np.eye(len(report.classes), dtype=int))
    table = Table("the most frequent mistakes", "taken for", box=None, header_style="", pad_edge=False)
    table.add_column("rows", justify="right")
    for place in np.argsort(-wrong, axis=None, kind="stable")[:most]:
        true, found = divmod(int(place), len(report.classes))
        if wrong[true, found]:
            table.add_row(_plain(report.classes[true]), _plain(report.classes[found]), str(wrong[true, found]))
    return table


def _plain(name: str) -> str:
    """A name as it is: brackets in it are no markup."""
    return escape(name if len(name) <= 24 else name[:23] + "…")


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
