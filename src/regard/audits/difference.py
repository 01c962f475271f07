"""The difference between two runs of a model, and whether rounding alone can explain it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..common.text.terminal_text import printable
from .finding import NotApplicable, Passed
from .subject import Outputs, Subject

ALLOWED = 8  # times the measured effect of rounding; real faults are typically thousands of times larger


@printable
@dataclass(frozen=True)
class Difference:
    """The output that differs most relative to its threshold. size: the largest absolute difference · allowed: the
    threshold · rows: the positions that exceed it, in order.
    """

    output: str
    size: float
    allowed: float
    rows: tuple[int, ...]

    @property
    def significant(self) -> bool:
        """Whether rounding cannot explain the difference."""
        return not self.size <= self.allowed

    @property
    def row(self) -> int | None:
        """The first position that exceeds the threshold."""
        return self.rows[0] if self.rows else None

    def __str__(self) -> str:
        return f"{self.output} changes by {self.size:.2g} (threshold, from rounding: {self.allowed:.1g})"

    def numbers(self, **more: Any) -> dict[str, Any]:
        """The fields as plain data, and further ones; infinity becomes a string, because JSON has no infinity."""
        size = self.size if math.isfinite(self.size) else str(self.size)
        return {"output": self.output, "difference": size, "threshold": self.allowed, "rows": list(self.rows), **more}


def difference(subject: Subject, actual: Outputs, expected: Outputs) -> Difference:
    """The largest difference between outputs of the same name and shape; the threshold is `ALLOWED` times the measured
    rounding of the subject.

    Infinity equals itself. NaN equals nothing, not even itself, and differs infinitely from everything. An output that
    is in one run only, or has another shape there, is not compared.
    """
    expected = {name: part for name, part in expected.items() if name in actual and actual[name].shape == part.shape}
    if not expected:
        raise NotApplicable("no output has the same shape in both runs")
    quick = _compare(actual, expected, subject.rounding)
    return _compare(actual, expected, subject.rare_rounding) if quick.significant else quick


def passed(check: str, measured: str, differences: Iterable[Difference], more: str = "") -> Passed:
    """The result of a check that compared runs and detected nothing."""
    return Passed(check, f"{measured}: {largest(differences)}{more}")


def largest(differences: Iterable[Difference]) -> Difference:
    """The largest of several differences, in absolute size."""
    return max(differences, key=lambda each: each.size)


def not_by_chance(differences: Iterable[Difference]) -> Difference:
    """One of the differences that several random replacements cause: significant only if each of them is."""
    return min(differences, key=lambda each: each.significant)


def _compare(actual: Outputs, expected: Outputs, rounding: Mapping[str, float]) -> Difference:
    import torch

    differences = []
    for name, part in expected.items():
        a, b = actual[name].double(), part.double()
        off = torch.where(a == b, 0.0, (a - b).abs().nan_to_num(math.inf, math.inf))
        by_row = off.flatten(2).amax((0, 2)) if off.ndim > 2 else off.amax(0).reshape(-1)
        allowed = ALLOWED * rounding[name]
        rows = tuple((by_row > allowed).nonzero().flatten().tolist())
        differences.append(Difference(name, float(off.max()) if off.numel() else 0.0, allowed, rows))
    return max(differences, key=lambda each: each.size / max(each.allowed, sys.float_info.min))


def listed(numbers: Iterable[Any]) -> str:
    """Numbers in words: "3 to 7", "1, 4, 9", or the first and the last of many.

    >>> listed([3, 4, 5, 6, 7]), listed([1, 4, 9]), listed(range(0, 40, 2))
    ('3 to 7', '1, 4, 9', '0, 2, …, 38')
    """
    every = list(numbers)
    if len(every) > 2 and isinstance(every[0], int) and every == [*range(every[0], every[-1] + 1)]:
        return f"{every[0]} to {every[-1]}"
    return ", ".join(map(str, every)) if len(every) <= 8 else f"{every[0]}, {every[1]}, …, {every[-1]}"


def positions(rows: Sequence[int]) -> str:
    """Positions in words with their noun: "position 5", "positions 3 to 7"."""
    return f"position{'s' * (len(rows) != 1)} {listed(rows)}"
