"""A part of one head's matrix, pooled to at most so many cells a side, as heatmaps for paper and terminal show
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runs.call import Call
from ..runs.codes import encode
from ..runs.tiles import region

__all__ = ["Picture", "picture"]


@dataclass(frozen=True, eq=False)
class Picture:
    """share, codes (R, C): the mean over a cell's rows of the sum over its keys, and the code of it, or of what is
    wrong in the cell.

    top, left: where it begins · rows, columns: pairs per cell · queries, keys: names of the cells where each is one row
    or key
    """

    share: np.ndarray
    codes: np.ndarray
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
    call: Call,
    head: int,
    rows: range,
    keys: range,
    cells: int,
    *,
    queries: Sequence[str] | None = None,
    words: Sequence[str] | None = None,
) -> Picture:
    """The part of a head as at most cells × cells."""
    height, width = min(cells, len(rows)), min(cells, len(keys))
    found = region(call, head, rows, keys, height, width)
    single = height == len(rows), width == len(keys)
    size = f"cells of {len(rows) / height:.4g} × {len(keys) / width:.4g} pairs: mean of rows, sum of keys"
    exact = found.exact if all(single) else size if found.exact == "exact" else f"{size}, {found.exact}"
    codes = encode(found.share, found.allowed, found.wrong)[0]
    return Picture(
        found.share,
        codes,
        top=rows.start,
        left=keys.start,
        rows=len(rows) / height,
        columns=len(keys) / width,
        queries=tuple(queries[rows.start : rows.stop]) if queries is not None and single[0] else None,
        keys=tuple(words[keys.start : keys.stop]) if words is not None and single[1] else None,
        exact=exact,
    )
