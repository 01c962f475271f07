"""Plot: what a model costs over the number of tokens, as a PNG image drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..common.errors import refuse
from ..common.files.output import FIGURE, check_output, replacing
from ..common.optional import needs
from .over import attention_operations


def check_plot(path: Path, lengths: Sequence[int]) -> None:
    """Raises `Refused` before the work if the plot could not be drawn or written."""
    if not lengths:
        expected = "--over with the numbers of tokens"
        raise refuse("cost", "a plot of nothing", "--plot", expected, "add --over 512,2048,8192")
    if path.suffix.lower() != ".png":
        expected, fix = "a name that ends in .png", f"write --plot {path.with_suffix('.png')}"
        raise refuse("cost", "not a PNG file", str(path), expected, fix)
    check_output("cost", "--plot", path, what="a plot", mark=FIGURE)
    needs("cost", "look", "matplotlib")


def draw(path: Path, tables: Sequence[Sequence[Any]]) -> None:
    """Writes the image: for each phase the operations of attention and of everything else, and the bytes held."""
    from matplotlib.figure import Figure  # without pyplot: no window and no global state

    figure = Figure(figsize=(5 * len(tables), 7), layout="constrained")
    for (above, below), costs in zip(figure.subplots(2, len(tables), squeeze=False).T, tables, strict=True):
        costs = sorted(costs, key=lambda cost: cost.tokens)
        tokens = [cost.tokens for cost in costs]
        attention = [attention_operations(cost) for cost in costs]
        above.plot(tokens, attention, marker="o", color="#c8501e", label="attention")
        others = [cost.flops - one for cost, one in zip(costs, attention, strict=True)]
        above.plot(tokens, others, marker="o", color="#1f5a96", label="everything else")
        above.set(title=f"{costs[0].name}, {costs[0].phase}", ylabel="operations", xscale="log", yscale="log")
        above.legend(frameon=False)
        below.plot(tokens, [cost.memory.held for cost in costs], marker="o", color="#666666")
        below.set(xlabel="tokens", ylabel="bytes held", xscale="log", yscale="log")
        for axes in (above, below):
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
    with replacing("cost", "--plot", path) as draft:
        figure.savefig(draft, format="png", dpi=130, metadata={"Software": FIGURE})
