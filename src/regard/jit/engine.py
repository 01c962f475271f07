"""Problem -> Plan -> kernel -> result: what is asked of the CPU engine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import readings
from ..expr import Const, Table, walk
from ..intervals import Interval
from ..memo import Memo
from ..plan import Plan, plan
from ..problem import Problem
from . import build, forward, threads
from .arguments import pack
from .emit import signature
from .launch import launch
from .target import host
from .tile import Specification, scratch_bytes

__all__ = ["prepare", "solve", "specify", "tile_shape", "why_not"]

PLAN_KEYS = 16  # verdicts are this fine along keys: what a window or a document wastes at its ends stays small
NARROW = 8  # times its rows: a tile that sees fewer keys is narrow
PATIENT = 1 << 16  # rows beyond which planning narrow tiles would take longer than they save
SMALL = 4_000_000  # multiply-adds (some 30 µs) below which waking a thread costs more than it brings


class Prepared(NamedTuple):
    """A kernel and what it takes besides arrays."""

    kernel: build.Kernel
    spec: Specification
    constants: list[Const]
    tables: list[Table]


_prepared: Memo[Prepared] = Memo(256)


def why_not(problem: Problem) -> list[str]:
    """Every reason why the compiled engine cannot solve the problem; empty if it can."""
    reasons = []
    if problem.dtype != np.float32:
        reasons.append(f"it computes in float32, and the arrays are {problem.dtype}")
    if problem.dropout is not None:
        reasons.append("it has no dropout yet")
    return reasons


def tile_shape(problem: Problem) -> tuple[int, int]:
    """(query rows, keys) of a tile: as many rows as fill the registers, fewer where there are not as many.

    Where a tile sees few keys, a good part of them is cut by the mask's two edges, and less is cut in a tile of fewer rows.
    """
    target = host()
    lanes = target.lanes(4)
    rows = lanes * target.tile.query_vectors
    while rows > lanes and rows // 2 >= problem.q.shape[2]:
        rows //= 2
    if problem.mask is not None and rows > lanes and problem.q.shape[2] <= PATIENT:
        found = plan(problem, rows, PLAN_KEYS)
        if _visited(found) < NARROW * rows * found.order.size:
            rows = lanes
    return rows, PLAN_KEYS


def solve(problem: Problem, out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(out (B, H, Q, E), lse (B, H, Q)), float32. `out` may be given, with any strides."""
    B, H, Q, _ = problem.q.shape
    if out is None:
        out = np.empty((B, H, Q, problem.v.shape[3]), np.float32)
    lse = np.empty((B, H, Q), np.float32)
    if lse.size == 0:
        return out, lse
    rows, keys = tile_shape(problem)
    found = plan(problem, rows, keys)
    ready = prepare(problem, rows, out)
    counter = np.zeros(1, np.int64)
    sinks = np.ascontiguousarray(np.empty((H, 0)) if problem.sinks is None else problem.sinks, np.float32)
    block = pack(problem, found, ready.constants, ready.tables, out, lse, counter, sinks)
    workers = 1 if _work(problem, found) < SMALL else min(threads.count(), B * H * found.order.shape[1])
    launch(ready.kernel, block, scratch_bytes(ready.spec), workers, (problem, found, ready, out, lse, counter, sinks))
    return out, lse


def _work(problem: Problem, found: Plan) -> int:
    """Multiply-adds of a call, empty tiles left out."""
    B, H, _, D = problem.q.shape
    return B * H // len(found.order) * _visited(found) * found.rows * (D + problem.v.shape[3])


def _visited(found: Plan) -> int:
    """Keys that tiles visit, over all tiles."""
    return int((found.runs[:, 1] - found.runs[:, 0]).sum(dtype=np.int64))


def prepare(problem: Problem, rows: int, out: np.ndarray) -> Prepared:
    """The kernel for a problem, compiled or found."""
    unit = tuple(array.strides[3] == 4 for array in (problem.q, problem.k, problem.v, out))
    start = problem.query_start
    rest = (problem.q.shape, problem.k.shape[2], problem.v.shape[3], rows, unit, start.min(), start.max(), host())
    return _prepared((problem.mask, problem.score), rest, lambda: _compiled(problem, rows, unit))


def specify(problem: Problem, rows: int, unit: tuple[bool, ...]) -> tuple[Specification, list[Const], list[Table]]:
    """What a kernel is specialised to, and the constants and tables that it takes as arguments."""
    shape, constants, tables = signature(problem.mask, problem.score)
    spec = Specification(
        shape=shape, D=problem.q.shape[3], E=problem.v.shape[3], rows=rows, wide=_needs_64_bits(problem), unit=unit,
        score=problem.score is not None, mask=problem.mask is not None,
    )  # fmt: skip
    return spec, constants, tables


def _compiled(problem: Problem, rows: int, unit: tuple[bool, ...]) -> Prepared:
    spec, constants, tables = specify(problem, rows, unit)
    target = host()
    kernel = build.compiled(
        repr(spec), target, lambda: forward.write(spec, target, problem.mask, problem.score, constants, tables), "forward"
    )
    return Prepared(kernel, spec, constants, tables)


def _needs_64_bits(problem: Problem) -> bool:
    """True unless bounds show that every integer in the expressions fits 32 bits."""
    B, H, Q, _ = problem.q.shape
    start = problem.query_start

    def span(lo, hi) -> Interval:
        return Interval(np.array(lo, np.float64), np.array(hi, np.float64))

    anything = Interval(np.array(-np.inf), np.array(np.inf), True)
    ranges = {
        "batch": span(0, B - 1), "head": span(0, H - 1), "key": span(0, max(problem.k.shape[2] - 1, 0)),
        # Lanes past the last row have positions too.
        "query": span(start.min(), start.max() + Q + 1024), "score": anything,
    }  # fmt: skip
    roots = [root for root in (problem.mask, problem.score) if root is not None]
    found = readings.ranges_of(roots, ranges)
    return any(
        node.kind == "int" and not (found[id(node)].lo >= -(2**31) and found[id(node)].hi < 2**31) for node in walk(*roots)
    )
