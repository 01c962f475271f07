"""Statistics of the weights by the CPU engine: selects kernels, and computes the results from their sums in float64."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...common.caching import Memo
from ...language.expr import Expr
from ...language.masks import everything
from ...language.measures import (
    Counts,
    Distance,
    Maximum,
    Measure,
    Pooled,
    PooledMap,
    Range,
    Request,
    Top,
    TopKeys,
    edges,
)
from ...language.problem import Problem
from ..plan import Plan, plan
from . import engine, threads
from .code import build
from .code.arguments import FIXED, factors, pack, plain
from .code.emit import signature
from .code.target import host
from .kernels.forward import PIECE
from .kernels.parts.plan_by_key import tile_ranges
from .kernels.parts.tasks import stack_entries
from .kernels.parts.tile import BLOCK, Memory
from .kernels.score_sweep import Frame
from .kernels.statistics_keys import SLOTS, keys_kernel, keys_memory
from .kernels.statistics_rows import Sums, rows_kernel, rows_memory
from .launch import Workspace, is_slow
from .tiling import PLAN_KEYS, Tiling, tiling, visited

_frames: Memo[Frame] = Memo(64)


class Runner(NamedTuple):
    """Runs both kernels over one problem, with the same tiles and plan."""

    problem: Problem
    shape: Tiling
    plan: Plan

    @classmethod
    def of(cls, problem: Problem, shape: Tiling) -> Runner:
        """The runner for a problem, with its plan."""
        if shape.folded:  # keys are counted per head, so heads do not share lanes
            shape = Tiling(shape.lanes, shape.lanes, shape.lanes)
        return cls(problem, shape, plan(problem, shape.planned, PLAN_KEYS))

    @property
    def room(self) -> int:
        """Number of rows of whole tiles; the last tile may extend past Q."""
        return self.plan.order.shape[1] * self.shape.rows

    def empty(self, count: int, dtype) -> np.ndarray:
        """An array of `count` numbers per row of whole tiles, for a kernel to fill."""
        return np.empty((*self.problem.q.shape[:2], count, self.room), dtype)

    def frame(self, sets: tuple[Expr, ...]) -> Frame:
        """The frame that the kernels are generated from; sets: expressions for sets of keys."""
        problem, start = self.problem, self.problem.query_start
        unit = tuple(array.strides[3] == array.itemsize for array in (problem.q, problem.k))
        sizes = (*problem.dims.values(), problem.dtype, self.shape, unit)
        rest = (*sizes, plain(problem), start.min(), start.max(), host())
        return _frames((problem.mask, problem.score, *sets), rest, lambda: self._framed(sets, unit))

    def _framed(self, sets: tuple[Expr, ...], unit: tuple[bool, ...]) -> Frame:
        problem = self.problem
        mask, score = engine.rules(problem)
        shape, constants, tables = signature(mask, score, *sets)
        # The integers of the sets of keys must fit 32 bits too.
        every = functools.reduce(operator.and_, sets, everything() if mask is None else mask)
        spec = engine.specify(replace(problem, mask=every), self.shape, unit=(*unit, True, True))
        return Frame(replace(spec, shape=shape, mask=mask is not None), host(), mask, score, sets, constants, tables)

    def run(
        self,
        name: str,
        frame: Frame,
        *,
        detail: Any,
        write: Callable,
        memory: dict[str, int],
        tasks: int,
        own: dict[str, Any],
    ) -> None:
        """Compiles and runs a kernel. detail: its specification besides the frame; own: its additional slots, in
        order.
        """
        problem = self.problem
        kernel = build.compiled(repr((frame.spec, name, detail)), frame.target, write, name)
        counter = np.zeros(1, np.int64)
        block = pack(
            problem, self.plan, frame.constants, frame.tables, (*FIXED, *own), next=counter, tasks=tasks, **own
        )
        B, H, _, D = problem.q.shape
        work = B * H // len(self.plan.order) * visited(self.plan) * self.plan.rows * D
        workers = 1 if work < engine.SMALL else min(threads.count(), tasks)
        kept = self, frame, counter, own
        Workspace(kernel, block, Memory.total(memory), workers, kept, slow=is_slow(work, tasks)).run()


def statistics(request: Request) -> dict[str, Any]:
    """Every measure by name: arrays or tuples of arrays, of a float dtype or int64, with shapes (B, H, …)."""
    problem = request.problem
    runner = Runner.of(problem, tiling(problem))
    with np.errstate(all="ignore"):
        rows = RowSums(runner, request)
        found = {measure.name: rows.answer(measure) for measure in request.measures if measure.kind in OF_ROWS}
        received = [measure.name for measure in request.of_kind("received")]
        maps: list[PooledMap | None] = list(request.of_kind("pooled"))
        for each in maps or [None] * len(received):  # one pass each; the first also sums what keys receive
            cells = Cells(each.rows, each.columns, problem.dims["Q"], problem.dims["K"]) if each else None
            columns, total, most = by_keys(runner, rows.top_room, rows.peak, bool(received), cells)
            found |= dict.fromkeys(received, columns)
            if each:
                area = np.outer(
                    np.diff(edges(problem.dims["Q"], each.rows)), np.diff(edges(problem.dims["K"], each.columns))
                )
                found[each.name] = Pooled(total / area, most)
            received = []
    return {measure.name: found[measure.name] for measure in request.measures}


# ---- rows ------------------------------------------------------------------------------------------------------------


class RowSums:
    """The sums of the rows kernel for every row, and the results of all measures of rows."""

    def __init__(self, runner: Runner, request: Request):
        problem = runner.problem
        kinds = {measure.kind for measure in request.measures}
        masses = list(request.of_kind("mass"))
        best = [1] * ("maximum" in kinds) + [measure.count for measure in request.of_kind("top")]
        sums = Sums(
            "entropy" in kinds,
            "distance" in kinds,
            len(masses),
            max(best, default=0),
            "range" in kinds,
            "counts" in kinds,
        )
        frame = runner.frame(tuple(measure.keys for measure in masses))
        found = {name: runner.empty(count, dtype) for name, (count, dtype, _) in sums.kept(problem.real).items()}
        tasks = runner.plan.order.shape[1] * math.prod(problem.q.shape[:2])
        own = {f"sum_{name}": array for name, array in found.items()}
        runner.run(
            "rows",
            frame,
            detail=sums,
            write=lambda: rows_kernel(frame, sums),
            memory=rows_memory(frame, sums, stack_entries(-(-problem.dims["K"] // PIECE))),
            tasks=tasks,
            own=own,
        )
        self.problem, self.unit, self.top_room = problem, factors(problem)[2], found["maximum"][:, :, 0]
        self.sums = {name: array[..., : problem.dims["Q"]] for name, array in found.items()}
        self.place = {measure.name: number for number, measure in enumerate(masses)}
        self._weigh()

    def _weigh(self) -> None:
        """The denominator, total · exp(top), with sinks; peak: the largest weight."""
        problem, keys_top = self.problem, self.of("maximum") * self.unit
        self.top, self.total = keys_top, self.of("total")
        if problem.sinks is not None:
            sinks = problem.sinks.astype(np.float64)[:, :, None]  # (H, S, 1)
            self.top = np.maximum(keys_top, sinks.max(1, initial=-np.inf))
            mine = np.exp(keys_top - some_number(self.top)) * self.total
            self.total = np.where(self.total == 0, 0, mine) + np.exp(sinks - some_number(self.top)[:, :, None]).sum(2)
        share = np.exp(keys_top - some_number(self.top)) / self.total
        self.nan = np.isnan(self.total)
        self.peak = np.where((self.of("total") == 0) & ~self.nan, 0, share)

    def of(self, name: str, row: int = 0) -> np.ndarray:
        """(B, H, Q) float64."""
        return self.sums[name][:, :, row].astype(np.float64)

    def answer(self, measure: Measure) -> Any:
        return OF_ROWS[measure.kind](self, measure)


def some_number(top: np.ndarray) -> np.ndarray:
    """A maximum that can be subtracted."""
    return np.where(top == -np.inf, 0, top)


def lse(rows: RowSums, _: Measure) -> np.ndarray:
    return some_number(rows.top) + np.log(rows.total)


def entropy(rows: RowSums, _: Measure) -> np.ndarray:
    """−Σ p ln p with p = exp(d) · peak."""
    least = np.where(rows.peak == 0, 1, rows.peak)
    return -rows.peak * (rows.of("surprise") * rows.unit + rows.of("total") * np.log(least))


def distance(rows: RowSums, _: Measure) -> Distance:
    share, once, twice = (rows.of("moments", row) for row in range(3))
    share = np.where(share == 0, 1, share)
    mean = once / share
    return Distance(mean, np.maximum(twice / share - mean**2, 0))


def within(rows: RowSums, measure: Measure) -> np.ndarray:
    return rows.of("sets", rows.place[measure.name]) * rows.peak


def best(rows: RowSums, measure: TopKeys) -> Top:
    scores, keys = (np.moveaxis(rows.sums[name][:, :, : measure.count], 2, 3) for name in ("best", "best_keys"))
    fallen = scores.astype(np.float64) - rows.of("maximum")[..., None]
    nan = rows.nan[..., None]
    weight = np.where(keys < 0, 0, np.exp(fallen * rows.unit) * rows.peak[..., None])
    return Top(np.where(nan, np.nan, weight), np.where(nan, -1, keys).astype(np.int64))


def maximum(rows: RowSums, measure: Measure) -> Maximum:
    weight, key = best(rows, TopKeys("top", measure.name, 1))
    return Maximum(weight[..., 0], key[..., 0])


def reach(rows: RowSums, _: Measure) -> Range:
    """Smallest and largest score, in units of the scores."""
    return Range(rows.of("least") * rows.unit, rows.of("most") * rows.unit)


def counts(rows: RowSums, _: Measure) -> Counts:
    return Counts(*(rows.sums["counted"][:, :, row].astype(np.int64) for row in range(3)))


OF_ROWS: dict[str, Callable[[RowSums, Any], Any]] = {
    "lse": lse,
    "entropy": entropy,
    "distance": distance,
    "mass": within,
    "top": best,
    "maximum": maximum,
    "range": reach,
    "counts": counts,
}


# ---- keys ------------------------------------------------------------------------------------------------------------


CELL = 1024  # keys: the columns of a coarse map are computed in parts of at least this size, to have enough tasks


class Cells(NamedTuple):
    """A map of rows × columns cells over height × width pairs; the last cells may extend past the matrix.

    Cell (r, c) covers the query rows ⌊r·height/rows⌋ … ⌊(r+1)·height/rows⌋ − 1, and the keys likewise.
    """

    rows: int
    columns: int
    height: int
    width: int


def by_keys(
    runner: Runner, top: np.ndarray, peak: np.ndarray, received: bool, cells: Cells | None
) -> tuple[np.ndarray, ...]:
    """The weight that each key receives (B, H, K), and the sums and maxima of cells (B, H, rows, columns); zeros for
    those that are not requested.

    A weight is exp((s − top) · unit) · peak, s in the kernel's units: top (B, H, whole tiles) in real, peak (B, H, Q).
    """
    B, H, Q, K = (runner.problem.dims[axis] for axis in "BHQK")
    real = runner.problem.real
    lines, columns, height, width = cells or Cells(0, 0, Q, K)
    parts = max(1, width // (CELL * max(columns, 1)))
    fine = parts * columns  # every edge of a column is an edge ⌊part · width / fine⌋ of a part
    sums, total, most = np.zeros((B, H, K)), np.zeros((B, H, lines, fine)), np.zeros((B, H, lines, fine), real)
    room = np.zeros((B, H, runner.room), real)
    room[..., :Q] = peak
    # Every range consists of whole columns, and of enough keys for a task.
    borders = edges(width, fine)[:: -(-BLOCK * fine // width)] if fine else np.arange(0, K, BLOCK)
    borders = np.append(borders[borders < K], K)
    own = {
        "row_top": some_number(top),
        "row_peak": room,
        "ranges": len(borders) - 1,
        "borders": borders,
        "tile_ranges": tile_ranges(runner.plan, BLOCK),
        "received": sums,
        "map_rows": lines,
        "map_columns": fine,
        "map_height": height,
        "map_width": width,
        "cell_total": total,
        "cell_most": most,
    }
    assert tuple(own) == SLOTS
    frame, pooled = runner.frame(()), cells is not None
    tasks = B * H * (len(borders) - 1)
    runner.run(
        "keys",
        frame,
        detail=(received, pooled),
        write=lambda: keys_kernel(frame, received, pooled),
        memory=keys_memory(frame),
        tasks=tasks,
        own=own,
    )
    total, most = (array.reshape(B, H, lines, columns, parts) for array in (total, most))
    total, most = total.sum(-1), most.max(-1, initial=0)
    return sums, total, np.where(np.isnan(total), np.nan, most)


def pooled_by_lse(runner: Runner, lse: np.ndarray, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Sums and maxima of the weights exp(score − lse) in each cell, for a given lse (B, H, Q), in one pass.

    Rows with lse −inf have zero weights; rows with lse NaN or +inf are NaN wherever they attend.
    """
    top = np.zeros((*lse.shape[:2], runner.room), runner.problem.real)
    with np.errstate(all="ignore"):
        top[..., : lse.shape[2]] = np.where(np.isfinite(lse), lse, 0).astype(np.float64) / factors(runner.problem)[2]
        peak = np.where(np.isneginf(lse), 0, np.where(np.isfinite(lse), 1, np.nan))
        _, total, most = by_keys(runner, top, peak, False, cells)
    return total, most
