"""Result: what became of one engine on one case."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .interleave import Burst

__all__ = ["Result"]


@dataclass(frozen=True)
class Result:
    """One line of the report.

    status: timed; wrong (the result differs from float64: not timed, not ranked); refused (cannot express the case);
    failed. note says why. rate counts useful work, in the case's unit; ratio is the time of the best peer over this
    time.
    """

    case: str
    engine: str
    status: str
    note: str = ""
    form: str = ""
    error: float = math.nan
    seconds: float = math.nan
    rate: float = math.nan
    ratio: float = math.nan
    bursts: list[Burst] = field(default_factory=list)
