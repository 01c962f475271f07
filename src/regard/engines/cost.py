"""Cost: operations and bytes of a problem, computed from its plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..common.text.terminal_text import printable
from ..language.analysis import evaluate
from ..language.problem import Problem
from .plan import Plan

CAP = 200_000_000  # up to this many pairs in mixed tiles are counted exactly; beyond, only an upper bound is computed
CHUNK = 1 << 18  # pairs evaluated per step


@printable
@dataclass(frozen=True)
class Cost:
    """Operations and memory traffic of a call, over all batch entries and heads.

    visited: pairs of query and key in the tiles that the plan visits. allowed: pairs that the mask allows; where
    `exact` is False, an upper bound. matrix: all Q · K pairs. flops, useful: floating-point operations of the two
    matrix products, 2 · (D + E) per visited and per allowed pair. exponentials: one per visited pair. read, written:
    bytes of q, k, v and of the output, each counted once. extra: bytes of the plan and of lse, which are allocated in
    addition to the caller's arrays.
    weights: bytes of the full matrix of weights, which is never allocated.
    """

    matrix: int
    visited: int
    allowed: int
    exact: bool
    flops: int
    useful: int
    exponentials: int
    read: dict[str, int]
    written: int
    extra: int
    weights: int

    def __str__(self):
        share = f"{100 * self.allowed / self.matrix:.3g} %" if self.matrix else "0 %"
        most = "" if self.exact else "at most "
        efficiency = f"{most}{100 * self.allowed / self.visited:.3g} %" if self.visited else "nothing"
        arrays = " · ".join(f"{name} {_unit(size, 'B')}" for name, size in (self.read | {"out": self.written}).items())
        return (
            f"pairs   {most}{self.allowed:,} allowed ({share} of the matrix), {self.visited:,} visited\n"
            f"work    {_unit(self.flops, 'FLOP')} in the two products, {efficiency} of it useful; "
            f"{_unit(self.exponentials, '').strip()} exponentials\n"
            f"bytes   {arrays} · extra {_unit(self.extra, 'B')} (the matrix of weights would take "
            f"{_unit(self.weights, 'B')})"
        )


def cost(problem: Problem, plan: Plan, read: dict[str, int] | None = None) -> Cost:
    """The cost of a problem under a plan; the pairs in full tiles are counted exactly, those in mixed tiles one by one.

    flops = 2 · (D + E) · visited, useful = 2 · (D + E) · allowed. read: bytes of q, k and v, where those of the problem
    are placeholders.

    >>> import numpy as np, regard as rg
    >>> from regard.engines.plan import plan
    >>> q = k = v = np.zeros((100, 8), np.float32)
    >>> problem = Problem.of(q, k, v, mask=rg.causal())
    >>> cost(problem, plan(problem, rows=16, keys=16)).allowed
    5050
    """
    B, H, Q, K, D, E = (problem.dims[name] for name in "BHQKDE")
    pairs = plan.pairs
    visited = pairs["full"] + pairs["mixed"]
    exact = pairs["mixed"] // plan.copies <= CAP if plan.copies else True
    allowed = pairs["full"] + _allowed_in_mixed(problem, plan) if exact else visited
    itemsize = problem.dtype.itemsize
    return Cost(
        matrix=B * H * Q * K,
        visited=visited,
        allowed=allowed,
        exact=exact,
        flops=2 * (D + E) * visited,
        useful=2 * (D + E) * allowed,
        exponentials=visited,
        read=read or read_of(q=problem.q, k=problem.k, v=problem.v),
        written=B * H * Q * E * itemsize,
        extra=plan.offsets.nbytes + plan.runs.nbytes + plan.order.nbytes + B * H * Q * itemsize,
        weights=B * H * Q * K * itemsize,
    )


def _allowed_in_mixed(problem: Problem, plan: Plan) -> int:
    """How many pairs of mixed tiles the mask allows, by evaluating it on all of them, a bounded number at a time."""
    mask = problem.mask
    chosen = plan.runs[:, 2] == 1
    if mask is None or not chosen.any():
        return 0
    H, Q = problem.dims["H"], problem.dims["Q"]
    group, tile = np.divmod(plan.tile_of[chosen], plan.order.shape[1])
    first, last = plan.runs[chosen, :2].astype(np.int64).T
    # One entry per finest tile, so that every step has the same shape.
    count = -(-(last - first) // plan.keys)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    left = np.repeat(first, count) + within * plan.keys
    group, tile, last = (np.repeat(part, count) for part in (group, tile, last))
    batch, head = np.divmod(group, H if plan.per_head else 1)
    step = max(1, CHUNK // (plan.rows * plan.keys))
    total = 0
    for begin in range(0, len(left), step):
        part = slice(begin, begin + step)
        row = tile[part, None, None] * plan.rows + np.arange(plan.rows)[:, None]
        key = left[part, None, None] + np.arange(plan.keys)
        values = {
            "batch": batch[part, None, None],
            "head": head[part, None, None],
            "key": key,
            "query": row + problem.query_start[batch[part], None, None],
        }
        total += int(np.count_nonzero(evaluate(mask, values) & (row < Q) & (key < last[part, None, None])))
    return total * plan.copies


def read_of(**arrays) -> dict[str, int]:
    """Bytes of each array or tensor that are distinct in memory: a broadcast axis (stride 0) counts once."""
    found = {}
    for name, array in arrays.items():
        strides = array.strides if isinstance(array, np.ndarray) else array.stride()
        axes = zip(array.shape, strides, strict=True)
        count = np.prod([size if stride or not size else 1 for size, stride in axes], dtype=np.int64)
        found[name] = array.itemsize * int(count)
    return found


def _unit(number: int, unit: str) -> str:
    """A number with three digits and its unit: 1.23 GFLOP, 4 kB."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {prefix}{unit}"
    return f"{number} {unit}"
