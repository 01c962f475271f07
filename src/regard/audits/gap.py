"""Gap: how far two runs of a model lie apart, and whether rounding can be the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .subject import Outputs, Subject

__all__ = ["ALLOWED", "Gap", "gap"]

ALLOWED = 8  # times what rounding every sum another way does; a fault is thousands of times as large


@dataclass(frozen=True)
class Gap:
    """The output that differs most for what rounding allows it. size: the largest difference of a number · allowed: the threshold
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
        return f"{self.output} {'moves' if self.size else 'differs'} by {self.size:.2g} (rounding: up to {self.allowed:.1g})"

    def numbers(self) -> dict[str, Any]:
        """The same as plain data; JSON knows no infinity."""
        size = self.size if math.isfinite(self.size) else str(self.size)
        return {"output": self.output, "difference": size, "threshold": self.allowed, "rows": list(self.rows)}


def gap(subject: Subject, found: Outputs, wanted: Outputs) -> Gap:
    """The largest gap between outputs of the same names and shapes, beside `ALLOWED` times the subject's rounding.

    NaN and infinity agree with themselves, and lie infinitely far from anything else.
    """
    import torch

    worst = None
    for name, part in wanted.items():
        a, b = found[name].double(), part.double()
        same = (a == b) | (torch.isnan(a) & torch.isnan(b))
        apart = torch.where(same, 0.0, (a - b).abs().nan_to_num(math.inf, math.inf))
        allowed = ALLOWED * subject.rounding[name]
        by_row = apart.flatten(2).amax((0, 2)) if apart.ndim > 2 else apart.amax(0) if apart.ndim == 2 else apart.reshape(-1)
        size = float(apart.max()) if apart.numel() else 0.0
        rows = tuple((by_row > allowed).nonzero().flatten().tolist())
        if worst is None or size * worst.allowed > worst.size * allowed or (size > allowed and not worst.open):
            worst = Gap(name, size, allowed, rows)
    assert worst is not None
    return worst
