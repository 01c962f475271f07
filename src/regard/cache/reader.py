"""Attention over pages: a question is checked and prepared once, and answered again while the steps ask the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import read_array
from ..engines import choose, solve
from ..errors import Reason, Refused
from ..expr import Expr, tables_of
from ..masks import lengths, window
from ..problem import Problem, is_tensor
from ..trace import as_mask, as_score
from .pages import PAGE, Pages
from .storage import Rows

__all__ = ["Reader"]

AHEAD = 63  # positions for which a preparation holds: half a page of keys at each edge of the mask is looked at and thrown away
FEW = 16  # with more rows it is a prefill, and the next call asks something else


@dataclasses.dataclass(frozen=True, eq=False)
class Ready:
    """A question that was checked.

    rules: mask, score, sinks, scale and engine as they were asked. problem: what is asked, of stand-ins for keys and values.
    since (2, B): where rows stood and keys ended then; the answer holds until they are `ahead` further. decoder: the kernel over pages,
    or None where keys are gathered for another engine.
    """

    rules: tuple
    problem: Problem
    since: np.ndarray
    ahead: int
    decoder: Any

    def holds(self, q: np.ndarray, rules: tuple, now: np.ndarray) -> bool:
        """Whether the question is the same, of other numbers, and positions are near enough."""
        asked, shape = self.problem.q, (*self.problem.lead, *self.problem.q.shape[2:])
        return (
            all(old is new or (type(new) in (float, str) and old == new) for old, new in zip(self.rules, rules))
            and (q.shape, q.dtype, q.strides[-1]) == (shape, asked.dtype, asked.strides[-1])
            and self.since.shape == now.shape
            and bool(((now - self.since).view(np.uint64) <= self.ahead).all())
        )


class Reader:
    """Rows over the pages of a cache. size: the cache's window, which is part of every mask."""

    def __init__(self, held: Pages, k: Rows, v: Rows, size: int | None):
        self.held, self.k, self.v = held, k, v
        self.window = None if size is None else window(size)
        self.ready: Ready | None = None

    def __call__(
        self, q, start, reasons: list[Reason], mask, score, scale, sinks, engine
    ) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        """out (B, H, Q, E), lse (B, H, Q), and the axes that q has in the place of the first two.

        start (B,): where the first rows stand; or whatever was given for it, with the reasons found against it.
        """
        rules = (_traced(mask, as_mask), _traced(score, as_score), sinks, scale, engine)
        ends = self.held.lengths
        ready, rows = None, None
        now = np.zeros((2, 0), np.int64)
        if not reasons and start is not None and start.dtype.kind in "iu" and start.shape in ((), ends.shape):
            now = np.stack([np.broadcast_to(start, ends.shape), ends])
            # Another tensor may want gradients; then it is refused below.
            rows = q if type(q) is np.ndarray else read_array(q, "q") if is_tensor(q) and not q.requires_grad else None
            ready = self.ready if rows is not None and self.ready is not None and self.ready.holds(rows, rules, now) else None
        if ready is None:
            ready = self._prepared(q, start, now, reasons, rules)
            self.ready = ready if _steady(*rules[:3]) else None
        problem = ready.problem
        if rows is None:
            rows = read_array(q, "q")
        rows = rows.reshape(problem.q.shape)
        if ready.decoder is not None:
            out, lse = ready.decoder(rows, self.k.array, self.v.array, self.held.table, now[0], ends, problem.sinks)
        else:
            out, lse = solve(self._gathered(problem, rows, now), engine)
        return out, lse, problem.lead

    def _prepared(self, q, start, now, reasons: list[Reason], rules: tuple) -> Ready:
        """The question, checked; a refusal has the reasons found so far, and all others."""
        ahead = AHEAD if now.size and q.shape[-2] <= FEW and _steady(*rules[:3]) else 0
        try:
            problem = self._problem(q, start, ahead, reasons, rules)
        except Refused:
            if not ahead:
                raise
            ahead = 0  # a table may cover the positions of this step and not those to come
            problem = self._problem(q, start, ahead, reasons, rules)
        name, _ = choose(problem, rules[4])
        decoder = None
        if name == "jit" and self.k.in_place and problem.q.size:
            from ..jit.decode import Decoder

            decoder = Decoder(problem, now[1], ahead, PAGE)
        return Ready(rules, problem, now, ahead, decoder)

    def _problem(self, q, start, ahead: int, reasons: list[Reason], rules: tuple) -> Problem:
        """The problem of rows and keys that may move on by `ahead`; keys and values are stand-ins, of which the shape counts."""
        mask, score, sinks, scale, _ = rules
        K = int(self.held.lengths.max(initial=0)) + ahead
        lead = tuple(getattr(q, "shape", ())[:-3])
        k, v = (np.broadcast_to(np.zeros((), store.dtype), (*lead, store.heads, K, store.depth)) for store in (self.k, self.v))
        last = start + ahead if ahead else start
        try:
            problem = Problem.of(
                q, k, v, mask=mask, score=score, scale=scale, query_start=last, sinks=sinks, where="KVCache.attend"
            )
        except Refused as refused:
            raise Refused("KVCache.attend", [*reasons, *refused.reasons]) from None
        if reasons:
            raise Refused("KVCache.attend", reasons)
        own = [rule for rule in (problem.mask, self.window) if rule is not None]
        mask = own[0] & own[1] if len(own) == 2 else own[0] if own else None
        return dataclasses.replace(problem, query_start=problem.query_start - ahead, mask=mask)

    def _gathered(self, problem: Problem, rows: np.ndarray, now: np.ndarray) -> Problem:
        """The problem with its keys side by side, a copy of all of them; anything stands where a sequence has no row."""
        start, ends = now
        K = int(ends.max(initial=0))

        def gathered(store: Rows) -> np.ndarray:
            found = store.read(self.held.table[:, : -(-K // PAGE)]).swapaxes(1, 2)
            B, G, columns, _, depth = found.shape
            return found.reshape(B, G, columns * PAGE, depth)[:, :, :K]

        mask = problem.mask
        if (ends != K).any():
            mask = lengths(ends) if mask is None else mask & lengths(ends)
        return dataclasses.replace(problem, q=rows, query_start=start, k=gathered(self.k), v=gathered(self.v), mask=mask)


def _traced(rule, read: Callable) -> Any:
    """A callable as an expression, anew each time: what it captured may have changed. What cannot be read is refused later."""
    if isinstance(rule, Expr) or not callable(rule):
        return rule
    try:
        return read(rule)
    except Refused:
        return rule


def _steady(mask, score, sinks) -> bool:
    """Whether the same objects ask the same again, whatever has become of the arrays they read.

    A kernel reads floats of a score, and sinks, where they lie. A plan knows what a mask read, and integers decide how wide a kernel
    counts.
    """
    if not all(rule is None or isinstance(rule, Expr) for rule in (mask, score)):
        return False
    if sinks is not None and type(sinks) is not np.ndarray:
        return False
    read = [(rule is score, table) for rule in (mask, score) if rule is not None for table in tables_of(rule).values()]
    return all(
        table.frozen or (scored and table.kind == "float" and type(table.source) is np.ndarray) for scored, table in read
    )
