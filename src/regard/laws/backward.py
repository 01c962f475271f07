"""The gradients of the law, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..language.analysis import adjoints, evaluate
from ..language.expr import Read
from ..language.expr import score as the_score
from . import arguments as usual
from .arguments import Arguments, heads_of, only_allowed
from .forward import forward, on_heads, variables

STEP = 1e-5  # of finite differences: their error is about its square

STEPS = ("inputs", "product", "to_weights", "to_output", "to_lse", "finish", "added")  # of `Arguments`, forward

Array = np.ndarray


def backward(
    arguments: Arguments, q: Array, k: Array, v: Array, dout: Array, dlse: Array | None = None
) -> dict[str, Array]:
    """The gradients of Σ out · dout + Σ lse · dlse by role: "q", "k", "v", and "bias" and "sinks" if the call has them.

    They are exact if the steps of the forward pass are those of the law; otherwise they are finite differences, without
    that of the bias.
    """
    q, k, v, dout = (np.asarray(part, np.float64) for part in (q, k, v, dout))
    dlse = np.zeros(dout.shape[:3]) if dlse is None else np.asarray(dlse, np.float64)
    found = (_exact if derived(arguments) else finite_differences)(arguments, q, k, v, dout, dlse)
    return arguments.backward.finish(found)


def derived(arguments: Arguments) -> bool:
    """Whether the steps of the forward pass are those of the law, whose derivatives are known."""
    return all(getattr(arguments, step) is getattr(Arguments, step) for step in STEPS)


def _exact(arguments: Arguments, q: Array, k: Array, v: Array, dout: Array, dlse: Array) -> dict[str, Array]:
    """dS = P ∘ (dP − δ + dlse), with dP = dout vᵀ and δ = Σ dout · out."""
    steps = arguments.backward
    with np.errstate(all="ignore"):
        outcome, given = forward(arguments, q, k, v), arguments
        delta = (dout * outcome.out).sum(-1)
        if arguments.recomputed:
            given = arguments.recomputed(arguments)
            outcome = forward(given, q, k, v)
        keys, values = on_heads(given, q, k, v)
        allowed, weights = outcome.allowed, outcome.weights
        ds = steps.only_allowed(steps.through_softmax(weights, dout @ values.swapaxes(-1, -2), delta, dlse), allowed)
        found: dict[str, Array] = {}
        dlogits = ds
        if given.score is not None:
            at = variables(given, q, keys)
            dlogits = np.zeros_like(ds)
            for leaf, partial in adjoints(given.score).items():
                slope = np.broadcast_to(evaluate(partial, at), ds.shape).astype(np.float64)
                reached = steps.only_allowed(steps.through_score(ds, slope), allowed)
                if leaf is the_score:
                    dlogits = reached
                elif isinstance(leaf, Read) and leaf.table.name == "bias":
                    found["bias"] = steps.summed_over_shape(reached, leaf.table.array.shape)
        dlogits = steps.times_scale(dlogits, given.scale)
        product = usual.weighted_sum if steps.only_allowed is only_allowed else _plain
        across = allowed.swapaxes(-1, -2)
        found["q"] = product(dlogits, allowed, keys, keys)
        for role, left, right, heads in (
            ("k", dlogits, q, given.key_heads),
            ("v", steps.as_weights(weights), dout, given.value_heads),
        ):
            each = product(left.swapaxes(-1, -2), across, right, right)
            found[role] = steps.summed_over_heads(each, heads_of(heads, q.shape[1]), k.shape[1])
        if given.sinks is not None:
            below = outcome.lse[..., None]
            shares = np.exp(given.sinks[:, None] - np.where(below == -np.inf, 0, below)).sum(-1)
            found["sinks"] = steps.of_sinks(shares, delta, dlse)
        return found


def _plain(left: Array, allowed: Array, keys: Array, right: Array) -> Array:
    """A product in which NaN and infinities of masked pairs show."""
    return left @ right


def finite_differences(
    arguments: Arguments, q: Array, k: Array, v: Array, dout: Array, dlse: Array
) -> dict[str, Array]:
    """The gradients of q, k, v and sinks as central differences, one element at a time: for small calls only."""
    parts = _parts(arguments, q, k, v)
    found = {role: np.zeros(part.shape) for role, part in parts.items()}
    for role, gradient in found.items():
        for place in np.ndindex(gradient.shape):
            direction = np.zeros(gradient.shape)
            direction[place] = 1
            gradient[place] = _slope(arguments, parts, {role: direction}, dout, dlse)
    return {role: gradient.sum(-1) if role == "sinks" else gradient for role, gradient in found.items()}


def along(
    arguments: Arguments, q: Array, k: Array, v: Array, dout: Array, dlse: Array, *, directions: Mapping[str, Array]
) -> float:
    """The sum over roles of gradient · direction, as one central difference."""
    return _slope(arguments, _parts(arguments, q, k, v), directions, dout, dlse)


def _parts(arguments: Arguments, q: Array, k: Array, v: Array) -> dict[str, Array]:
    parts = {role: np.asarray(part, np.float64) for role, part in zip("qkv", (q, k, v), strict=True)}
    return parts if arguments.sinks is None else parts | {"sinks": arguments.sinks}


def _slope(
    arguments: Arguments, parts: Mapping[str, Array], directions: Mapping[str, Array], dout: Array, dlse: Array
) -> float:
    def loss(step: float) -> float:
        moved = {**parts, **{role: parts[role] + step * part for role, part in directions.items()}}
        given = replace(arguments, sinks=moved["sinks"]) if "sinks" in directions else arguments
        outcome = forward(given, moved["q"], moved["k"], moved["v"])
        with np.errstate(all="ignore"):
            lse = np.where((dlse == 0) | (outcome.lse == -np.inf), 0, outcome.lse * dlse)
            return float((outcome.out * dout).sum() + lse.sum())

    return (loss(STEP) - loss(-STEP)) / (2 * STEP)
