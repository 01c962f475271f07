"""The numbers of one row of one head, step by step from the input of the layer to its output."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runs.call import Call

KEYS = 64  # the most keys that are shown
BEFORE, AFTER = 7, 1  # always shown around the row's own position
DIGITS = 6


def walk(call: Call, head: int, i: int) -> dict[str, Any]:
    """The computation of row i of a head, as JSON: numbers with six digits, "NaN", "inf" and "-inf"; null for arrays
    that were not stored.

        x → q, k    scaled = scale · q·k → scores (the score rule) → p = exp(scores − lse) where allowed → sum = Σ p v

    x (d_model) · q (D) · keys: at most 64, the strongest and the nearest, in ascending order · k (keys, D) · scaled,
    scores, allowed, p (keys) · lse · sinks · v (keys, E) · sum (E), over all keys · out (E): the output of the model ·
    Q, K, D, E, scale.
    """
    H, Q, K = call.shape
    p = call.weights([i], None, [head])[0, 0]
    keys = shown(p, call.start + i)
    found: dict[str, Any] = dict.fromkeys(("x", "q", "k", "scaled", "scores", "sinks", "v", "sum", "out", "D", "E"))
    found |= {
        "keys": keys.tolist(),
        "allowed": call.allowed([i], keys, [head])[0, 0].tolist(),
        "p": numbers(p[keys]),
        "lse": numbers(call.lse[head, i]),
        "Q": Q,
        "K": K,
        "scale": numbers(call.scale),
    }
    if call.q is not None and call.k is not None:
        k = call.k[head // (H // call.groups)]
        found |= {
            "q": numbers(call.q[head, i]),
            "k": numbers(k[keys]),
            "scaled": numbers(call.logits([i], keys, [head])[0, 0]),
            "scores": numbers(call.scores([i], keys, [head])[0, 0]),
            "D": k.shape[1],
        }
    if call.v is not None:
        v = call.v[head // (H // len(call.v))]
        found |= {"v": numbers(v[keys]), "sum": numbers(mixed(call, head, i, p, v)), "E": v.shape[1]}
    if call.x is not None:
        found["x"] = numbers(call.x[i])
    if call.out is not None:
        found |= {"out": numbers(call.out[head, i]), "E": call.out.shape[2]}
    if call.sinks is not None:
        found["sinks"] = numbers(call.sinks[head])
    return found


def shown(p: np.ndarray, position: int) -> np.ndarray:
    """The keys that are shown: those around the row's own position, keys with NaN as weight, and the strongest."""
    if len(p) <= KEYS:
        return np.arange(len(p))
    near = np.arange(max(0, position - BEFORE), max(0, min(len(p), position + AFTER + 1)))
    rank = np.where(np.isnan(p), np.inf, p)
    rank[near] = np.inf
    return np.sort(np.argsort(-rank, kind="stable")[:KEYS])


def mixed(call: Call, head: int, i: int, p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Σ p v over the keys that the row attends to: masked values cannot contribute, not even NaN."""
    attended = (p != 0) | call.allowed([i], None, [head])[0, 0]
    with np.errstate(all="ignore"):
        return p[attended] @ np.asarray(v, np.float64)[attended]


def numbers(values) -> Any:
    """Numbers as JSON; NaN and infinities by name."""
    if isinstance(values, np.ndarray) and values.ndim:
        return [numbers(part) for part in values]
    value = float(values)
    if np.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return "NaN" if np.isnan(value) else "inf" if value > 0 else "-inf"
