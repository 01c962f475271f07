"""Plan: which tiles of the attention matrix are empty, full or mixed, computed without visiting the matrix.

The search starts with large boxes, evaluates bounds of the mask over each, and splits those that are mixed, so the work
is proportional to the boundary of the mask. A box may be called "mixed" wrongly, which costs speed, never correctness.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..common.caching import Memo
from ..common.errors import refuse
from ..common.text.terminal_text import printable
from ..language.analysis import bounds
from ..language.expr import Expr, Var, walk
from ..language.intervals import Interval, RangeTable
from ..language.masks import LIMIT as POSITIONS
from ..language.problem import Problem

FINE = 4096  # up to this many finest boxes are evaluated in one step: the cost of a step is mostly overhead
COARSE = 64  # otherwise the search begins with at most this many boxes
LIMIT = 1 << 23  # the search stops before a level has more boxes than this, and calls the remaining ones mixed
STEP = 64  # positions that share a plan in decoding; up to this many keys are visited needlessly at each mask edge
CHUNK = 1 << 14  # boxes per evaluation, so that the values of one evaluation fit the second-level cache

Summaries = dict[int, RangeTable]  # of tables by id: they are valid as long as the tables do not change

_plans: Memo[Plan] = Memo(64)


@printable
@dataclass(frozen=True, eq=False)
class Plan:
    """Per tile of query rows, the runs of keys that it visits; batch entries and heads with equal masks share a plan.

    rows, keys: the size of a tile. per_batch, per_head: whether the mask makes batch entries or heads differ. offsets,
    runs: the runs of tile t of group g are runs[offsets[g·T + t] : offsets[g·T + t + 1]], where T = ⌈Q / rows⌉ and g =
    (b if per_batch else 0) · (H if per_head else 1) + (h if per_head else 0); a run is (first key, last key
    (exclusive), mixed).
    order (groups, T): the tiles of each group, most keys first. dims: the sizes B, H, G, Q, K, D, E that were planned
    for.
    """

    rows: int
    keys: int
    per_batch: bool
    per_head: bool
    offsets: np.ndarray
    runs: np.ndarray
    order: np.ndarray
    dims: dict[str, int]

    @property
    def groups(self) -> int:
        """Number of distinct plans; the batch entries and heads share them evenly."""
        return self.order.shape[0]

    @property
    def copies(self) -> int:
        """Number of (batch entry, head) pairs that share each group's plan."""
        return self.dims["B"] * self.dims["H"] // max(self.groups, 1)

    @property
    def tile_of(self) -> np.ndarray:
        """Per run, g·T + t of its tile (int64)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def heights(self) -> np.ndarray:
        """Per run, the query rows of its tile (int64); the last tile may have fewer than `rows`."""
        tiles = max(self.order.shape[1], 1)
        return np.minimum(self.rows, self.dims["Q"] - self.tile_of % tiles * self.rows)

    @functools.cached_property
    def entry_of(self) -> np.ndarray:
        """Per run, the batch entry whose plan it belongs to; 0 where all share one."""
        if not self.per_batch:
            return np.zeros(len(self.runs), np.int64)
        return self.tile_of // (len(self.offsets) // max(self.dims["B"], 1))

    @functools.cached_property
    def latest(self) -> int:
        """The first key of the run that begins last."""
        return int(self.runs[:, 0].max(initial=-1))

    def until(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """runs and offsets for batch entries with fewer keys than planned, `ends` (B,): later keys are removed."""
        runs, offsets = self.runs.copy(), self.offsets
        end = ends[self.entry_of]
        if len(end) and np.minimum.reduce(end) <= self.latest:  # half the time of end.min(), in every step of a cache
            some = runs[:, 0] < end
            runs, end = runs[some], end[some]
            offsets = np.append(0, np.cumsum(some))[offsets]
        np.minimum(runs[:, 1], end, out=runs[:, 1], casting="same_kind")
        return runs, offsets

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of full, mixed and empty tiles of rows × keys, over all batch entries and heads."""
        first, last, mixed = self.runs.astype(np.int64).T
        units = -(-last // self.keys) - first // self.keys
        full, some = (int(units[mixed == kind].sum()) * self.copies for kind in (0, 1))
        across = -(-self.dims["K"] // self.keys)
        return {"full": full, "mixed": some, "empty": self.order.size * across * self.copies - full - some}

    @property
    def pairs(self) -> dict[str, int]:
        """Numbers of (query, key) pairs in full and in mixed tiles, over all batch entries and heads."""
        first, last, mixed = self.runs.astype(np.int64).T
        area = (last - first) * self.heights
        return {name: int(area[mixed == kind].sum()) * self.copies for kind, name in enumerate(("full", "mixed"))}

    def __str__(self):
        B, H, Q, K = (self.dims[name] for name in "BHQK")
        counts = self.counts
        total = sum(counts.values())
        shown = " · ".join(f"{name} {count:,} ({_percent(count, total)})" for name, count in counts.items())
        differ = [name for name, does in (("batch entry", self.per_batch), ("head", self.per_head)) if does]
        shared = f"one for each {' and '.join(differ)}" if differ else "shared by all batch entries and heads"
        return (
            f"plan    {B} batch × {H} heads × {Q:,} rows × {K:,} keys in tiles of {self.rows} × {self.keys}, {shared}\n"
            f"tiles   {shown}\n"
            f"visits  {_percent(sum(self.pairs.values()), B * H * Q * K)} of the matrix, in "
            f"{len(self.runs):,} runs of keys"
        )

    def diagram(self, width: int = 32, group: int = 0) -> str:
        """One group as characters, queries down and keys across: █ full, ▒ partly visited, · empty.

        width: the most characters per line; a line represents about twice as many rows as a character represents keys.
        """
        Q, K = self.dims["Q"], self.dims["K"]
        tiles, units = self.order.shape[1], -(-K // self.keys)
        if not tiles or not units:
            return ""
        columns = min(width, units)
        lines = min(tiles, width, max(1, round(columns * Q / K / 2)))
        edges = np.arange(columns + 1) * units // columns * self.keys
        edges[-1] = K
        tops = np.arange(lines + 1) * tiles // lines
        mine = slice(*self.offsets[[group * tiles, (group + 1) * tiles]])
        line = np.searchsorted(tops, self.tile_of[mine] - group * tiles, side="right") - 1
        first, last, mixed = self.runs[mine].astype(np.int64).T
        heights = self.heights[mine]
        cell = np.outer(np.diff(np.minimum(tops * self.rows, Q)), np.diff(edges))

        def area(kinds) -> np.ndarray:
            """Pairs per cell in runs of these kinds: the pairs to the left of each edge, differenced."""
            left = [
                np.bincount(line, kinds * heights * np.clip(edge - first, 0, last - first), lines) for edge in edges
            ]
            return np.diff(left, axis=0).T

        drawn = np.where(area(mixed == 0) == cell, "█", np.where(area(mixed >= 0) > 0, "▒", "·"))
        return "\n".join(map("".join, drawn))


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %" if whole else "0 %"


class Boxes(NamedTuple):
    """Boxes of one size, in units of the finest tile: their group and their index on the grid of boxes of that size."""

    group: np.ndarray
    row: np.ndarray
    column: np.ndarray


class Grid(NamedTuple):
    """The input of the search: the mask, the sizes, and the batch entry, head, first query position and end of the keys
    of each group.

    ahead: the position of a row may be up to `ahead` larger than given.
    """

    mask: Expr
    rows: int
    keys: int
    Q: int
    batch: np.ndarray
    head: np.ndarray
    start: np.ndarray
    end: np.ndarray
    ahead: int
    tables: Summaries

    @property
    def tiles(self) -> int:
        return -(-self.Q // self.rows)

    @property
    def units(self) -> int:
        return -(-int(self.end.max()) // self.keys)

    @property
    def shift(self) -> int:
        """Bits that store a unit, with one spare so that no box extends from one tile into the next."""
        return self.units.bit_length() + 1


class Stretches(NamedTuple):
    """Consecutive units of one tile of the same kind, in order: the tile, over all groups; the first unit; one
    past the last, which may be past the edge; and whether they are mixed (1) or full (0).
    """

    tile: np.ndarray
    first: np.ndarray
    last: np.ndarray
    mixed: np.ndarray


def plan(
    problem: Problem,
    rows: int,
    keys: int,
    ends: np.ndarray | None = None,
    ahead: int = 0,
    summaries: Summaries | None = None,
    *,
    any_contents: bool = False,
) -> Plan:
    """The plan of a problem in tiles of `rows` query rows by `keys` keys.

    A tile is full if the mask is known to allow all its pairs, empty if it is known to allow none, and mixed otherwise.

    ends (B,): number of keys of each batch entry, by default all of them. ahead: the plan stays valid while entries
    grow by up to this many keys and their rows advance by as many positions (decoding); runs then include the keys to
    come. summaries: of the tables that the mask reads, kept between plans of one call. any_contents: a plan that
    holds for any mask, in which every tile is mixed.

    >>> import numpy as np, regard as rg
    >>> q = k = np.zeros((256, 8), np.float32)
    >>> print(plan(Problem.of(q, k, k, mask=rg.causal()), rows=32, keys=32).diagram())
    ▒▒······
    ██▒▒····
    ████▒▒··
    ██████▒▒
    """
    rest = (
        *problem.dims.values(),
        problem.query_start.tobytes(),
        rows,
        keys,
        None if ends is None else ends.tobytes(),
        ahead,
        any_contents,
    )
    return _plans(
        (problem.mask,), rest, lambda: _planned(problem, rows, keys, ends, ahead, summaries, any_contents=any_contents)
    )


def plan_step(problem: Problem, rows: int, keys: int, summaries: Summaries | None = None) -> Plan:
    """A plan for few rows, valid for all positions within STEP, so that decoding makes one plan per STEP tokens.

    Up to STEP keys at each edge of the mask are called mixed or visited needlessly, which changes no result.
    """
    K, B = problem.dims["K"], problem.dims["B"]
    start, last = problem.query_start // STEP * STEP, -(-K // STEP) * STEP
    sizes = tuple(size for name, size in problem.dims.items() if name != "K")
    rest = ("step", *sizes, last, start.tobytes(), rows, keys)

    def work_out() -> Plan:
        first = replace(problem, query_start=start)
        return _planned(first, rows, keys, np.full(B, last - STEP + 1), STEP - 1, summaries)

    found = _plans((problem.mask,), rest, work_out)
    runs, offsets = found.until(np.full(B, K))
    return replace(found, runs=runs, offsets=offsets, dims=problem.dims)


def _planned(
    problem: Problem,
    rows: int,
    keys: int,
    ends: np.ndarray | None,
    ahead: int,
    summaries: Summaries | None,
    *,
    any_contents: bool = False,
) -> Plan:
    dims = problem.dims
    B, H, Q, K = (dims[name] for name in "BHQK")
    mask = problem.mask
    end = np.minimum((np.full(B, K) if ends is None else ends) + ahead, POSITIONS - 1)
    reads = set() if mask is None or any_contents else {node.name for node in walk(mask) if isinstance(node, Var)}
    start = problem.query_start
    apart = bool((end != end[:1]).any()) or ("query" in reads and bool((start != start[:1]).any()))
    per_batch = B > 1 and ("batch" in reads or apart)
    per_head = H > 1 and "head" in reads
    batches, heads = (B if per_batch else 1), (H if per_head else 1)
    tiles = -(-Q // rows)
    batch, head = np.divmod(np.arange(batches * heads), heads)
    end = end[batch] if B else np.zeros(len(batch), np.int64)
    found = Stretches(*(np.zeros(0, np.int64),) * 4)
    if mask is None or any_contents:
        tile = np.flatnonzero(np.repeat(end, tiles))
        nothing, units = np.zeros_like(tile), -(-np.repeat(end, tiles)[tile] // keys)
        found = Stretches(tile=tile, first=nothing, last=units, mixed=nothing + (mask is not None))
    elif H and Q and end.any():
        floats = {"batch": batch, "head": head, "start": start[batch], "end": end}
        tables = {} if summaries is None else summaries
        places = {name: part.astype(float) for name, part in floats.items()}
        grid = Grid(mask, rows, keys, Q, **places, ahead=ahead, tables=tables)
        if len(batch) * tiles << (grid.shift + 7) >= 1 << 63:  # `_entries` needs an index for each
            raise refuse(
                "plan",
                "the mask has too many tiles to plan",
                (
                    f"{batches} batch entries × {heads} heads that differ, {tiles:,} × {grid.units:,} "
                    f"tiles of {rows} × {keys}"
                ),
                f"at most {(1 << 63) >> (grid.shift + 7):,} tiles of rows, over all that differ",
                "split the call by batch entries, heads or rows",
            )
        found = _merged(grid, _descend(grid))
    tile = found.tile
    offsets = np.zeros(batches * heads * tiles + 1, np.int64)
    np.cumsum(np.bincount(tile, minlength=batches * heads * tiles), out=offsets[1:])
    runs = np.empty((len(tile), 3), np.int32)
    # The last unit may extend past the end, and then past 32 bits: it is clipped before it is stored.
    last = np.minimum(found.last * keys, end[tile // tiles] if len(end) > 1 else end)
    runs[:, 0], runs[:, 1], runs[:, 2] = found.first * keys, last, found.mixed
    work = np.concatenate([[0], np.cumsum(runs[:, 1] - runs[:, 0], dtype=np.int64)])[offsets]
    order = np.argsort(-np.diff(work).reshape(batches * heads, tiles), axis=1, kind="stable").astype(np.int32)
    for array in (offsets, runs, order):
        array.flags.writeable = False  # the plan is shared by equal calls
    return Plan(rows, keys, per_batch, per_head, offsets=offsets, runs=runs, order=order, dims=dims)


def _descend(grid: Grid) -> np.ndarray:
    """All full boxes, and all mixed boxes of the finest size, as entries per tile."""
    groups, tiles, units = len(grid.batch), grid.tiles, grid.units
    high, wide = 1, 1  # the size of a box, in tiles and units: powers of two
    if groups * tiles * units > FINE:
        while groups * -(-tiles // high) * -(-units // wide) > max(COARSE, groups):
            if wide >= units or (high < tiles and high * grid.rows <= wide * grid.keys):
                high *= 2
            else:
                wide *= 2
    corners = np.indices((groups, -(-tiles // high), -(-units // wide))).reshape(3, -1)
    boxes = Boxes(*corners)
    found = []
    while len(boxes.group):
        full, mixed = _classified(grid, boxes, high, wide)
        found.append(_entries(grid, boxes, full, high, wide, 0))
        # Halve the longer side, or both if they are equal: square boxes follow a diagonal boundary best.
        halve_rows = high > 1 and (wide == 1 or high * grid.rows >= wide * grid.keys)
        halve_keys = wide > 1 and (high == 1 or high * grid.rows <= wide * grid.keys)
        if high == wide == 1 or np.count_nonzero(mixed) << (halve_rows + halve_keys) > LIMIT:
            found.append(_entries(grid, boxes, mixed, high, wide, 1))
            break
        high, wide = high >> halve_rows, wide >> halve_keys
        group, row, column = (part[mixed] for part in boxes)
        if halve_rows:
            group, row, column = np.tile(group, 2), np.concatenate([2 * row, 2 * row + 1]), np.tile(column, 2)
        if halve_keys:
            group, row, column = np.tile(group, 2), np.tile(row, 2), np.concatenate([2 * column, 2 * column + 1])
        inside = (row * high < tiles) & (column * wide < units)
        boxes = Boxes(group[inside], row[inside], column[inside])
    return np.concatenate(found)


def _classified(grid: Grid, boxes: Boxes, high: int, wide: int) -> tuple[np.ndarray, np.ndarray]:
    """(full, mixed): for each box, whether it is full and whether it is mixed."""
    full, mixed = np.empty((2, len(boxes.group)), np.bool_)
    for begin in range(0, len(boxes.group), CHUNK):
        part = slice(begin, begin + CHUNK)
        group, row, column = (each[part] for each in boxes)
        batch, head, start, end = (each[group] for each in (grid.batch, grid.head, grid.start, grid.end))
        top, left = row * float(high * grid.rows), column * float(wide * grid.keys)
        ranges = {
            "batch": Interval(batch, batch),
            "head": Interval(head, head),
            "query": Interval(start + top, start + np.minimum(top + high * grid.rows, grid.Q) - 1 + grid.ahead),
            "key": Interval(left, np.maximum(np.minimum(left + wide * grid.keys, end) - 1, left)),
        }
        found = bounds(grid.mask, ranges, grid.tables)
        full[part] = (found.lo >= 1) & (left < end)
        mixed[part] = (found.lo < 1) & (found.hi > 0) & (left < end)
    return full, mixed


def _entries(grid: Grid, boxes: Boxes, chosen, high: int, wide: int, mixed: int) -> np.ndarray:
    """The chosen boxes, one entry per tile that they cover: (tile, first unit, log2 of the units, mixed) in one
    integer.
    """
    group, row, column = (part[chosen] for part in boxes)
    top = row * high
    count = np.minimum(top + high, grid.tiles) - top
    place = ((group * grid.tiles + top) << grid.shift) + column * wide
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(place << 7 | (wide.bit_length() - 1) << 1 | mixed, count) + (within << (grid.shift + 7))


def _merged(grid: Grid, entries: np.ndarray) -> Stretches:
    """The entries in order, adjacent ones of the same kind joined."""
    entries = np.sort(entries)
    place, mixed = entries >> 7, entries & 1
    end = place + (1 << (entries >> 1 & 63))
    begins = np.ones(len(entries), np.bool_)
    begins[1:] = (place[1:] != end[:-1]) | (mixed[1:] != mixed[:-1])
    place, end, mixed = place[begins], end[np.roll(begins, -1)], mixed[begins]
    tile = place >> grid.shift
    before = tile << grid.shift
    return Stretches(tile=tile, first=place - before, last=end - before, mixed=mixed)
