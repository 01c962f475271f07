"""Attention over pages: a call is checked and prepared once, and reused while the arguments of steps are the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ...common.arrays import like, read_array
from ...common.errors import Reason, Refused
from ...engines.cpu import requires_gradients
from ...engines.dispatch import choose, solve
from ...engines.plan import STEP
from ...language.callables import as_mask, as_score
from ...language.checks.arguments import Arguments
from ...language.expr import Expr, tables_of
from ...language.masks import lengths, window
from ...language.problem import Problem
from .checks import checked_choice, first_positions
from .pages import PAGE
from .state import Rows, State, shown

# Positions for which a preparation is valid: this many keys at each edge of a mask are visited unnecessarily.
AHEAD = STEP - 1
FEW = 16  # with more rows it is a prefill, and the next call has other arguments


class Ready(NamedTuple):
    """A checked call.

    arguments, engine: of the call, with traced rules. shape, dtype, step: of q, where step is the bytes between its
    elements. problem: the checked call over stand-ins for keys and values. sequences: those of the cache that it is
    for; None means all. choice, until: the numbering of sequences for which it is valid, and how far they may advance
    (`State`). decoder: the kernel over pages, or None if keys are gathered for another engine.
    """

    arguments: Arguments
    engine: Any
    shape: tuple[int, ...]
    dtype: np.dtype
    step: int
    problem: Problem
    sequences: np.ndarray | None
    choice: int
    until: int
    decoder: Any


class Checked(NamedTuple):
    """A call after its checks.

    rows: q as an array. start (B,): the positions of the first rows. padded: whether some rows may be padding.
    """

    state: State
    ready: Ready
    q: Any
    rows: np.ndarray
    start: np.ndarray
    padded: bool


def traced(arguments: Arguments) -> Arguments:
    """The arguments with callables as expressions, traced in every call, because captured values may have changed."""
    mask, score = _traced(arguments.mask, as_mask), _traced(arguments.score, as_score)
    same = mask is arguments.mask and score is arguments.score
    return arguments if same else arguments._replace(mask=mask, score=score)


class Reader:
    """Attention over the pages of a cache in a given state. size: its window, which is part of every mask."""

    def __init__(self, size: int | None):
        self.size = size
        self.window = None if size is None else window(size)
        self.ready: Ready | None = None

    def __getstate__(self):
        return self.__dict__ | {"ready": None}  # compiled code is not copied

    def checked(self, state: State, q, arguments: Arguments, engine, sequences) -> Checked:
        """A call of rows of the given sequences, or of all, with all checks; nothing is computed."""
        reasons: list[Reason] = []
        query_start = arguments.query_start
        if sequences is not None:
            sequences = checked_choice(sequences, len(state.lengths), reasons)
            state = shown(state, sequences)
        arguments = traced(arguments)
        q = q if hasattr(q, "shape") else np.asarray(q)
        rows = read_array(q, "KVCache.attend")
        # A tensor that requires gradients is rejected in `prepare`, with all other problems.
        known = query_start is None and not reasons and not requires_gradients(q)
        ready = self.again(state, sequences, rows, arguments, engine) if known else None
        start = state.start
        if ready is None:
            start = first_positions(rows.shape, query_start, state, self.size, reasons)
            ready = self.prepare(state, q, start, arguments, engine, sequences=sequences, reasons=reasons)
        return Checked(state, ready, q, rows, start, query_start is None and state.ragged)

    def computed(self, call: Checked) -> tuple[Any, Any]:
        """(out (…, H, Q, E), lse (…, H, Q)) of a checked call, in the type of its q."""
        state, ready, q, rows, start, padded = call
        out, lse = self.answer(state, ready, rows, start)
        if padded:
            real = state.lengths - start
            padding = np.broadcast_to((np.arange(state.width) >= real[:, None])[:, None], lse.shape)
            out[padding], lse[padding] = 0, -np.inf
        lead = ready.problem.lead
        return like(q, out.reshape(*lead, *out.shape[2:])), like(q, lse.reshape(*lead, *lse.shape[2:]))

    def again(self, state: State, sequences, q: np.ndarray, arguments: Arguments, engine) -> Ready | None:
        """The last prepared call, if this call has the same arguments and the sequences have not advanced too far."""
        ready, shape = self.ready, q.shape
        if ready is None or state.choice != ready.choice or state.moved > ready.until or state.stepped is not None:
            return None
        if shape != ready.shape or shape[-2] != state.width or q.dtype != ready.dtype or q.strides[-1] != ready.step:
            return None
        if sequences is not ready.sequences and not _equal(sequences, ready.sequences):
            return None
        old, new = ready.arguments, arguments
        same = old.mask is new.mask and old.score is new.score and old.sinks is new.sinks and ready.engine == engine
        # Arrays and tensors may have changed since, so only plain integers are the same starts.
        same = same and all(type(start) in (int, NoneType) for start in new[-2:]) and old[-2:] == new[-2:]
        same = same and (old.scale is new.scale or (type(new.scale) is float and old.scale == new.scale))
        return ready if same and (ready.decoder is None or ready.decoder.at_home()) else None

    def prepare(
        self, state: State, q, start, arguments: Arguments, engine, *, sequences, reasons: list[Reason]
    ) -> Ready:
        """The checked call; a refusal lists the given reasons and all others.

        start (B,) int64: the positions of the first rows; or the invalid query_start, which is then rejected.
        """
        steady = arguments.query_start is None and not reasons and _steady(arguments)
        ahead = AHEAD if steady and q.shape[-2] <= FEW else 0
        try:
            problem = self._problem(state, q, start, ahead, arguments, reasons)
        except Refused:
            if not ahead:
                raise
            ahead = 0  # a table may cover the positions of this step and not later ones
            problem = self._problem(state, q, start, ahead, arguments, reasons)
        name, _ = choose(problem, engine)
        decoder = None
        if name == "jit" and problem.q.size:
            decoder = self.decoder(problem, state, ahead)
        # A sequence may be behind by as many positions as there are rows, and catch up.
        until = state.moved + max(ahead - problem.q.shape[2], 0)
        shape = (*problem.lead, *problem.q.shape[2:])
        step = problem.q.strides[-1]
        ready = Ready(arguments, engine, shape, problem.dtype, step, problem, sequences, state.choice, until, decoder)
        self.ready = ready if steady else None
        return ready

    def decoder(self, problem: Problem, state: State, ahead: int) -> Any:
        """The kernel over pages."""
        from ...engines.jit.decode import Decoder

        return Decoder(problem, state.lengths, ahead, PAGE, quantized=state.stores.k.scales is not None)

    def answer(self, state: State, ready: Ready, q: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """out (B, H, Q, E), lse (B, H, Q)."""
        problem = ready.problem
        q = q.reshape(problem.q.shape)
        if ready.decoder is not None:
            table, ends = state.pages.table, state.lengths
            return ready.decoder(q, state.stores.pools, table=table, start=start, ends=ends, sinks=problem.sinks)
        return solve(_gathered(state, problem, q, start), ready.engine)

    def _problem(self, state: State, q, start, ahead: int, arguments: Arguments, reasons: list[Reason]) -> Problem:
        """The problem of rows and keys that may advance by `ahead`; keys and values are stand-ins of that shape."""
        K = int(state.lengths.max(initial=0)) + ahead
        lead = tuple(q.shape[:-3])
        k, v = (
            np.broadcast_to(np.zeros((), store.dtype), (*lead, store.heads, K, store.depth)) for store in state.stores
        )
        last = start + ahead if ahead else start
        try:
            problem = Problem.of(q, k, v, **arguments._replace(query_start=last)._asdict(), where="KVCache.attend")
        except Refused as refused:
            raise Refused("KVCache.attend", [*reasons, *refused.reasons]) from None
        if reasons:
            raise Refused("KVCache.attend", reasons)
        own = [rule for rule in (problem.mask, self.window) if rule is not None]
        mask = own[0] & own[1] if len(own) == 2 else own[0] if own else None
        return dataclasses.replace(problem, query_start=problem.query_start - ahead, mask=mask)


def _gathered(state: State, problem: Problem, q: np.ndarray, start: np.ndarray) -> Problem:
    """The problem with a contiguous copy of all keys; entries are arbitrary where a sequence has no row."""
    ends = state.lengths
    K = int(ends.max(initial=0))

    def gathered(store: Rows) -> np.ndarray:
        found = store.read(state.pages.table[:, : -(-K // PAGE)]).swapaxes(1, 2)
        B, G, columns, _, depth = found.shape
        return found.reshape(B, G, columns * PAGE, depth)[:, :, :K]

    mask = problem.mask
    if (ends != K).any():
        mask = lengths(ends) if mask is None else mask & lengths(ends)
    k, v = (gathered(store) for store in state.stores)
    return dataclasses.replace(problem, q=q, query_start=start, k=k, v=v, mask=mask)


def _equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def _traced(rule, read: Callable) -> Any:
    """A callable as an expression. A rule that cannot be read is returned unchanged, and rejected later."""
    if isinstance(rule, Expr) or not callable(rule):
        return rule
    try:
        return read(rule)
    except Refused:
        return rule


def _steady(arguments: Arguments) -> bool:
    """Whether the same objects mean the same call again, even if the content of their arrays has changed.

    A kernel reads the floats of a score, and sinks, in place. A plan depends on the content of a mask, and the width of
    integers in a kernel depends on their values.
    """
    mask, score, sinks = arguments.mask, arguments.score, arguments.sinks
    if not all(rule is None or isinstance(rule, Expr) for rule in (mask, score)):
        return False
    if sinks is not None and type(sinks) is not np.ndarray:
        return False
    read = [(rule is score, table) for rule in (mask, score) if rule is not None for table in tables_of(rule).values()]
    return all(
        table.frozen or (scored and table.kind == "float" and type(table.source) is np.ndarray)
        for scored, table in read
    )
