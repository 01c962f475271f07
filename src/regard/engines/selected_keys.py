"""Calls whose rows attend to selected keys: each row with its n keys is a call of its own, all of them one batch.

The keys and values of some rows at a time are copied together, which takes n per row and not K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..language.analysis import evaluate, substituted
from ..language.checks.numbers import Starts
from ..language.expr import Const, Expr, Op, Read, Table, batch, frozen_table, head, key, query
from ..language.problem import Gradients, Problem, Saved
from ..language.selected_keys import Selected

ROOM = 32 << 20  # bytes of keys and values that are copied at once
# In the time in which a key is multiplied with a row: what copying it takes, into memory that was used before or not,
# and what reading all keys of one row takes at least (bench/selected_keys.py).
COPY, COPY_NEW, STREAM = 80, 250, 16


def selection(problem: Problem) -> tuple[Selected, list[Expr]] | None:
    """The selected keys to which the rows are limited, and the other conditions; None where this does not apply, or all
    keys take less time.
    """
    plain = problem.sinks is None and problem.dropout is None and 0 not in problem.dims.values()
    if problem.mask is None or not plain:
        return None
    parts = _conditions(problem.mask)
    limit = next((part for part in parts if _limits(part)), None)
    if limit is None:
        return None
    assert isinstance(limit, Read) and isinstance(limit.table, Selected)
    H, G, Q, K = (problem.dims[name] for name in "HGQK")
    n, shared = limit.table.indices.shape[-1], H // G if limit.table.indices.shape[1] == 1 else 1
    copied, multiplied = (COPY, shared) if Q > 1 else (COPY_NEW, max(shared, STREAM))
    if not n or n * (copied + shared) >= K * multiplied:
        return None
    return limit.table, [part for part in parts if part is not limit]


def _limits(part: Expr) -> bool:
    """Whether a condition is that the key is selected, for the batch entries and heads as they are numbered."""
    if not isinstance(part, Read) or not isinstance(part.table, Selected):
        return False
    return all(isinstance(each, Const) or each is axis for each, axis in zip(part.index, (batch, head)))


def _conditions(mask: Expr) -> list[Expr]:
    if isinstance(mask, Op) and mask.name == "and":
        return [part for arg in mask.args for part in _conditions(arg)]
    return [mask]


class Piece(NamedTuple):
    """Some rows as a problem: batch entry b · rows + r is row r of entry b, its heads those of keys, or all heads where
    each has its own selection, and its rows the heads that share keys.

    rows: which of the call. places: (B · rows, 1 or heads, n), where each key of the problem was; K where none was.
    """

    problem: Problem
    rows: slice
    places: np.ndarray

    def take(self, array: np.ndarray) -> np.ndarray:
        """(B, H, Q, …) of the call as that of the problem."""
        _, heads, shared, _ = self.problem.q.shape
        some = array[:, :, self.rows]
        split = some.reshape(len(array), heads, shared, *some.shape[2:])
        return np.ascontiguousarray(np.moveaxis(split, 3, 1).reshape(-1, heads, shared, *array.shape[3:]))

    def put(self, found: np.ndarray, array: np.ndarray) -> None:
        """The reverse: writes a result of the problem into that of the call."""
        count = self.rows.stop - self.rows.start
        split = np.moveaxis(found.reshape(len(array), count, *found.shape[1:]), 1, 3)
        array[:, :, self.rows] = split.reshape(*array.shape[:2], count, *array.shape[3:])


def pieces(problem: Problem, chosen: Selected, conditions: list[Expr]) -> Iterator[Piece]:
    """The call, some rows at a time."""
    B, H, G, Q, K, D, E = (problem.dims[name] for name in "BHGQKDE")
    alone = chosen.indices.shape[1] > 1
    heads, n = H if alone else G, chosen.indices.shape[-1]
    copied, marked = heads * n * (D + E) * problem.dtype.itemsize, 4 * chosen.indices.shape[1] * K
    step = max(1, ROOM // (B * max(copied, marked, 1)))
    for first in range(0, Q, step):
        rows = slice(first, min(first + step, Q))
        yield _piece(problem, chosen, conditions, rows, heads)


def _piece(problem: Problem, chosen: Selected, conditions: list[Expr], rows: slice, heads: int) -> Piece:
    from .jit.gather import gather

    B, H, K, E = (problem.dims[name] for name in "BHKE")
    R, n, shared = rows.stop - rows.start, chosen.indices.shape[-1], H // heads
    some = chosen.indices[:, :, rows if chosen.indices.shape[2] > 1 else slice(None)]
    places = np.broadcast_to(some, (B, some.shape[1], R, n)).swapaxes(1, 2).reshape(B * R, -1, n)
    places = np.where(places < 0, K, places)
    places = np.where(_repeated(places, K + 1), K, places)
    entry = np.repeat(np.arange(B), R)
    position = (problem.query_start[:, None] + np.arange(rows.start, rows.stop)).ravel()
    valid = (places < K)[:, :, None]
    for condition in conditions:
        of_head = np.arange(H).reshape(heads, shared, 1)
        where = {"batch": entry[:, None, None, None], "head": of_head, "query": position[:, None, None, None]}
        valid = valid & evaluate(condition, where | {"key": places[:, :, None]})
    key_at = np.ascontiguousarray(np.where(places < K, places, 0), np.int32)
    k = gather(problem.k, key_at, R)
    inside = _inside(problem.v, problem.k)
    v = gather(problem.v, key_at, R) if inside is None else k[..., inside : inside + E]
    score = problem.score
    if score is not None:
        before: dict[Expr, Expr] = {
            batch: batch // R if B > 1 else Const(0),
            head: head if heads == H else head * shared + query,
            query: frozen_table(position, "position")[batch],
            key: frozen_table(key_at, "key")[batch, head if places.shape[1] > 1 else 0, key],
        }
        score = substituted(score, before)
    mask = None
    if not valid.all():
        index = (batch, *(axis if size > 1 else 0 for axis, size in zip((head, query), valid.shape[1:3])), key)
        mask = frozen_table(valid, "selected")[index]
    inner = replace(
        problem,
        q=problem.q[:, :, :0],
        k=k,
        v=v,
        mask=mask,
        score=score,
        query_start=np.zeros(B * R, np.int64),
        lead=(B * R, heads),
        starts=Starts(),
    )
    shape = np.empty((B * R, heads, shared, 0))
    piece = Piece(replace(inner, q=shape), rows, places)
    return piece._replace(problem=replace(inner, q=piece.take(problem.q)))


def _inside(values: np.ndarray, keys: np.ndarray) -> int | None:
    """The column of the keys at which the values begin, if they are a part of the same rows, as of latent attention."""
    offset, rest = divmod(values.ctypes.data - keys.ctypes.data, keys.itemsize)
    same = values.strides == keys.strides and values.shape[:3] == keys.shape[:3] and not rest
    return offset if same and 0 <= offset <= keys.shape[3] - values.shape[3] else None


def _repeated(places: np.ndarray, keys: int) -> np.ndarray:
    """Whether the same number is there again, later in its list."""
    last = np.empty((*places.shape[:2], keys), np.int32)
    number = np.broadcast_to(np.arange(places.shape[-1], dtype=np.int32), places.shape)
    np.put_along_axis(last, places, number, -1)
    return np.take_along_axis(last, places, -1) != number


def solve(problem: Problem, parts, compute: Callable, out: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(out, lse) of the call. compute: of the problem of a piece."""
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    out = np.empty((B, H, Q, E), problem.dtype) if out is None else out
    lse = np.empty((B, H, Q), problem.real)
    for piece in pieces(problem, *parts):
        for found, array in zip(compute(piece.problem), (out, lse)):
            piece.put(found, array)
    return out, lse


def keep(problem: Problem, parts, compute: Callable) -> Saved:
    """What the compiled engine keeps of the call."""
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    out, sums = np.empty((B, H, Q, E), problem.dtype), np.empty((3, B, H, Q), problem.real)
    lost = np.empty((B, H, Q, E), np.int16) if problem.dtype.itemsize == 2 else None
    for piece in pieces(problem, *parts):
        found = compute(piece.problem)
        piece.put(found.out, out)
        for some, array in zip(found.sums, sums):
            piece.put(some, array)
        if lost is not None:
            piece.put(found.lost, lost)
    return Saved(out, sums, lost)


def pull_back(
    problem: Problem, parts, saved: Saved, dout, dlse, *, wanted: list[Table], compute: Callable
) -> Gradients:
    """The gradients of the call. compute: those of a piece, from its problem, what was kept of it, dout and dlse."""
    B, H, G, Q, K, D, E = (problem.dims[name] for name in "BHGQKDE")
    dq, tables = np.empty((B, H, Q, D), problem.dtype), {table: np.zeros(table.array.shape) for table in wanted}
    sums = [np.zeros((B, G, K + 1, depth), problem.real) for depth in (D, E)]  # and what no key gets
    for piece in pieces(problem, *parts):
        inner, places = piece.problem, piece.places
        into = tuple(np.zeros(array.shape, problem.real) for array in (inner.k, inner.v))
        lost = None if saved.lost is None else piece.take(saved.lost)
        kept = Saved(piece.take(saved.out), np.stack([piece.take(each) for each in saved.sums]), lost)
        found = compute(inner, kept, piece.take(dout), None if dlse is None else piece.take(dlse), wanted, into)
        piece.put(found.q, dq)
        for table in wanted:
            tables[table] += found.tables[table]
        heads, count = inner.k.shape[1], len(places) // B
        for number, h in np.ndindex(len(places), heads):
            at = places[number, h if places.shape[1] > 1 else 0]
            for total, part in zip(sums, into):
                total[number // count, h * G // heads, at] += part[number, h]
    dk, dv = (total[:, :, :K].astype(problem.dtype) for total in sums)
    return Gradients(dq, dk, dv, tables, None)
