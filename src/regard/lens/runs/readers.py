"""Counts of the pairs that a mask allows: of the rows of each key, and of the keys of each row."""

from __future__ import annotations

import numpy as np

from ...api.statistics import attention_stats
from ...common.caching import Memo
from ...common.public import Engine
from ...language.analysis import substituted
from ...language.expr import Expr, head, key, query
from ...language.tree.interning import walk

SMALL = 1 << 18  # pairs: below this, NumPy is faster than compiling a kernel

_counts: Memo[np.ndarray] = Memo(8)


def readers(mask: Expr | None, shape: tuple[int, int, int], start: int = 0) -> np.ndarray:
    """The number of rows that may attend to each key, (H, K).

    shape: (H, Q, K) · start: the key position of row 0. The keys are counted as if they were rows: the mask with rows
    and keys exchanged allows as many.

    >>> from regard.language.expr import key, query
    >>> readers(key <= query, (1, 4, 4)).tolist()
    [[4, 3, 2, 1]]
    """
    H, Q, K = shape
    if mask is None:
        return np.full((H, K), Q)
    return keys_of(substituted(mask, {query: key + start, key: query}), (H, K, Q), 0)


def keys_of(mask: Expr, shape: tuple[int, int, int], start: int = 0) -> np.ndarray:
    """The number of keys to which each row may attend, (H, Q)."""
    counted = _counts((mask,), (shape, start), lambda: _counted(mask, shape, start))  # layers have the same mask
    return np.broadcast_to(counted, shape[:2])


def _counted(mask: Expr, shape: tuple[int, int, int], start: int) -> np.ndarray:
    """The same, (H, Q), or (1, Q) if heads do not differ."""
    H, Q, K = shape
    heads = H if any(node is head for node in walk(mask)) else 1
    rows, keys = np.zeros((heads, Q, 1), np.float32), np.zeros((1, K, 1), np.float32)
    engine: Engine = "reference" if heads * Q * K <= SMALL else "auto"
    found = attention_stats(rows, keys, of="counts", mask=mask, query_start=start, engine=engine)
    return found.counts.attended.astype(np.int64)
