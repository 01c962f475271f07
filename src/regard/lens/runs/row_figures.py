"""The figures of every row by name, and their means over the rows of each head."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...language.analysis import evaluate

# The figures of every row by name. All except "low", "high", "attended", "strongest" and "wrong" are averaged over the
# rows of a head.
ROWS = {
    "entropy": "−Σ p ln p, in nats",
    "spread": "entropy as a share of ln(number of allowed keys), 0 if one key is allowed",
    "maximum": "the largest weight",
    "strongest": "its key, -1 if the row has no weight",
    "special": "weight on special tokens",
    "itself": "weight on the key at the row's own position",
    "previous": "weight on the key before it",
    "first": "weight on the first key",
    "distant": "weight on ordinary tokens at least two positions away",
    "distance": "√ Σ p (query − key)², in positions",
    "low": "the smallest score",
    "high": "the largest score",
    "attended": "how many keys the mask allows",
    "wrong": "how many of its scores are NaN or +infinity",
    "forbidden": "weight on masked keys; only for given weights",
    "moved": "Σ p ‖v‖, what the keys contribute to the output; only with values",
    "moved_special": "the share of special tokens in it; only with values",
}
AVERAGED = tuple(name for name in ROWS if name not in ("strongest", "low", "high", "attended", "wrong"))
POSITIONED = ("itself", "previous", "distant", "distance")  # these depend on the row's own position


def means(call: Any) -> dict[str, np.ndarray]:
    """The mean of each figure of a `Call` over the rows of every head, (H,) float64, as `Call.figures` describes it."""
    rows = call.rows
    if "attended" not in rows:
        return {}
    attended = rows["attended"]
    measures = {name: np.isfinite(values) for name, values in rows.items() if name not in ROWS}
    counted = {"spread": attended > 1, "previous": (attended > 0) & _have_previous(call)} | measures
    found = {}
    for name in (*AVERAGED, *measures):
        if name in rows and (call.aligned or name not in POSITIONED):
            those = counted.get(name, attended > 0)
            with np.errstate(invalid="ignore"):
                found[name] = np.where(those, rows[name], 0).sum(-1, dtype=np.float64) / those.sum(-1)
    return found


def _have_previous(call: Any) -> np.ndarray:
    """Which rows may attend to the key before their own position, (H, Q)."""
    H, Q, K = call.shape
    here = call.start + np.arange(Q)
    exists = (here > 0) & (here <= K)
    if call.mask is not None:
        places = {"batch": 0, "head": np.arange(H)[:, None], "query": here, "key": here - 1}
        exists = exists & evaluate(call.mask, places)
    return np.broadcast_to(exists, (H, Q))
