"""Over: what a model costs at several numbers of tokens, as a table with bars, and as an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..common.errors import refuse
from ..common.files.output import FIGURE, check_output, replacing
from ..common.optional import needs
from ..common.text.units import seconds, unit
from .result import aligned

BAR = 20  # characters of a whole bar


def lengths(text: str) -> list[int]:
    """Numbers of tokens.

    >>> lengths("512, 2048")
    [512, 2048]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise refuse("cost", "the numbers of tokens cannot be read", repr(text), "such as 512,2048", "correct it")
    return [int(part) for part in parts]


def over(costs: Sequence[Any]) -> str:
    """A line for each `ModelCost`: operations, bytes that are held, the least time on a machine, and the shares of
    attention (dark) and of everything else in the operations.
    """
    timed = ["time at least"] if costs[0].time is not None else []
    rows = [["tokens", "operations", "held", *timed, "attention, everything else"], *map(_row, costs)]
    return f"{costs[0].name}, {costs[0].phase}, over the number of tokens\n\n{aligned(rows)}"


def attention_operations(cost: Any) -> int:
    """Operations of the products with q, k, weights and v, forward and backward."""
    return sum(line.forward.value + line.backward for line in cost.lines if line.part == "attention")


def _row(found: Any) -> list[str]:
    share = attention_operations(found) / found.flops if found.flops else 0.0
    dark = round(BAR * share)
    time = [] if found.time is None else [seconds(found.time.bound)]
    bar = f"{'█' * dark}{'░' * (BAR - dark)} {share:.1%}"
    return [f"{found.tokens:,}", unit(found.flops, "").strip(), unit(found.memory.held, "B"), *time, bar]


def check_plot(path: Path, lengths: Sequence[int]) -> None:
    """Raises `Refused` before the work if the plot could not be drawn or written."""
    if not lengths:
        raise refuse("cost", "a plot of nothing", "--plot", "numbers of tokens", "add --over 512,2048,8192")
    if path.suffix.lower() != ".png":
        raise refuse("cost", "not a PNG file", str(path), "a name in .png", f"write --plot {path.with_suffix('.png')}")
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
