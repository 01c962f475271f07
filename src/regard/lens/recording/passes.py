"""Joins the forward passes of generation, one per generated token, into one call of all rows over all keys."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.errors import Refused, refuse
from ...language.expr import Expr, Op
from ...language.expr import score as plain_score
from ..runs.call import Call
from .one_entry import CELLS, added, grid, mask_of, shape_of

TRIED = (-1.75, 0.5)  # scores at which two rules are compared


@dataclass(frozen=True)
class Pass:
    """The call of a pass, of whose keys and values only the new ones are held.

    weights: the model's own, if it computes them · row: its first row among all rows · first, keys: its first key among
    all keys, and their number.
    """

    call: Call
    weights: np.ndarray | None
    row: int
    first: int
    keys: int

    @property
    def rows(self) -> int:
        return self.call.shape[1]

    @property
    def cells(self) -> tuple[slice, slice, slice]:
        """The slices of this pass among all heads, rows and keys."""
        return slice(None), slice(self.row, self.row + self.rows), slice(self.first, self.first + self.keys)

    def own(self, rule: Expr | None, heads: int, scored: float = 0.0) -> np.ndarray:
        """The values of a rule of this pass, in its own positions, (heads, rows, keys)."""
        return grid(rule, (heads, self.rows, self.keys), self.call.start, scored)


class Growing:
    """The calls of one layer over the passes of generation. Keys of earlier passes are compared, not stored again.

    Refused: keys that changed between two passes, scales or sinks that differ, and rules that cannot be joined.
    """

    def __init__(self, call: Call, weights: np.ndarray | None = None):
        self.first = call
        self.passes = [Pass(call, weights, 0, 0, call.shape[2])]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Q, K) of all passes so far."""
        last = max(one.first + one.keys for one in self.passes)
        return self.first.shape[0], sum(one.rows for one in self.passes), last

    def add(self, call: Call, weights: np.ndarray | None = None) -> None:
        """Adds the rows of the next pass."""
        cross, K = not call.aligned, call.shape[2]
        _, rows, keys = self.shape
        assert call.k is not None and call.v is not None
        if _constant(call) != _constant(self.first):
            what = "the scale, the heads or the sinks differ in a later pass"
            raise self._unlike(what, "the same in every pass", "record the prompt alone, with generate=0")
        first = 0 if cross else self.first.start + rows - call.start
        known = keys - first
        if first < 0 or not 0 < known <= K or (cross and known != K):
            raise self._unlike(
                f"{K} keys from position {first} after {keys}",
                "keys that grow with the text",
                "generate with a dynamic cache, or record the prompt alone",
            )
        if not np.array_equal(call.k[:, :known], self._all("k")[:, -known:], equal_nan=True):
            raise self._unlike(
                "cached keys have changed",
                "a cache that does not change its keys",
                "generate with a dynamic cache, or record the prompt alone",
            )
        new = dataclasses.replace(call, k=call.k[:, known:].copy(), v=call.v[:, known:].copy())
        self.passes.append(Pass(new, weights, rows, first, K))

    def joined(self) -> tuple[Call, np.ndarray | None]:
        """All passes as one call, and the weights that the model computed."""
        if len(self.passes) == 1:
            return self.first, self.passes[0].weights
        later = [one.call.projections for one in self.passes[1:]]
        seconds = sum(float(one.call.notes.get("seconds", 0.0)) for one in self.passes)
        call = dataclasses.replace(
            self.first,
            q=self._all("q"),
            k=self._all("k"),
            v=self._all("v"),
            out=self._all("out"),
            x=self._all("x", 0),
            projections=None if self.first.projections is None else self.first.projections.then(later),
            mask=self._mask(),
            score=self._score(),
            notes={**self.first.notes, "seconds": seconds, "passes": len(self.passes)},
        )
        return call, self._weights()

    def _all(self, name: str, axis: int = 1) -> Any:
        """An array of all passes; None if one of them lacks it."""
        parts = [getattr(one.call, name) for one in self.passes]
        return None if any(part is None for part in parts) else np.concatenate(parts, axis)

    def _weights(self) -> np.ndarray | None:
        """The weights that the model computed, 0 where a pass did not have the key yet."""
        whole = None
        for one in self.passes:
            if one.weights is None:
                return None
            whole = np.zeros(self.shape, one.weights.dtype) if whole is None else whole
            whole[one.cells] = one.weights
        return whole

    def _mask(self) -> Expr | None:
        """The rule of the first pass if all passes agree with it; otherwise a table of every pair."""
        rule = self.first.mask
        if (rule is None or not rule.tables) and all(map(self._masks_alike, self.passes[1:])):
            return rule  # tables are as long as the prompt
        shape = shape_of(self.shape, *(one.call.mask for one in self.passes))
        if math.prod(shape) > CELLS:
            raise self._unlike(
                f"masks of {len(self.passes)} passes differ",
                f"one rule, or at most {CELLS:,} pairs",
                "generate fewer tokens",
            )
        whole = np.zeros(shape, bool)
        for one in self.passes:
            whole[one.cells] = one.own(one.call.mask, shape[0])
        return mask_of(whole, self.first.start)

    def _masks_alike(self, one: Pass) -> bool:
        """Whether the first rule agrees with the pass's own rule on its rows, and masks the keys that it did not
        have.
        """
        rule = self.first.mask
        heads, _, keys = shape_of(self.shape, rule, one.call.mask)
        own = np.zeros((heads, one.rows, keys), bool)
        own[..., one.cells[2]] = one.own(one.call.mask, heads)
        return bool((own == grid(rule, own.shape, self.first.start + one.row)).all())

    def _score(self) -> Expr | None:
        """The rule of the first pass, or of the last, if all passes agree with it; otherwise biases by position are
        joined into one table.
        """
        for rule in (self.first.score, self.passes[-1].call.score):
            if all(self._scores_alike(rule, one) for one in self.passes):
                return rule
        rules = [one.call.score for one in self.passes]
        sums = [rule for rule in rules if isinstance(rule, Op) and rule.name == "add"]
        alike = len(sums) == len(rules) and all(each.args[0] is sums[0].args[0] for each in sums)
        if not alike or math.prod(self.shape) > CELLS:
            raise self._unlike(
                f"the rules of {len(rules)} passes differ",
                "one rule for all passes, or an additive bias",
                "record the prompt alone, with generate=0",
            )
        whole, known = np.zeros(self.shape, np.float32), np.zeros(self.shape[1:], bool)
        for one, each in zip(self.passes, sums, strict=True):
            whole[one.cells] = one.own(each.args[1], len(whole))
            known[one.cells[1:]] = True
        return added(sums[0].args[0], whole, self.first.start, known)

    def _scores_alike(self, rule: Expr | None, one: Pass) -> bool:
        """Whether the rule, in positions among all keys, equals the pass's own rule; None is the score itself."""
        heads, _, keys = shape_of(self.shape, rule, one.call.score)
        if rule is not None and any(size < keys for table in rule.tables for size in table.shape[-1:]):
            return False  # it would be read beyond its end
        whole, own = (plain_score if each is None else each for each in (rule, one.call.score))
        shape, start = (heads, one.rows, one.keys), self.first.start + one.row
        return all(
            np.array_equal(grid(whole, shape, start, at, one.first), one.own(own, heads, at), equal_nan=True)
            for at in TRIED
        )

    def _unlike(self, given: str, expected: str, fix: str) -> Refused:
        return refuse("look", "passes that cannot be joined", f"{self.first.name}: {given}", expected, fix)


def _constant(call: Call) -> tuple:
    """The properties that must be equal in all passes."""
    return call.scale, call.shape[0], call.groups, None if call.sinks is None else call.sinks.tolist()
