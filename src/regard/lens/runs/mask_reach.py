"""Which cells of a map contain a pair that the mask allows, by interval bounds of the mask over recursively halved
boxes.
"""

from __future__ import annotations

import numpy as np

from ...language.analysis import bounds, evaluate
from ...language.expr import Expr
from ...language.intervals import Interval

BOXES = 1 << 16  # the most boxes at a time; for masks that need more, some cells stay unknown


def reach(
    mask: Expr, heads: np.ndarray, rows: np.ndarray, keys: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(cells with an allowed pair, cells for which this is unknown), booleans like `wanted`.

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
