"""Checks of the arguments of a cache."""

from __future__ import annotations

import math

import numpy as np

from ...common.arrays import read_array
from ...common.dtypes import FLOATS
from ...common.errors import Reason, Refused

__all__ = ["known_dtype", "new_rows", "requires_gradients", "rows_taken"]


def new_rows(name: str, value, shape: tuple[int, int, int], dtype, reasons: list[Reason]) -> np.ndarray | None:
    """k or v of an append as (B, G, new, depth) for a cache of this (B, G, depth), or None with reasons added."""
    B, G, depth = shape
    if requires_gradients(value):
        reasons.append(
            Reason(
                f"{name} wants gradients",
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
