"""Problem -> Plan -> kernel -> result: what is asked of the CPU engine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import readings
from ..expr import Const, Table, walk
from ..expr import score as the_score
from ..intervals import Interval
from ..memo import Memo
from ..plan import Plan, plan
from ..problem import Problem
from . import build, dropout, forward, threads
from .arguments import pack, plain
from .emit import signature
from .forward import PIECE
from .launch import launch
from .target import host
from .tile import Memory, Specification, regions
from .tiling import PLAN_KEYS, Tiling, splits, tiling, visited

__all__ = ["Saved", "keep", "prepare", "rules", "solve", "specify", "tile_shape", "why_not"]

SMALL = 4_000_000  # multiply-adds (some 30 µs) below which waking a thread costs more than it brings


class Prepared(NamedTuple):
    """A kernel and what it takes besides arrays."""

    kernel: build.Kernel
    spec: Specification
    constants: list[Const]
    tables: list[Table]
    scratch: int


class Saved(NamedTuple):
    """A forward pass and what a backward pass needs of it: a weight is 2**(exponent · (s - top)) / total, s in the kernel's units."""

    out: np.ndarray
    lse: np.ndarray
    top: np.ndarray
    total: np.ndarray


_prepared: Memo[Prepared] = Memo(256)


def why_not(problem: Problem) -> list[str]:
    """Every reason why the compiled engine cannot solve the problem; empty if it can."""
    return []


def tile_shape(problem: Problem) -> tuple[int, int]:
    """(query rows, keys) of a tile of the plan."""
    return tiling(problem).planned, PLAN_KEYS


def solve(problem: Problem, out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(out (B, H, Q, E) in the problem's dtype, lse (B, H, Q)). `out` may be given, with any strides."""
    return keep(problem, out)[:2]


def keep(problem: Problem, out: np.ndarray | None = None) -> Saved:
    """`solve`, and what a backward pass needs."""
    B, H, Q, _ = problem.q.shape
    E = problem.v.shape[3]
    if out is None:
        out = np.empty((B, H, Q, E), problem.dtype)
    lse, top, total = np.empty((3, B, H, Q), problem.real)
    if lse.size == 0:
        return Saved(out, lse, top, total)
    shape = tiling(problem)
    found = plan(problem, shape.planned, PLAN_KEYS)
    heads = problem.k.shape[1] if shape.folded else H
    tiles = B * heads * found.order.shape[1]
    split = splits(problem, found, tiles, threads.count())
    ready = prepare(problem, shape, split, out)
    pieces = -(-problem.dims["K"] // PIECE) if split else 1
    counter = np.zeros(1, np.int64)
    sinks = np.ascontiguousarray(np.empty((H, 0)) if problem.sinks is None else problem.sinks, problem.real)
    parts = _aligned(tiles * pieces * (E + 2) * shape.rows if split else 0, problem.real)
    left = np.full(tiles if split else 0, pieces, np.int64)
    given = {
        "next": counter, "tasks": tiles * pieces, "out": out, "lse": lse, "top": top, "total": total, "heads": heads,
        "rows": Q * H // heads, "sinks": sinks, "sink_count": sinks.shape[1], "pieces": pieces, "parts": parts, "left": left,
    }  # fmt: skip
    if problem.dropout is not None:
        given |= dropout.slots(problem.dropout)
    block = pack(problem, found, ready.constants, ready.tables, **given)
    workers = 1 if _work(problem, found) < SMALL else min(threads.count(), tiles * pieces)
    launch(ready.kernel, block, ready.scratch, workers, (problem, found, ready, given))
    return Saved(out, lse, top, total)


def _aligned(count: int, dtype: np.dtype) -> np.ndarray:
    """Working memory that begins on a cache line."""
    room = np.empty(count * dtype.itemsize + 64, np.uint8)
    return room[-room.ctypes.data % 64 :][: count * dtype.itemsize].view(dtype)


def _work(problem: Problem, found: Plan) -> int:
    """Multiply-adds of a call, empty tiles left out."""
    B, H, _, D = problem.q.shape
    return B * H // len(found.order) * visited(found) * found.rows * (D + problem.v.shape[3])


def prepare(problem: Problem, shape: Tiling, split: bool, out: np.ndarray) -> Prepared:
    """The kernel for a problem, compiled or found."""
    unit = tuple(array.strides[3] == array.itemsize for array in (problem.q, problem.k, problem.v, out))
    start = problem.query_start
    rest = (problem.q.shape, problem.dims["K"], problem.v.shape[3], problem.dtype, shape, split, unit, plain(problem),
            problem.dropout is None, start.min(), start.max(), host())  # fmt: skip
    return _prepared((problem.mask, problem.score), rest, lambda: _compiled(problem, shape, split, unit))


def rules(problem: Problem):
    """The mask and the score as a kernel applies them."""
    return problem.mask, the_score if problem.score is None and not plain(problem) else problem.score


def specify(problem: Problem, shape: Tiling, split: bool, unit: tuple[bool, ...]) -> Specification:
    """What a kernel is specialised to."""
    mask, score = rules(problem)
    return Specification(
        shape=signature(mask, score)[0], D=problem.q.shape[3], E=problem.v.shape[3], dtype=problem.dtype.name, rows=shape.rows,
        lanes=shape.lanes, wide=_needs_64_bits(problem), unit=unit, score=score is not None, mask=mask is not None,
        folded=shape.folded, split=split, dropout=problem.dropout is not None, stream=shape.rows >= problem.q.shape[2],
    )  # fmt: skip


def _compiled(problem: Problem, shape: Tiling, split: bool, unit: tuple[bool, ...]) -> Prepared:
    spec, target = specify(problem, shape, split, unit), host()
    mask, score = rules(problem)
    _, constants, tables = signature(mask, score)
    kernel = build.compiled(repr(spec), target, lambda: forward.write(spec, target, mask, score, constants, tables), "forward")
    return Prepared(kernel, spec, constants, tables, Memory.total(regions(spec, target)))


def _needs_64_bits(problem: Problem) -> bool:
    """True unless bounds show that every integer in the expressions fits 32 bits."""
    B, H, Q, _ = problem.q.shape
    start = problem.query_start

    def span(lo, hi) -> Interval:
        return Interval(np.array(lo, np.float64), np.array(hi, np.float64))

    anything = Interval(np.array(-np.inf), np.array(np.inf), True)
    ranges = {
        "batch": span(0, B - 1), "head": span(0, H - 1), "key": span(0, max(problem.dims["K"] - 1, 0)),
        # Lanes past the last row have positions too.
        "query": span(start.min(), start.max() + Q + 1024), "score": anything,
    }  # fmt: skip
    roots = [root for root in (problem.mask, problem.score) if root is not None]
    found = readings.ranges_of(roots, ranges)
    return any(
        node.kind == "int" and not (found[id(node)].lo >= -(2**31) and found[id(node)].hi < 2**31) for node in walk(*roots)
    )
