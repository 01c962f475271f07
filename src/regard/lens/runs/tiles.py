"""Tiles: any part of a call's weights, pooled into cells, from a single pair to the whole matrix, computed on request.

    share    = mean over a cell's rows of Σ p over its keys        largest  = the largest p of the cell

Small parts are computed by `Call.weights`, in float64. Large parts stream through the compiled engine with the recorded
lse: p = exp(score − lse). Masked blocks are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...common.errors import refuse
from ...engines import choice
from ...language.analysis import bounds, evaluate, substituted
from ...language.expr import Expr, frozen_table, head, key, query
from ...language.intervals import Interval
from ...language.measures import edges
from ...language.problem import Problem
from .call import Call, Overview
from .call import Part as Places
from .codes import encode, too_large, wrong

BLOCK = 1 << 20  # pairs that NumPy processes at a time
PATIENCE = 1 << 37  # pairs × (depth + 64) of one tile: about a second on two cores; larger tiles are sampled
GIVEN = 1 << 25  # the same for given weights, in pairs
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are evenly spread and aperiodic


class Weights(Protocol):
    """What a tile is computed from: a call, or other weights with rows and keys, such as a mean of heads."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    def weights(self, rows: Places = None, keys: Places = None, heads: Places = None) -> np.ndarray: ...
    def allowed(self, rows: Places = None, keys: Places = None, heads: Places = None) -> np.ndarray: ...


class Tile(NamedTuple):
    """Cells of 2^level × 2^level pairs: share and largest (r, c) float32; allowed: whether the mask allows a pair.

    wrong (r, c): the code of an invalid weight in the cell, or 0, so that it shows at every level.
    exact: how it was computed: "exact", or "sampled 1 row of 8".
    """

    share: np.ndarray
    largest: np.ndarray
    allowed: np.ndarray
    wrong: np.ndarray
    exact: str


class Part(NamedTuple):
    """The pooled part: rows (increasing) and keys of some heads, in cells; the last cells may extend beyond the matrix.

    Cell (r, c) contains rows[⌊r·height/lines⌋ : ⌊(r+1)·height/lines⌋], and keys likewise.
    """

    heads: range
    rows: np.ndarray
    keys: range
    lines: int
    columns: int
    height: int
    width: int

    @property
    def row_edges(self) -> np.ndarray:
        return np.minimum(edges(self.height, self.lines), len(self.rows))

    @property
    def key_edges(self) -> np.ndarray:
        return np.minimum(edges(self.width, self.columns), len(self.keys))

    @property
    def pairs(self) -> int:
        return len(self.heads) * len(self.rows) * len(self.keys)


def tile(
    call: Weights, head: int, level: int, row: int, column: int, size: int = 256, *, budget: int | None = None
) -> Tile:
    """One tile of a head's map: cells of 2^level × 2^level pairs, the first at cell (row · size, column · size).

    At level 0 share and largest are the weight itself. The last tiles may be smaller. If a tile would take longer than
    about a second, its rows are sampled, and `exact` states the rate; budget: the most pairs of a tile without q and k
    before that; None is 2²⁵. Refused: a tile outside the matrix.

    >>> import numpy as np, regard as rg
    >>> lse, zeros = np.log([[1.0, 2, 3]]), np.zeros((1, 3, 4))
    >>> call = Call("attention", 0, "text", "text", lse, zeros, zeros, rg.causal())
    >>> tile(call, 0, 1, 0, 0).share.astype(float).round(2).tolist()
    [[1.0, 0.0], [0.67, 0.33]]
    """
    H, Q, K = call.shape
    step = 1 << level if 0 <= level < 64 else 0
    top, left = row * size * step, column * size * step
    if not (0 <= head < H and step and size > 0 and 0 <= top < Q and 0 <= left < K and row >= 0 and column >= 0):
        given = f"head {head}, level {level}, row {row}, column {column}, size {size}"
        raise refuse("tile", "no such tile", given, f"a tile of {H} heads, {Q} rows and {K} keys", "count from 0")
    keys, bottom = range(left, min(left + size * step, K)), min(top + size * step, Q)
    lines, columns = -(-(bottom - top) // step), -(-len(keys) // step)

    def part(every: int) -> Part:
        rows = sampled(top, bottom, every)
        return Part(
            range(head, head + 1),
            rows,
            keys,
            lines=lines,
            columns=columns,
            height=lines * (step // every),
            width=columns * step,
        )

    return pooled_tile(call, part, step, budget)


def overview(call: Call, cells: int = 128, sample: int = 1) -> Overview:
    """The matrix of every head in cells × cells with the edges of `pooled`; from one row in `sample`.

    A side with fewer positions than cells has one cell per position.
    """
    H, Q, K = call.shape
    lines, columns = min(cells, Q), min(cells, K)
    rows, height = spread(range(Q), lines, sample)
    part = Part(range(H), rows, range(K), lines=lines, columns=columns, height=height, width=K)
    if call.given is not None or part.pairs <= choice.ONE_CALL:
        total, largest, *_ = from_weights(call, part)
    else:
        total, largest = streamed(called(call, part), call, part)
    share = total / np.diff(part.row_edges)[:, None]
    exact = "exact" if height == Q else f"sampled 1 row of {round(Q / height)}"
    return Overview(share.astype(np.float32), largest.astype(np.float32), exact)


def region(call: Call, head: int, rows: range, keys: range, lines: int, columns: int) -> Tile:
    """Any rows and keys of a head in lines × columns cells, with the edges of `pooled`; sampled as `tile` is.

    >>> import numpy as np, regard as rg
    >>> lse, zeros = np.log([[1.0, 2, 3]]), np.zeros((1, 3, 4))
    >>> call = Call("attention", 0, "text", "text", lse, zeros, zeros, rg.causal())
    >>> region(call, 0, range(1, 3), range(3), 1, 3).share.astype(float).round(3).tolist()
    [[0.417, 0.417, 0.167]]
    """

    def part(every: int) -> Part:
        chosen, height = spread(rows, lines, every)
        return Part(range(head, head + 1), chosen, keys, lines=lines, columns=columns, height=height, width=len(keys))

    return pooled_tile(call, part, len(rows) // lines)


def pooled_tile(call: Weights, part: Callable[[int], Part], most: int, budget: int | None = None) -> Tile:
    """The tile of a part of one head, `part(1)`, or of a sample of its rows, `part(n)` with n a power of two up to
    `most`, if all rows would take too long.
    """
    whole = part(1)
    if not isinstance(call, Call) or call.given is not None or whole.pairs <= choice.ONE_CALL:
        chosen = part(halvings(whole.pairs / (GIVEN if budget is None else budget), most))
        total, largest, allowed, worst = from_weights(call, chosen)
    else:
        ready = called(call, whole)
        chosen = part(halvings(work(ready) / PATIENCE, most))
        total, largest = streamed(ready if len(chosen.rows) == len(whole.rows) else called(call, chosen), call, chosen)
        allowed = allowed_cells(call, whole, largest, chosen)
        # Computed weights are valid, or NaN; in that case sums and maxima are NaN as well.
        worst = np.zeros(allowed.shape, np.uint8)
    share = total / np.diff(chosen.row_edges)[:, None]
    every = round(len(whole.rows) / len(chosen.rows))
    exact = "exact" if len(chosen.rows) == len(whole.rows) else f"sampled 1 row of {every}"
    return Tile(share[0].astype(np.float32), largest[0].astype(np.float32), allowed[0], worst[0], exact)


def spread(rows: range, lines: int, every: int) -> tuple[np.ndarray, int]:
    """One row in `every` of each line of cells -> (the rows, the number of rows if all lines had as many)."""
    per = math.ceil(len(rows) / lines / every)
    if every == 1 or per >= len(rows) // lines:
        return np.arange(rows.start, rows.stop), len(rows)
    begins, sizes = edges(len(rows), lines)[:-1, None], np.diff(edges(len(rows), lines))[:, None]
    return rows.start + (begins + ((np.arange(per) + GOLDEN) / per * sizes).astype(np.int64)).ravel(), lines * per


def coded(call: Call, shown: Overview) -> np.ndarray:
    """An overview of all heads as codes, (H, R, C) uint8, with masked cells and invalid weights as in a tile."""
    (H, Q, K), (_, lines, columns) = call.shape, shown.share.shape
    part = Part(range(H), np.arange(Q), range(K), lines=lines, columns=columns, height=Q, width=K)
    if call.given is not None:
        allowed, worst = from_weights(call, part)[2:]
        return encode(shown.share, allowed, worst)[0]
    return encode(shown.share, allowed_cells(call, part, shown.largest, part), 0)[0]


def halvings(ratio: float, most: int) -> int:
    """The power of two, at most `most`, that divides a ratio down to 1 or below."""
    return min(1 << max(0, math.ceil(math.log2(ratio))) if ratio > 0 else 1, most)


def sampled(first: int, stop: int, every: int) -> np.ndarray:
    """One row of every `every` rows, each at a different offset within its group."""
    group = np.arange(-(-(stop - first) // every))
    return np.minimum(first + group * every + (group * GOLDEN % 1 * every).astype(np.int64), stop - 1)


def from_weights(call: Weights, part: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sums, maxima, allowed cells and invalid weights, in float64 from `weights`, a block of rows at a time."""
    shape = len(part.heads), part.lines, part.columns
    total, largest, allowed, worst = (np.zeros(shape, dtype) for dtype in (float, float, bool, np.uint8))
    begins, line = part.key_edges[:-1], np.searchsorted(part.row_edges, np.arange(len(part.rows)), "right") - 1
    keys = np.arange(part.keys.start, part.keys.stop)
    some = max(1, BLOCK // len(keys))
    for number, h in enumerate(part.heads):
        for first in range(0, len(part.rows), some):
            rows, mine = part.rows[first : first + some], line[first : first + some]
            lines = np.unique(mine)
            starts = np.searchsorted(mine, lines)
            p, free = (found(rows, keys, [h])[0] for found in (call.weights, call.allowed))
            faults = wrong(p, free)
            with np.errstate(invalid="ignore"):
                total[number, lines] += joined(np.add, p, starts, begins)
            largest[number, lines] = np.maximum(largest[number, lines], joined(np.maximum, p, starts, begins))
            allowed[number, lines] |= joined(np.logical_or, free, starts, begins)
            if faults is not None:
                worst[number, lines] = np.maximum(worst[number, lines], joined(np.maximum, faults, starts, begins))
    return total, largest, allowed, worst


def joined(ufunc: np.ufunc, values: np.ndarray, starts: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The values of each cell reduced to one; a cell of one row or key is unchanged."""
    for axis, edge in ((1, begins), (0, starts)):
        if len(edge) < values.shape[axis]:
            values = ufunc.reduceat(values, edge, axis)
    return values


def called(call: Call, part: Part, shown: bool = False) -> Any:
    """A part of the call, planned for the compiled engine; shown: with equal scores, which reveal what the mask allows.

    Rules keep the positions of the call.
    """
    from ...engines.jit import statistics, tiling

    assert call.q is not None and call.k is not None
    heads, rows, keys = part.heads, part.rows, part.keys
    share = call.shape[0] // call.groups
    groups = slice(heads.start // share, (heads.stop - 1) // share + 1)
    # Constants are arguments of a kernel. These are never 0 nor equal to those of a common rule, so that all parts
    # share one kernel.
    places: dict[Expr, Expr] = {head: head - (-2 - heads.start) - 2, key: key - (-1 - keys.start) - 1}
    even = len(rows) == rows[-1] - rows[0] + 1
    if not even:
        places[query] = frozen_table(call.start + rows, "rows")[query]
    mask, score = (None if rule is None else substituted(rule, places) for rule in (call.mask, call.score))
    q = call.q[heads.start : heads.stop]
    q, k = (
        q[:, slice(rows[0], rows[-1] + 1) if even else rows],
        call.k[groups, keys.start : keys.stop],
    )
    if shown:
        q, k, score = np.zeros((*q.shape[:2], 1), np.float32), np.zeros((*k.shape[:2], 1), np.float32), None
    elif too_large(q, k, call.scale, call.lse[heads.start : heads.stop, rows]):
        q, k = q.astype(np.float64), k.astype(np.float64)
    problem = Problem.of(
        q[None],
        k[None],
        None,
        mask=mask,
        score=score,
        scale=1.0 if shown else call.scale,
        query_start=call.start + int(rows[0]) if even else 0,
        where="tiles",
    )
    return statistics.Runner.of(problem, tiling.tiling(replace(problem, mask=None)))


def work(ready) -> int:
    """The number of pairs that would be computed, weighted by the cost of each."""
    from ...engines.jit.tiling import visited

    H, _, D = ready.problem.q.shape[1:]
    return H // len(ready.plan.order) * visited(ready.plan) * ready.plan.rows * (D + 64)


def streamed(ready, call: Call, part: Part, shown: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Sums and maxima of every cell, (heads, lines, columns) float64 and real."""
    from ...engines.jit.statistics import Cells, pooled_by_lse

    lse = np.asarray(call.lse[part.heads.start : part.heads.stop])[:, part.rows]
    cells = Cells(part.lines, part.columns, part.height, part.width)
    total, most = pooled_by_lse(ready, (np.zeros_like(lse) if shown else lse)[None], cells)
    return total[0], most[0]


def allowed_cells(call: Call, part: Part, largest: np.ndarray, chosen: Part) -> np.ndarray:
    """Which cells contain an allowed pair: those with weight; others by bounds of the mask or by the chosen rows."""
    found = largest != 0  # also true for NaN
    if call.mask is None or found.all():
        return np.ones(found.shape, bool)
    rows, keys = call.start + part.rows[0] + part.row_edges, part.keys.start + part.key_edges
    more, unknown = reach(call.mask, np.array(part.heads), rows, keys, ~found)
    if unknown.any():
        _, most = streamed(called(call, chosen, shown=True), call, chosen, shown=True)
        more |= unknown & (most > 0)
    return found | more


BOXES = 1 << 16  # the most boxes at a time; for masks that need more, some cells stay unknown


def reach(
    mask: Expr, heads: np.ndarray, rows: np.ndarray, keys: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(cells with an allowed pair, cells for which this is unknown), booleans like `wanted`: by interval bounds of
    the mask over boxes, which are halved until they are decided.

    heads (H,) · rows (R + 1,), keys (C + 1,): the edges of the cells · wanted (H, R, C): the cells to decide.

    >>> from regard.language.expr import key, query
    >>> edges = np.arange(0, 9, 2)
    >>> reach(key <= query, np.arange(1), edges, edges, np.ones((1, 4, 4), bool))[0][0].astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    found, unknown = np.zeros(wanted.shape, bool), np.zeros(wanted.shape, bool)
    h, line, column = np.nonzero(wanted)
    cell = np.flatnonzero(wanted)
    # Each box is a column: cell, head, first row, one past the last row, first key, one past the last key.
    boxes = np.stack([cell, heads[h], rows[line], rows[line + 1], keys[column], keys[column + 1]])
    while boxes.shape[1]:
        cell, head, top, bottom, left, right = boxes
        single = (bottom - top == 1) & (right - left == 1)
        which = head.astype(np.float64)
        truth = bounds(
            mask,
            {
                "batch": Interval(0 * which, 0 * which),
                "head": Interval(which, which),
                "query": Interval(top.astype(np.float64), bottom - 1.0),
                "key": Interval(left.astype(np.float64), right - 1.0),
            },
        )
        surely, perhaps = (np.broadcast_to(each, cell.shape).copy() for each in (truth.lo >= 1, truth.hi > 0))
        if single.any():
            point = {"batch": 0, "head": head[single], "query": top[single], "key": left[single]}
            surely[single] = evaluate(mask, point)
        found.flat[cell[surely]] = True
        boxes = boxes[:, perhaps & ~single & ~found.flat[cell]]
        if boxes.shape[1] > BOXES:
            unknown.flat[boxes[0]] = True
            break
        boxes = quarters(boxes)
    return found, unknown


def quarters(boxes: np.ndarray) -> np.ndarray:
    """Each box split in half along both sides, if it has more than one row or key."""
    for first, last in ((2, 3), (4, 5)):
        lower, upper = boxes.copy(), boxes.copy()
        lower[last] = upper[first] = (boxes[first] + boxes[last] + 1) // 2
        boxes = np.concatenate([lower, upper[:, upper[first] < upper[last]]], 1)
    return boxes
