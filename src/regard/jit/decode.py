"""Decoding: attention over pages of keys, prepared once for many steps.

A step asks what the step before it asked, of a key more. What follows from the question, its plan, its kernel and nearly all of the
argument block, is worked out once and stays true while rows move on by `ahead` positions (`plan.plan`). A step says where its arrays
lie, cuts the plan's runs where the keys end, and runs: the same kernel, over the same blocks, with the same bits.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ..plan import Plan, plan
from ..problem import Problem
from . import build, forward, threads
from .arguments import FIXED, NO_RUNS, address, pack
from .emit import signature
from .engine import SMALL, _aligned, _work, rules, specify
from .forward import PIECE
from .launch import launch
from .target import host
from .tile import Memory, regions
from .tiling import PLAN_KEYS, splits, tiling

__all__ = ["Decoder"]

PLACE = {name: number for number, name in enumerate(FIXED)}


class Decoder:
    """Attention of rows that move on over keys that grow, in pages.

    problem: what is asked, rows at their first positions; of k and v only the shape counts, with K the most keys that there will be.
    ends (B,): how many keys each batch entry has at first. ahead: how far rows and ends may move on. page: positions in a page.
    """

    def __init__(self, problem: Problem, ends: np.ndarray, ahead: int, page: int):
        B, H, Q, _ = problem.q.shape
        G, E = problem.k.shape[1], problem.v.shape[3]
        shape = tiling(problem)
        found = _for_each_entry(plan(problem, shape.planned, PLAN_KEYS, ends, ahead))
        heads = G if shape.folded else H
        self.tiles = B * heads * found.order.shape[1]
        split = splits(problem, found, self.tiles, threads.count())
        self.pieces = -(-problem.dims["K"] // PIECE) if split else 1
        self.room = self.tiles * self.pieces * (E + 2) * shape.rows if split else 0
        self.left = np.full(self.tiles if split else 0, self.pieces, np.int64)
        target, (mask, score) = host(), rules(problem)
        _, constants, tables = signature(mask, score)
        unit = (problem.q.strides[3] == problem.q.itemsize, True, True, True)
        spec = dataclasses.replace(specify(problem, shape, split, unit), paged=True)
        self.kernel = build.compiled(
            repr(spec), target, lambda: forward.write(spec, target, mask, score, constants, tables), "forward"
        )
        self.scratch = Memory.total(regions(spec, target))
        self.shape, self.real, self.dtype = (B, H, Q, E), problem.real, problem.dtype
        self.workers = 1 if _work(problem, found) < SMALL else min(threads.count(), self.tiles * self.pieces)
        self.found, self.problem = found, problem
        self.entry = found.tile_of // (len(found.offsets) // B)  # the batch entry of each run
        empty = np.zeros(0, np.int64)
        self.block = pack(
            problem, found, constants, tables, next=empty, tasks=self.tiles * self.pieces, out=np.empty(self.shape, self.dtype),
            lse=empty, top=empty, total=empty, heads=heads, rows=Q * H // heads, sinks=empty,
            sink_count=0 if problem.sinks is None else problem.sinks.shape[1], pieces=self.pieces, parts=empty, left=empty,
            page=page,
        )  # fmt: skip

    def __call__(self, q, k, v, table, start, ends, sinks) -> tuple[np.ndarray, np.ndarray]:
        """(out (B, H, Q, E), lse (B, H, Q)) of one step.

        q (B, H, Q, D) · k (pages, G, page, D) · v (pages, G, page, E) · table (B, columns) int32, the page of each column of positions ·
        start (B,) int64 · ends (B,) int64 · sinks (H, S) or None.
        """
        out = np.empty(self.shape, self.dtype)
        lse, top, total = np.empty((3, *self.shape[:3]), self.real)
        runs, offsets = self._runs(ends)
        given = {
            "next": np.zeros(1, np.int64), "lse": lse, "top": top, "total": total, "start": start, "offsets": offsets,
            "runs": runs, "parts": _aligned(self.room, self.real), "left": self.left.copy(), "pages": table,
        }  # fmt: skip
        if sinks is not None:
            given["sinks"] = np.ascontiguousarray(sinks, self.real)
        block = self.block.copy()
        for name, array in given.items():
            block[PLACE[name]] = address(array)
        for name, array in (("q", q), ("k", k), ("v", v), ("out", out)):
            place = PLACE[name]
            block[place : place + 5] = address(array), *array.strides
        block[PLACE["pages_batch"]] = table.strides[0] // 4
        launch(self.kernel, block, self.scratch, self.workers, (self, q, k, v, out, given))
        return out, lse

    def _runs(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The plan's runs up to where the keys of their batch entry end, and where each tile's begin."""
        runs, offsets = self.found.runs.copy(), self.found.offsets
        end = ends[self.entry]
        some = runs[:, 0] < end
        if not some.all():
            runs, end = runs[some], end[some]
            offsets = np.concatenate([[0], np.cumsum(some)])[offsets]
        np.minimum(runs[:, 1], end, out=runs[:, 1], casting="same_kind")
        return runs if len(runs) else NO_RUNS, offsets


def _for_each_entry(found: Plan) -> Plan:
    """The plan with runs of their own for each batch entry, whose keys will end elsewhere."""
    if found.per_batch:
        return found
    B, count = found.dims["B"], len(found.runs)
    offsets = np.append((found.offsets[:-1] + count * np.arange(B)[:, None]).ravel(), B * count)
    return dataclasses.replace(
        found, per_batch=True, offsets=offsets, runs=np.tile(found.runs, (B, 1)), order=np.tile(found.order, (B, 1))
    )
