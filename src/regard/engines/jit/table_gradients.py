"""Tables that need gradients: where the score reads them, and whether tasks can add to their gradients in place."""

from __future__ import annotations

from ...language.analysis import adjoints
from ...language.expr import Const, Expr, Op, Read, Table, Var
from ...language.expr import score as the_score
from ...language.problem import Problem
from .engine import rules


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
