"""Scores: changes of the scaled logit before the softmax. Each has an argument `score`, so that they compose."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

import numpy as np

from ..common.arrays import outline
from ..common.errors import refuse
from ..common.public import ArrayLike
from .checks.numbers import LIMIT, count
from .expr import Const, Expr, Table, frozen_table, head, key, lift, query, table
from .expr import score as the_score
from .functions import tanh, where
from .masks import along, rows_and_keys
from .tree.traced import recorded

__all__ = ["alibi", "alibi_slopes", "bias", "gate", "relative", "softcap", "t5_buckets"]


@recorded
def softcap(cap: float | Expr, score: Expr = the_score) -> Expr:
    """A soft limit of the logit: cap · tanh(score / cap).

    Args:
        cap: the limit, a positive finite number or an expression.
        score: the logit to change, by default `rg.score`.

    Returns:
        A float expression.

    Raises:
        Refused: `cap` is not a positive finite number.

    Source:
        Gemma 2 (Riviere et al. 2024).

    Examples:
        >>> import regard as rg
        >>> rg.softcap(50.0)
        50.0 * tanh(score / 50.0)
    """
    limit = lift(cap)
    if limit.kind == "bool" or (isinstance(limit, Const) and not 0 < limit.value < math.inf):
        raise refuse(
            "softcap",
            "the cap is not a positive finite number",
            f"{cap!r}",
            "a finite number above 0",
            "omit softcap for no limit",
        )
    return limit * tanh(score / limit)


def alibi_slopes(heads: SupportsIndex) -> np.ndarray:
    """The slopes of ALiBi: powers of 2**(-8/n), where n is the largest power of two up to `heads`.

    The slopes of further heads are every other one of those of 2n heads.

    Args:
        heads: the number of query heads, H.

    Returns:
        (H,) float32.

    Raises:
        Refused: `heads` is not a positive integer.

    Source:
        Press et al. 2022.

    Examples:
        >>> import regard as rg
        >>> rg.alibi_slopes(4).tolist()
        [0.25, 0.0625, 0.015625, 0.00390625]
    """
    n = count(heads, "alibi_slopes", "the number of heads", least=1)
    closest = 1 << (n.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / closest) for i in range(closest)]
    slopes += [2.0 ** (-4.0 * (i + 1) / closest) for i in range(0, 2 * (n - closest), 2)]
    return np.array(slopes, np.float32)


@recorded
def alibi(slopes: SupportsIndex | ArrayLike, score: Expr = the_score) -> Expr:
    """ALiBi, a linear bias: score - slope[head] · |query - key|.

    Args:
        slopes: (H,) numbers, or the number of heads H for `alibi_slopes(H)`.
        score: the logit to change, by default `rg.score`.

    Returns:
        A float expression.

    Raises:
        Refused: `slopes` is not a list of numbers or a positive integer.

    Source:
        Press et al. 2022.

    Examples:
        >>> import regard as rg
        >>> rg.alibi(8)
        score - slope[head] * abs(query - key)
    """
    given: Any = slopes
    counted = not isinstance(given, Table) and outline(given, "alibi").ndim == 0
    shown = _numbers(frozen_table(alibi_slopes(given), "slope") if counted else given, "slope", (1,))
    return score - shown[head] * abs(query - key)


@recorded
def bias(
    array: float | ArrayLike | Expr, score: Expr = the_score, query_start: SupportsIndex | ArrayLike | None = None
) -> Expr:
    """An additive bias: score + array.

    Args:
        array: numbers that broadcast to (B, H, Q, K), or an expression.
        score: the logit to change, by default `rg.score`.
        query_start: the position of row 0 of the array, one integer or (B,); by default its last row is at its last
            key.

    Returns:
        A float expression.

    Raises:
        Refused: `array` is not numeric, or has more than four axes.

    Examples:
        >>> import numpy as np, regard as rg
        >>> rg.bias(np.zeros((4, 8, 8)))
        score + bias[head, query, key]
    """
    return score + _by_position(array, "bias", query_start)


@recorded
def gate(
    array: float | ArrayLike | Expr, score: Expr = the_score, query_start: SupportsIndex | ArrayLike | None = None
) -> Expr:
    """A multiplicative gate: score · array.

    Args:
        array: numbers that broadcast to (B, H, Q, K), or an expression.
        score: the logit to change, by default `rg.score`.
        query_start: the position of row 0 of the array, one integer or (B,); by default its last row is at its last
            key.

    Returns:
        A float expression.

    Raises:
        Refused: `array` is not numeric, or has more than four axes.

    Examples:
        >>> import numpy as np, regard as rg
        >>> rg.gate(np.ones(8))
        score * gate[key]
    """
    return score * _by_position(array, "gate", query_start)


@recorded
def relative(array: ArrayLike, score: Expr = the_score) -> Expr:
    """A bias by distance: score + array[…, key - query + R]; larger distances are clamped to R.

    Args:
        array: (2R + 1,) or (H, 2R + 1) numbers.
        score: the logit to change, by default `rg.score`.

    Returns:
        A float expression.

    Raises:
        Refused: `array` is not numeric, has other axes, or its last axis has even length.

    Source:
        Shaw et al. 2018; Liu et al. 2021 (as a bias).

    Examples:
        >>> import numpy as np, regard as rg
        >>> rg.relative(np.zeros((4, 33)))
        score + relative[head, key - query + 16]
    """
    shown = _numbers(array, "relative", (1, 2))
    size = shown.array.shape[-1]
    if size % 2 == 0:
        raise refuse(
            "relative",
            "the last axis must have odd length 2R + 1",
            f"{size} distances",
            "an odd number: -R … R",
            "pass 2R + 1 entries",
        )
    reach = size // 2
    index = key - query + reach  # reads clamp
    return score + (shown[index] if shown.array.ndim == 1 else shown[head, index])


@recorded
def t5_buckets(
    array: ArrayLike, *, bidirectional: bool, max_distance: SupportsIndex = 128, score: Expr = the_score
) -> Expr:
    """The relative bias of T5: score + array[bucket of (key - query), head], with logarithmic buckets.

    Args:
        array: (buckets, H) numbers.
        bidirectional: whether keys after the query have buckets of their own, half of them.
        max_distance: the distance from which on all keys share the last bucket.
        score: the logit to change, by default `rg.score`.

    Returns:
        A float expression.

    Raises:
        Refused: `array` does not have two axes, or the number of buckets does not fit.

    Source:
        Raffel et al. 2020.

    Examples:
        >>> import numpy as np, regard as rg
        >>> rg.t5_buckets(np.zeros((32, 4)), bidirectional=False)
        score + relative_bias[bucket[query - key], head]
    """
    shown = _numbers(array, "relative_bias", (2,))
    return score + shown[t5_bucket(shown.array.shape[0], bidirectional=bidirectional, max_distance=max_distance), head]


def t5_bucket(total: int, *, bidirectional: bool, max_distance: SupportsIndex = 128) -> Expr:
    """T5's bucket of (key - query), a number below total. Small distances have a bucket each, larger ones share one.

    The bucket of each distance is computed once, in float32 as in T5, so all engines agree on the borders.

    >>> t5_bucket(32, bidirectional=False)
    bucket[query - key]
    """
    if bidirectional and total % 2:
        raise refuse(
            "t5_buckets",
            "an odd number of buckets cannot be split",
            f"{total} buckets",
            "an even number",
            "pass one row per bucket, half of them for keys after the query",
        )
    reach = count(max_distance, "t5_buckets", "max_distance")
    if reach >= LIMIT:
        raise refuse(
            "t5_buckets", "max_distance is too large", f"{reach}", "fewer than 2**31 positions", "check the number"
        )
    buckets = total // 2 if bidirectional else total
    exact = buckets // 2
    if not 1 <= exact < reach:
        raise refuse(
            "t5_buckets",
            "there are too few buckets",
            f"{total} buckets, max_distance={reach}",
            f"at least {4 if bidirectional else 2} buckets, and max_distance beyond the {exact} exact ones",
            "check the table: (buckets, heads)",
        )
    distance = np.arange(reach + 1)
    with np.errstate(divide="ignore"):
        growth = np.log(distance.astype(np.float32) / np.float32(exact)) / np.float32(math.log(reach / exact))
    far = np.minimum(exact + np.maximum(growth * np.float32(buckets - exact), 0).astype(np.int64), buckets - 1)
    bucket = frozen_table(np.where(distance < exact, distance, far), "bucket")
    # A distance of 0 or less reads bucket 0, because indices are clamped.
    return bucket[abs(query - key)] + where(key > query, buckets, 0) if bidirectional else bucket[query - key]


def _by_position(array, name: str, query_start: SupportsIndex | ArrayLike | None) -> Expr:
    if isinstance(array, Expr) or (not isinstance(array, Table) and outline(array, name).ndim == 0):
        return lift(array)
    shown = _numbers(array, name, (1, 2, 3, 4))
    return along(shown, *rows_and_keys(shown.array, name, query_start))


def _numbers(array, name: str, axes: tuple[int, ...]) -> Table:
    shown = table(array, name)
    if shown.kind == "bool" or shown.array.ndim not in axes:
        raise refuse(
            name,
            "not an array of numbers of the right shape",
            f"{shown.array.dtype} {list(shown.array.shape)}",
            f"numbers with {' or '.join(map(str, axes))} axes",
            "pass it as mask=, true where a row may attend" if shown.kind == "bool" else "reshape it",
        )
    return shown
