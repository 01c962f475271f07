"""Checks of the arguments of a cache."""

from __future__ import annotations

import math

import numpy as np

from ...common.arrays import read_array
from ...common.dtypes import FLOATS
from ...common.errors import Reason, Refused, refuse
from .pages import PAGE, Pages

__all__ = ["checked_append", "checked_sequences", "first_positions", "known_dtype", "requires_gradients"]


def checked_append(k, v, rows, sizes: tuple[int, int, int, int], dtype):
    """The arguments of an append to a cache of these sizes (B, G, D, E): k and v as (B, G, new, depth), and the number
    of rows that each sequence takes, or None.
    """
    reasons: list[Reason] = []
    B, G, D, E = sizes
    new_k = new_rows("k", k, (B, G, D), dtype, reasons)
    new_v = new_rows("v", v, (B, G, E), dtype, reasons)
    if new_k is not None and new_v is not None and new_k.shape[2] != new_v.shape[2]:
        reasons.append(
            Reason(
                "k and v differ in rows",
                given=f"{new_k.shape[2]} and {new_v.shape[2]}",
                expected="one value row per key row",
                fix="check axis -2",
            )
        )
    if new_k is None or new_v is None:
        raise Refused("KVCache.append", reasons)
    taken = None if rows is None else rows_taken(rows, B, new_k.shape[2], reasons)
    if reasons:
        raise Refused("KVCache.append", reasons)
    return new_k, new_v, taken


def new_rows(name: str, value, shape: tuple[int, int, int], dtype, reasons: list[Reason]) -> np.ndarray | None:
    """k or v of an append as (B, G, new, depth) for a cache of this (B, G, depth), or None with reasons added."""
    B, G, depth = shape
    if requires_gradients(value):
        reasons.append(
            Reason(
                f"{name} requires gradients",
                given=f"{name}.requires_grad is True",
                expected="a tensor that does not require gradients",
                fix=f"pass {name}.detach()",
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
                given=f"{array.dtype}",
                expected=f"{dtype}",
                fix=f"convert it, or create the cache with dtype={str(array.dtype)!r}",
            )
        )
    if array.ndim < 2:
        reasons.append(
            Reason(
                f"{name} has too few axes",
                given=shown,
                expected="(…, heads, rows, depth)",
                fix="add the missing axes",
            )
        )
        return None
    heads = array.shape[-3] if array.ndim > 2 else 1
    if math.prod(array.shape[:-3]) != B:
        reasons.append(
            Reason(
                f"{name} and the cache differ in sequences",
                given=shown,
                expected=f"B = {B} before the heads",
                fix="pass rows for every sequence; rows= marks the padding",
            )
        )
    if heads != G:
        reasons.append(
            Reason(
                f"{name} and the cache differ in heads",
                given=shown,
                expected=f"G = {G} on axis -3",
                fix="pass the key/value heads, not the query heads",
            )
        )
    if array.shape[-1] != depth:
        reasons.append(
            Reason(
                f"{name} and the cache differ in depth",
                given=shown,
                expected=f"{depth} on the last axis",
                fix="check the last axis",
            )
        )
    return array.reshape(B, heads, *array.shape[-2:]) if len(reasons) == found else None


def rows_taken(rows, B: int, width: int, reasons: list[Reason]) -> np.ndarray:
    """(B,) how many of the new rows each sequence takes."""
    given = read_array(rows, "rows")
    if given.shape != (B,) or (given.dtype.kind not in "iu" and B) or np.any((given < 0) | (given > width)):
        reasons.append(
            Reason(
                "rows must be one row count per sequence",
                given=f"{rows!r}",
                expected=f"integers from 0 to {width}, one per sequence ({B})",
                fix="omit it to append all rows",
            )
        )
        return np.zeros(B, np.int64)
    return given.astype(np.int64)


def first_positions(
    shape: tuple[int, ...],
    query_start,
    held: Pages,
    window: int | None,
    last: tuple[np.ndarray, int],
    reasons: list[Reason],
):
    """The positions of the first rows of a q of this shape; reasons why it does not fit the cache are appended.

    last: the position of the first row of the last append in each sequence, and how many rows it had.
    """
    if len(shape) < 2:
        return None  # rejected with all other problems
    B, Q = len(held.lengths), shape[-2]
    if math.prod(shape[:-3]) != B:
        reasons.append(
            Reason(
                "q and the cache differ in sequences",
                given=f"q ({', '.join(map(str, shape))})",
                expected=f"B = {B} before the heads",
                fix="pass rows for every sequence",
            )
        )
        return None
    if query_start is None:
        if last[1] != Q:
            reasons.append(
                Reason(
                    "q does not have the rows of the last append",
                    given=f"{Q} rows",
                    expected=f"the {last[1]} rows appended last",
                    fix="append their keys first, or pass their positions: query_start=…",
                )
            )
        return last[0]
    given = read_array(query_start, "query_start")
    if given.dtype.kind not in "iu" or given.shape not in ((), (B,)):
        return given  # rejected with all other problems
    start = np.broadcast_to(given, (B,)).astype(np.int64)
    reach = start if window is None else np.maximum(start - window + 1, 0)
    gone = np.flatnonzero(reach < held.first * PAGE)
    if len(gone):
        first = int(gone[0])
        reasons.append(
            Reason(
                "a row attends to keys that were released",
                given=f"sequence {first}: a window from position {reach[first]}",
                expected=f"positions from {held.first[first] * PAGE}",
                fix="attend these rows before appending more",
            )
        )
    return start


def checked_sequences(chosen, B: int) -> np.ndarray:
    """Numbers of sequences, counted from 0."""
    given = np.atleast_1d(read_array(chosen, "sequences"))
    if given.ndim > 1 or (given.dtype.kind not in "iu" and given.size) or np.any((given < -B) | (given >= B)):
        raise refuse(
            "KVCache",
            "no such sequence",
            given=f"{chosen!r}",
            expected=f"numbers from 0 to {B - 1}" if B else "none: the cache is empty",
            fix="count from 0, or from the end with negative numbers",
        )
    return given.astype(np.int64) % max(B, 1)


def requires_gradients(value) -> bool:
    """Whether this is a tensor that requires gradients, and gradients are enabled."""
    if not getattr(value, "requires_grad", False):
        return False
    import torch

    return torch.is_grad_enabled()


def known_dtype(value) -> np.dtype | None:
    """NumPy's dtype for a name or a dtype of NumPy or torch; None if the cache does not support it."""
    name = value.__name__ if isinstance(value, type) else str(value).removeprefix("torch.")
    row = FLOATS.get(name)
    return None if row is None else row.numpy
