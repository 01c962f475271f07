"""Steps: the calls of a text that a model writes token by token, joined into one call of all rows over all keys."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import refuse
from ...expr import Expr, Op, Var, walk
from ...readings import evaluate
from .rules import CELLS, added, mask_of
from .taken import Taken

__all__ = ["Growing"]

TRIED = (-1.75, 0.5)  # scores at which two rules are compared


@dataclass(frozen=True)
class Part:
    """Rows of one pass: where they begin among all rows, and where their first key stands among all keys."""

    row: int
    rows: int
    first: int
    keys: int
    start: int
    mask: Expr | None
    score: Expr | None


class Growing:
    """The calls of one layer over the passes of a generation. Keys that were seen before are not kept twice, but compared.

    Refused: keys that changed between two passes, scales and sinks that differ, and rules that cannot be said in one.
    """

    def __init__(self, taken: Taken):
        self.first = taken
        self.k, self.v = [taken.k], [taken.v]
        self.q, self.x, self.out, self.weights = [taken.q], [taken.x], [taken.out], [taken.weights]
        self.rows, self.keys = taken.sizes
        self.seconds = float(taken.notes.get("seconds", 0.0))
        self.parts = [Part(0, self.rows, 0, self.keys, taken.start, taken.mask, taken.score)]

    def add(self, taken: Taken) -> None:
        """The rows of the next pass."""
        Q, K = taken.sizes
        name = self.first.name
        same = (taken.scale, len(taken.q), len(taken.k)) == (self.first.scale, len(self.first.q), len(self.first.k))
        if not same or not np.array_equal(*(np.zeros(0) if part.sinks is None else part.sinks for part in (taken, self.first))):
            raise refuse("look", "passes that cannot be joined", f"{name}: another scale, other heads or sinks in a later pass",
                         "the same in every pass", "look at the prompt alone, with generate=0")  # fmt: skip
        first = 0 if taken.cross else self.first.start + self.rows - taken.start
        known = self.keys - first
        if first < 0 or not 0 < known <= K or (taken.cross and known != K):
            raise refuse("look", "passes that cannot be joined", f"{name}: {K} keys from position {first} after {self.keys}",
                         "keys that grow with the text", "generate with a dynamic cache, or look at the prompt alone")  # fmt: skip
        if not np.array_equal(taken.k[:, :known], self._last(self.k, known), equal_nan=True):
            raise refuse("look", "passes that cannot be joined", f"{name}: keys that the cache held have changed",
                         "a cache that keeps its keys", "generate with a dynamic cache, or look at the prompt alone")  # fmt: skip
        self.parts.append(Part(self.rows, Q, first, K, taken.start, taken.mask, taken.score))
        self.k.append(taken.k[:, known:].copy())
        self.v.append(taken.v[:, known:].copy())
        for held, part in ((self.q, taken.q), (self.x, taken.x), (self.out, taken.out), (self.weights, taken.weights)):
            held.append(part)
        self.rows, self.keys = self.rows + Q, max(self.keys, first + K)
        self.seconds += float(taken.notes.get("seconds", 0.0))

    def joined(self) -> Taken:
        """All passes as one call."""
        if len(self.parts) == 1:
            return self.first
        notes = {**self.first.notes, "seconds": self.seconds, "passes": len(self.parts)}
        return dataclasses.replace(
            self.first, q=np.concatenate(self.q, 1), k=np.concatenate(self.k, 1), v=np.concatenate(self.v, 1),
            out=_rows(self.out, 1), x=_rows(self.x, 0), weights=self._weights(), mask=self._mask(), score=self._score(), notes=notes,
        )  # fmt: skip

    @staticmethod
    def _last(parts: list[np.ndarray], count: int) -> np.ndarray:
        """The last columns; parts are joined, so that the next pass finds one array."""
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts, 1)]
        return parts[0][:, parts[0].shape[1] - count :]

    def _weights(self) -> np.ndarray | None:
        """The weights that the model built, 0 where a pass had not yet the key."""
        if any(part is None for part in self.weights):
            return None
        whole = np.zeros((len(self.first.q), self.rows, self.keys), self.weights[0].dtype)  # type: ignore[union-attr]
        for part, weights in zip(self.parts, self.weights, strict=True):
            whole[:, part.row : part.row + part.rows, part.first : part.first + part.keys] = weights
        return whole

    def _mask(self) -> Expr | None:
        """The rule of the first pass where it is that of the others too; otherwise what all of them say of every pair."""
        rule = self.first.mask
        if all(self._agree(rule, part) for part in self.parts[1:]):
            return rule
        heads = len(self.first.q) if any(_reads(part.mask, "head") for part in self.parts) else 1
        if heads * self.rows * self.keys > CELLS:
            raise refuse("look", "passes that cannot be joined", f"{self.first.name}: masks of {len(self.parts)} passes differ",
                         f"one rule, or at most {CELLS:,} pairs", "write fewer tokens")  # fmt: skip
        whole = np.zeros((heads, self.rows, self.keys), bool)
        for part in self.parts:
            seen = _grid(part.mask, heads, part, 0.0)
            whole[:, part.row : part.row + part.rows, part.first : part.first + part.keys] = seen
        return mask_of(whole, self.first.start)

    def _agree(self, rule: Expr | None, part: Part) -> bool:
        """Whether the rule says of these rows what their own pass said, and hides the keys that it did not have."""
        heads = len(self.first.q) if _reads(rule, "head") or _reads(part.mask, "head") else 1
        own = np.zeros((heads, part.rows, self.keys), bool)
        own[..., part.first : part.first + part.keys] = _grid(part.mask, heads, part, 0.0)
        return bool((own == _grid(rule, heads, self._among_all(part), 0.0)).all())

    def _among_all(self, part: Part) -> Part:
        return dataclasses.replace(part, first=0, keys=self.keys, start=self.first.start + part.row)

    def _score(self) -> Expr | None:
        """The rule of the first pass where it gives what the others do; biases by position are put together."""
        rule, heads = self.first.score, len(self.first.q)
        own_keys = [dataclasses.replace(self._among_all(part), first=part.first, keys=part.keys) for part in self.parts]
        if all(
            part.score is rule is None or np.array_equal(_grid(rule, heads, among, at), _grid(part.score, heads, part, at), equal_nan=True)
            for part, among in zip(self.parts[1:], own_keys[1:], strict=True) for at in TRIED
        ):  # fmt: skip
            return rule
        inner: list[Any] = [
            part.score.args[0] if isinstance(part.score, Op) and part.score.name == "add" else None for part in self.parts
        ]
        if any(each is None or each is not inner[0] for each in inner) or heads * self.rows * self.keys > CELLS:
            raise refuse("look", "passes that cannot be joined", f"{self.first.name}: the rules of {len(self.parts)} passes differ",
                         "one rule for all, or a bias that is added", "look at the prompt alone, with generate=0")  # fmt: skip
        whole = np.zeros((heads, self.rows, self.keys), np.float32)
        for part in self.parts:
            assert isinstance(part.score, Op)
            whole[:, part.row : part.row + part.rows, part.first : part.first + part.keys] = _grid(
                part.score.args[1], heads, part, 0.0
            )
        return added(inner[0], whole, self.first.start)


def _grid(rule: Expr | None, heads: int, part: Part, score: float) -> np.ndarray:
    """A rule over the rows of a part: as many keys as it has, counted from its own first key, (heads, rows, keys)."""
    if rule is None:
        return np.broadcast_to(np.True_, (heads, part.rows, part.keys))
    places = {"head": np.arange(heads)[:, None, None], "query": part.start + np.arange(part.rows)[:, None],
              "key": np.arange(part.keys), "score": np.float64(score)}  # fmt: skip
    return np.broadcast_to(evaluate(rule, places), (heads, part.rows, part.keys))


def _reads(rule: Expr | None, name: str) -> bool:
    return rule is not None and any(isinstance(node, Var) and node.name == name for node in walk(rule))


def _rows(parts: list[Any], axis: int) -> np.ndarray | None:
    return None if any(part is None for part in parts) else np.concatenate(parts, axis)
