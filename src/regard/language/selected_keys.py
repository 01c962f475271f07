"""Keys selected for each row by their numbers, as an indexer or a router of sparse attention passes them."""

from __future__ import annotations

import functools
from typing import Any, SupportsIndex

import numpy as np

from ..common.arrays import read_array
from ..common.errors import Reason, refuse
from ..common.public import ArrayLike
from .checks.numbers import LIMIT, frozen, integers, whole
from .expr import Expr, Op, Read, Table, batch, fold, head, key, query
from .functions import minimum
from .tree.interning import name_of_array
from .tree.traced import recorded

__all__ = ["selected_keys"]


class Selected(Table):
    """A table of booleans (B, H, Q, K) that is kept as the numbers of its true elements.

    indices: (B or 1, H or 1, Q, n) integers; numbers below 0 and repeated ones select nothing more. start: the position
    of row 0, or (B,) of them. keys: K, by default up to the first one that no row selects. The booleans are made only
    for engines that read them.
    """

    def __init__(self, indices: np.ndarray, start: np.ndarray, keys: int | None = None):
        self.indices, self.start, self.name, self.frozen = indices, start, "selected", True
        self.source, self.sources, self.scored = indices, (), False
        self.digest = f"selected {name_of_array(indices, True)} {start.tolist()} {keys}"
        self.beyond = int(indices.max(initial=-1)) + 1
        self.keys = self.beyond + 1 if keys is None else keys
        self.fit: dict[int, Selected] = {}

    kind = "bool"
    memory = property(lambda self: self.indices)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.indices.shape[:3], self.keys)

    @functools.cached_property
    def array(self) -> np.ndarray:  # type: ignore[override]
        found = np.zeros((*self.shape[:3], self.keys + 1), bool)
        np.put_along_axis(found, np.where(self.indices < 0, self.keys, self.indices), True, -1)
        return found[..., : self.keys]

    def of_keys(self, keys: int) -> Selected:
        """The same for a call with so many keys, which is read at the key itself: engines read that faster."""
        if keys not in self.fit:
            self.fit[keys] = Selected(self.indices, self.start, keys)
        return self.fit[keys]

    def misfits(self, rows: int, keys: int, start: np.ndarray) -> list[Reason]:
        """Why it does not fit a call with so many rows and keys, whose first rows are at `start`."""
        reasons = []
        if self.shape[2] > 1 and (self.shape[2] != rows or (self.start != start).any()):
            starts = sorted(set(start.tolist()))
            reasons.append(
                Reason(
                    "the selected keys are those of other rows",
                    f"{self.shape[2]} rows from position {self.start.tolist()}, in a call of {rows} rows from {starts}",
                    "one list of keys for each row of the call",
                    "pass selected_keys(indices, query_start=…) with the position of row 0, in a call by default K - Q",
                )
            )
        if self.beyond > keys:
            reasons.append(
                Reason(
                    "a selected key does not exist",
                    f"key {self.beyond - 1} of {keys}",
                    f"numbers below {keys}",
                    "mark places without a key with -1",
                )
            )
        return reasons

    def written(self, operand: str) -> str:
        return f"selected({operand}, {self.start.tolist()}, {self.keys})"

    def __reduce__(self):
        return Selected, (self.indices, self.start, self.keys)


def fitted(mask: Expr, keys: int) -> Expr:
    """The mask in a call with so many keys."""

    def read(node: Read, *index: Expr) -> Expr:
        if not isinstance(node.table, Selected):
            return Read(node.table, *index)
        return Read(node.table.of_keys(keys), *index[:3], key)

    if not any(isinstance(table, Selected) for table in mask.tables):
        return mask
    return fold(mask, lambda node: node, lambda node: node, read, lambda node, *args: Op(node.name, *args))


@recorded
def selected_keys(indices: ArrayLike, query_start: SupportsIndex | ArrayLike | None = None) -> Expr:
    """Keys selected for each row: row i attends to the keys whose numbers are in indices[…, i, :].

    The CPU engine computes a call whose mask is this, or this `&` other rules, over n keys for each row instead of K,
    forward and backward, where that is faster.

    Args:
        indices: (Q, n), (H, Q, n) or (B, H, Q, n) integers; axes of B and H may be 1. Numbers below 0 select no key,
            and a number that is repeated selects it once.
        query_start: the position of row 0 of the indices, one integer or (B,), which must be that of the call; by
            default 0. One row applies at any position.

    Returns:
        A condition.

    Raises:
        Refused: indices are not integers, or have fewer than two or more than four axes; in the call, keys that do not
            exist, or other rows than those of the call.

    Source:
        DeepSeek-AI 2025 (sparse attention with an indexer); Yuan et al. 2025; Lu et al. 2025 (routers of blocks).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = v = np.eye(3, dtype=np.float32)
        >>> chosen = rg.selected_keys([[0, -1], [1, 0], [1, 2]])
        >>> rg.attention_weights(q, k, mask=chosen).round(1)
        array([[1. , 0. , 0. ],
               [0.4, 0.6, 0. ],
               [0. , 0.4, 0.6]], dtype=float32)
    """
    numbers = read_array(indices, "selected_keys")
    fits = 2 <= numbers.ndim <= 4 and numbers.dtype.kind in "iu" and 0 not in numbers.shape[:-1]
    if not fits or numbers.max(initial=0) >= LIMIT:
        raise refuse(
            "selected_keys",
            "not the numbers of keys",
            f"{numbers.dtype} {list(numbers.shape)}",
            "integers below 2**31, (…, heads, rows, n), one list of keys for each row",
            "pass booleans (…, rows, keys) as mask=…; add an axis for heads to (B, Q, n): indices[:, None]",
        )
    if query_start is None:
        start = np.zeros((), np.int64)
    elif read_array(query_start, "selected_keys").ndim:
        start = integers(query_start, "selected_keys", (1,))
    else:
        start = np.array(whole(query_start, "selected_keys", "query_start"))
    four = np.array(np.maximum(numbers.astype(np.int64), -1), np.int32).reshape(
        (1,) * (4 - numbers.ndim) + numbers.shape
    )
    four.flags.writeable = False
    shown = Selected(four, start)
    first = frozen(start, "start")[batch] if start.ndim else int(start)
    row: Any = query - first if start.any() else query
    axes = (0 if size == 1 else axis for axis, size in zip((batch, head, row), four.shape))
    return shown[(*axes, minimum(key, shown.beyond))]
