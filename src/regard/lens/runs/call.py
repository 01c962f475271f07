"""One attention call as data, so that any part of its weights can be computed at any time.

p[h, i, j] = exp(score(i, j) − lse[h, i]) where the mask allows, 0 elsewhere
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...common.errors import refuse
from ...language.analysis import evaluate
from ...language.expr import Expr

__all__ = ["AVERAGED", "ROWS", "UNMEASURED", "Call", "Overview"]

# Every row's figures by name; all but "low", "high", "attended", "strongest" and "wrong" are averaged over the rows of
# a head.
ROWS = {
    "entropy": "−Σ p ln p, in nats",
    "spread": "entropy as a share of ln(visible keys), 0 where one key is visible",
    "maximum": "the largest weight",
    "strongest": "its key, -1 where there is none",
    "special": "weight on special tokens",
    "itself": "weight on the key at the row's own position",
    "previous": "weight on the key before it",
    "first": "weight on the first key",
    "distant": "weight on ordinary tokens at least two away",
    "distance": "√ Σ p (query − key)², in positions",
    "low": "the smallest score",
    "high": "the largest score",
    "attended": "how many keys the row may attend",
    "wrong": "how many of its scores are NaN or +infinity",
    "forbidden": "weight where the mask forbids it; only of given weights",
}
AVERAGED = tuple(name for name in ROWS if name not in ("strongest", "low", "high", "attended", "wrong"))
POSITIONED = ("itself", "previous", "distant", "distance")  # these count from the row's own position
UNMEASURED = np.empty((0, 0))  # the lse of a call that `figures.with_figures` has not completed yet

Part = slice | Sequence[int] | np.ndarray | int | None


@dataclass(frozen=True, eq=False)
class Overview:
    """The whole matrix of every head as a small picture of R × C cells, (H, R, C) float32.

    share: the mean over a cell's rows of the sum over its keys, so that the rows of the picture sum to 1 as well ·
    largest: the largest weight in the cell. exact: how the numbers came about: "exact", or "sampled 1 row of 16".
    """

    share: np.ndarray
    largest: np.ndarray
    exact: str = "exact"


@dataclass(frozen=True, eq=False)
class Call:
    """One attention call of one batch entry.

    name: the path of the layer that made it · layer: its number
    queries, keys: names of the axes along rows and columns; "queries" are rows that stand on the key axis without being
    all of it
    q (H, Q, D) · k (G, K, D) · lse (H, Q) · mask, score: rules over head, query, key, or None · scale: of q·k
    start: the key position at which row 0 stands · sinks (H, S) or None · engine: what computed the call in the model
    given (H, Q, K): weights handed over as they are, without q and k; a mask then says which of them should be 0
    v (G, K, E), x (Q, d_model), out (H, Q, E): the values, what the layer was given, what came out, if they were kept
    rows: figures of every row, (H, Q) each, by name (`ROWS`) · received (H, K): what each key receives
    notes: what else is known, as plain JSON: the module's own scale, softcap, window, groups, dtype, seconds
    """

    name: str
    layer: int | None
    queries: str
    keys: str
    lse: np.ndarray
    q: np.ndarray | None = None
    k: np.ndarray | None = None
    mask: Expr | None = None
    score: Expr | None = None
    scale: float = 1.0
    start: int = 0
    sinks: np.ndarray | None = None
    engine: str = ""
    given: np.ndarray | None = None
    v: np.ndarray | None = None
    x: np.ndarray | None = None
    out: np.ndarray | None = None
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)
    received: np.ndarray | None = None
    overview: Overview | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        kept = "weights" if self.given is not None else f"{self.shape[0]} heads over {self.groups}"
        return f"<Call {self.name!r}: {self.shape[1]} {self.queries} × {self.shape[2]} {self.keys}, {kept}>"

    def __post_init__(self):
        if (self.given is None) == (self.q is None or self.k is None):
            raise refuse(
                "Call",
                "neither weights nor what they come from, or both",
                given=f"{self.name}",
                expected="q and k, or given weights",
                fix="leave one of them out",
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Q, K) of the weights."""
        if self.given is not None:
            return self.given.shape
        assert self.q is not None and self.k is not None
        return (*self.q.shape[:2], self.k.shape[1])

    @property
    def groups(self) -> int:
        """How many heads of keys there are: H / G query heads share each of them."""
        return self.shape[0] if self.k is None else self.k.shape[0]

    @property
    def aligned(self) -> bool:
        """Whether rows stand at positions of the key axis; in cross-attention they are of another text."""
        return self.queries in (self.keys, "queries")

    @functools.cached_property
    def figures(self) -> dict[str, np.ndarray]:
        """The mean over the rows that may attend something, (H,) float64 by name; NaN if there are no such rows.

        Between two texts, those that count positions from the row's own are left out: they mean nothing.
        """
        if "attended" not in self.rows:
            return {}
        seeing = self.rows["attended"] > 0
        with np.errstate(invalid="ignore"):
            return {
                name: np.where(seeing, self.rows[name], 0).sum(-1, dtype=np.float64) / seeing.sum(-1)
                for name in AVERAGED
                if name in self.rows and (self.aligned or name not in POSITIONED)
            }

    def weights(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """The weights of chosen heads, rows and keys -> (heads, rows, keys) float64; None is all.

        They come from q, k and lse: float64 from the numbers that the model had. Refused: positions outside the matrix.
        """
        h, i, j = self._places(heads, rows, keys)
        if self.given is not None:
            return np.asarray(self.given[np.ix_(h, i, j)], np.float64)
        scores, below = self._scored(h, i, j), self._lse(h, i)[:, :, None]
        # A row that attends nothing has lse −inf; one that attends NaN or +inf has weights that are no numbers.
        below = np.where(np.isneginf(below), 0, np.where(np.isposinf(below), np.nan, below))
        with np.errstate(over="ignore", invalid="ignore"):
            found = scores - below
            np.exp(found, out=found)
        if np.isnan(below).any():
            found[np.isneginf(scores)] = 0
        if self.mask is not None:
            found[~self._allowed(h, i, j)] = 0
        return found

    def scores(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """The scores before mask and softmax, (heads, rows, keys) float64. Refused: a call of which only the weights
        are known.
        """
        if self.given is not None:
            raise refuse(
                "scores",
                "only the weights of this call are known",
                given=self.name,
                expected="a call with q and k",
                fix="record the model",
            )
        return self._scored(*self._places(heads, rows, keys))

    def logits(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """scale · q·k, before the score rule, (heads, rows, keys) float64; refused as `scores` is."""
        if self.given is not None:
            raise refuse(
                "logits",
                "only the weights of this call are known",
                given=self.name,
                expected="a call with q and k",
                fix="record the model",
            )
        return self._logits(*self._places(heads, rows, keys))

    def allowed(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """Which keys the rows may attend, (heads, rows, keys) booleans."""
        return self._allowed(*self._places(heads, rows, keys))

    def _logits(self, h, i, j) -> np.ndarray:
        assert self.q is not None and self.k is not None
        group = self.shape[0] // self.groups
        q = np.asarray(self.q[np.ix_(h, i)], np.float64)
        k = np.asarray(self.k[np.ix_(h // group, j)], np.float64)
        with np.errstate(all="ignore"):
            return self.scale * (q @ np.swapaxes(k, 1, 2))

    def _scored(self, h, i, j) -> np.ndarray:
        logits = self._logits(h, i, j)
        if self.score is None:
            return logits
        found = evaluate(self.score, self._variables(h, i, j) | {"score": logits})
        return np.broadcast_to(np.asarray(found, np.float64), logits.shape)

    def _allowed(self, h, i, j) -> np.ndarray:
        seen = np.bool_(True) if self.mask is None else evaluate(self.mask, self._variables(h, i, j))
        return np.broadcast_to(seen, (len(h), len(i), len(j)))

    def _variables(self, h, i, j) -> dict[str, np.ndarray]:
        return {
            "batch": np.zeros((1, 1, 1), np.int64),
            "head": h[:, None, None],
            "query": self.start + i[None, :, None],
            "key": j[None, None, :],
        }

    def _lse(self, h, i) -> np.ndarray:
        return np.asarray(self.lse[np.ix_(h, i)], np.float64)

    def _places(self, heads: Part, rows: Part, keys: Part) -> list[np.ndarray]:
        found = []
        for name, part, count in zip(("heads", "rows", "keys"), (heads, rows, keys), self.shape, strict=True):
            try:
                found.append(np.atleast_1d(np.arange(count)[slice(None) if part is None else part]))
            except (IndexError, TypeError, ValueError) as error:
                raise refuse(
                    "weights",
                    f"{name} outside the matrix",
                    given=f"{name}={part!r}: {error}",
                    expected=f"positions among {count}",
                    fix="count from 0, or from the end with negative numbers",
                ) from error
        return found
