"""How far two runs of a model lie apart, and whether rounding can be the reason."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .subject import Outputs, Subject

__all__ = ["ALLOWED", "Gap", "Incomparable", "gap", "listed", "placed"]

ALLOWED = 8  # times what rounding every sum another way does; a fault is thousands of times as large


class Incomparable(Exception):
    """Two runs of which no output can be compared."""


@dataclass(frozen=True)
class Gap:
    """The output that differs most for what rounding allows it. size: the largest difference of a number · allowed: the
    threshold
    rows: the positions that are beyond it, in order."""

    output: str
    size: float
    allowed: float
    rows: tuple[int, ...]

    @property
    def open(self) -> bool:
        """Whether rounding cannot be the reason."""
        return not self.size <= self.allowed

    def __str__(self) -> str:
        return f"{self.output} moves by {self.size:.2g} (rounding: up to {self.allowed:.1g})"

    def numbers(self) -> dict[str, Any]:
        """The same as plain data; JSON knows no infinity."""
        size = self.size if math.isfinite(self.size) else str(self.size)
        return {"output": self.output, "difference": size, "threshold": self.allowed, "rows": list(self.rows)}


def gap(subject: Subject, found: Outputs, wanted: Outputs) -> Gap:
    """The largest gap between outputs of the same names and shapes, beside `ALLOWED` times the subject's rounding.

    NaN and infinity agree with themselves, and lie infinitely far from anything else. An output that is in one run
    only, or of another shape there, is not compared.
    """
    wanted = {name: part for name, part in wanted.items() if name in found and found[name].shape == part.shape}
    if not wanted:
        raise Incomparable("no output has the same shape in both runs")
    quick = _gap(found, wanted, subject.rounding)
    return _gap(found, wanted, subject.rare_rounding) if quick.open else quick


def _gap(found: Outputs, wanted: Outputs, rounding: Mapping[str, float]) -> Gap:
    import torch

    gaps = []
    for name, part in wanted.items():
        a, b = found[name].double(), part.double()
        same = (a == b) | (torch.isnan(a) & torch.isnan(b))
        apart = torch.where(same, 0.0, (a - b).abs().nan_to_num(math.inf, math.inf))
        by_row = apart.flatten(2).amax((0, 2)) if apart.ndim > 2 else apart.amax(0).reshape(-1)
        allowed = ALLOWED * rounding[name]
        rows = tuple((by_row > allowed).nonzero().flatten().tolist())
        gaps.append(Gap(name, float(apart.max()) if apart.numel() else 0.0, allowed, rows))
    return max(gaps, key=lambda each: each.size / max(each.allowed, sys.float_info.min))


def listed(numbers: Iterable[int]) -> str:
    """Positions in words: "3 to 7", "1, 4, 9", or the first and the last of many.

    >>> listed([3, 4, 5, 6, 7]), listed([1, 4, 9]), listed(range(0, 40, 2))
    ('3 to 7', '1, 4, 9', '0, 2, …, 38')
    """
    found = list(numbers)
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]} to {found[-1]}"
    return ", ".join(map(str, found)) if len(found) <= 8 else f"{found[0]}, {found[1]}, …, {found[-1]}"


def placed(rows: Sequence[int]) -> str:
    """The same with its noun: "position 5", "positions 3 to 7"."""
    return f"position{'s' * (len(rows) != 1)} {listed(rows)}"
