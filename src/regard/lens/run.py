"""Run: one text through one model, as data: its tokens, and the weights of every layer by blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import refuse

__all__ = ["Layer", "Run"]

CELLS = 1 << 22  # weights held at once while a layer is read: 32 MB in float64


@dataclass(frozen=True)
class Layer:
    """The attention of one layer, computed for the rows that are asked for.

    weights(rows) -> (H, rows, K) exact weights · allowed(rows) -> booleans that broadcast to (H, rows, K), or None when every
    row may see every key.
    """

    name: str
    heads: int
    weights: Callable[[slice], np.ndarray]
    allowed: Callable[[slice], np.ndarray] | None = None

    @classmethod
    def of(cls, weights, allowed=None, name: str = "attention") -> Layer:
        """A layer whose weights (H, Q, K) are there already, with optional booleans that broadcast to the same shape."""
        held = np.asarray(weights)
        if held.ndim != 3:
            raise refuse("Layer.of", "weights of the wrong shape", f"{held.shape}", "(heads, queries, keys)",
                         "give one batch entry, with its heads first")  # fmt: skip
        seen = None if allowed is None else np.broadcast_to(np.asarray(allowed, bool), held.shape)
        return cls(name, held.shape[0], lambda rows: held[:, rows], None if seen is None else lambda rows: seen[:, rows])

    def blocks(self, rows: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """(rows, weights (H, r, K) in float64, allowed (H, r, K)) from top to bottom, a bounded number of cells at a time."""
        step = max(1, CELLS // max(1, self.heads * rows))
        for first in range(0, rows, step):
            yield self.part(slice(first, min(first + step, rows)))

    def part(self, rows: slice) -> tuple[slice, np.ndarray, np.ndarray]:
        """(rows, weights (H, r, K) in float64, allowed (H, r, K)) of some rows."""
        weights = np.asarray(self.weights(rows), np.float64)
        seen = np.bool_(True) if self.allowed is None else self.allowed(rows)
        return rows, weights, np.broadcast_to(seen, weights.shape)


@dataclass(frozen=True)
class Run:
    """Self-attention of one text: token i is query row i and key column i of every layer.

    tokens: as they should be read, still untrusted · special: true where the tokenizer, not the text, put the token.
    """

    model: str
    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    layers: tuple[Layer, ...]

    def __post_init__(self):
        if not self.tokens or not self.layers:
            raise refuse("Run", "nothing to look at", f"{len(self.tokens)} tokens, {len(self.layers)} layers",
                         "at least one of each", "give a text, and a model that attends")  # fmt: skip
        if len(self.special) != len(self.tokens):
            raise refuse("Run", "flags that do not fit the tokens", f"{len(self.special)} flags, {len(self.tokens)} tokens",
                         "one flag per token", "mark each token as special or not")  # fmt: skip
