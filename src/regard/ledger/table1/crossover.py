"""Crossover: the length from which attention between positions costs more than its four projections: n = 2·d."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from .counting import operations
from .layers import Projections, SelfAttention
from .rows import check_sizes
from .timing import seconds

__all__ = ["WIDTHS", "Crossover", "crossover"]

WIDTHS = (64, 128, 256, 512)
WIDEST = 2048
PER_OCTAVE = 2  # lengths that are timed between n and 2n


@dataclass(frozen=True)
class Crossover:
    """Where attention overtakes the projections, for one width.

    formula: 2·d, from 4·n²·d = 8·n·d². counted: the least length at which the counted operations of the attention are
    those of the projections or more. operations: of both there. measured: the length at which both take the same time
    on this machine with all threads, softmax included; None if it was not measured, or if the times do not cross
    between d/8 and 16·d.
    """

    width: int
    formula: int
    counted: int
    operations: int
    measured: float | None = None

    @property
    def ratio(self) -> float | None:
        """measured / formula: below 1 where the attention reaches fewer operations per second than the projections."""
        return None if self.measured is None else self.measured / self.formula


def crossover(widths: Sequence[int] = WIDTHS, *, measure: bool = False) -> list[Crossover]:
    """The crossover for each width d, by counting and, on request, by timing.

    Args:
        widths: numbers per position d.
        measure: whether it is found by timing, too, in float32 with one head.

    Returns:
        One `Crossover` per width.

    Raises:
        Refused: widths that are not possible.

    Examples:
        >>> [(found.width, found.counted) for found in crossover([16, 48])]
        [(16, 32), (48, 96)]
    """
    check_sizes("widths", widths, 1, WIDEST)
    found = []
    for d in widths:
        n = _first_length(d)
        work = operations(SelfAttention(), torch.empty(n, d, device="meta"))
        found.append(Crossover(d, 2 * d, n, work, _by_time(d) if measure else None))
    return found


def _first_length(d: int) -> int:
    """The least n at which counted attention is not less than counted projections, by bisection."""
    with torch.device("meta"):
        projections, attention = Projections(d), SelfAttention()

        def overtaken(n: int) -> bool:
            x = torch.empty(n, d)
            return operations(attention, x) >= operations(projections, x)

        above = 1
        while not overtaken(above):
            above *= 2
        below = above // 2
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (below, middle) if overtaken(middle) else (middle, above)
    return above


def _by_time(d: int) -> float | None:
    """The length at which both take the same time; the times in between are straight lines on logarithmic scales."""
    projections, attention = Projections(d), SelfAttention()
    before: tuple[float, float] | None = None
    for step in range(7 * PER_OCTAVE + 1):
        n = round(max(d // 8, 1) * 2 ** (step / PER_OCTAVE))
        x = torch.randn(n, d)
        with torch.inference_mode():
            ratio = seconds(partial(attention.forward, x)) / seconds(partial(projections.forward, x))
        point = math.log(n), math.log(ratio)
        if point[1] >= 0:
            if before is None:
                return None
            share = -before[1] / (point[1] - before[1])
            return math.exp(before[0] + share * (point[0] - before[0]))
        before = point
    return None
