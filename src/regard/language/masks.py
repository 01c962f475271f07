"""Masks: true means "may attend". Combine them with & | ~."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np

from ..common.arrays import read_array
from ..common.errors import refuse
from ..common.public import ArrayLike
from .added_masks import how_to_pass
from .checks.numbers import LIMIT, count, frozen, integers, not_negative, per_batch, whole
from .expr import Expr, Table, batch, head, key, lift, query, table
from .functions import minimum
from .tree.traced import recorded

__all__ = [
    "blocks",
    "causal",
    "dense",
    "dilated",
    "documents",
    "everything",
    "global_tokens",
    "lengths",
    "padding",
    "prefix",
    "strided",
    "window",
]


@recorded
def everything() -> Expr:
    """A mask that allows every pair.

    Returns:
        A condition.

    Examples:
        >>> import regard as rg
        >>> rg.everything()
        True
    """
    return lift(True)


@recorded
def causal() -> Expr:
    """Causal: a query attends to its own position and earlier ones.

    Returns:
        A condition.

    Source:
        Vaswani et al. 2017.

    Examples:
        >>> import regard as rg
        >>> rg.causal()
        key <= query
    """
    return key <= query


@recorded
def window(left: SupportsIndex | Expr | None, right: SupportsIndex | Expr | None = 0) -> Expr:
    """A sliding window: a query attends to `left` keys up to its own position, and to `right` keys after it.

    FlashAttention's window_size=(l, r) does not count the query's own position: l = left - 1. The sliding_window of
    transformers equals `left`.

    Args:
        left: the number of keys up to and including the query's position; None means no limit.
        right: the number of keys after it; None means no limit.

    Returns:
        A condition.

    Raises:
        Refused: a size is not an integer, or negative.

    Source:
        Beltagy et al. 2020.

    Examples:
        >>> import regard as rg
        >>> rg.window(256)
        (query - key < 256) & (key - query <= 0)
    """
    rule = everything() if left is None else query - key < count(left, "window", "left")
    return rule if right is None else rule & (key - query <= count(right, "window", "right"))


@recorded
def prefix(length: SupportsIndex | ArrayLike | Expr) -> Expr:
    """Prefix language modeling: causal, and every query also attends to the first `length` keys.

    Args:
        length: the number of keys, one integer or (B,).

    Returns:
        A condition.

    Raises:
        Refused: a length is not an integer, or negative.

    Source:
        Raffel et al. 2020.

    Examples:
        >>> import regard as rg
        >>> rg.prefix([3, 5])
        (key <= query) | (key < prefix[batch])
    """
    return causal() | (key < per_batch(length, "prefix"))


@recorded
def documents(ids: ArrayLike | None = None, *, lengths: ArrayLike | None = None) -> Expr:
    """Packed documents: a query attends to its own document only.

    Args:
        ids: the document of each position, (K,) or (B, K) integers.
        lengths: instead of `ids`, the lengths of consecutive documents, (N,). Later positions belong to the last one.

    Returns:
        A condition.

    Raises:
        Refused: both arguments or neither, or a negative length; in the call, fewer positions than keys.

    Examples:
        >>> import regard as rg
        >>> rg.documents(lengths=[3, 4, 5])
        document[query] == document[key]
    """
    if (ids is None) == (lengths is None):
        raise refuse(
            "documents",
            "either ids or lengths is required",
            "both ids and lengths" if ids is not None else "neither",
            "ids=… or lengths=…",
            "pass one of them",
        )
    if ids is None:
        counts = integers(lengths, "documents", (1,))
        not_negative(counts, "documents", "length")
        if counts.astype(float).sum() >= LIMIT:
            raise refuse(
                "documents",
                "the documents are too long",
                f"{counts.astype(float).sum():.0f} positions",
                "fewer than 2**31 positions",
                "check lengths",
            )
        ids = np.repeat(np.arange(len(counts)), counts)
    numbers = integers(ids, "documents", (1, 2))
    document = frozen(numbers, "document")
    if numbers.ndim == 2:
        return document[batch, query] == document[batch, key]
    return document[query] == document[key]


@recorded
def lengths(
    keys: SupportsIndex | ArrayLike | Expr | None = None, queries: SupportsIndex | ArrayLike | Expr | None = None
) -> Expr:
    """Padding on the right: the number of real keys, of real queries, or both.

    Args:
        keys: one integer or (B,); keys at this position and later are masked. None means no padding.
        queries: one integer or (B,); rows at this position and later are fully masked, so their output is 0. None means
            no padding.

    Returns:
        A condition.

    Raises:
        Refused: a length is not an integer, or negative.

    Examples:
        >>> import regard as rg
        >>> rg.lengths([7, 12])
        key < keys[batch]
    """
    rule = everything() if keys is None else key < per_batch(keys, "keys")
    return rule if queries is None else rule & (query < per_batch(queries, "queries"))


@recorded
def padding(mask: ArrayLike) -> Expr:
    """Padding on either side: which keys are real, as tokenizers return it in `attention_mask`.

    Only keys are masked: a row that is padding attends to the real keys, and its output is usually left out later.

    Args:
        mask: (B, K), or (K,) for all batch entries: booleans, or the numbers 0 and 1; true and 1 mean "may attend".

    Returns:
        A condition.

    Raises:
        Refused: other numbers, or other axes; in the call, fewer entries than keys.

    Examples:
        >>> import regard as rg
        >>> rg.padding([[0, 0, 1, 1], [1, 1, 1, 1]])
        padding[batch, key]
    """
    if isinstance(mask, Table):
        real = mask[key] if mask.ndim == 1 else mask[batch, key]
        return real if mask.kind == "bool" else real != 0
    numbers = read_array(mask, "padding")
    if numbers.ndim not in (1, 2) or (numbers.dtype.kind != "b" and not np.isin(numbers, (0, 1)).all()):
        fix = "reshape it to (B, K); masks of rows and keys are passed as mask=… themselves"
        if numbers.ndim == 1 and numbers.dtype.kind in "iu" and (numbers >= 0).all():
            fix = "pass mask=rg.lengths(m), if m holds the number of real keys of each batch entry"
        elif numbers.ndim in (1, 2):
            fix = "pass rg.padding(m == 0), if the numbers of m are added to scores and 0 adds nothing"
        raise refuse(
            "padding",
            "not a padding mask",
            f"{numbers.dtype} {list(numbers.shape)}",
            "booleans, or 0 and 1, one for each key: (B, K) or (K,)",
            fix,
        )
    shown = frozen(numbers != 0, "padding")
    return shown[key] if numbers.ndim == 1 else shown[batch, key]


@recorded
def dilated(step: int | Expr) -> Expr:
    """Every step-th key, counted from the query's position in both directions.

    Args:
        step: the distance between keys.

    Returns:
        A condition.

    Raises:
        Refused: `step` is 0.

    Examples:
        >>> import regard as rg
        >>> rg.dilated(3)
        (query - key) % 3 == 0
    """
    return (query - key) % step == 0


@recorded
def strided(step: int | Expr) -> Expr:
    """The strided pattern of the Sparse Transformer: the last `step` keys, and every step-th key before.

    Args:
        step: the number of recent keys, and the distance between earlier ones.

    Returns:
        A condition.

    Raises:
        Refused: `step` is 0.

    Source:
        Child et al. 2019.

    Examples:
        >>> import regard as rg
        >>> rg.strided(3)
        (key <= query) & ((query - key < 3) | ((query - key) % 3 == 0))
    """
    return causal() & ((query - key < step) | dilated(step))


@recorded
def global_tokens(which: SupportsIndex | ArrayLike | Expr) -> Expr:
    """Global tokens, which attend to every key and to which every query attends.

    Args:
        which: the number of tokens at the start, or a list of positions.

    Returns:
        A condition.

    Raises:
        Refused: a position is not an integer in [0, 2**31).

    Source:
        Beltagy et al. 2020 (Longformer).

    Examples:
        >>> import regard as rg
        >>> rg.global_tokens(1)
        (key < 1) | (query < 1)
    """
    if isinstance(which, Expr) or read_array(which, "global_tokens").ndim == 0:
        first = count(which, "global_tokens", "the number of tokens")
        return (key < first) | (query < first)
    positions = integers(which, "global_tokens", (1,))
    if positions.size == 0:
        return lift(False)
    not_negative(positions, "global_tokens", "position")
    if positions.max() >= LIMIT:
        raise refuse(
            "global_tokens", "a position is too large", f"{positions.max()}", "positions below 2**31", "check the list"
        )
    # Later positions read one extra entry, which is false.
    beyond = int(positions.max()) + 1
    chosen = np.zeros(beyond + 1, np.bool_)
    chosen[positions] = True
    tokens = frozen(chosen, "is_global")
    return tokens[minimum(query, beyond)] | tokens[minimum(key, beyond)]


@recorded
def blocks(pattern: ArrayLike, size: SupportsIndex | tuple[SupportsIndex, SupportsIndex]) -> Expr:
    """Block-sparse attention: query block i may attend to key block j if pattern[…, i, j] is true.

    Args:
        pattern: booleans, (rows, columns), (H, rows, columns) or (B, H, rows, columns). Positions beyond the pattern
            belong to its last block.
        size: the positions in a block, one integer or (queries, keys).

    Returns:
        A condition.

    Raises:
        Refused: `pattern` is not an array of booleans, or a size is not a positive integer.

    Examples:
        >>> import numpy as np, regard as rg
        >>> rg.blocks(np.eye(4, dtype=bool), 64)
        pattern[query // 64, key // 64]
    """
    sizes = size if isinstance(size, tuple | list) else (size, size)
    if len(sizes) != 2:
        raise refuse(
            "blocks",
            "size must be an int or (queries, keys)",
            f"size={size!r}",
            "one number, or (queries, keys)",
            "pass both sizes",
        )
    per_query, per_key = (count(part, "blocks", "the size", least=1) for part in sizes)
    return _boolean(pattern, "pattern", query // per_query, key // per_key)


@recorded
def dense(array: ArrayLike, query_start: SupportsIndex | ArrayLike | None = None) -> Expr:
    """A boolean array as a mask.

    Args:
        array: booleans that broadcast to (B, H, Q, K). Rows beyond the array read its first or last row.
        query_start: the position of row 0, one integer or (B,); by default the last row is at the last key.

    Returns:
        A condition.

    Raises:
        Refused: the array is not boolean, or has no or more than four axes; in the call, fewer columns than keys.

    Examples:
        >>> import numpy as np, regard as rg
        >>> rg.dense(np.ones((2, 8), bool))
        mask[query - 6, key]
    """
    return _boolean(array, "mask", *rows_and_keys(table(array).array, "mask", query_start))


def rows_and_keys(array: np.ndarray, name: str, query_start: SupportsIndex | ArrayLike | None) -> tuple[Expr, Expr]:
    """The row and the column at which a position reads an array (…, rows, keys)."""
    rows, keys = (1, 1, *array.shape)[-2:]
    if query_start is None and keys == 1 < rows:
        raise refuse(
            name,
            "an array with one column needs query_start",
            f"shape {array.shape}",
            "query_start=…, the position of row 0",
            "query_start=0 if row i is at position i",
        )
    if query_start is None:
        start = keys - rows if rows > 1 else 0
    elif isinstance(query_start, Expr):
        return query - query_start, key
    elif read_array(query_start, name).ndim:
        return query - frozen(integers(query_start, name, (1,)), "start")[batch], key
    else:
        start = whole(query_start, name, "query_start")
    return query - start if start else query, key


def along(shown: Table, *position: Expr):
    """The read of an array that broadcasts: the last axes at `position`, heads and batch before them."""
    axes = (batch, head, *position)[-shown.array.ndim :] if shown.array.ndim else ()
    return shown[tuple(0 if size == 1 else axis for axis, size in zip(axes, shown.array.shape, strict=True))]


def _boolean(array, name: str, *position: Expr) -> Expr:
    shown = table(array, name)
    fits = 1 <= shown.array.ndim <= 4
    if shown.kind != "bool" or not fits:
        passed = {"added": "score=", "condition": "mask="} if name == "mask" else {}
        raise refuse(
            name,
            "not an array of conditions",
            f"{shown.array.dtype} {list(shown.array.shape)}",
            "booleans with one to four axes: …, heads, rows, keys",
            how_to_pass(shown.array, name, **passed)
            if fits
            else "reshape it to one to four axes; for a number, pass mask=True or False",
        )
    return along(shown, *position)
