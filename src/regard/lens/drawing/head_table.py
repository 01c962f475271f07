"""The scores of heads over many texts, as tables in the terminal: the best heads first, then every head."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..detection.head_scores import HeadScore, HeadScores
from ..runs.labels import words

BEST = 3  # heads for each detector
CELL = 9  # columns of the terminal for the score of a head


def head_table(console: Console, found: HeadScores) -> None:
    """Prints the heads with the largest mean of each detector, every head, and the texts that were left out."""
    heads = len(next(iter(found.scores.values())))
    sizes = " · ".join(
        f"{count} {name}{'s' * (count != 1)}"
        for count, name in ((len(found.layers), "layer"), (heads, "head"), (found.texts, "text"))
    )
    console.print(Text(f"{words(found.model)} · {sizes}", "bold"))
    console.print()
    console.print(_best(found))
    names = list(found.detectors)
    per_table = max(1, (console.width - 6) // (2 + max(CELL, *map(len, names))))
    for first in range(0, len(names), per_table):
        console.print()
        if not first:
            console.print(Text("every head: mean ± standard deviation over the texts, in %", "dim"))
        console.print(_every(found, names[first : first + per_table]))
    if found.left_out:
        console.print()
        count = len(found.left_out)
        console.print(Text(f"{count} text{'s' * (count > 1)} left out", "yellow"))
        for name, reason in found.left_out:
            console.print(Text(f"  {words(name)}: {words(reason)}"), soft_wrap=True)


def _best(found: HeadScores) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("detector", "weight on", "head", "mean", "sd", "texts", "most in"):
        right = title in ("head", "mean", "sd", "texts")
        table.add_column(title, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for name, keys in found.detectors.items():
        best = found.best(name, BEST)
        for place, score in enumerate(best):
            begin = (name, Text(keys)) if not place else ("", "")
            text = "" if not score.most else f"{words(score.most[0][0])} {score.most[0][1]:.0%}"
            figures = (_percent(score.mean), _percent(score.deviation), str(score.texts))
            table.add_row(*begin, score.name, *figures, Text(text))
        if not best:
            table.add_row(name, Text(keys), Text("—", "dim"), "", "", "0", "")
    return table


def _every(found: HeadScores, names: list[str]) -> Table:
    """One line for each head, and a column for each of these detectors."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("head", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in zip(*(found.scores[name] for name in names), strict=True):
        table.add_row(row[0].name, *(_cell(score) for score in row))
    return table


def _cell(score: HeadScore) -> Text:
    if not score.texts:
        return Text("—", "dim")
    spread = f" ±{100 * score.deviation:>2.0f}" if np.isfinite(score.deviation) else ""
    return Text(f"{100 * score.mean:.0f}{spread}")


def _percent(value: float) -> str:
    return f"{value:.0%}" if np.isfinite(value) else "—"
