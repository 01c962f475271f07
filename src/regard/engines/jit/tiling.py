"""Tiling: the number of query rows and lanes of a task, and whether its keys are split into several tasks."""

from __future__ import annotations

from typing import NamedTuple

from ...language.expr import Var, walk
from ...language.problem import Problem
from ..plan import Plan, Summaries, plan
from .code.formats import Format
from .code.target import TALL, host
from .kernels.forward import PIECE

PLAN_KEYS = 16  # keys per tile of the plan: small, so that little is wasted at the edges of windows and documents
NARROW = 8  # a tile that visits fewer keys than this times the usual rows is narrow
PATIENT = 1 << 16  # rows beyond which planning narrow tiles would take longer than they save
FASTER = 0.96  # time of a row in a tall tile, in that of a row in the usual one
FIRST_CACHE = 24 << 10  # bytes for the queries and sums of a tile, of the usual 32 KiB (bench/LOG.md)
SHARES = 4  # tasks per thread for a balanced load


class Tiling(NamedTuple):
    """The tile of a call. rows: W, the lanes of a tile. lanes: of a vector. planned: query rows of a tile in the plan.
    folded: see `Specification`.
    """

    rows: int
    lanes: int
    planned: int
    folded: bool


def tiling(problem: Problem, summaries: Summaries | None = None, *, tall: bool = False) -> Tiling:
    """As many rows as fill the registers, or fewer if the call has fewer.

    Heads that share keys and have few rows share a tile ("folded"). If tiles visit few keys, the mask edges cut through
    a large part of them, and tiles of fewer rows waste less. summaries: of the tables, for further plans of the call.
    tall: whether tiles may be higher than a power of two of vectors.
    """
    target = host()
    Q, group = problem.q.shape[2], problem.q.shape[1] // max(problem.k.shape[1], 1)
    form = Format(problem.dtype.name, target)
    lanes = target.lanes(form.size)
    most = lanes * target.tile.query_vectors
    folded = group > 1 and group * Q <= most and not _per_head(problem)
    wanted = group * Q if folded else Q
    # A narrow register is as fast as a wide one, and several keys share the exponentials of a wide one.
    least = lanes // 2 if form.pairs else 2
    while lanes > least and wanted <= lanes // 2:
        lanes //= 2
    rows = most
    while rows > lanes and rows // 2 >= wanted:
        rows //= 2
    if folded:
        return Tiling(rows, lanes, Q, True)
    if tall and rows == most and target.tile.tall and _suits_tall(problem, most, lanes * TALL, form.size):
        rows = lanes * TALL
    if problem.mask is not None and rows > lanes and Q <= PATIENT:
        found = plan(problem, rows, PLAN_KEYS, summaries=summaries)
        if visited(found) < NARROW * most * found.order.size:
            rows = lanes
    return Tiling(rows, lanes, rows, False)


def _suits_tall(problem: Problem, usual: int, tall: int, size: int) -> bool:
    """Whether tiles of so many rows save more than their empty rows cost, and their queries and sums leave room in the
    first cache for keys and scores.
    """
    computed = [-(-problem.dims["Q"] // rows) * rows for rows in (usual, tall)]
    bytes_of_tile = tall * (problem.dims["D"] + problem.dims["E"]) * size
    return FASTER * computed[1] <= computed[0] and bytes_of_tile <= FIRST_CACHE


def _per_head(problem: Problem) -> bool:
    """Whether the mask depends on the head."""
    return problem.mask is not None and any(
        isinstance(node, Var) and node.name == "head" for node in walk(problem.mask)
    )


def splits(problem: Problem, found: Plan, tasks: int, threads: int) -> bool:
    """Whether pieces of keys become separate tasks; results are bit-identical either way."""
    return tasks < SHARES * threads and problem.dims["K"] > PIECE and visited(found) > PIECE * found.order.size


def visited(found: Plan) -> int:
    """Number of keys visited, summed over all tiles."""
    return int((found.runs[:, 1] - found.runs[:, 0]).sum(dtype="int64"))
