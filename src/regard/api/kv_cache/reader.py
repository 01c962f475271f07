"""Attention over pages: a question is checked and prepared once, and answered again while the steps ask the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...common.errors import Reason, Refused
from ...engines.dispatch import choose, solve
from ...engines.plan import STEP
from ...language.callables import as_mask, as_score
from ...language.checks.arguments import Arguments
from ...language.expr import Expr, tables_of
from ...language.masks import lengths, window
from ...language.problem import Problem
from .pages import PAGE, Pages
from .storage import Rows

__all__ = ["Reader", "traced"]

# Positions for which a preparation holds: so many keys at each edge of a mask are looked at for nothing.
AHEAD = STEP - 1
FEW = 16  # with more rows it is a prefill, and the next call asks something else


class Ready(NamedTuple):
    """A question that was checked.

    asked, engine: the question, its rules traced. shape, dtype, step: of q, the bytes between its elements. problem:
    what is asked, of stand-ins for keys and values. choice, until: the sequences for which it holds, and how far they
    may get (`Pages`). decoder: the kernel over pages, or None where keys are gathered for another engine.
    """

    asked: Arguments
    engine: Any
    shape: tuple[int, ...]
    dtype: np.dtype
    step: int
    problem: Problem
    choice: int
    until: int
    decoder: Any


def traced(asked: Arguments) -> Arguments:
    """The question with callables as expressions: traced anew each time, for what they captured may have changed."""
    mask, score = _traced(asked.mask, as_mask), _traced(asked.score, as_score)
    same = mask is asked.mask and score is asked.score
    return asked if same else asked._replace(mask=mask, score=score)


class Reader:
    """Rows over the pages of a cache. size: the cache's window, which is part of every mask."""

    def __init__(self, held: Pages, k: Rows, v: Rows, size: int | None):
        self.held, self.k, self.v = held, k, v
        self.window = None if size is None else window(size)
        self.ready: Ready | None = None

    def __getstate__(self):
        return self.__dict__ | {"ready": None}  # compiled code is not copied

    def again(self, q: np.ndarray, asked: Arguments, engine) -> Ready | None:
        """What was prepared last, if the newest rows ask the same once more and have not got too far."""
        ready, held = self.ready, self.held
        if ready is None or held.choice != ready.choice or held.moved > ready.until:
            return None
        if q.shape != ready.shape or q.dtype != ready.dtype or q.strides[-1] != ready.step:
            return None
        old, new = ready.asked, asked
        same = old.mask is new.mask and old.score is new.score and old.sinks is new.sinks and ready.engine == engine
        same = same and (old.scale is new.scale or (type(new.scale) is float and old.scale == new.scale))
        return ready if same and (ready.decoder is None or ready.decoder.at_home()) else None

    def prepare(self, q, start, asked: Arguments, engine, reasons: list[Reason]) -> Ready:
        """The question, checked; a refusal has the reasons found so far, and all others.

        start (B,) int64: where the first rows stand, the newest or others; or what was given instead, which is then
        refused.
        """
        held = self.held
        steady = asked.query_start is None and not reasons and _steady(asked)
        ahead = AHEAD if steady and q.shape[-2] <= FEW else 0
        try:
            problem = self._problem(q, start, ahead, asked, reasons)
        except Refused:
            if not ahead:
                raise
            ahead = 0  # a table may cover the positions of this step and not those to come
            problem = self._problem(q, start, ahead, asked, reasons)
        name, _ = choose(problem, engine)
        decoder = None
        if name == "jit" and self.k.in_place and problem.q.size:
            from ...engines.jit.decode import Decoder

            decoder = Decoder(problem, held.lengths, ahead, PAGE)
        # A row may be as far behind the end of its keys as there are rows, and catch up.
        until = held.moved + max(ahead - problem.q.shape[2], 0)
        shape = (*problem.lead, *problem.q.shape[2:])
        step = problem.q.strides[-1]
        ready = Ready(
            asked=asked,
            engine=engine,
            shape=shape,
            dtype=problem.dtype,
            step=step,
            problem=problem,
            choice=held.choice,
            until=until,
            decoder=decoder,
        )
        self.ready = ready if steady else None
        return ready

    def answer(self, ready: Ready, q: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """out (B, H, Q, E), lse (B, H, Q)."""
        problem, held = ready.problem, self.held
        q = q.reshape(problem.q.shape)
        if ready.decoder is not None:
            k, v = self.k.array, self.v.array
            return ready.decoder(q, k, v, table=held.table, start=start, ends=held.lengths, sinks=problem.sinks)
        return solve(self._gathered(problem, q, start), ready.engine)

    def _problem(self, q, start, ahead: int, asked: Arguments, reasons: list[Reason]) -> Problem:
        """The problem of rows and keys that may move on by `ahead`; keys and values are stand-ins, of which the shape
        counts.
        """
        K = int(self.held.lengths.max(initial=0)) + ahead
        lead = tuple(q.shape[:-3])
        k, v = (
            np.broadcast_to(np.zeros((), store.dtype), (*lead, store.heads, K, store.depth))
            for store in (self.k, self.v)
        )
        last = start + ahead if ahead else start
        try:
            problem = Problem.of(q, k, v, **asked._replace(query_start=last)._asdict(), where="KVCache.attend")
        except Refused as refused:
            raise Refused("KVCache.attend", [*reasons, *refused.reasons]) from None
        if reasons:
            raise Refused("KVCache.attend", reasons)
        own = [rule for rule in (problem.mask, self.window) if rule is not None]
        mask = own[0] & own[1] if len(own) == 2 else own[0] if own else None
        return dataclasses.replace(problem, query_start=problem.query_start - ahead, mask=mask)

    def _gathered(self, problem: Problem, q: np.ndarray, start: np.ndarray) -> Problem:
        """The problem with its keys side by side, a copy of all of them; anything stands where a sequence has no
        row.
        """
        ends = self.held.lengths
        K = int(ends.max(initial=0))

        def gathered(store: Rows) -> np.ndarray:
            found = store.read(self.held.table[:, : -(-K // PAGE)]).swapaxes(1, 2)
            B, G, columns, _, depth = found.shape
            return found.reshape(B, G, columns * PAGE, depth)[:, :, :K]

        mask = problem.mask
        if (ends != K).any():
            mask = lengths(ends) if mask is None else mask & lengths(ends)
        return dataclasses.replace(problem, q=q, query_start=start, k=gathered(self.k), v=gathered(self.v), mask=mask)


def _traced(rule, read: Callable) -> Any:
    """A callable as an expression, anew each time: what it captured may have changed. What cannot be read is refused
    later.
    """
    if isinstance(rule, Expr) or not callable(rule):
        return rule
    try:
        return read(rule)
    except Refused:
        return rule


def _steady(asked: Arguments) -> bool:
    """Whether the same objects ask the same again, whatever has become of the arrays they read.

    A kernel reads floats of a score, and sinks, where they lie. A plan knows what a mask read, and integers decide how
    wide a kernel counts.
    """
    mask, score, sinks = asked.mask, asked.score, asked.sinks
    if not all(rule is None or isinstance(rule, Expr) for rule in (mask, score)):
        return False
    if sinks is not None and type(sinks) is not np.ndarray:
        return False
    read = [(rule is score, table) for rule in (mask, score) if rule is not None for table in tables_of(rule).values()]
    return all(
        table.frozen or (scored and table.kind == "float" and type(table.source) is np.ndarray)
        for scored, table in read
    )
