"""Prints a classification report: metrics per class and a confusion matrix."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..models.training.classification import Report

SQUARE = 12  # maximum number of classes in a confusion matrix; for more, the most frequent errors are listed


def show(console: Console, report: Report, rows: str) -> None:
    """Prints accuracy and baseline, a line per class, and the confusion matrix."""
    console.print(f"accuracy {report.accuracy:.1%} of {report.count} {rows}", markup=False)
    console.print(
        f"baseline {report.baseline:.1%}: always predicting {report.classes[report.majority]!r}", markup=False
    )
    console.print()
    table = Table("class", box=None, header_style="", pad_edge=False)
    for name in ("precision", "recall", "F1", "rows"):
        table.add_column(name, justify="right")
    for number, name in enumerate(report.classes):
        metrics = (report.precision[number], report.recall[number], report.f1[number])
        table.add_row(_plain(name), *map(_format, metrics), str(report.support[number]))
    table.add_row(
        "mean",
        *map(_format, (_mean(report.precision), _mean(report.recall), report.macro_f1)),
        str(report.count),
        style="dim",
    )
    console.print(table)
    console.print()
    console.print(_matrix(report) if len(report.classes) <= SQUARE else _errors(report))


def _matrix(report: Report) -> Table:
    """The confusion matrix: rows are true classes, columns predicted classes."""
    table = Table("true \\ predicted", box=None, header_style="", pad_edge=False)
    for name in report.classes:
        table.add_column(_plain(name), justify="right")
    for number, name in enumerate(report.classes):
        cells = [
            f"[bold]{count}[/]" if column == number else str(count) if count else "[dim]·[/]"
            for column, count in enumerate(report.confusion[number])
        ]
        table.add_row(_plain(name), *cells)
    return table


def _errors(report: Report, most: int = 10) -> Table:
    """The most frequent errors."""
    wrong = report.confusion * (1 - np.eye(len(report.classes), dtype=int))
    table = Table("most frequent errors: true", "predicted", box=None, header_style="", pad_edge=False)
    table.add_column("rows", justify="right")
    for index in np.argsort(-wrong, axis=None, kind="stable")[:most]:
        true, predicted = divmod(int(index), len(report.classes))
        if wrong[true, predicted]:
            table.add_row(_plain(report.classes[true]), _plain(report.classes[predicted]), str(wrong[true, predicted]))
    return table


def _plain(name: str) -> str:
    """A class name for a table cell: shortened, with markup escaped."""
    return escape(name if len(name) <= 24 else name[:23] + "…")


def _format(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
