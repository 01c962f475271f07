"""Tiling: rows and lanes of a task, whether its keys are split, and whether hidden keys are worth skipping."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...common.dtypes import row_of
from ...language.expr import Op, Read, Table, head, walk
from ...language.expr import key as the_key
from ...language.expr import score as the_score
from ...language.problem import Problem
from ..plan import Plan, Summaries, plan
from .code.formats import Format
from .code.target import TALL, host
from .kernels.forward import PIECE

PLAN_KEYS = 16  # keys per tile of the plan: small, so that little is wasted at the edges of windows and documents
NARROW = 8  # a tile that visits fewer keys than this times the usual rows is narrow
PATIENT = 1 << 16  # rows beyond which planning narrow tiles would take longer than they save
FASTER = 0.96  # time of a row in a tall tile, in that of a row in the usual one
LOWER = {4: 1.0, 2: 1.02, 1: 1.05}  # time of a row in a tile of so many vectors, which read keys and values more often
SECOND_CACHE = 256 << 10  # bytes of keys and values, of the usual 1 MiB, that lower tiles read again without waiting
FIRST_CACHE = 24 << 10  # bytes for the queries and sums of a tile, of the usual 32 KiB (bench/LOG.md)
SHARES = 4  # tasks per thread for a balanced load


class Tiling(NamedTuple):
    """The tile of a call. rows: W, the lanes of a tile. lanes: of a vector. planned: query rows of a tile in the plan.
    shared: the heads of a tile, which share keys ("folded", see `Specification`).
    """

    rows: int
    lanes: int
    planned: int
    shared: int = 1

    @property
    def folded(self) -> bool:
        return self.shared > 1


def tiling(
    problem: Problem, summaries: Summaries | None = None, *, tall: bool = False, any_contents: bool = False
) -> Tiling:
    """As many rows as fill the registers, or fewer if the call has fewer.

    Heads that share keys and have few rows share a tile ("folded"), or several tiles where they are many. If tiles
    visit few keys, the mask edges cut through a large part of them, and tiles of fewer rows waste less. summaries: of
    the tables, for further plans of the call. tall: whether tiles may be higher than a power of two of vectors.
    any_contents: whether the mask is not looked at.
    """
    target = host()
    Q, group = max(problem.q.shape[2], 1), problem.q.shape[1] // max(problem.k.shape[1], 1)
    form = Format(problem.dtype.name, target)
    lanes = target.lanes(form.size)
    most = lanes * target.tile.query_vectors
    shared = 1 if _per_head(problem) else _shared(group, Q, most)
    wanted = shared * Q
    # A narrow register is as fast as a wide one, and several keys share the exponentials of a wide one.
    least = lanes // 2 if form.pairs else 2
    while lanes > least and wanted <= lanes // 2:
        lanes //= 2
    rows = most
    while rows > lanes and rows // 2 >= wanted:
        rows //= 2
    if shared > 1:
        return Tiling(rows, lanes, Q, shared)
    if tall and rows == most and target.tile.tall and _suits_tall(problem, most, lanes * TALL, form.size):
        rows = lanes * TALL
    lower = rows == most == 4 * lanes and not form.pairs and problem.mask is None and problem.score is None
    if tall and lower and _bytes_of_keys(problem) <= SECOND_CACHE:
        rows = min((most, most // 2, most // 4)[: 3 if form.size == 4 else 2], key=lambda each: _time(Q, each, lanes))
    if problem.mask is not None and not any_contents and rows > lanes and Q <= PATIENT:
        found = plan(problem, rows, PLAN_KEYS, summaries=summaries)
        if visited(found) < NARROW * most * found.order.size:
            rows = lanes
    return Tiling(rows, lanes, rows)


def _shared(group: int, rows: int, most: int) -> int:
    """How many of the heads that share keys share a tile of at most so many rows: all, or a part where rows are few."""
    if group * rows <= most:
        return group
    return max(heads for heads in range(1, most // rows + 1) if group % heads == 0) if 4 * rows <= most else 1


def _bytes_of_keys(problem: Problem) -> int:
    """Bytes of the keys and values of a head, which every tile of it reads."""
    return problem.dims["K"] * (problem.dims["D"] + problem.dims["E"]) * problem.dtype.itemsize


def _time(count: int, rows: int, lanes: int) -> float:
    """Of a call with so many rows in tiles of `rows`, whose last one may be nearly empty; relative."""
    return -(-count // rows) * rows * LOWER[rows // lanes]


def _suits_tall(problem: Problem, usual: int, tall: int, size: int) -> bool:
    """Whether tiles of so many rows save more than their empty rows cost, and their queries and sums leave room in the
    first cache for keys and scores.
    """
    computed = [-(-problem.dims["Q"] // rows) * rows for rows in (usual, tall)]
    bytes_of_tile = tall * (problem.dims["D"] + problem.dims["E"]) * size
    return FASTER * computed[1] <= computed[0] and bytes_of_tile <= FIRST_CACHE


def _per_head(problem: Problem) -> bool:
    """Whether the mask depends on the head."""
    return problem.mask is not None and any(node is head for node in walk(problem.mask))


def splits(problem: Problem, found: Plan, tasks: int, threads: int) -> bool:
    """Whether pieces of keys become separate tasks; results are bit-identical either way."""
    return tasks < SHARES * threads and problem.dims["K"] > PIECE and visited(found) > PIECE * found.order.size


def visited(found: Plan) -> int:
    """Number of keys visited, summed over all tiles."""
    return int((found.runs[:, 1] - found.runs[:, 0]).sum(dtype="int64"))


ROWS = 64  # with fewer rows, checking the keys takes longer than tiles save
SAMPLED = 64, 16  # every 64th row and every 16th key are looked at first
WORTH = 0.1  # the share of these that must be hidden
LARGEST = 1e37  # a product of this size is far from overflow in float32, the narrowest type of sums


def as_planned(problem: Problem) -> Problem:
    """The problem with the mask that its plan is made from.

    Only for arrays that may change: the plan of any other call is kept for further calls, whose products may not be
    finite.
    """
    read = _bias(problem)
    if read is None or read.table.frozen or not hides(read.table.array, problem.dims["Q"]):
        return problem
    if not _finite_products(problem):
        return problem
    bits, nothing = _bits(read.table.array)
    visible = bits != nothing
    allowed = Read(Table(visible, visible, read.table.name), *read.index)
    return replace(problem, mask=allowed if problem.mask is None else problem.mask & allowed)


def hides(numbers: np.ndarray, rows: int) -> bool:
    """Whether enough of the numbers that are added to the scores of this many rows are −infinity."""
    if rows < ROWS or numbers.ndim < 2 or row_of(numbers.dtype) is None or not numbers.dtype.isnative:
        return False
    bits, nothing = _bits(numbers)
    sample = bits[..., :: SAMPLED[0], :: SAMPLED[1]] == nothing
    return bool(sample.mean() >= WORTH)


def _bits(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as integers, because NumPy compares bfloat16 slowly; and −infinity."""
    bits = numbers.view(f"u{numbers.itemsize}")
    return bits, np.array(-math.inf, numbers.dtype).view(bits.dtype)


def _bias(problem: Problem) -> Read | None:
    """The read of an array of (…, query, key) in score + array[…], or None."""
    score = problem.score
    if not isinstance(score, Op) or score.name != "add" or all(part is not the_score for part in score.args):
        return None
    others = [part for part in score.args if isinstance(part, Read) and part.kind == "float"]
    return next((read for read in others if len(read.index) > 1 and read.index[-1] is the_key), None)


def _finite_products(problem: Problem) -> bool:
    """Whether no score can be NaN or infinite, from the largest elements; by their bits, because NumPy compares
    bfloat16 slowly.
    """
    largest = [_largest(array) for array in (problem.q, problem.k)]
    product = largest[0] * largest[1] * problem.dims["D"] * max(abs(problem.scale), 1.0)
    return bool(product < LARGEST)  # also False for NaN


def _largest(array: np.ndarray) -> float:
    """The largest magnitude; NaN or infinity if there is one."""
    if not array.size:
        return 0.0
    width = 8 * array.itemsize
    magnitude = array.view(f"u{array.itemsize}") & ((1 << (width - 1)) - 1)
    return float(magnitude.max().astype(f"u{array.itemsize}").view(array.dtype))
