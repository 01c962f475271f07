"""Picture: a part of one head's matrix, pooled to at most so many cells a side, as heatmaps for paper and terminal show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..measures import edges
from .call import Call

__all__ = ["Picture", "picture"]

AT_ONCE = 1 << 24  # weights that are held while a picture is made


@dataclass(frozen=True, eq=False)
class Picture:
    """share, allowed (R, C): the mean over a cell's rows of the sum over its keys, and whether it holds an allowed pair.

    top, left: where it begins · rows, columns: pairs per cell · queries, keys: names of the cells where each is one row or key
    """

    share: np.ndarray
    allowed: np.ndarray
    top: int
    left: int
    rows: float
    columns: float
    queries: tuple[str, ...] | None
    keys: tuple[str, ...] | None
    exact: str

    @property
    def stretched(self) -> bool:
        """Whether one side is so much longer that square cells would make a thread of it."""
        return max(self.share.shape) > 4 * min(self.share.shape)


def picture(
    call: Call, head: int, rows: range, keys: range, cells: int, queries: Sequence[str] | None = None, words: Sequence[str] | None = None
) -> Picture:  # fmt: skip
    """The part of a head as at most cells × cells; every weight in it is computed, in blocks of bounded size."""
    height, width = min(cells, len(rows)), min(cells, len(keys))
    down, across = edges(len(rows), height), edges(len(keys), width)
    share, allowed = np.zeros((height, width)), np.zeros((height, width), bool)
    lines = max(1, AT_ONCE // len(keys))
    for first in range(0, height, max(1, lines * height // len(rows))):
        last = min(height, first + max(1, lines * height // len(rows)))
        part = rows[down[first] : down[last]]
        p = call.weights(rows=np.array(part), keys=slice(keys.start, keys.stop), heads=head)[0]
        seen = call.allowed(rows=np.array(part), keys=slice(keys.start, keys.stop), heads=head)[0]
        at = down[first:last] - down[first]
        share[first:last] = (
            np.add.reduceat(np.add.reduceat(p, across[:-1], 1), at, 0) / np.diff(down[first : last + 1])[:, None]
        )
        allowed[first:last] = np.logical_or.reduceat(np.logical_or.reduceat(seen, across[:-1], 1), at, 0)
    single = height == len(rows), width == len(keys)
    exact = (
        "exact"
        if all(single)
        else f"cells of {_size(len(rows) / height)} × {_size(len(keys) / width)} pairs: mean of rows, sum of keys"
    )
    return Picture(share, allowed, rows.start, keys.start, len(rows) / height, len(keys) / width,
                   tuple(queries[rows.start : rows.stop]) if queries is not None and single[0] else None,
                   tuple(words[keys.start : keys.stop]) if words is not None and single[1] else None, exact)  # fmt: skip


def _size(pairs: float) -> str:
    return f"{pairs:.4g}"
