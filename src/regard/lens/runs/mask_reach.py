"""In which cells of a map some pair may be attended, by bounds of the mask over ever smaller boxes, seldom pair
by pair.
"""

from __future__ import annotations

import numpy as np

from ...language.analysis import bounds, evaluate
from ...language.expr import Expr
from ...language.intervals import Interval

__all__ = ["reach"]

BOXES = 1 << 16  # that may be open at once; a mask that needs more is left to others


def reach(
    mask: Expr, heads: np.ndarray, rows: np.ndarray, keys: np.ndarray, asked: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(cells with a pair that may be attended, cells of which it was not found out), booleans like `asked`.

    heads (H,) · rows (R + 1,), keys (C + 1,): positions where cells begin and end · asked (H, R, C): the cells in
    question.

    >>> from regard.language.expr import key, query
    >>> edges = np.arange(0, 9, 2)
    >>> reach(key <= query, np.arange(1), edges, edges, np.ones((1, 4, 4), bool))[0][0].astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    found, unknown = np.zeros(asked.shape, bool), np.zeros(asked.shape, bool)
    h, line, column = np.nonzero(asked)
    cell = np.flatnonzero(asked)
    # Each box is a column: its cell, its head, its first row and the one past its last, its first key and the one past
    # its last.
    boxes = np.stack([cell, heads[h], rows[line], rows[line + 1], keys[column], keys[column + 1]])
    while boxes.shape[1]:
        cell, head, top, bottom, left, right = boxes
        single = (bottom - top == 1) & (right - left == 1)
        which = head.astype(np.float64)
        verdict = bounds(
            mask,
            {
                "batch": Interval(0 * which, 0 * which),
                "head": Interval(which, which),
                "query": Interval(top.astype(np.float64), bottom - 1.0),
                "key": Interval(left.astype(np.float64), right - 1.0),
            },
        )
        surely, perhaps = (np.broadcast_to(each, cell.shape).copy() for each in (verdict.lo >= 1, verdict.hi > 0))
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
    """Each box in two halves along both sides, where it has more than one row or key."""
    for first, last in ((2, 3), (4, 5)):
        lower, upper = boxes.copy(), boxes.copy()
        lower[last] = upper[first] = (boxes[first] + boxes[last] + 1) // 2
        boxes = np.concatenate([lower, upper[:, upper[first] < upper[last]]], 1)
    return boxes
