"""The backward pass of the CPU engine: (Problem, Saved, dout) -> the backward kernel's three phases -> gradients."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...common.arrays import address
from ...common.caching import Memo
from ...language.expr import Table
from ...language.problem import Gradients, Problem, Saved
from ..plan import Plan, plan
from . import threads
from .code import build
from .code.arguments import factors, pack, slot
from .code.emit import signature
from .code.formats import Format
from .code.target import Target, host
from .engine import LARGE, Prepared, changes, least_work, needs_64_bits, rules
from .gradient_sums import Grid, all_direct, from_tile, grid, merged, partials_of, reads_of, sinks
from .kernels import backward
from .kernels.backward_parts.products import GRAIN
from .kernels.backward_parts.pullback import Expressions, roots
from .kernels.backward_specification import (
    ARRAYS,
    KEYS,
    PHASES,
    Specification,
    fixed_slots,
    padded,
    scratch_bytes,
)
from .kernels.parts import dropout, table_tiles
from .kernels.parts.few_rows import MOST
from .kernels.parts.plan_by_key import tile_ranges
from .kernels.parts.table_tiles import LINE, element_bytes
from .launch import Workspace
from .tiling import PLAN_KEYS, as_planned

OUTSIDE = (*ARRAYS, "top", "total", "lost")  # slots of the arrays of every call

CROWDED = 128  # rows of float64 a multiple of this apart collide in the cache
NARROW = 8  # a tile that visits fewer keys than this times its rows is narrow


class Recipe(NamedTuple):
    """The part that all calls of a kind have in common: everything except the addresses of the arrays.

    block: the argument block, in which addresses are filled in. place: the index of each slot by name. grid: tiles of
    queries, and blocks of positions. tasks: of each phase.
    room: the bytes of a call's working memory, which is zero before the call; within: the offset of each part of it;
    inside: the slots of these parts, whose contents in `block` are offsets. outside: the slots of `OUTSIDE`.
    small: one thread is enough, however many there are.
    apart: tables whose gradients are accumulated in one copy per thread. held: owners of the addresses in the block.
    free: workspaces that no call is using; once: they serve once, because they are large, or read after the call.
    """

    ready: Prepared
    block: np.ndarray
    place: dict[str, int]
    grid: Grid
    tasks: tuple[int, int, int]
    room: int
    within: dict[str, int]
    inside: np.ndarray
    outside: list[int]
    workers: int
    small: bool
    apart: list[Table]
    held: tuple
    once: bool
    free: list[Workspace]

    def bare(self) -> tuple[Recipe, list[tuple[Table, int]]]:
        """The recipe without the arrays of its rules, and where the address of each is in the argument block."""
        return self._replace(ready=self.ready.bare()), self.ready.places(len(self.place))

    def workspace(self) -> Workspace:
        """A new workspace."""
        room, block = threads.aligned(self.room), self.block.copy()
        block[self.inside] += address(room)
        ready, kept = self.ready, (self.ready, self.held, room)
        return Workspace(ready.kernel, block, ready.scratch, self.workers, kept, alone=self.small)

    def run(self, workspace: Workspace, outside: Iterable[int], held: tuple) -> None:
        """Runs the phases. outside: the addresses of `OUTSIDE`. held: objects to keep alive meanwhile."""
        block, place = workspace.block, self.place
        for number, where in zip(self.outside, outside, strict=True):
            block[number] = where
        next_task, task_count, phase_number = place["next"], place["tasks"], place["phase"]
        counter = address(workspace.room) + self.within["counters"]
        for phase, tasks in enumerate(self.tasks):
            block[next_task], block[task_count], block[phase_number] = counter + 8 * phase, tasks, phase
            workspace.run(held)
        if not self.once:
            workspace.room.fill(0)  # as the next call expects it
            self.free.append(workspace)


_prepared: Memo[Prepared] = Memo(64)
_recipes: Memo[Recipe] = Memo(64)


def kept(problem: Problem, out: np.ndarray, lse: np.ndarray) -> Saved:
    """`Saved` computed from out and lse alone: each weight is exp(score - lse), and the rounding of out is unknown."""
    lse = np.ascontiguousarray(lse, problem.real)
    top = lse / problem.real.type(factors(problem).unit)  # in units of the kernel's scores
    return Saved(out, np.stack([lse, top, np.where(lse == -np.inf, np.inf, 1).astype(problem.real)]))


def pull_back(
    problem: Problem,
    saved: Saved,
    dout: np.ndarray,
    dlse: np.ndarray | None,
    wanted: list[Table],
    into: tuple[np.ndarray, np.ndarray] | None = None,
) -> Gradients:
    """The gradients of Σ out · dout + Σ lse · dlse; those of tables and sinks are float64.

    wanted: the float tables of the score whose gradients are computed. into: arrays for dk and dv, in the dtype of
    sums. They are then sums over these rows, to be merged with those over others in the order of law 11, and keys that
    no row visits are not written.
    """
    B, H, G, Q, K, D, E = (problem.dims[name] for name in "BHGQKDE")
    real = problem.real
    some = 0 not in (B, H, Q)
    shapes = {"dq": (B, H, Q, D)} | ({"dk": (B, G, K, D), "dv": (B, G, K, E)} if into is None else {})
    found = {name: (np.empty if some else np.zeros)(shape, problem.dtype) for name, shape in shapes.items()}
    if into is not None:
        found |= zip(("dk", "dv"), into, strict=True)
    tables = {table: _spaced(table.array.shape) for table in wanted}
    rest = np.zeros((B, H, Q), real)
    if some:
        _run(problem, saved, dout, dlse, into is not None, tables=tables, rest=rest, found=found)
    return Gradients(found["dq"], found["dk"], found["dv"], tables, sinks(problem, saved, rest))


def _run(
    problem: Problem,
    saved: Saved,
    dout,
    dlse,
    partial: bool,
    *,
    tables: dict[Table, np.ndarray],
    rest: np.ndarray,
    found: dict,
) -> None:
    """Runs the kernel, phase by phase; the gradients of tables are added to `tables`; `rest` and `found` are filled."""
    arrays = {"q": problem.q, "k": problem.k, "v": problem.v, "out": saved.out, "dout": dout, **found}
    kind = (
        *(part for array in arrays.values() for part in (array.shape, array.strides)),
        problem.dtype,
        problem.scale,
        problem.query_start.tobytes(),
        problem.dropout is None,
        tuple(map(id, tables)),
        partial,
        threads.count(),
        host(),
    )
    recipe = _recipes(
        (problem.mask, problem.score), kind, lambda: recipe_of(problem, arrays, list(tables), partial=partial)
    )
    ready, numbers = recipe.ready, sum(table.array.size for table in recipe.apart)
    given: dict[str, Any] = {"rest": rest}
    if dlse is not None:
        given["dlse"] = np.ascontiguousarray(dlse, problem.real)
    offset = 0
    for table, (number, direct) in zip(_numbered(ready, tables), ready.spec.tables, strict=True):
        given[f"gradient{number}"] = tables[table] if direct else 8 * offset
        given[f"width{number}"] = tables[table].strides[-2] // 8 if direct else table.array.shape[-1]
        offset += 0 if direct else table.array.size
    if problem.dropout is not None:
        given |= dropout.slots(problem.dropout)
    sums, lost = saved.sums, 0 if saved.lost is None else address(saved.lost)
    outside = *map(address, arrays.values()), address(sums[1]), address(sums[2]), lost
    workspace = Workspace.of(recipe)
    for name, value in given.items():
        workspace.block[recipe.place[name]] = slot(value)
    recipe.run(workspace, outside, (problem, saved, dout, found, given))
    blocks = recipe.grid.numbers
    totals = (
        workspace.room[recipe.within["totals"] :][: 8 * len(blocks) * numbers]
        .view(np.float64)
        .reshape(len(blocks), numbers)
    )
    total = merged(blocks, totals) if numbers else totals[0]
    for table in recipe.apart:
        tables[table][...] = total[: table.array.size].reshape(table.array.shape)
        total = total[table.array.size :]


def recipe_of(
    problem: Problem,
    arrays: dict[str, np.ndarray],
    wanted: list[Table],
    *,
    tensors: bool = False,
    partial: bool = False,
    any_contents: bool = False,
) -> Recipe:
    """The recipe for all calls of the same kind as this one. partial: dk and dv are sums over some of the rows.
    any_contents: whatever the arrays that its rules read contain.
    """
    B, H, G, K = (problem.dims[name] for name in "BHGK")
    rows = _rows(problem, wanted)
    laid = grid(problem, rows)
    planned = from_tile(problem if any_contents else as_planned(problem), laid.lead)
    seen = plan(planned, rows, PLAN_KEYS, any_contents=any_contents and changes(problem.mask))
    ready = _prepare(problem, rows, arrays, wanted, partial)
    units = -(-K // KEYS)
    small = _work(problem, seen) < least_work(tensors)
    workers = 1 if small else min(threads.count(), B * G * units)
    apart = [
        table for table, (_, direct) in zip(_numbered(ready, wanted), ready.spec.tables, strict=True) if not direct
    ]
    fixed = fixed_slots(ready.spec)
    place = {name: number for number, name in enumerate(fixed)}
    numbers = sum(table.array.size for table in apart)
    within, room = _working_memory(problem, ready.spec, laid, units, workers, numbers)
    given: dict[str, Any] = {
        "lead": laid.lead,
        "tile_ranges": tile_ranges(seen, KEYS),
        "key_tiles": units,
        "tiles": laid.tiles,
        "numbers": numbers,
        "ring": workers,
        "blocks": len(laid.numbers),
        "block": laid.first,
    }
    given |= arrays | {name: offset for name, offset in within.items() if name in place}
    block = pack(problem, seen, ready.constants, ready.tables, fixed, **given)
    tiles = B * H * laid.tiles
    return Recipe(
        ready=ready,
        block=block,
        place=place,
        grid=laid,
        tasks=(tiles, B * G * units, tiles),
        room=room,
        within=within,
        inside=np.array([place[name] for name in within if name in place]),
        outside=[place[name] for name in OUTSIDE],
        workers=workers,
        small=small,
        apart=apart,
        held=(problem.query_start, seen, laid, given["tile_ranges"]),
        once=bool(apart) or room + workers * ready.scratch > LARGE,
        free=[],
    )


def _working_memory(problem: Problem, spec: Specification, laid: Grid, units: int, workers: int, numbers: int):
    """The offset of each part of a call's working memory, each on a cache line, and the size of all."""
    B, H, G, Q, D = (problem.dims[name] for name in "BHGQD")
    size, blocks = problem.real.itemsize, len(laid.numbers)
    sizes = {
        "counters": 8 * len(PHASES),  # tasks started
        # The progress of each task; finished and flushed (`OrderedAdds`, `TableSums`).
        "progress": 8 * B * G * units,
        "finished": 8 * B * G,
        "flushed": 8 * blocks,
        "totals": 8 * blocks * numbers,
        "copies": 8 * numbers * workers,
        "rest": B * H * Q * size,
        "dlse": B * H * Q * size,
        "softmax": B * H * laid.tiles * 3 * spec.rows * size,
        "work": B * H * laid.tiles * padded(D, Format(problem.dtype.name, host())) * spec.rows * size,
    }
    ends = np.cumsum([*map(table_tiles.padded, sizes.values())]).tolist()
    return dict(zip(sizes, [0, *ends])), ends[-1]


def _spaced(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros whose rows are not a power of two apart: a tile writes to a column, whose entries would otherwise share a
    cache set.
    """
    apart = shape[-1] + (LINE // 8 if shape[-1] % CROWDED == 0 else 0)
    return np.zeros((*shape[:-1], apart))[..., : shape[-1]]


def _numbered(ready: Prepared, tables) -> list[Table]:
    """The given tables in the order of the kernel."""
    return [table for table in ready.tables if table in tables]


def _work(problem: Problem, seen: Plan) -> int:
    """Multiply-adds of a call, without empty tiles."""
    return sum(seen.pairs.values()) * (3 * problem.dims["D"] + 2 * problem.dims["E"])


def _rows(problem: Problem, wanted: list[Table]) -> int:
    """Query rows of a tile, which change no bit. If tiles visit few keys, mask edges cut through a large part of them;
    smaller tiles waste less.
    """
    target = host()
    lanes = target.lanes(Format(problem.dtype.name, target).size)
    most, least = lanes * target.tile.query_vectors, 2 * lanes
    if not wanted and lanes >= GRAIN and _in_half(problem, least):
        return lanes
    if least >= min(most, problem.dims["Q"]):
        return least
    # The contributions of a tile to an entry of a table are added key by key.
    if any(found and not all_direct(problem, found) for found in reads_of(problem, wanted).values()):
        return least
    if problem.mask is not None:
        seen = plan(problem, most, PLAN_KEYS)
        if int((seen.runs[:, 1] - seen.runs[:, 0]).sum(dtype=np.int64)) < NARROW * most * seen.order.size:
            return least
    return most


def _in_half(problem: Problem, rows: int) -> bool:
    """Whether the rows of every batch entry are in one half of a chain of `rows`: the other half then adds nothing."""
    first = problem.query_start % rows
    return bool((first // (rows // 2) == (first + problem.dims["Q"] - 1) // (rows // 2)).all())


def _few(problem: Problem, laid: Grid, target: Target) -> int:
    """The number of rows, if they are few and in one tile; otherwise 0."""
    Q = problem.dims["Q"]
    return Q if Q <= MOST and laid.tiles == 1 and not Format(problem.dtype.name, target).pairs else 0


def _prepare(problem: Problem, rows: int, arrays: dict, wanted: list[Table], partial: bool) -> Prepared:
    """The kernel for a problem, compiled or cached."""
    unit = tuple(arrays[name].strides[3] == arrays[name].itemsize for name in ARRAYS)
    start = problem.query_start
    rest = (
        problem.q.shape,
        problem.k.shape,
        problem.v.shape[3],
        problem.dtype,
        rows,
        unit,
        rules(problem)[1] is None,
        problem.dropout is None,
        tuple(map(id, wanted)),
        start.tobytes(),
        partial,
        host(),
    )
    return _prepared(
        (problem.mask, problem.score), rest, lambda: _compiled(problem, rows, unit, wanted, partial, host())
    )


def _compiled(
    problem: Problem, rows: int, unit: tuple[bool, ...], wanted: list[Table], partial: bool, target: Target
) -> Prepared:
    mask, score = rules(problem)
    laid, partials = grid(problem, rows), partials_of(score, wanted)
    reads = reads_of(problem, wanted)
    shape, constants, tables = signature(mask, score, *partials, *partials.values())
    together = functools.reduce(operator.add, partials.values(), problem.score) if problem.score is not None else None
    spec = Specification(
        shape=shape,
        D=problem.dims["D"],
        E=problem.dims["E"],
        dtype=problem.dtype.name,
        rows=rows,
        wide=needs_64_bits(from_tile(replace(problem, score=together), laid.lead)),
        unit=unit,
        dropout=problem.dropout is not None,
        tables=tuple(
            (number, all_direct(problem, reads[table])) for number, table in enumerate(tables) if table in wanted
        ),
        few=_few(problem, laid, target),
        partial=partial,
        squares=element_bytes(*roots(mask, score, partials)),
    )

    def write():
        return backward.write(spec, target, Expressions(mask, score, partials, constants, tables))

    kernel = build.compiled(repr(spec), target, write, "backward")
    return Prepared(kernel, spec, constants, tables, scratch_bytes(spec, Format(spec.dtype, target), laid.most))
