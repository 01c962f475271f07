"""The forward pass of the law, step by step: what `Arguments` say, computed in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...language.analysis import evaluate
from .arguments import Arguments


class Outcome(NamedTuple):
    """out (B, H, Q, E) · lse (B, H, Q) in nats · weights, scores, allowed (B, H, Q, K): the steps between."""

    out: np.ndarray
    lse: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    allowed: np.ndarray


def forward(arguments: Arguments, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Outcome:
    """The result of a call with q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) and these arguments."""
    with np.errstate(all="ignore"):
        q, k, v = arguments.inputs(*(np.asarray(part, np.float64) for part in (q, k, v)))
        k, v = on_heads(arguments, q, k, v)
        shape = (*q.shape[:3], k.shape[2])
        values = variables(arguments, q, k)
        scores = values["score"]
        if arguments.score is not None:
            scores = np.broadcast_to(evaluate(arguments.score, values).astype(np.float64), shape)
        allowed = np.ones(shape, bool)
        if arguments.mask is not None:
            allowed = np.broadcast_to(evaluate(arguments.mask, values), shape)
        weights = arguments.to_weights(scores, allowed, arguments.sinks)
        out = arguments.finish(arguments.to_output(weights, allowed, k, v)) + arguments.added(q, v)
        return Outcome(out, arguments.to_lse(scores, allowed, arguments.sinks), weights, scores, allowed)


def on_heads(arguments: Arguments, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys and values of each query head, (B, H, K, D) and (B, H, K, E)."""
    keys, values = (
        np.repeat(part[:, heads], q.shape[1] // max(len(heads), 1), 1)
        for part, heads in ((k, arguments.key_heads), (v, arguments.value_heads))
    )
    return keys, values


def variables(arguments: Arguments, q: np.ndarray, keys: np.ndarray) -> dict[str, np.ndarray]:
    """What expressions read, at every pair: positions, and the scaled logit."""
    return {
        "batch": np.arange(q.shape[0])[:, None, None, None],
        "head": np.arange(q.shape[1])[:, None, None],
        "query": arguments.start + np.arange(q.shape[2])[:, None],
        "key": np.arange(keys.shape[2]),
        "score": arguments.scale * arguments.product(q, keys),
    }
