"""Plots the loss over the steps as a PNG image, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .curve import Point


def plot(path: Path, learned: Sequence[Point], held: Sequence[Point] = ()) -> None:
    """Plots the training loss of every step, its running mean, and the held-out loss.

    Args:
        path: the PNG file to write.
        learned: (step, training loss) of every step.
        held: (step, held-out loss) of every evaluation.
    """
    from matplotlib.figure import Figure  # without pyplot: no window and no global state

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    steps, losses = zip(*learned)
    axes.plot(steps, losses, color="#9bb7d4", linewidth=0.8, label="each step")
    axes.plot(
        steps, smooth(losses, max(0.0, 1 - 20 / len(losses))), color="#1f5a96", linewidth=1.8, label="running mean"
    )
    if held:
        axes.plot(*zip(*held), color="#c8501e", marker="o", linewidth=1.2, label="held out")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    draft = path.with_name(f".{path.name}.part")
    try:
        figure.savefig(draft, format="png", dpi=130)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def smooth(losses: Sequence[float], memory: float) -> list[float]:
    """Exponential moving average, bias-corrected.

    Args:
        losses: the values.
        memory: decay factor per step, from 0 to below 1.

    Returns:
        The average after each value.

    Examples:
        >>> [round(value, 2) for value in smooth([2.0, 1.0, 1.0], memory=0.5)]
        [2.0, 1.33, 1.14]
    """
    total = weight = 0.0
    means = []
    for loss in losses:
        total, weight = memory * total + (1 - memory) * loss, memory * weight + (1 - memory)
        means.append(total / weight)
    return means
