"""Problem -> Plan -> kernel -> result: what is asked of the CPU engine, and the arguments of compiled code."""

from __future__ import annotations

import threading

import numpy as np

from .. import readings
from ..expr import Const, Expr, Op, Read, Table, walk
from ..intervals import Interval
from ..plan import Plan, plan
from ..problem import Problem
from . import build, forward, threads
from .arguments import pack
from .emit import signature
from .target import host
from .tile import Specification, scratch_bytes

__all__ = ["solve", "tile_shape", "why_not"]

PLAN_KEYS = 16  # verdicts are this fine along keys: what a window or a document wastes at its ends stays small


def why_not(problem: Problem) -> list[str]:
    """Every reason why the compiled engine cannot solve the problem; empty if it can."""
    reasons = []
    if problem.dtype != np.float32:
        reasons.append(f"it computes in float32, and the arrays are {problem.dtype}")
    return reasons


def tile_shape(problem: Problem) -> tuple[int, int]:
    """(query rows, keys) of a tile: as many rows as fill the registers, fewer where there are not as many."""
    target = host()
    lanes = target.lanes(4)
    rows = lanes * target.query_vectors
    while rows > lanes and rows // 2 >= problem.dims["Q"]:
        rows //= 2
    return rows, PLAN_KEYS


def solve(problem: Problem, out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(out (B, H, Q, E), lse (B, H, Q)), float32. `out` may be given, with any strides."""
    dims = problem.dims
    if out is None:
        out = np.empty((dims["B"], dims["H"], dims["Q"], dims["E"]), np.float32)
    lse = np.empty((dims["B"], dims["H"], dims["Q"]), np.float32)
    if lse.size == 0:
        return out, lse
    target = host()
    rows, keys = tile_shape(problem)
    found = plan(problem, rows, keys)
    spec, constants, tables = specify(problem, rows, out)
    compiled = build.compiled(
        repr(spec), target, lambda: forward.write(spec, target, problem.mask, problem.score, constants, tables), "forward"
    )
    tasks = dims["B"] * dims["H"] * found.order.shape[1]
    counter = np.zeros(1, np.int64)
    sinks = np.empty((dims["H"], 0)) if problem.sinks is None else problem.sinks
    sinks = np.ascontiguousarray(sinks, np.float32)
    starts = np.ascontiguousarray(problem.query_start, np.int64)
    block = pack(problem, found, constants, tables, out, lse, counter, sinks, starts)
    workers = min(threads.count(), tasks) if _work(problem, found) > SMALL else 1
    size = scratch_bytes(spec)

    def job():
        compiled.call(block.ctypes.data, _scratch(size))

    threads.run([job] * workers)
    return out, lse


SMALL = 2_000_000  # multiply-adds (a few 10 µs) below which waking a thread costs more than it brings


def _work(problem: Problem, found: Plan) -> int:
    dims = problem.dims
    heads = dims["B"] * dims["H"] // len(found.order)
    keys = int((found.runs[:, 1] - found.runs[:, 0]).sum(dtype=np.int64))
    return heads * keys * found.rows * (dims["D"] + dims["E"])


def specify(problem: Problem, rows: int, out: np.ndarray) -> tuple[Specification, list[Const], list[Table]]:
    """What the kernel is specialised to, and the constants and tables it takes as arguments."""
    shape, constants, tables = signature(problem.mask, problem.score)
    spec = Specification(
        shape=shape, D=problem.dims["D"], E=problem.dims["E"], rows=rows, wide=_needs_64_bits(problem),
        unit=tuple(array.strides[3] == 4 for array in (problem.q, problem.k, problem.v, out)),
        score=problem.score is not None, mask=problem.mask is not None,
    )  # fmt: skip
    return spec, constants, tables


def _needs_64_bits(problem: Problem) -> bool:
    """True unless bounds show that every integer in the expressions fits 32 bits."""
    roots = [root for root in (problem.mask, problem.score) if root is not None]
    if not roots:
        return False
    dims = problem.dims
    start = problem.query_start

    def span(lo, hi) -> Interval:
        return Interval(np.float64(lo), np.float64(hi))

    ranges = {
        "batch": span(0, dims["B"] - 1), "head": span(0, dims["H"] - 1), "key": span(0, max(dims["K"] - 1, 0)),
        # Lanes past the last row have positions too.
        "query": span(start.min(), start.max() + dims["Q"] + 1024), "score": Interval(np.float64(-np.inf), np.float64(np.inf), True),
    }  # fmt: skip
    tables: dict = {}
    for node in walk(*roots):
        if node.kind == "int" and isinstance(node, Const | Op | Read):
            found = readings.bounds(node, ranges, tables)
            if not (found.lo >= -(2**31) and found.hi < 2**31):
                return True
    return False


_memory = threading.local()


def _scratch(size: int) -> int:
    """The address of this thread's working memory, aligned to a cache line, kept from call to call."""
    held = getattr(_memory, "held", None)
    if held is None or held.size < size + 64:
        held = _memory.held = np.empty(size + 64, np.uint8)
    return -(-held.ctypes.data // 64) * 64
