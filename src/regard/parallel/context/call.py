"""Call: the checked call over the whole sequence, of which each rank computes some rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...language.checks.arguments import Arguments
from ...language.checks.numbers import Starts, counted
from ...language.problem import Problem
from ..work import Sizes


@dataclass(frozen=True, eq=False)
class Call:
    """One call over all tokens.

    whole: the problem over arrays without memory. stripe: key heads that travel at a time.
    """

    whole: Problem
    stripe: int

    @classmethod
    def of(
        cls,
        queries: tuple[int, ...],
        keys: tuple[int, ...],
        values: tuple[int, ...],
        *,
        tokens: int,
        dtypes: tuple[np.dtype, ...],
        arguments: Arguments,
        where: str,
    ) -> Call:
        """The call over `tokens` tokens of arrays with these shapes (B, heads, tokens here, depth)."""
        shapes = [(*shape[:-2], tokens, shape[-1]) for shape in (queries, keys, values)]
        q, k, v = (np.broadcast_to(np.zeros((), dtype), shape) for shape, dtype in zip(shapes, dtypes, strict=True))
        whole: Problem = Problem.of(q, k, v, **arguments._asdict(), where=where, gradients=True)
        return cls(whole, whole.dims["G"])

    def with_stripe(self, stripe: int) -> Call:
        """The same call, in which this number of key heads travels at a time."""
        return replace(self, stripe=stripe)

    @property
    def sizes(self) -> Sizes:
        """The sizes of one batch entry."""
        dims = self.whole.dims
        return Sizes(dims["Q"], dims["H"], dims["G"], dims["D"], dims["E"], self.whole.dtype.name)

    @property
    def stripes(self) -> list[slice]:
        """The key heads of each stripe."""
        G = self.whole.dims["G"]
        return [slice(first, min(first + self.stripe, G)) for first in range(0, G, self.stripe)]

    @staticmethod
    def named(heads: slice) -> str:
        """Some key heads in words."""
        last = heads.stop - 1
        return f"key head {last}" if heads.start == last else f"key heads {heads.start} to {last}"

    def queries(self, heads: slice) -> slice:
        """The query heads of some key heads."""
        group = self.whole.dims["H"] // self.whole.dims["G"]
        return slice(heads.start * group, heads.stop * group)


def part_of(call: Call, heads: slice, q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int) -> Problem:
    """The problem of the rows from position `start` on, in some key heads; q has these heads and rows.

    Rules, tables and dropout count positions and heads of the whole call.
    """
    whole, rows = call.whole, call.queries(heads)
    starts = Starts(head=rows.start or None)
    mask, score = (None if rule is None else counted(rule, starts) for rule in (whole.mask, whole.score))
    dropout = whole.dropout
    if dropout is not None:
        dropout = replace(dropout, head_start=dropout.head_start + rows.start)
    sinks = None if whole.sinks is None else whole.sinks[rows]
    B, H = q.shape[:2]
    return replace(
        whole, q=q, k=k, v=v, mask=mask, score=score, dropout=dropout, sinks=sinks, starts=starts,
        query_start=np.full(B, start, np.int64), lead=(B, H),
    )  # fmt: skip
