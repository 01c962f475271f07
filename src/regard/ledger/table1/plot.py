"""Plots Table 1 over the length as a PNG image, with matplotlib: formulas as lines, counts and measurements as dots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...common.files.output import FIGURE, replacing
from .crossover import Crossover
from .rows import KINDS, Row

__all__ = ["plot"]

COLORS = ("#1f5a96", "#c8501e", "#3d8b37", "#8a5fb0", "#7a6a2f")


def plot(path: Path, table: Sequence[Row], found: Sequence[Crossover]) -> None:
    """Writes the image: operations, sequential steps and path over n, and the crossover over d."""
    from matplotlib.figure import Figure  # without pyplot: no window and no global state

    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(2, 2)
    titles = {"operations": "operations", "steps": "sequential steps", "path": "path length"}
    for axes, (name, title) in zip(panels.flat, titles.items()):
        for kind, color in zip(KINDS, COLORS, strict=True):
            mine = sorted((row for row in table if row.kind == kind.name), key=lambda row: row.length)
            lengths = [row.length for row in mine]
            formula, measured = zip(*(getattr(row, name) for row in mine), strict=True)
            axes.plot(lengths, formula, color=color, linewidth=1.2, label=kind.name)
            axes.plot(lengths, measured, color=color, marker="o", markersize=4, linestyle="none")
        axes.set(title=f"{title}, d = {table[0].width}", xlabel="n", xscale="log", yscale="log")
    panels[0, 0].legend(frameon=False, fontsize=8)

    axes, widths = panels[1, 1], [each.width for each in found]
    axes.plot(widths, [each.formula for each in found], color="#666666", linewidth=1.2, label="n = 2·d")
    axes.plot(widths, [each.counted for each in found], "o", color=COLORS[0], label="counted")
    timed = [each for each in found if each.measured is not None]
    if timed:
        axes.plot(
            [each.width for each in timed], [each.measured for each in timed], "x", color=COLORS[1], label="timed"
        )
    axes.set(title="attention overtakes projections", xlabel="d", ylabel="n", xscale="log", yscale="log")
    axes.legend(frameon=False)
    for axes in panels.flat:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    with replacing("cost table1", "--plot", path) as draft:
        figure.savefig(draft, format="png", dpi=130, metadata={"Software": FIGURE})
