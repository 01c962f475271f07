"""Figures of every row and head: how wide it looks, how far, and at what; exact, in memory that grows with the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..expr import Expr, frozen_table, key, query
from ..measures import mass
from ..stats import attention_stats

if TYPE_CHECKING:
    from .call import Call

__all__ = ["ROWS", "means", "measure"]

# Every row's figures by name; all but "low", "high", "attended" and "strongest" are averaged over the rows of a head.
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
}
AVERAGED = tuple(name for name in ROWS if name not in ("strongest", "low", "high", "attended", "wrong"))


def measure(
    q, k, special, *, mask: Expr | None = None, score: Expr | None = None, scale: float = 1.0, start: int = 0, sinks=None
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """(lse (H, Q), figures of every row (H, Q) each, what each key receives (H, K)) of one call, float32.

    q (H, Q, D) · k (G, K, D) · special (K,) booleans: keys that stand for no word of the text.
    """
    marked = frozen_table(np.asarray(special, bool), "special")[key]
    sets = {"special": marked, "itself": key == query, "previous": key == query - 1, "first": key == 0,
            "distant": ~marked & ((key < query - 1) | (key > query + 1))}  # fmt: skip
    found = attention_stats(
        q, k, of=["lse", "entropy", "maximum", "distance", "range", "counts", "received",
                  *(mass(keys, name=name) for name, keys in sets.items())],
        mask=mask, score=score, scale=scale, query_start=start, sinks=sinks,
    )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.log(found.counts.attended)
        rows = {
            "entropy": found.entropy, "spread": np.where(most > 0, found.entropy / most, 0), "maximum": found.maximum.weight,
            "strongest": found.maximum.key, **{name: found[name] for name in sets},
            "distance": np.sqrt(found.distance.mean**2 + found.distance.variance), "low": found.range.minimum,
            "high": found.range.maximum, "attended": found.counts.attended, "wrong": found.counts.nan + found.counts.inf,
        }  # fmt: skip
    return found.lse, {name: rows[name] for name in ROWS}, found.received


def means(call: Call) -> dict[str, np.ndarray]:
    """The mean of every averaged figure over the rows that may attend something, (H,) float64; NaN if there are none."""
    seeing = call.rows["attended"] > 0
    with np.errstate(invalid="ignore"):
        return {name: np.where(seeing, call.rows[name], 0).sum(-1, dtype=np.float64) / seeing.sum(-1) for name in AVERAGED}
