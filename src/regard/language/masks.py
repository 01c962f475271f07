"""Masks: true means "may attend". Each is a few lines in the language; compose them with & | ~."""

from __future__ import annotations

import operator

import numpy as np

from ..common.arrays import read_array
from ..common.errors import refuse
from .expr import Expr, Table, batch, frozen_table, head, key, lift, query, table
from .functions import minimum

__all__ = [
    "blocks",
    "causal",
    "dense",
    "dilated",
    "documents",
    "everything",
    "global_tokens",
    "lengths",
    "prefix",
    "strided",
    "window",
]

LIMIT = 1 << 31  # positions are 32-bit in compiled code


def everything() -> Expr:
    """Every query may attend every key.

    >>> everything()
    True
    """
    return lift(True)


def causal() -> Expr:
    """A query attends itself and what came before.

    >>> causal()
    key <= query
    """
    return key <= query


def window(left: int | None, right: int | None = 0) -> Expr:
    """A query sees `left` keys up to and including itself, and `right` keys after it; None is no limit.

    `window(256)` sees 256 keys. Flash attention's window_size=(l, r) counts the keys before the query, so there l =
    left - 1; transformers' sliding_window equals `left`.

    >>> window(256)
    (query - key < 256) & (key - query <= 0)
    """
    rule = everything() if left is None else query - key < count(left, "window", "left")
    return rule if right is None else rule & (key - query <= count(right, "window", "right"))


def prefix(length) -> Expr:
    """Causal, but the first `length` keys are seen by all (a number, or one per batch entry).

    >>> prefix([3, 5])
    (key <= query) | (key < prefix[batch])
    """
    return causal() | (key < _per_batch(length, "prefix"))


def documents(ids=None, *, lengths=None) -> Expr:
    """Several documents packed in one row: a query attends its own document only.

    ids: the document of each position, (K,) or (B, K). lengths: instead, the lengths of consecutive documents, (N,).
    Rows beyond the last belong to the last document. Refused: both or neither; negative lengths; with the call, fewer
    positions than keys.

    >>> documents(lengths=[3, 4, 5])
    document[query] == document[key]
    """
    if (ids is None) == (lengths is None):
        raise refuse(
            "documents",
            "either ids or lengths is required",
            given="both ids and lengths" if ids is not None else "neither",
            expected="ids=… or lengths=…",
            fix="pass one of them",
        )
    if ids is None:
        counts = _integers(lengths, "documents", (1,))
        _not_negative(counts, "documents", "length")
        if counts.astype(float).sum() >= LIMIT:
            raise refuse(
                "documents",
                "the documents are too long",
                given=f"{counts.astype(float).sum():.0f} positions",
                expected="fewer than 2**31 positions",
                fix="check lengths",
            )
        ids = np.repeat(np.arange(len(counts)), counts)
    numbers = _integers(ids, "documents", (1, 2))
    document = _frozen(numbers, "document")
    if numbers.ndim == 2:
        return document[batch, query] == document[batch, key]
    return document[query] == document[key]


def lengths(keys=None, queries=None) -> Expr:
    """Padding on the right: of keys, of queries, or both (a number, or one per batch entry).

    keys: positions from there on are not attended. queries: rows from there on attend nothing, so their output is 0.

    >>> lengths([7, 12])
    key < keys[batch]
    """
    rule = everything() if keys is None else key < _per_batch(keys, "keys")
    return rule if queries is None else rule & (query < _per_batch(queries, "queries"))


def dilated(step: int) -> Expr:
    """Every step-th key, counted from the query in both directions.

    >>> dilated(3)
    (query - key) % 3 == 0
    """
    return (query - key) % step == 0


def strided(step: int) -> Expr:
    """The Sparse Transformer's strided pattern: the last `step` keys, and every step-th before (Child et al. 2019).

    >>> strided(3)
    (key <= query) & ((query - key < 3) | ((query - key) % 3 == 0))
    """
    return causal() & ((query - key < step) | dilated(step))


def global_tokens(which) -> Expr:
    """Tokens that attend everything and are attended by everything, as in Longformer: the first n, or a list of
    positions.

    >>> global_tokens(1)
    (key < 1) | (query < 1)
    """
    if isinstance(which, Expr) or read_array(which, "global_tokens").ndim == 0:
        first = count(which, "global_tokens", "the number of tokens")
        return (key < first) | (query < first)
    positions = _integers(which, "global_tokens", (1,))
    if positions.size == 0:
        return lift(False)
    _not_negative(positions, "global_tokens", "position")
    if positions.max() >= LIMIT:
        raise refuse(
            "global_tokens",
            "a position is too large",
            given=f"{positions.max()}",
            expected="positions below 2**31",
            fix="check the list",
        )
    # One entry beyond the last keeps later positions, which read it, out of the set.
    beyond = int(positions.max()) + 1
    chosen = np.zeros(beyond + 1, np.bool_)
    chosen[positions] = True
    tokens = _frozen(chosen, "is_global")
    return tokens[minimum(query, beyond)] | tokens[minimum(key, beyond)]


def blocks(pattern, size: int | tuple[int, int]) -> Expr:
    """A pattern of blocks: query block i may attend key block j where pattern[…, i, j] is true.

    pattern: booleans, (rows, columns), with heads and then batch in front if they differ. size: of a block, one number
    or (queries, keys). Positions beyond the pattern belong to its last block.

    >>> blocks(np.eye(4, dtype=bool), 64)
    pattern[query // 64, key // 64]
    """
    sizes = size if isinstance(size, tuple | list) else (size, size)
    if len(sizes) != 2:
        raise refuse(
            "blocks",
            "size must be an int or (queries, keys)",
            given=f"size={size!r}",
            expected="one number, or (queries, keys)",
            fix="pass both sizes",
        )
    per_query, per_key = (count(part, "blocks", "the size", least=1) for part in sizes)
    return _boolean(pattern, "pattern", query // per_query, key // per_key)


def dense(array, query_start: int | None = None) -> Expr:
    """Any boolean array that broadcasts to (B, H, Q, K), as rows over keys.

    Row i stands at position query_start + i; by default the last row stands at the last key, as everywhere in regard.
    Rows beyond the array read its edge; with the call, fewer columns than keys are refused.

    >>> dense(np.ones((2, 8), bool))
    mask[query - 6, key]
    """
    return _boolean(array, "mask", *rows_and_keys(table(array).array, "mask", query_start))


def rows_and_keys(array: np.ndarray, name: str, query_start: int | None) -> tuple[Expr, Expr]:
    """The row and the column at which a position reads an array (…, rows, keys)."""
    rows, keys = (1, 1, *array.shape)[-2:]
    if query_start is None and keys == 1 < rows:
        raise refuse(
            name,
            "an array with one column needs query_start",
            given=f"shape {array.shape}",
            expected="query_start=…, the position of row 0",
            fix="query_start=0 if row i is at position i",
        )
    start = (keys - rows if rows > 1 else 0) if query_start is None else whole(query_start, name, "query_start")
    return query - start if start else query, key


def along(shown: Table, *position: Expr):
    """The read of an array that broadcasts: the last axes at `position`, heads and batch before them."""
    axes = (batch, head, *position)[-shown.array.ndim :] if shown.array.ndim else ()
    return shown[tuple(0 if size == 1 else axis for axis, size in zip(axes, shown.array.shape, strict=True))]


def _boolean(array, name: str, *position: Expr) -> Expr:
    shown = table(array, name)
    if shown.kind != "bool" or not 1 <= shown.array.ndim <= 4:
        raise refuse(
            name,
            "not an array of conditions",
            given=f"{shown.array.dtype} {list(shown.array.shape)}",
            expected="booleans with one to four axes: …, heads, rows, keys",
            fix="compare it first (array != 0), or pass numbers that are added to scores as score=",
        )
    return along(shown, *position)


def whole(value, where: str, what: str) -> int:
    """A whole number in any spelling: Python's, NumPy's, or a tensor without axes."""
    try:
        if isinstance(value, bool | np.bool_) or "bool" in str(getattr(value, "dtype", "")):
            raise TypeError("a truth value")
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refuse(
            where,
            f"{what} is not a whole number",
            given=f"{value!r}",
            expected="an integer",
            fix="round it with int(…)",
        ) from error


def count(value, where: str, what: str, least: int = 0):
    """A whole number of `least` or more; expressions stay as they are."""
    if isinstance(value, Expr):
        return value
    number = whole(value, where, what)
    if number < least:
        raise refuse(
            where,
            f"{what} is {'negative' if number < 0 else 'too small'}",
            given=f"{number}",
            expected=f"{least} or more",
            fix="check the number",
        )
    return number


def _per_batch(value, name: str):
    """A number for all batch entries, or a table with one per entry."""
    if isinstance(value, Expr | str) or read_array(value, name).ndim == 0:
        return lift(count(value, name, "the number"))
    numbers = _integers(value, name, (1,))
    _not_negative(numbers, name, "number")
    return _frozen(numbers, name)[batch]


def _not_negative(numbers: np.ndarray, where: str, what: str) -> None:
    if (numbers < 0).any():
        raise refuse(
            where,
            f"a {what} is negative",
            given=f"{numbers.min()}",
            expected=f"{what}s of 0 or more",
            fix="count from the start",
        )


def _integers(value, where: str, axes: tuple[int, ...]) -> np.ndarray:
    array = read_array(value, where)
    if array.ndim not in axes or (array.dtype.kind not in "iu" and array.size):
        raise refuse(
            where,
            "not a list of integers",
            given=f"{array.dtype} {list(array.shape)}",
            expected=f"integers with {' or '.join(map(str, axes))} axes",
            fix="convert it with .astype(int)",
        )
    return array.astype(np.int64)


def _frozen(array: np.ndarray, name: str) -> Table:
    """A table of our own, never changed, so that plans made from it can be kept."""
    return frozen_table(array if array.size else np.zeros((1,) * array.ndim, array.dtype), name)
