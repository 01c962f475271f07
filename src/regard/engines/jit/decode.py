"""Decoding: attention over paged keys and values, prepared once for many steps.

Consecutive steps differ by one key. The plan, the kernel and most of the argument block are computed once and stay
valid while rows advance by up to `ahead` positions (`plan.plan`). A step sets the addresses of its arrays, clips the
runs of the plan to the current keys, and runs the same kernel over the same blocks, so results are bit-identical to
those of a single call.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ...common.arrays import address
from ...language.problem import Problem
from ..plan import Plan, plan
from . import threads
from .code.arguments import FIXED, NO_RUNS, factors, pack
from .code.target import host
from .engine import SMALL, compiled, shared_slots, specify, work
from .kernels.forward import PIECE
from .launch import Workspace, is_slow
from .partial import State
from .tiling import PLAN_KEYS, splits, tiling

PLACE = {name: number for number, name in enumerate(FIXED)}
# Slots that differ from step to step, in the order of the arrays in `Decoder.__call__`.
ADDRESSES = [PLACE[name] for name in ("start", "offsets", "runs", "pages", "parts")]
ARRAYS = [PLACE[name] for name in ("q", "out", "k", "v", "k_scales", "v_scales")]  # address and strides
NEXT, LEFT, SUMS, COLUMNS, KEYS = (PLACE[name] for name in ("next", "left", "lse", "pages_batch", "K"))
TASKS, PIECES, FIRST = (PLACE[name] for name in ("tasks", "pieces", "first_piece"))
assert FIXED[SUMS : SUMS + 3] == ("lse", "top", "total")


class Decoder:
    """Attention of advancing query rows over a growing number of keys, stored in pages.

    problem: the call, with rows at their first positions; of k and v only the shape is used, with K the largest number
    of keys.
    ends (B,): number of keys of each batch entry in the first step. ahead: how far rows and ends may advance. page:
    positions per page. quantized: keys and values are 8-bit integers with a scale for each row. partial: the result is
    undivided, over some of the pieces (`part`); the problem has no sinks. unit: what converts its scores to nats.
    """

    def __init__(
        self,
        problem: Problem,
        ends: np.ndarray,
        ahead: int,
        page: int,
        *,
        quantized: bool = False,
        partial: bool = False,
    ):
        B, H, Q, _ = problem.q.shape
        E = problem.v.shape[3]
        shape = tiling(problem)
        found = _for_each_entry(plan(problem, shape.planned, PLAN_KEYS, ends, ahead))
        tiles = B * (H // shape.shared) * found.order.shape[1]
        split = splits(problem, found, tiles, threads.count())
        self.pieces = range(-(-problem.dims["K"] // PIECE))
        self.tiles, self.split, self.state_size = tiles, split, (E + 2) * shape.rows
        unit = (problem.q.strides[3] == problem.q.itemsize, True, True, True)
        spec = specify(problem, shape, split=split, unit=unit, paged=True, quantized=quantized, partial=partial)
        self.ready = ready = compiled(problem, spec, problem.dims["K"])
        self.shape, self.real, self.dtype = (B, H, Q, E), problem.real, problem.dtype
        total, tasks = work(problem, found), tiles * (len(self.pieces) if split else 1)
        self.workers = 1 if total < SMALL else min(threads.count(), tasks)
        self.how = {"alone": total < SMALL and not split, "slow": is_slow(total, tasks)}
        self.free: list[Workspace] = []  # that no step is using
        self.unit = factors(problem).unit
        self.found, self.problem = found, problem
        self.home = threads.count(), host()
        self.block = pack(
            problem,
            found,
            ready.constants,
            ready.tables,
            **shared_slots(problem, shape),
            sink_count=0 if problem.sinks is None else problem.sinks.shape[1],
            page=page,
        )

    def workspace(self) -> Workspace:
        """A new workspace; in its room are counters, of tasks started, and of pieces left per tile."""
        counters = np.zeros(1 + (self.tiles if self.split else 0), np.int64)
        block = self.block.copy()
        block[NEXT], block[LEFT] = address(counters), address(counters) + 8
        kept = self.ready, self.found, self.problem, counters
        return Workspace(self.ready.kernel, block, self.ready.scratch, self.workers, kept, **self.how)

    def at_home(self) -> bool:
        """Whether the number of threads and the target are those that it was prepared for."""
        return self.home == (threads.count(), host())

    def __call__(self, q, pools, *, table, start, ends, sinks) -> tuple[np.ndarray, np.ndarray]:
        """(out (B, H, Q, E), lse (B, H, Q)) of one step.

        q (B, H, Q, D) · pools: k (pages, G, page, D), v (pages, G, page, E) and, if they are quantized, the scales of
        their rows (pages, G, page, 1) each · table (B, columns) int32, the page of each column of positions ·
        start (B,) int64 · ends (B,) int64 · sinks (H, S) or None.
        """
        out = np.empty(self.shape, self.dtype)
        return out, self._run(q, pools, out, self.pieces, table=table, start=start, ends=ends, sinks=sinks)[0]

    def part(self, q, pools, pieces: range, *, table, start, ends) -> State:
        """The state of one step over some pieces: a subtree of 2ⁿ pieces that begins at a multiple of 2ⁿ.

        Of the table, only the columns of these pieces are read. All other arguments are as for a step.
        """
        values = np.empty(self.shape, self.real)
        sums = self._run(q, pools, values, pieces, table=table, start=start, ends=ends, sinks=None)
        return State(sums[1], sums[2], values)

    def _run(self, q, pools, out, pieces: range, *, table, start, ends, sinks) -> np.ndarray:
        """Fills `out` for the keys of some pieces; returns the sums (3, B, H, Q)."""
        sums = np.empty((3, *self.shape[:3]), self.real)
        last = np.maximum.reduce(ends)
        if len(pieces) < len(self.pieces):
            ends = np.minimum(ends, pieces.stop * PIECE)
        runs, offsets = self.found.until(ends)
        if pieces.start:
            runs, offsets = _later(runs, offsets, pieces.start * PIECE)
        count = len(pieces) if self.split else 1
        room = self.tiles * count * self.state_size if self.split else 0
        parts = threads.aligned(room * self.real.itemsize) if room else out
        workspace = Workspace.of(self)
        workspace.room[0], workspace.room[1:] = 0, count
        block = workspace.block
        for place, array in zip(ADDRESSES, (start, offsets, runs if len(runs) else NO_RUNS, table, parts)):
            block[place] = address(array)
        for place, array in zip(ARRAYS, (q, out, *pools)):
            block[place] = address(array)
            for axis, stride in enumerate(array.strides, place + 1):
                block[axis] = stride
        top, step = address(sums), sums.strides[0]
        block[SUMS], block[SUMS + 1], block[SUMS + 2] = top, top + step, top + 2 * step
        block[COLUMNS] = table.shape[1]
        block[KEYS] = int(last)  # the table may end there: nothing past it is prefetched
        block[TASKS], block[PIECES], block[FIRST] = self.tiles * count, count, pieces.start
        if sinks is not None:
            sinks = np.ascontiguousarray(sinks, self.real)
            block[PLACE["sinks"]] = address(sinks)
        workspace.run((q, pools, table, start, out, sums, runs, offsets, parts, sinks))
        self.free.append(workspace)
        return sums


def _later(runs: np.ndarray, offsets: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """The runs without the keys before `first`, and their offsets."""
    some = runs[:, 1] > first
    runs, offsets = runs[some], np.append(0, np.cumsum(some))[offsets]
    np.maximum(runs[:, 0], first, out=runs[:, 0])
    return runs, offsets


def _for_each_entry(found: Plan) -> Plan:
    """The plan with separate runs for each batch entry, because their numbers of keys will differ."""
    if found.per_batch:
        return found
    B, count = found.dims["B"], len(found.runs)
    offsets = np.append((found.offsets[:-1] + count * np.arange(B)[:, None]).ravel(), B * count)
    return dataclasses.replace(
        found, per_batch=True, offsets=offsets, runs=np.tile(found.runs, (B, 1)), order=np.tile(found.order, (B, 1))
    )
