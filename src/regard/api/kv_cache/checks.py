"""Checks of the arguments of a cache."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...common.arrays import read_array
from ...common.dtypes import FLOATS
from ...common.errors import Reason, Refused, refuse
from ...engines.cpu import requires_gradients
from ...language.checks.numbers import count
from .pages import PAGE
from .state import Appended, State

SHOWN = 4  # sequences that a reason lists


def checked_cache(heads, depth, value_depth, *, batch, dtype, window, pages, storage) -> tuple:
    """The arguments of a new cache, except storage, which is checked only."""
    reasons: list[Reason] = []

    def whole(value, what: str, least: int) -> int:
        try:
            return count(value, "KVCache", what, least)
        except Refused as refused:
            reasons.extend(refused.reasons)
            return least

    G, D = whole(heads, "heads", 1), whole(depth, "depth", 1)
    E = D if value_depth is None else whole(value_depth, "value_depth", 1)
    B = whole(batch, "batch", 0)
    window = None if window is None else whole(window, "window", 1)
    pages = None if pages is None else whole(pages, "pages", 0)
    known = known_dtype(dtype)
    if known is None:
        reasons.append(
            Reason(
                "this dtype is not supported",
                f"dtype={dtype!r}",
                f"one of {', '.join(sorted(FLOATS, key=lambda name: FLOATS[name].sums))}",
                "omit it for float32",
            )
        )
    if storage not in (None, "int8"):
        reasons.append(
            Reason("unknown storage", f"storage={storage!r}", "None, or 'int8'", "omit it to store rows unchanged")
        )
    if reasons or known is None:
        raise Refused("KVCache", reasons)
    return G, D, E, B, known, window, pages


def checked_append(k, v, rows, sequences, sizes: tuple[int, int, int, int], dtype) -> Appended:
    """The arguments of an append to a cache of these sizes (B, G, D, E)."""
    reasons: list[Reason] = []
    B, G, D, E = sizes
    chosen = None if sequences is None else checked_choice(sequences, B, reasons)
    if chosen is not None:
        B = len(chosen)
    new_k = new_rows("k", k, (B, G, D), dtype, reasons)
    new_v = new_rows("v", v, (B, G, E), dtype, reasons)
    if new_k is not None and new_v is not None and new_k.shape[2] != new_v.shape[2]:
        reasons.append(
            Reason(
                "k and v differ in rows",
                f"{new_k.shape[2]} and {new_v.shape[2]}",
                "one value row per key row",
                "check axis -2",
            )
        )
    if new_k is None or new_v is None:
        raise Refused("KVCache.append", reasons)
    taken = None if rows is None else rows_taken(rows, B, new_k.shape[2], reasons)
    if reasons:
        raise Refused("KVCache.append", reasons)
    return Appended(new_k, new_v, taken, chosen)


def new_rows(name: str, value, shape: tuple[int, int, int], dtype, reasons: list[Reason]) -> np.ndarray | None:
    """k or v of an append as (B, G, new, depth) for a cache of this (B, G, depth), or None with reasons added."""
    B, G, depth = shape
    if requires_gradients(value):
        reasons.append(
            Reason(
                f"{name} requires gradients",
                f"{name}.requires_grad is True",
                "a tensor that does not require gradients",
                f"pass {name}.detach()",
            )
        )
        return None
    try:
        array = read_array(value, name)
    except Refused as refused:
        reasons += refused.reasons
        return None
    if array.shape == (B, G, array.shape[-2], depth) and array.dtype == dtype:
        return array
    found, shown = len(reasons), f"{name} ({', '.join(map(str, array.shape))})"
    if array.dtype != dtype:
        reasons.append(
            Reason(
                f"{name} and the cache differ in dtype",
                f"{array.dtype}",
                f"{dtype}",
                f"convert it, or create the cache with dtype={str(array.dtype)!r}",
            )
        )
    if array.ndim < 2:
        reasons.append(Reason(f"{name} has too few axes", shown, "(…, heads, rows, depth)", "add the missing axes"))
        return None
    heads = array.shape[-3] if array.ndim > 2 else 1
    if math.prod(array.shape[:-3]) != B:
        reasons.append(
            Reason(
                f"{name} and the cache differ in sequences",
                shown,
                f"B = {B} before the heads",
                "pass rows for every sequence, or name theirs with sequences=; rows= marks the padding",
            )
        )
    if heads != G:
        reasons.append(
            Reason(
                f"{name} and the cache differ in heads",
                shown,
                f"G = {G} on axis -3",
                "pass the key/value heads, not the query heads",
            )
        )
    if array.shape[-1] != depth:
        reasons.append(
            Reason(f"{name} and the cache differ in depth", shown, f"{depth} on the last axis", "check the last axis")
        )
    return array.reshape(B, heads, *array.shape[-2:]) if len(reasons) == found else None


def rows_taken(rows, B: int, width: int, reasons: list[Reason]) -> np.ndarray:
    """(B,) how many of the new rows each sequence takes."""
    given = read_array(rows, "rows")
    if given.shape != (B,) or (given.dtype.kind not in "iu" and B) or np.any((given < 0) | (given > width)):
        reasons.append(
            Reason(
                "rows must be one row count per sequence",
                f"{rows!r}",
                f"integers from 0 to {width}, one per sequence ({B})",
                "omit it to append all rows",
            )
        )
        return np.zeros(B, np.int64)
    return given.astype(np.int64)


def first_positions(shape: tuple[int, ...], query_start, state: State, window: int | None, reasons: list[Reason]):
    """The positions of the first rows of a q of this shape; reasons why it does not fit the cache are appended."""
    if len(shape) < 2:
        return None  # rejected with all other problems
    B, Q = len(state.lengths), shape[-2]
    if math.prod(shape[:-3]) != B:
        reasons.append(
            Reason(
                "q and the cache differ in sequences",
                f"q ({', '.join(map(str, shape))})",
                f"B = {B} before the heads",
                "pass rows for every sequence, or name theirs with sequences=",
            )
        )
        return None
    if query_start is None:
        if state.width != Q:
            reasons.append(
                Reason(
                    "q does not have the rows of the last append",
                    f"{Q} rows",
                    f"the {state.width} rows appended last",
                    "append their keys first, or pass their positions: query_start=…",
                )
            )
        if state.stepped is not None:
            reasons.append(
                Reason(
                    "the last append was for other sequences",
                    f"q with rows for {B} sequences, {int(state.stepped.sum())} of them in the last append",
                    "only sequences of the last append",
                    "pass the sequences= of the last append, or the positions of the rows: query_start=…",
                )
            )
        return state.start
    given = read_array(query_start, "query_start")
    if given.dtype.kind not in "iu" or given.shape not in ((), (B,)):
        return given  # rejected with all other problems
    start = np.broadcast_to(given, (B,)).astype(np.int64)
    reach = np.maximum(start if window is None else start - window + 1, 0)
    held = state.pages.first * PAGE
    gone = np.flatnonzero(reach < held)
    if len(gone):
        first = int(gone[0])
        reasons.append(
            Reason(
                "a row attends to keys that were released",
                f"sequence {first}: a window from position {reach[first]}",
                f"positions from {held[first]}",
                "attend these rows before appending more",
            )
        )
    return start


def checked_lengths(lengths, known: np.ndarray, window: int | None, first: np.ndarray, where: str) -> np.ndarray:
    """(B,) the lengths that sequences of the known lengths (B,) are truncated to.

    window: of the cache. first (B,): the first positions that were not released.
    """
    B = len(known)
    given = read_array(lengths, "lengths")
    if given.shape not in ((), (B,)) or (given.dtype.kind not in "iu" and given.size):
        raise refuse(
            where,
            "lengths must be one integer, or one per sequence",
            f"{lengths!r}",
            f"an integer, or {B} of them",
            "pass cache.lengths with the lengths to change reduced",
        )
    target = np.broadcast_to(given, (B,))
    seen = np.zeros_like(known) if window is None else np.maximum(target - window + 1, 0)
    faults = (
        (
            target < 0,
            "a length is negative",
            lambda one: f"{target[one]}",
            lambda one: "0 or more",
            "pass how many positions remain, not how many are removed",
        ),
        (
            target > known,
            "a sequence is shorter than the length",
            lambda one: f"{target[one]}",
            lambda one: f"at most {known[one]}",
            "append the missing rows instead",
        ),
        (
            (target >= 0) & (target < known) & (seen < first),
            "the next row would attend to keys that were released",
            lambda one: f"length {target[one]}, a window from position {seen[one]}",
            lambda one: f"positions from {first[one]}",
            "truncate less, or drop the sequence and append its rows to a new one",
        ),
    )
    reasons = [
        Reason(what, _listed(wrong, shown), _listed(wrong, wanted), fix)
        for wrong, what, shown, wanted, fix in faults
        if wrong.any()
    ]
    if reasons:
        raise Refused(where, reasons)
    return target.astype(np.int64)


def _listed(wrong: np.ndarray, words: Callable[[int], str]) -> str:
    """Words for each of these sequences, the first few of them."""
    numbers = np.flatnonzero(wrong).tolist()
    rest = [f"{len(numbers) - SHOWN} more"] if len(numbers) > SHOWN else []
    return "; ".join([f"sequence {one}: {words(one)}" for one in numbers[:SHOWN]] + rest)


def checked_choice(chosen, B: int, reasons: list[Reason]) -> np.ndarray:
    """Numbers of different sequences, counted from 0; a reason is appended if they are not."""
    try:
        found = checked_sequences(chosen, B)
    except Refused as refused:
        reasons += refused.reasons
        return np.zeros(np.size(chosen) if B else 0, np.int64)
    if len(np.unique(found)) < len(found):
        reasons.append(
            Reason(
                "a sequence is listed twice",
                f"sequences={chosen!r}",
                "each sequence at most once",
                "list it once, with all its rows",
            )
        )
    return found


def checked_sequences(chosen, B: int) -> np.ndarray:
    """Numbers of sequences, counted from 0."""
    given = np.atleast_1d(read_array(chosen, "sequences"))
    if given.ndim > 1 or (given.dtype.kind not in "iu" and given.size) or np.any((given < -B) | (given >= B)):
        raise refuse(
            "KVCache",
            "no such sequence",
            f"{chosen!r}",
            f"numbers from 0 to {B - 1}" if B else "none: the cache is empty",
            "count from 0, or from the end with negative numbers",
        )
    return given.astype(np.int64) % max(B, 1)


def known_dtype(value) -> np.dtype | None:
    """NumPy's dtype for a name or a dtype of NumPy or torch; None if the cache does not support it."""
    name = value.__name__ if isinstance(value, type) else str(value).removeprefix("torch.")
    row = FLOATS.get(name)
    return None if row is None else row.numpy
