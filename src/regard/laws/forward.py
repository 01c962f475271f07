"""What a call means under the conventions of a function, and the forward pass of the law, in float64."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import NamedTuple

import numpy as np

from ..language.analysis import evaluate
from ..language.expr import Expr, batch, head, key, query, table
from ..language.expr import score as the_score
from ..language.masks import causal
from ..language.scores import alibi, softcap
from .arguments import Arguments, heads_of, same_inputs
from .call import Call, Conventions


class Part(NamedTuple):
    """Some heads and rows of a call, by number."""

    heads: np.ndarray
    rows: np.ndarray


class Outcome(NamedTuple):
    """out (B, H, Q, E) · lse (B, H, Q) in nats · weights, scores, allowed (B, H, Q, K): the steps between."""

    out: np.ndarray
    lse: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    allowed: np.ndarray


def forward(arguments: Arguments, q: np.ndarray, k: np.ndarray, v: np.ndarray, part: Part | None = None) -> Outcome:
    """The result of a call with q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) and these arguments.

    part: the heads and rows that are computed, of a call that is too large to be computed whole
    """
    with np.errstate(all="ignore"):
        q, k, v = read(arguments, q, k, v, part)
        shape = (*q.shape[:3], k.shape[2])
        values = variables(arguments, q, k)
        if part is not None:
            values |= {"head": part.heads[:, None, None], "query": arguments.start + part.rows[:, None]}
        scores = values["score"]
        if arguments.score is not None:
            scores = np.broadcast_to(evaluate(arguments.score, values).astype(np.float64), shape)
        allowed = np.ones(shape, bool)
        if arguments.mask is not None:
            allowed &= evaluate(arguments.mask, values)
        sinks = arguments.sinks if part is None or arguments.sinks is None else arguments.sinks[part.heads]
        weights = arguments.to_weights(scores, allowed, sinks)
        out = arguments.finish(arguments.to_output(weights, allowed, k, v)) + arguments.added(q, v)
        return Outcome(out, arguments.to_lse(scores, allowed, sinks), weights, scores, allowed)


def read(
    arguments: Arguments, q: np.ndarray, k: np.ndarray, v: np.ndarray, part: Part | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows, keys and values that each query head reads, (B, H, Q, D), (B, H, K, D) and (B, H, K, E) in float64."""
    if part is None or arguments.inputs is not same_inputs:
        q, k, v = arguments.inputs(*(np.asarray(each, np.float64) for each in (q, k, v)))
    if part is None:
        return q, *on_heads(arguments, q, k, v)
    keys, values = (
        each[:, heads_of(heads, q.shape[1])[part.heads]]
        for each, heads in ((k, arguments.key_heads), (v, arguments.value_heads))
    )
    q, k, v = (np.asarray(each, np.float64) for each in (q[:, part.heads][:, :, part.rows], keys, values))
    return q, k, v


def on_heads(arguments: Arguments, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys and values of each query head, (B, H, K, D) and (B, H, K, E)."""
    H = q.shape[1]
    return np.take(k, heads_of(arguments.key_heads, H), 1), np.take(v, heads_of(arguments.value_heads, H), 1)


def variables(arguments: Arguments, q: np.ndarray, keys: np.ndarray) -> dict[str, np.ndarray]:
    """What expressions read, at every pair: positions, and the scaled logit."""
    return {
        "batch": np.arange(q.shape[0])[:, None, None, None],
        "head": np.arange(q.shape[1])[:, None, None],
        "query": arguments.start + np.arange(q.shape[2])[:, None],
        "key": np.arange(keys.shape[2]),
        "score": arguments.scale * arguments.product(q, keys),
    }


def meaning(call: Call, conventions: Conventions) -> Arguments:
    """The arguments of the law for a call of a function with these conventions."""
    B, H, G, Q, K, D = (call.dims[name] for name in "BHGQKD")
    start = 0 if conventions.causal == "top-left" else K - Q
    masks: dict[str, Expr] = {}
    if call.mask is not None:
        masks["mask"] = dense(call.mask, (B, H, Q, K), "mask", start)
    here: Expr = query
    if conventions.packed and conventions.causal == "bottom-right" and call.lengths is not None:
        # The last row is at the last key that exists.
        here = query - table(K - np.asarray(call.lengths), "missing")[batch]
    if call.causal or "causal" in conventions.always:
        masks["causal"] = causal() if here is query else key <= here
    if call.window is not None:
        masks["window"] = _window(*call.window, here)
    if call.lengths is not None:
        masks["lengths"] = key < table(np.asarray(call.lengths), "lengths")[batch]
    scores: dict[str, Expr] = {}
    if "alibi" in conventions.always and H:
        scores["alibi"] = alibi(H)
    for name in ("softcap", "bias") if conventions.softcap == "before-bias" else ("bias", "softcap"):
        if name == "softcap" and call.softcap is not None:
            scores[name] = softcap(call.softcap)
        if name == "bias" and call.bias is not None:
            scores[name] = the_score + dense(call.bias.astype(np.float64), (B, H, Q, K), name, start)
    heads = np.arange(H) % max(G, 1) if conventions.groups == "tile" else np.arange(G)
    scale = conventions.scale if call.scale is None else call.scale
    return Arguments(
        masks=masks,
        scores=scores,
        scale=D**-0.5 if scale is None else scale,
        start=start,
        sinks=None if call.sinks is None else np.asarray(call.sinks, np.float64)[:, None],
        heads=H,
        queries=Q,
        keys=K,
        depth=D,
        key_heads=heads,
        value_heads=heads,
        real=np.float64 if call.dtype == np.float64 else np.float32,
    )


def dense(array: np.ndarray, shape: tuple[int, ...], name: str, start: int) -> Expr:
    """An array (B or 1, H or 1, Q or 1, K), read at each pair."""
    variables = (batch, head, query - start, key)
    return table(np.ascontiguousarray(array), name)[
        tuple(variable if size > 1 or full <= 1 else 0 for variable, size, full in zip(variables, array.shape, shape))
    ]


def _window(before: int | None, after: int | None, here: Expr) -> Expr:
    """A row attends to its own position `here`, `before` keys before it and `after` keys after it."""
    limits = [] if before is None else [key >= here - before]
    limits += [] if after is None else [key <= here + after]
    return reduce(and_, limits) if limits else key >= 0
