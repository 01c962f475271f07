"""Walk: the numbers of one row of one head, from what the layer was given to what came out of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .call import Call
from .run import Run

__all__ = ["walk"]

KEYS = 64  # that are shown
BEFORE, AFTER = 7, 1  # of them around the row's own position
DIGITS = 6


def walk(run: Run, call: int, head: int, i: int) -> dict[str, Any]:
    """The walk of row i of a head, as JSON: null where something was not kept, numbers of six digits, "NaN", "inf" and "-inf".

        x → q, k    scaled = scale · q·k → scores (the score rule) → p = exp(scores − lse) where allowed → sum = Σ p v

    x (d_model) · q (D) · keys: at most 64, the strongest and the nearest, rising · k (keys, D) · scaled, scores, allowed, p (keys) ·
    lse · sinks · v (keys, E) · sum (E), over all keys · out (E): what the model had · Q, K, D, E, scale.
    """
    at = run.calls[call]
    H, Q, K = at.shape
    p = at.weights([i], None, [head])[0, 0]
    keys = shown(p, at.start + i)
    found: dict[str, Any] = dict.fromkeys(("x", "q", "k", "scaled", "scores", "sinks", "v", "sum", "out", "D", "E"))
    found |= {"keys": keys.tolist(), "allowed": at.allowed([i], keys, [head])[0, 0].tolist(), "p": numbers(p[keys]),
              "lse": numbers(at.lse[head, i]), "Q": Q, "K": K, "scale": numbers(at.scale)}  # fmt: skip
    if at.q is not None and at.k is not None:
        k = at.k[head // (H // at.groups)]
        found |= {"q": numbers(at.q[head, i]), "k": numbers(k[keys]), "scaled": numbers(at.logits([i], keys, [head])[0, 0]),
                  "scores": numbers(at.scores([i], keys, [head])[0, 0]), "D": k.shape[1]}  # fmt: skip
    if at.v is not None:
        v = at.v[head // (H // len(at.v))]
        found |= {"v": numbers(v[keys]), "sum": numbers(mixed(at, head, i, p, v)), "E": v.shape[1]}
    if at.x is not None:
        found["x"] = numbers(at.x[i])
    if at.out is not None:
        found |= {"out": numbers(at.out[head, i]), "E": at.out.shape[2]}
    if at.sinks is not None:
        found["sinks"] = numbers(at.sinks[head])
    return found


def shown(p: np.ndarray, position: int) -> np.ndarray:
    """Which keys are shown: those around the row's own position, and the strongest; weights that are not numbers before all."""
    if len(p) <= KEYS:
        return np.arange(len(p))
    near = np.arange(max(0, position - BEFORE), max(0, min(len(p), position + AFTER + 1)))
    rank = np.where(np.isnan(p), np.inf, p)
    rank[near] = np.inf
    return np.sort(np.argsort(-rank, kind="stable")[:KEYS])


def mixed(call: Call, head: int, i: int, p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Σ p v over the keys that the row attends: what lies behind the mask cannot leak, not even as NaN."""
    attended = (p != 0) | call.allowed([i], None, [head])[0, 0]
    with np.errstate(all="ignore"):
        return p[attended] @ np.asarray(v, np.float64)[attended]


def numbers(values) -> Any:
    """Numbers as JSON, those that are none by their names."""
    if isinstance(values, np.ndarray) and values.ndim:
        return [numbers(part) for part in values]
    value = float(values)
    if np.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return "NaN" if np.isnan(value) else "inf" if value > 0 else "-inf"
