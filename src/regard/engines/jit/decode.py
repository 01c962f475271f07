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
from .code import build
from .code.arguments import FIXED, NO_RUNS, pack
from .code.emit import signature
from .code.target import host
from .engine import SMALL, aligned, rules, specify, work
from .kernels import forward
from .kernels.forward import PIECE
from .run import threads
from .run.launch import launch
from .tiling import PLAN_KEYS, splits, tiling

__all__ = ["Decoder"]

PLACE = {name: number for number, name in enumerate(FIXED)}
# Slots that differ from step to step, in the order of the arrays in `Decoder.__call__`.
ADDRESSES = [PLACE[name] for name in ("start", "offsets", "runs", "pages", "parts", "next")]
ARRAYS = [PLACE[name] for name in ("q", "out", "k", "v", "k_scales", "v_scales")]  # address and strides
SUMS, LEFT, COLUMNS, KEYS = (PLACE[name] for name in ("lse", "left", "pages_batch", "K"))
assert FIXED[SUMS : SUMS + 3] == ("lse", "top", "total")


class Decoder:
    """Attention of advancing query rows over a growing number of keys, stored in pages.

    problem: the call, with rows at their first positions; of k and v only the shape is used, with K the largest number
    of keys.
    ends (B,): number of keys of each batch entry in the first step. ahead: how far rows and ends may advance. page:
    positions per page. quantized: keys and values are 8-bit integers with a scale for each row.
    """

    def __init__(self, problem: Problem, ends: np.ndarray, ahead: int, page: int, *, quantized: bool = False):
        B, H, Q, _ = problem.q.shape
        G, E = problem.k.shape[1], problem.v.shape[3]
        shape = tiling(problem)
        found = _for_each_entry(plan(problem, shape.planned, PLAN_KEYS, ends, ahead))
        heads = G if shape.folded else H
        tiles = B * heads * found.order.shape[1]
        split = splits(problem, found, tiles, threads.count())
        self.pieces = -(-problem.dims["K"] // PIECE) if split else 1
        self.room = tiles * self.pieces * (E + 2) * shape.rows if split else 0
        # The number of tasks started, and of pieces left per tile.
        self.counters = np.append(0, np.full(tiles if split else 0, self.pieces))
        target, (mask, score) = host(), rules(problem)
        _, constants, tables = signature(mask, score)
        unit = (problem.q.strides[3] == problem.q.itemsize, True, True, True)
        spec = specify(problem, shape, split=split, unit=unit, paged=True, quantized=quantized)
        self.kernel = build.compiled(
            repr(spec), target, lambda: forward.write(spec, target, mask, score, constants, tables), "forward"
        )
        self.scratch = forward.scratch_bytes(spec, target, problem.dims["K"])
        self.shape, self.real, self.dtype = (B, H, Q, E), problem.real, problem.dtype
        self.workers = 1 if work(problem, found) < SMALL else min(threads.count(), tiles * self.pieces)
        self.found, self.problem = found, problem
        self.home = threads.count(), target
        empty = np.zeros(0, np.int64)
        self.block = pack(
            problem,
            found,
            constants,
            tables,
            next=empty,
            tasks=tiles * self.pieces,
            out=np.empty(self.shape, self.dtype),
            lse=empty,
            top=empty,
            total=empty,
            heads=heads,
            rows=Q * H // heads,
            sinks=empty,
            sink_count=0 if problem.sinks is None else problem.sinks.shape[1],
            pieces=self.pieces,
            parts=empty,
            left=empty,
            page=page,
        )

    def at_home(self) -> bool:
        """Whether the number of threads and the target are those that it was prepared for."""
        return self.home == (threads.count(), host())

    def __call__(self, q, pools, *, table, start, ends, sinks) -> tuple[np.ndarray, np.ndarray]:
        """(out (B, H, Q, E), lse (B, H, Q)) of one step.

        q (B, H, Q, D) · pools: k (pages, G, page, D), v (pages, G, page, E) and, if they are quantized, the scales of
        their rows (pages, G, page, 1) each · table (B, columns) int32, the page of each column of positions ·
        start (B,) int64 · ends (B,) int64 · sinks (H, S) or None.
        """
        out, sums = np.empty(self.shape, self.dtype), np.empty((3, *self.shape[:3]), self.real)
        runs, offsets = self.found.until(ends)
        counters = self.counters.copy()
        parts = aligned(self.room, self.real) if self.room else out
        given = q, pools, table, start, out, sums, runs, offsets, counters, parts, sinks
        block = self.block.copy()
        for place, array in zip(ADDRESSES, (start, offsets, runs if len(runs) else NO_RUNS, table, parts, counters)):
            block[place] = address(array)
        for place, array in zip(ARRAYS, (q, out, *pools)):
            block[place : place + 5] = address(array), *array.strides
        top = address(sums)
        block[SUMS : SUMS + 3] = top, top + sums.strides[0], top + 2 * sums.strides[0]
        block[LEFT], block[COLUMNS] = address(counters) + 8, table.shape[1]
        block[KEYS] = np.maximum.reduce(ends)  # the table may end there: nothing past it is prefetched
        if sinks is not None:
            sinks = np.ascontiguousarray(sinks, self.real)
            block[PLACE["sinks"]] = address(sinks)
        launch(self.kernel, block, self.scratch, self.workers, (self, given, sinks))
        return out, sums[0]


def _for_each_entry(found: Plan) -> Plan:
    """The plan with separate runs for each batch entry, because their numbers of keys will differ."""
    if found.per_batch:
        return found
    B, count = found.dims["B"], len(found.runs)
    offsets = np.append((found.offsets[:-1] + count * np.arange(B)[:, None]).ravel(), B * count)
    return dataclasses.replace(
        found, per_batch=True, offsets=offsets, runs=np.tile(found.runs, (B, 1)), order=np.tile(found.order, (B, 1))
    )
