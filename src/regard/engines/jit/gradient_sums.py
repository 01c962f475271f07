"""Sums of gradients over query positions: the blocks that partial sums are made of, and the tree that merges them.

Tiles of rows and blocks of positions begin at multiples of their size, counted from position 0, so that sums do not
depend on where a call begins. The kernel merges the partial sums of keys and values; those of tables and sinks are
merged here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...language.analysis import adjoints
from ...language.expr import Const, Expr, Op, Read, Table, Var
from ...language.expr import score as the_score
from ...language.problem import Problem, Saved
from .engine import rules
from .kernels.backward_parts.table_sums import BLOCK


class Grid(NamedTuple):
    """The tiles and blocks of a call.

    lead (B,): the positions of an entry's first tile that are before its first row. tiles: of the entry that has most.
    numbers: the blocks of all entries, ascending, counted from position 0. first (B,): the place of an entry's first
    block among them. most: blocks of the entry that has most.
    """

    lead: np.ndarray
    tiles: int
    numbers: list[int]
    first: np.ndarray
    most: int


def grid(problem: Problem, rows: int) -> Grid:
    """The tiles of `rows` rows, and the blocks, of a call."""
    start = problem.query_start
    lead = start % rows
    tiles = int(-(-(problem.dims["Q"] + lead.max()) // rows))
    first, last = (start - lead) // BLOCK, (start - lead + (tiles - 1) * rows) // BLOCK
    numbers = sorted({number for pair in zip(first, last, strict=True) for number in range(pair[0], pair[1] + 1)})
    place = np.searchsorted(np.array(numbers, np.int64), first)
    return Grid(lead, tiles, numbers, place, int((last - first).max()) + 1)


def from_tile(problem: Problem, lead: np.ndarray) -> Problem:
    """The problem whose rows begin where the first tiles do, as far as a plan needs it: every entry gets as many
    rows in front as the entry that needs most.
    """
    if not lead.any():
        return problem
    B, H, Q, D = problem.q.shape
    more = np.broadcast_to(np.zeros((), problem.dtype), (B, H, Q + int(lead.max()), D))
    return replace(problem, q=more, query_start=problem.query_start - lead)


def merged(numbers: list[int], sums: np.ndarray) -> np.ndarray:
    """The partial sums of blocks, merged in the binary tree over their numbers: 0 + 1, 2 + 3, then pairs of these.

    numbers: ascending. A block that is missing is an empty sum.
    """
    if len(numbers) == 1:
        return sums[0]
    # The subtree of all of them splits where the highest bit changes; blocks before 0 are a subtree.
    low, high = numbers[0], numbers[-1]
    bit = (low ^ high).bit_length() - 1
    split = 0 if low < 0 <= high else high >> bit << bit
    at = sum(number < split for number in numbers)
    return merged(numbers[:at], sums[:at]) + merged(numbers[at:], sums[at:])


def sinks(problem: Problem, saved: Saved, rest: np.ndarray) -> np.ndarray | None:
    """d sinks = Σ over rows of exp(sink - lse) · rest: per block the rows of each batch entry, one entry after another;
    the blocks are merged.
    """
    if problem.sinks is None:
        return None
    found: dict[int, np.ndarray] = {}
    for start, lses, rests in zip(problem.query_start.tolist(), saved.sums[0], rest, strict=True):
        with np.errstate(all="ignore"):
            share = np.exp(problem.sinks[..., None].astype(np.float64) - lses[:, None].astype(np.float64))
            terms = share * rests[:, None].astype(np.float64)  # (H, S, Q)
            for number in range(start // BLOCK, -(-(start + problem.dims["Q"]) // BLOCK)):
                rows = slice(max(number * BLOCK - start, 0), (number + 1) * BLOCK - start)
                # How NumPy adds depends on strides.
                part = np.ascontiguousarray(terms[..., rows]).sum(-1)
                found[number] = found.get(number, np.zeros(part.shape)) + part
    with np.errstate(all="ignore"):
        numbers = sorted(found)
        return (
            merged(numbers, np.stack([found[number] for number in numbers])) if found else np.zeros(problem.sinks.shape)
        )


def partials_of(score: Expr | None, wanted: list[Table]) -> dict[Expr, Expr]:
    """∂s'/∂leaf for the score and for the reads of tables that need a gradient."""
    return {
        leaf: partial
        for leaf, partial in adjoints(the_score if score is None else score).items()
        if leaf is the_score or (isinstance(leaf, Read) and leaf.table in wanted)
    }


def reads_of(problem: Problem, wanted: list[Table]) -> dict[Table, list[Read]]:
    """Where the score reads tables that need a gradient, other than in conditions."""
    found: dict[Table, list[Read]] = {table: [] for table in wanted}
    for leaf in partials_of(rules(problem)[1], wanted):
        if isinstance(leaf, Read):
            found[leaf.table].append(leaf)
    return found


def all_direct(problem: Problem, reads: list[Read]) -> bool:
    """Whether tasks can add to a table one after another wherever it is read; False for a table that only conditions
    read, which gets no gradient.
    """
    return bool(reads) and all(_direct(problem, read) for read in reads)


def _direct(problem: Problem, read: Read) -> bool:
    """Whether each entry of a table belongs to one query row and one key, so that tasks can add to it in order.

    Row and position are equivalent only if all batch entries start at the same position, and clamping must not map two
    positions to one entry.
    """
    starts, found = problem.query_start, set()
    spans = {"query": (int(starts.min()), int(starts.max()) + problem.dims["Q"]), "key": (0, problem.dims["K"])}
    for part, size in zip(read.index, read.table.array.shape, strict=True):
        name, shift = _shifted(part)
        if name not in spans or (spans[name][0] + shift >= 0 and spans[name][1] + shift <= size):
            found.add(name)
    return found >= {"query", "key"} and ("batch" in found or bool((starts == starts[0]).all()))


def _shifted(part: Expr) -> tuple[str | None, int]:
    """(name of a position, the constant added to it); (None, 0) for any other expression."""
    if isinstance(part, Var):
        return part.name, 0
    if (
        isinstance(part, Op)
        and part.name in ("add", "sub")
        and isinstance(part.args[0], Var)
        and isinstance(part.args[1], Const)
    ):
        return part.args[0].name, int(part.args[1].value) * (1 if part.name == "add" else -1)
    return None, 0
