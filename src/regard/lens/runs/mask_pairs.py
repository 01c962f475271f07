"""The pairs that a mask allows: how many of each row and each key, and which cells of a map contain one."""

from __future__ import annotations

import numpy as np

from ...api.statistics import attention_stats
from ...common.caching import Memo
from ...engines import choice
from ...language.analysis import bounds, evaluate, substituted
from ...language.expr import Expr, head, key, query
from ...language.intervals import Interval
from ...language.tree.interning import walk

BOXES = 1 << 16  # the most boxes at a time; for masks that need more, some cells stay unknown

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
    engine = choice.of_one_call(heads * Q * K)
    found = attention_stats(rows, keys, of="counts", mask=mask, query_start=start, engine=engine)
    return found.counts.attended.astype(np.int64)


def reach(
    mask: Expr, heads: np.ndarray, rows: np.ndarray, keys: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(cells with an allowed pair, cells for which this is unknown), booleans like `wanted`: by interval bounds of
    the mask over boxes, which are halved until they are decided.

    heads (H,) · rows (R + 1,), keys (C + 1,): the edges of the cells · wanted (H, R, C): the cells to decide.

    >>> from regard.language.expr import key, query
    >>> edges = np.arange(0, 9, 2)
    >>> reach(key <= query, np.arange(1), edges, edges, np.ones((1, 4, 4), bool))[0][0].astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    found, unknown = np.zeros(wanted.shape, bool), np.zeros(wanted.shape, bool)
    h, line, column = np.nonzero(wanted)
    cell = np.flatnonzero(wanted)
    # Each box is a column: cell, head, first row, one past the last row, first key, one past the last key.
    boxes = np.stack([cell, heads[h], rows[line], rows[line + 1], keys[column], keys[column + 1]])
    while boxes.shape[1]:
        cell, head, top, bottom, left, right = boxes
        single = (bottom - top == 1) & (right - left == 1)
        which = head.astype(np.float64)
        truth = bounds(
            mask,
            {
                "batch": Interval(0 * which, 0 * which),
                "head": Interval(which, which),
                "query": Interval(top.astype(np.float64), bottom - 1.0),
                "key": Interval(left.astype(np.float64), right - 1.0),
            },
        )
        surely, perhaps = (np.broadcast_to(each, cell.shape).copy() for each in (truth.lo >= 1, truth.hi > 0))
        if single.any():
            point = {"batch": 0, "head": head[single], "query": top[single], "key": left[single]}
            surely[single] = evaluate(mask, point)
        found.flat[cell[surely]] = True
        boxes = boxes[:, perhaps & ~single & ~found.flat[cell]]
        if boxes.shape[1] > BOXES:
            unknown.flat[boxes[0]] = True
            break
        boxes = quarters(boxes)
    return found, unknown


def quarters(boxes: np.ndarray) -> np.ndarray:
    """Each box split in half along both sides, if it has more than one row or key."""
    for first, last in ((2, 3), (4, 5)):
        lower, upper = boxes.copy(), boxes.copy()
        lower[last] = upper[first] = (boxes[first] + boxes[last] + 1) // 2
        boxes = np.concatenate([lower, upper[:, upper[first] < upper[last]]], 1)
    return boxes
