"""Plots the loss over the steps: as text, the training loss as an area, and as an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

EIGHTHS = " ▁▂▃▄▅▆▇█"
Point = tuple[float, float]  # step, loss


def curve(
    learned: Sequence[Point], held: Sequence[Point] = (), *, width: int = 72, height: int = 12, unicode: bool = True
) -> list[str]:
    """Plots a loss curve as text. Each column shows the mean loss of its steps.

    Args:
        learned: (step, training loss) of every step.
        held: (step, held-out loss) of every evaluation.
        width: maximum number of characters per line.
        height: number of lines, without the axis.
        unicode: whether to draw with block characters; otherwise in ASCII.

    Returns:
        The lines; an empty list without training steps.

    Examples:
        >>> print(*curve([(step, 1 / step) for step in range(1, 9)], [(8, 0.25)], width=14, height=4), sep="\\n")
        1.000 █
              █▂
        0.417 ██▆▃▂▁
        0.125 ███████●
              1      8
    """
    if not learned:
        return []
    first, last = learned[0][0], max(learned[-1][0], *(step for step, _ in held), learned[0][0] + 1)
    label = max(len(f"{loss:.3f}") for _, loss in (*learned, *held))
    columns = max(2, min(width - label - 1, len(learned)))

    def column(step: float) -> int:
        return min(columns - 1, max(0, int((step - first) / (last - first) * columns)))

    sums = [[0.0, 0] for _ in range(columns)]
    for step, loss in learned:
        sums[column(step)][0] += loss
        sums[column(step)][1] += 1
    means = [total / count if count else None for total, count in sums]
    shown = [*(mean for mean in means if mean is not None), *(loss for _, loss in held)]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0

    def level(loss: float) -> float:
        return (loss - low) / span * (height - 1) + 1  # the lowest loss fills one cell

    areas = [0.0 if mean is None else level(mean) for mean in means]
    cells = [[_cell(area - row, unicode) for area in areas] for row in range(height)]
    for step, loss in held:
        cells[min(height - 1, int(level(loss) - 0.5))][column(step)] = "●" if unicode else "o"
    names = {height - 1: high, 0: low, (height - 1) // 2: low + span * ((height - 1) // 2) / (height - 1)}
    lines = [
        f"{f'{names[row]:.3f}' if row in names else '':>{label}} {''.join(cells[row])}".rstrip()
        for row in reversed(range(height))
    ]
    ends = f"{first:g}", f"{last:g}"
    return [*lines, " " * (label + 1) + ends[0] + ends[1].rjust(max(len(ends[1]) + 1, columns - len(ends[0])))]


def _cell(filled: float, unicode: bool) -> str:
    """A cell of the area, filled to this fraction."""
    if not unicode:
        return "#" if filled >= 0.5 else " "
    return EIGHTHS[round(8 * min(1.0, max(0.0, filled)))]


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
    mean = max(1, len(losses) // 20)  # steps of the running mean
    axes.plot(steps, losses, color="#9bb7d4", linewidth=0.8, label="each step")
    running = np.convolve(losses, np.full(mean, 1 / mean), "valid")
    axes.plot(steps[mean - 1 :], running, color="#1f5a96", linewidth=1.8, label="running mean")
    if held:
        axes.plot(*zip(*held), color="#c8501e", marker="o", linewidth=1.2, label="held out")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, format="png", dpi=130)
