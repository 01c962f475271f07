"""Masks and scores that are arrays, on the fast path: what of a recipe depends on what they contain.

A mask decides which tiles are visited, so a recipe holds for masks that are equal, element by element; they are
compared in each call, which takes less time than planning. The numbers of a score decide nothing, unless enough of them
are −infinity: such calls are planned every time. In small calls all tiles are visited, whatever the arrays contain.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from ..common.arrays import address, is_float, is_tensor, read_array
from ..common.dtypes import row_of

LARGEST = 1 << 20  # bytes of a mask that is kept to be compared
SMALL = 1 << 24  # multiply-adds up to which looking at a mask takes longer than skipping its tiles saves
COPIED = 1 << 28  # bytes beyond which a copy is not worth its memory


def is_small(q, k, v) -> bool:
    """Whether a call of these arrays is computed without looking at what its mask and score contain."""
    return math.prod(q.shape[:-1]) * math.prod(k.shape[-2:-1]) * (q.shape[-1] + v.shape[-1]) <= SMALL


def usable(mask, score, rows: int, *, small: bool) -> bool:
    """Whether the arrays among mask and score may take the fast path; rules and None are passed as None. rows: Q."""
    from .jit.tiling import hides

    if mask is not None:
        found = plain(mask)
        if found.dtype != np.bool_ or (found.nbytes > LARGEST and not small):
            return False
    if score is None:
        return True
    found = read_array(score, "score")
    if not is_float(found.dtype) and row_of(found.dtype) is None:
        return False
    return small or not hides(found, rows)


def in_rows(score):
    """An array that is added to the scores, copied if the numbers of a row are apart in memory, as where heads are
    innermost: a kernel reads several of a row at a time. Axes along which it is repeated stay so.
    """
    tensor = is_tensor(score)
    if not (tensor and score.layout is sys.modules["torch"].strided) and type(score) is not np.ndarray:
        return score
    if score.ndim < 2 or score.shape[-2] < 2 or score.shape[-1] < 2:
        return score
    strides = score.stride() if tensor else score.strides
    if strides[-1] in (0, 1 if tensor else score.itemsize):
        return score
    if tensor and score.requires_grad and 0 in strides:  # every repeated number has a gradient of its own
        return score
    some = score[tuple([slice(1) if step == 0 else slice(None) for step in strides])]
    if some.nbytes > COPIED:
        return score
    return some.contiguous().expand(score.shape) if tensor else np.broadcast_to(np.ascontiguousarray(some), score.shape)


def few(rows: int) -> bool:
    """Whether a call has so few rows that its plan does not depend on the numbers of its score."""
    from .jit.tiling import ROWS

    return rows < ROWS


def plain(mask) -> np.ndarray:
    """The elements in memory: axes along which an array is repeated have one entry."""
    found = read_array(mask, "mask")
    if 0 not in found.strides:
        return found
    return found[tuple([slice(1) if step == 0 else slice(None) for step in found.strides])]


def contents(mask) -> np.ndarray:
    """A copy of the elements."""
    return plain(mask).copy()


def equal(mask, kept: np.ndarray) -> bool:
    """Whether a mask has the elements that were kept."""
    return bool((plain(mask) == kept).all())


def places(tables: list, given: tuple) -> tuple[int, ...] | None:
    """Where the address of each array is in the argument block; None if one of them is not read in place. tables: those
    of a kernel, and their places.
    """
    found = {address(table.array): place for table, place in tables}
    try:
        return tuple([found[address(read_array(each, "attention"))] for each in given])
    except KeyError:
        return None
