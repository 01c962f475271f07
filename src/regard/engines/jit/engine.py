"""The forward pass of the CPU engine: Problem -> Plan -> kernel -> result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...common.arrays import address
from ...common.caching import Memo
from ...language import analysis
from ...language.expr import Const, Expr, Op, Table, walk
from ...language.expr import score as the_score
from ...language.intervals import Interval
from ...language.operators import OPERATORS
from ...language.problem import Problem, Saved
from ..plan import Plan, Summaries, plan, plan_step
from . import threads
from .code import build
from .code.arguments import FIXED, pack, plain, slot
from .code.emit import signature
from .code.formats import Format
from .code.target import host
from .kernels import forward
from .kernels.forward import PIECE
from .kernels.parts import dropout, few_rows
from .kernels.parts.table_tiles import element_bytes
from .kernels.parts.tile import Specification
from .launch import Workspace, is_slow
from .tiling import PLAN_KEYS, Tiling, as_planned, splits, tiling, visited

FEW = 16  # up to this many rows, a call is likely a decoding step, and the next call the same with one more key
CACHED = 8 << 20  # bytes of keys and values that are usually in a cache
SMALL = 4_000_000  # multiply-adds (about 30 µs) below which a single thread is faster
LARGE = 4 << 20  # bytes of working memory beyond which a call takes so long that new memory is cheap
LARGEST = 8192  # floating-point operations per pair of a mask and a score together
SHARE = 75_000  # the same per thread, where torch's threads poll for work (about 3 µs for two of them)


class Prepared(NamedTuple):
    """A kernel, its specification, the leaves of its expressions, and its scratch memory in bytes."""

    kernel: build.Kernel
    spec: Any
    constants: list[Const]
    tables: list[Table]
    scratch: int

    def places(self, fixed: int) -> list[tuple[Table, int]]:
        """The tables, and where the address of each is in an argument block. fixed: its slots before the constants."""
        widths = [1 + 2 * table.array.ndim for table in self.tables]
        begin = fixed + len(self.constants)
        return [(table, begin + sum(widths[:number])) for number, table in enumerate(self.tables)]

    def bare(self) -> Prepared:
        """Without the leaves, which would keep arrays alive."""
        return self._replace(tables=[], constants=[])


class Recipe(NamedTuple):
    """The part that all calls of a kind have in common: everything except the addresses of the arrays.

    block: the argument block, in which addresses are filled in, followed by the counters of tasks started and of pieces
    left per tile. slots: its length without the counters. step: bytes of lse, of top and of total. room: bytes of the
    working memory for pieces. plan, start: owners of the other addresses in the block. small: one thread is enough,
    however many there are. slow: see `launch.is_slow`. free: workspaces that no call is using; once: they
    serve once, because they are large.
    """

    ready: Prepared
    plan: Plan
    start: np.ndarray
    block: np.ndarray
    slots: int
    step: int
    room: int
    workers: int
    small: bool
    slow: bool
    once: bool
    free: list[Workspace]

    def bare(self) -> tuple[Recipe, list[tuple[Table, int]]]:
        """The recipe without the arrays of its rules, and where the address of each is in the argument block."""
        return self._replace(ready=self.ready.bare()), self.ready.places(len(FIXED))

    def workspace(self) -> Workspace:
        """A new workspace, with room for lse, top and total, which many calls do not return."""
        block, room = self.block.copy(), threads.aligned(self.room + 3 * self.step)
        counters = address(block) + 8 * self.slots
        block[_NEXT], block[_LEFT] = counters, counters + 8
        block[_PARTS], block[_SUMS] = address(room), address(room) + self.room + self.step * np.arange(3)
        alone, kernel = self.small and not self.room, self.ready.kernel
        kept = self.ready, self.plan, self.start, room
        return Workspace(kernel, block, self.ready.scratch, self.workers, kept, alone=alone, slow=self.slow)


_operations: Memo[int] = Memo(256, of_contents=False)
_prepared: Memo[Prepared] = Memo(256)
_recipes: Memo[Recipe] = Memo(64)

_NEXT, _LEFT, _PARTS, _LOST = (FIXED.index(name) for name in ("next", "left", "parts", "lost"))
_Q, _K, _V, _OUT = (FIXED.index(name) for name in ("q", "k", "v", "out"))
_LSE, _TOP, _TOTAL = (FIXED.index(name) for name in ("lse", "top", "total"))
_SUMS = slice(_LSE, _TOTAL + 1)  # contiguous, as in `sums`


def why_not(problem: Problem) -> list[str]:
    """Every reason why the compiled engine cannot solve the problem; empty if it can."""
    against = too_large(problem)
    if build.unavailable():
        against.append(build.unavailable())
    if 0 in (problem.q.shape[3], problem.v.shape[3]):
        against.append("the compiled engine has no kernels for arrays of depth 0")
    return against


def too_large(problem: Problem) -> list[str]:
    """Why a rule is too large to compile: compilation takes time in proportion, about 10 s at this limit."""
    found = _operations((problem.mask, problem.score), (), lambda: operations(problem.mask, problem.score))
    return [f"a mask and a score of {found:,} operations per pair"] if found > LARGEST else []


def operations(*rules: Expr | None) -> int:
    """Floating-point operations of the rules per pair, each node once."""
    nodes = walk(*(rule for rule in rules if rule is not None))
    return sum(OPERATORS[node.name].cost if isinstance(node, Op) else 1 for node in nodes)


def tile_shape(problem: Problem) -> tuple[int, int]:
    """(query rows, keys) of a tile of the plan."""
    return tiling(problem, tall=True).planned, PLAN_KEYS


def solve(problem: Problem, out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(out (B, H, Q, E) in the problem's dtype, lse (B, H, Q)). out: an array for the result, with any strides."""
    B, H, Q, _ = problem.q.shape
    out = np.empty((B, H, Q, problem.v.shape[3]), problem.dtype) if out is None else out
    sums = np.empty((3, B, H, Q), problem.real)
    fill(problem, Saved(out, sums))
    return out, sums[0]


def keep(problem: Problem) -> Saved:
    """`solve`, with what the backward pass needs."""
    B, H, Q, _ = problem.q.shape
    shape = (B, H, Q, problem.v.shape[3])
    lost = None if problem.dtype == problem.real else np.empty(shape, np.int16)
    saved = Saved(np.empty(shape, problem.dtype), np.empty((3, B, H, Q), problem.real), lost)
    fill(problem, saved)
    return saved


def fill(problem: Problem, saved: Saved, partial: bool = False) -> None:
    """Computes a call into the arrays of `saved`. partial: out is O in the dtype of sums, top and total are m and l."""
    (B, H, Q, _), real, (out, sums, lost, _) = problem.q.shape, problem.real, saved
    if 0 in (B, H, Q):
        return
    arrays = q, k, v, out = problem.q, problem.k, problem.v, out
    sinks = None if problem.sinks is None else np.ascontiguousarray(problem.sinks, real)
    # The seed and rate of dropout are not part of the recipe, because the seed changes in every training step.
    kind = (
        q.shape,
        k.shape,
        v.shape,
        q.strides,
        k.strides,
        v.strides,
        out.strides,
        q.dtype,
        problem.scale,
        problem.query_start.tobytes(),
        sinks if sinks is None else sinks.shape,
        problem.dropout is None,
        partial,
        threads.count(),
        host(),
    )
    count = 0 if sinks is None else sinks.shape[1]
    recipe = _recipes((problem.mask, problem.score), kind, lambda: recipe_of(problem, out, count, partial))
    slots: dict[str, Any] = {} if sinks is None else {"sinks": sinks}
    if problem.dropout is not None:
        slots |= dropout.slots(problem.dropout)
    rest = [(FIXED.index(name), slot(value)) for name, value in slots.items()]
    where = address(sums), 0 if lost is None else address(lost)
    run(recipe, tuple(map(address, arrays)), *where, rest, held=(problem, saved, sinks))


def run(
    recipe: Recipe,
    addresses: tuple[int, ...],
    sums: int = 0,
    lost: int = 0,
    rest: Iterable[tuple[int, int]] = (),
    held: tuple = (),
) -> None:
    """Runs a call of a known kind.

    addresses: of q, k, v and out. sums: that of (3, B, H, Q) numbers, lse, top and total; 0 if they are not wanted.
    lost: that of `Saved.lost`. rest: further slots, (place, value). held: objects to keep alive during the call.
    """
    workspace = Workspace.of(recipe)
    block = workspace.block
    block[_Q], block[_K], block[_V], block[_OUT] = addresses
    if sums:
        block[_LSE], block[_TOP], block[_TOTAL] = sums, sums + recipe.step, sums + 2 * recipe.step
        block[_LOST] = lost
    for place, value in rest:
        block[place] = value
    workspace.run(held)
    if not recipe.once:
        recipe.free.append(workspace)


def least_work(tensors: bool) -> int:
    """Multiply-adds below which a call takes a single thread. tensors: a call of torch, after other calls of torch."""
    return min(SMALL, SHARE * threads.team_size()) if tensors and threads.team_size() else SMALL


def recipe_of(
    problem: Problem,
    out: np.ndarray,
    sink_count: int,
    partial: bool = False,
    *,
    tensors: bool = False,
    any_contents: bool = False,
) -> Recipe:
    """The recipe for all calls of the same kind as this one. any_contents: whatever its mask and score contain, if
    they are arrays.
    """
    B, H, Q, _ = problem.q.shape
    summaries: Summaries = {}
    planned = problem if any_contents else as_planned(problem)
    ignore = any_contents and changes(problem.mask)
    shape = tiling(planned, summaries, tall=True, any_contents=ignore)
    if Q <= FEW and not ignore:
        found = plan_step(planned, shape.planned, PLAN_KEYS, summaries=summaries)
    else:
        found = plan(planned, shape.planned, PLAN_KEYS, summaries=summaries, any_contents=ignore)
    heads = H // shape.shared
    tiles = B * heads * found.order.shape[1]
    split = splits(problem, found, tiles, threads.count())
    ready = prepare(problem, shape, split, out, partial)
    pieces = -(-problem.dims["K"] // PIECE) if split else 1
    block = pack(
        problem,
        found,
        ready.constants,
        ready.tables,
        out=out,
        tasks=tiles * pieces,
        **shared_slots(problem, shape),
        sink_count=sink_count,
        pieces=pieces,
    )
    counters = np.append(0, np.full(tiles if split else 0, pieces))
    total = work(problem, found)
    small = total < least_work(tensors)
    workers = 1 if small else min(threads.count(), tiles * pieces)
    step = B * H * Q * problem.real.itemsize
    room = tiles * pieces * (problem.v.shape[3] + 2) * shape.rows * problem.real.itemsize if split else 0
    return Recipe(
        ready,
        found,
        problem.query_start,
        np.append(block, counters),
        len(block),
        step=step,
        room=room,
        workers=workers,
        small=small,
        slow=is_slow(total, tiles * pieces),
        once=room + 3 * step + workers * ready.scratch > LARGE,
        free=[],
    )


def changes(rule: Expr | None) -> bool:
    """Whether a rule reads arrays that may contain something else in the next call."""
    return rule is not None and not all(table.frozen for table in rule.tables)


def work(problem: Problem, found: Plan) -> int:
    """Multiply-adds of a call, without empty tiles."""
    B, H, _, D = problem.q.shape
    return B * H // len(found.order) * visited(found) * found.rows * (D + problem.v.shape[3])


def prepare(problem: Problem, shape: Tiling, split: bool, out: np.ndarray, partial: bool = False) -> Prepared:
    """The kernel for a problem, compiled or cached."""
    unit = tuple(array.strides[3] == array.itemsize for array in (problem.q, problem.k, problem.v, out))
    few = problem.q.shape[2] * shape.shared <= few_rows.MOST
    crowded = few and problem.dtype.itemsize >= 4 and problem.k.strides[2] % few_rows.CROWDED == 0
    kind = {"unit": unit, "split": split, "partial": partial, "crowded": crowded}
    rest = (
        problem.q.shape,
        problem.v.shape[3],
        problem.dtype,
        shape,
        *kind.values(),
        plain(problem),
        problem.dropout is None,
        *_reach(problem),
        _streams(problem),
        host(),
    )

    def prepared() -> Prepared:
        return compiled(problem, specify(problem, shape, **kind), _reach(problem)[0])

    return _prepared((problem.mask, problem.score), rest, prepared)


def rules(problem: Problem):
    """The mask and the score as a kernel applies them."""
    return problem.mask, the_score if problem.score is None and not plain(problem) else problem.score


def shared_slots(problem: Problem, shape: Tiling) -> dict[str, Any]:
    """What heads that share tiles change in the argument block: tiles and their rows, and tiles with the same keys."""
    _, H, Q, _ = problem.q.shape
    group = H // problem.k.shape[1]
    slots = {"heads": H // shape.shared, "rows": Q * shape.shared, "same": group // shape.shared}
    return slots | ({"group": shape.shared} if shape.folded else {})


def specify(problem: Problem, shape: Tiling, **kind) -> Specification:
    """The specification of the kernel for a problem; kind: further fields of it."""
    mask, score = rules(problem)
    rows, depths = problem.q.shape[2], (problem.q.shape[3], problem.v.shape[3])
    rows *= shape.shared
    form = Format(problem.dtype.name, host())
    few = rows if few_rows.suits(rows, depths, kind["unit"], form, host()) else 0
    return Specification(
        shape=signature(mask, score)[0],
        D=problem.q.shape[3],
        E=problem.v.shape[3],
        dtype=problem.dtype.name,
        rows=shape.rows,
        lanes=shape.lanes,
        wide=needs_64_bits(problem),
        score=score is not None,
        mask=mask is not None,
        folded=shape.folded,
        dropout=problem.dropout is not None,
        stream=_streams(problem) if few else shape.rows >= problem.q.shape[2],
        squares=element_bytes(mask, score, folded=shape.folded),
        few=few,
        **kind,
    )


def _streams(problem: Problem) -> bool:
    """Whether keys and values come from memory, so that prefetching them helps; otherwise it takes time."""
    return problem.k.size * problem.k.itemsize + problem.v.size * problem.v.itemsize > CACHED


def compiled(problem: Problem, spec: Specification, keys: int) -> Prepared:
    """The kernel of a specification, for calls over at most so many keys."""
    mask, score = rules(problem)
    _, constants, tables = signature(mask, score)
    kernel = build.compiled(
        repr(spec), host(), lambda: forward.write(spec, host(), mask, score, constants, tables), "forward"
    )
    return Prepared(kernel, spec, constants, tables, forward.scratch_bytes(spec, host(), keys))


def _reach(problem: Problem) -> tuple[int, int, int]:
    """The ranges of key positions, query positions, and negative query positions, rounded up to powers of two, so that
    consecutive decoding steps have the same ranges.
    """
    # Lanes past the last row have positions too.
    first, last = int(problem.query_start.min()), int(problem.query_start.max()) + problem.q.shape[2] + 1024
    keys, rows, below = (1 << max(size, 0).bit_length() for size in (problem.dims["K"] - 1, last, -first))
    return keys, rows, below if first < 0 else 0


def needs_64_bits(problem: Problem) -> bool:
    """True unless bounds show that every integer in the expressions fits 32 bits."""
    B, H, _, _ = problem.q.shape
    keys, rows, below = _reach(problem)

    def span(lo, hi) -> Interval:
        return Interval(np.array(lo, np.float64), np.array(hi, np.float64))

    anything = Interval(np.array(-np.inf), np.array(np.inf), True)
    ranges = {
        "batch": span(0, B - 1),
        "head": span(0, H - 1),
        "key": span(0, keys - 1),
        "query": span(-below, rows),
        "score": anything,
    }
    roots = [root for root in (problem.mask, problem.score) if root is not None]
    # Bounds of the integers only: those of a mask or a bias that is an array would read all of it.
    integers = [node for node in walk(*roots) if node.kind == "int"]
    found = analysis.ranges_of(integers, ranges)
    return any(not (found[id(node)].lo >= -(2**31) and found[id(node)].hi < 2**31) for node in integers)
