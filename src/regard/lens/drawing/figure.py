"""The content of a figure: a part of one head's matrix, pooled to cells, for the heat map and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runs.call import Call
from ..runs.codes import encode
from ..runs.tiles import region


@dataclass(frozen=True, eq=False)
class MatrixFigure:
    """A pooled part of a matrix.

    share, codes (R, C): the mean over a cell's rows of the sum over its keys, and its code, or that of an invalid
    weight in the cell · top, left: the first row and key · rows, columns: rows and keys per cell · queries, keys: the
    tokens along each side if a cell is one row or key · exact: how the cells were computed.
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
        """Whether one side is more than four times as long as the other, too long for square cells."""
        return max(self.share.shape) > 4 * min(self.share.shape)


def matrix_figure(
    call: Call,
    head: int,
    rows: range,
    keys: range,
    cells: int,
    *,
    queries: Sequence[str] | None = None,
    words: Sequence[str] | None = None,
) -> MatrixFigure:
    """The part of a head, pooled to at most cells × cells."""
    height, width = min(cells, len(rows)), min(cells, len(keys))
    found = region(call, head, rows, keys, height, width)
    single = height == len(rows), width == len(keys)
    size = f"cells of {len(rows) / height:.4g} × {len(keys) / width:.4g} pairs: mean of rows, sum of keys"
    exact = found.exact if all(single) else size if found.exact == "exact" else f"{size}, {found.exact}"
    codes = encode(found.share, found.allowed, found.wrong)[0]
    return MatrixFigure(
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
