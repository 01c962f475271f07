"""Joins the forward passes of generation, one per generated token, into one call of all rows over all keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.errors import refuse
from ...language.analysis import evaluate
from ...language.expr import Expr, Op, score
from ..runs.call import Call
from ..runs.projections import LayerProjections
from .one_entry import CELLS, added, mask_of, reads
from .recorded_call import Recorded

TRIED = (-1.75, 0.5)  # scores at which two rules are compared


@dataclass(frozen=True)
class Part:
    """The rows of one pass: `row` is the first among all rows, `first` the position of its first key among all keys.

    mask, score: the rules of the pass, in its own positions.
    """

    row: int
    rows: int
    first: int
    keys: int
    start: int
    mask: Expr | None
    score: Expr | None

    @property
    def cells(self) -> tuple[slice, slice, slice]:
        """The slices of this pass among all heads, rows and keys."""
        return slice(None), slice(self.row, self.row + self.rows), slice(self.first, self.first + self.keys)

    def own(self, rule: Expr | None, heads: int, scored: float = 0.0) -> np.ndarray:
        """The values of a rule of this pass, in its own positions, (heads, rows, keys)."""
        return _grid(rule, heads, self.start + np.arange(self.rows), np.arange(self.keys), scored)


class Growing:
    """The calls of one layer over the passes of generation. Keys of earlier passes are compared, not stored again.

    Refused: keys that changed between two passes, scales or sinks that differ, and rules that cannot be joined.
    """

    def __init__(self, recorded: Recorded):
        call = recorded.call
        self.recorded, self.first = recorded, call
        self.q, self.k, self.v = ([array] for array in recorded.qkv)
        self.x, self.out, self.weights = [call.x], [call.out], [recorded.weights]
        self.projections: list[LayerProjections | None] = []  # of the later passes
        _, self.rows, self.keys = call.shape
        self.seconds = float(call.notes.get("seconds", 0.0))
        self.parts = [self._part(call, row=0, first=0)]

    def add(self, recorded: Recorded) -> None:
        """Adds the rows of the next pass."""
        call, cross, name = recorded.call, recorded.cross, self.first.name
        q, k, v = recorded.qkv
        _, Q, K = call.shape
        if _constant(call) != _constant(self.first):
            raise refuse(
                "look",
                "passes that cannot be joined",
                f"{name}: the scale, the heads or the sinks differ in a later pass",
                "the same in every pass",
                "record the prompt alone, with generate=0",
            )
        first = 0 if cross else self.first.start + self.rows - call.start
        known = self.keys - first
        if first < 0 or not 0 < known <= K or (cross and known != K):
            raise refuse(
                "look",
                "passes that cannot be joined",
                f"{name}: {K} keys from position {first} after {self.keys}",
                "keys that grow with the text",
                "generate with a dynamic cache, or record the prompt alone",
            )
        if not np.array_equal(k[:, :known], self._last(self.k, known), equal_nan=True):
            raise refuse(
                "look",
                "passes that cannot be joined",
                f"{name}: cached keys have changed",
                "a cache that does not change its keys",
                "generate with a dynamic cache, or record the prompt alone",
            )
        self.parts.append(self._part(call, row=self.rows, first=first))
        self.k.append(k[:, known:].copy())
        self.v.append(v[:, known:].copy())
        self.q.append(q)
        for held, part in ((self.x, call.x), (self.out, call.out), (self.weights, recorded.weights)):
            held.append(part)
        self.projections.append(call.projections)
        self.rows, self.keys = self.rows + Q, max(self.keys, first + K)
        self.seconds += float(call.notes.get("seconds", 0.0))

    def joined(self) -> Recorded:
        """All passes as one call."""
        if len(self.parts) == 1:
            return self.recorded
        call = dataclasses.replace(
            self.first,
            q=np.concatenate(self.q, 1),
            k=np.concatenate(self.k, 1),
            v=np.concatenate(self.v, 1),
            out=_rows(self.out, 1),
            x=_rows(self.x, 0),
            projections=None if self.first.projections is None else self.first.projections.then(self.projections),
            mask=self._mask(),
            score=self._score(),
            notes={**self.first.notes, "seconds": self.seconds, "passes": len(self.parts)},
        )
        return dataclasses.replace(self.recorded, call=call, weights=self._weights())

    @staticmethod
    def _part(call: Call, row: int, first: int) -> Part:
        _, Q, K = call.shape
        return Part(row=row, rows=Q, first=first, keys=K, start=call.start, mask=call.mask, score=call.score)

    @staticmethod
    def _last(parts: list[np.ndarray], count: int) -> np.ndarray:
        """The last `count` columns. `parts` is joined in place, so that the next pass reads one array."""
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts, 1)]
        return parts[0][:, parts[0].shape[1] - count :]

    def _weights(self) -> np.ndarray | None:
        """The weights that the model computed, 0 where a pass did not have the key yet."""
        built = [weights for weights in self.weights if weights is not None]
        if len(built) < len(self.parts):
            return None
        whole = np.zeros((self.first.shape[0], self.rows, self.keys), built[0].dtype)
        for part, weights in zip(self.parts, built, strict=True):
            whole[part.cells] = weights
        return whole

    def _mask(self) -> Expr | None:
        """The rule of the first pass if all passes agree with it; otherwise a table of every pair."""
        rule = self.first.mask
        if (rule is None or not rule.tables) and all(map(self._masks_alike, self.parts[1:])):
            return rule  # tables are as long as the prompt
        heads = self._heads(part.mask for part in self.parts)
        if heads * self.rows * self.keys > CELLS:
            raise refuse(
                "look",
                "passes that cannot be joined",
                f"{self.first.name}: masks of {len(self.parts)} passes differ",
                f"one rule, or at most {CELLS:,} pairs",
                "generate fewer tokens",
            )
        whole = np.zeros((heads, self.rows, self.keys), bool)
        for part in self.parts:
            whole[part.cells] = part.own(part.mask, heads)
        return mask_of(whole, self.first.start)

    def _masks_alike(self, part: Part) -> bool:
        """Whether the first rule agrees with the pass's own rule on its rows, and masks the keys that it did not
        have.
        """
        rule = self.first.mask
        heads = self._heads((rule, part.mask))
        own = np.zeros((heads, part.rows, self.keys), bool)
        own[..., part.cells[2]] = part.own(part.mask, heads)
        return bool((own == _grid(rule, heads, self._queries(part), np.arange(self.keys))).all())

    def _score(self) -> Expr | None:
        """The rule of the first pass, or of the last, if all passes agree with it; otherwise biases by position are
        joined into one table.
        """
        heads, last = self.first.shape[0], self.parts[-1]
        for rule in (self.first.score, last.score):
            if all(self._scores_alike(rule, part) for part in self.parts):
                return rule
        sums = [part.score for part in self.parts if isinstance(part.score, Op) and part.score.name == "add"]
        alike = len(sums) == len(self.parts) and all(each.args[0] is sums[0].args[0] for each in sums)
        if not alike or heads * self.rows * self.keys > CELLS:
            raise refuse(
                "look",
                "passes that cannot be joined",
                f"{self.first.name}: the rules of {len(self.parts)} passes differ",
                "one rule for all passes, or an additive bias",
                "record the prompt alone, with generate=0",
            )
        whole, known = np.zeros((heads, self.rows, self.keys), np.float32), np.zeros((self.rows, self.keys), bool)
        for part, each in zip(self.parts, sums, strict=True):
            whole[part.cells] = part.own(each.args[1], heads)
            known[part.cells[1:]] = True
        return added(sums[0].args[0], whole, self.first.start, known)

    def _scores_alike(self, rule: Expr | None, part: Part) -> bool:
        """Whether the rule, in positions among all keys, equals the pass's own rule; None is the score itself."""
        keys = part.first + np.arange(part.keys)
        if rule is not None and any(size < self.keys for table in rule.tables for size in table.shape[-1:]):
            return False  # it would be read beyond its end
        heads = self._heads((rule, part.score))
        return all(
            np.array_equal(
                _grid(score if rule is None else rule, heads, self._queries(part), keys, at),
                part.own(score if part.score is None else part.score, heads, at),
                equal_nan=True,
            )
            for at in TRIED
        )

    def _queries(self, part: Part) -> np.ndarray:
        return self.first.start + part.row + np.arange(part.rows)

    def _heads(self, rules: Iterable[Expr | None]) -> int:
        return self.first.shape[0] if any(map(_headed, rules)) else 1


def _grid(rule: Expr | None, heads: int, queries: np.ndarray, keys: np.ndarray, scored: float = 0.0) -> np.ndarray:
    """The value of a rule for every pair, (heads, rows, keys); None allows every pair."""
    places = {
        "head": np.arange(heads)[:, None, None],
        "query": queries[:, None],
        "key": keys,
        "score": np.float64(scored),
    }
    return np.broadcast_to(True if rule is None else evaluate(rule, places), (heads, len(queries), len(keys)))


def _constant(call: Call) -> tuple:
    """The properties that must be equal in all passes."""
    return call.scale, call.shape[0], call.groups, None if call.sinks is None else call.sinks.tolist()


def _headed(rule: Expr | None) -> bool:
    return rule is not None and reads(rule, "head")


def _rows(parts: list[Any], axis: int) -> np.ndarray | None:
    return None if any(part is None for part in parts) else np.concatenate(parts, axis)
