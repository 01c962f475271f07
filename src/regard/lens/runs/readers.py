"""How many rows the mask lets attend to each key: what a key receives is spread over so many rows."""

from __future__ import annotations

import numpy as np

from ...api.statistics import attention_stats
from ...common.caching import Memo
from ...common.types import Engine
from ...language.analysis import substituted
from ...language.expr import Expr, head, key, query
from ...language.tree.interning import walk

__all__ = ["readers"]

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
    counted = _counts((mask,), (shape, start), lambda: _counted(mask, shape, start))  # layers have the same mask
    return np.broadcast_to(counted, (H, K))


def _counted(mask: Expr, shape: tuple[int, int, int], start: int) -> np.ndarray:
    """The same, (H, K), or (1, K) if heads do not differ."""
    H, Q, K = shape
    exchanged = substituted(mask, {query: key + start, key: query})
    heads = H if any(node is head for node in walk(mask)) else 1
    rows, keys = np.zeros((heads, K, 1), np.float32), np.zeros((1, Q, 1), np.float32)
    engine: Engine = "reference" if heads * Q * K <= SMALL else "auto"
    found = attention_stats(rows, keys, of="counts", mask=exchanged, query_start=0, engine=engine)
    return found.counts.attended.astype(np.int64)
