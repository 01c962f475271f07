"""The backward pass of the law in float64: the gradients of Σ out · dout + Σ lse · dlse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..call import Call
from .arguments import Arguments
from .forward import Outcome
from .steps import weighted_sum

__all__ = ["Flow", "backward", "flow", "heads_of", "summed_to"]


class Flow(NamedTuple):
    """What reaches the scores. dweights (B, H, Q, K): dout·v · delta (B, H, Q): Σ weights · dweights · rest (B, H, Q):
    dlse − delta · dscores: the gradient of the last score (B, H, Q, K) · through: the gradient of the result of each
    change of the score by its name, and of scale · q·k as "product"
    """

    dweights: np.ndarray
    delta: np.ndarray
    rest: np.ndarray
    dscores: np.ndarray
    through: dict[str, np.ndarray]


def heads_of(heads: np.ndarray, count: int) -> np.ndarray:
    """The key or value head that each of `count` query heads uses."""
    return np.repeat(heads, count // max(len(heads), 1))


def flow(
    arguments: Arguments, outcome: Outcome, call: Call, products: np.ndarray, dout: np.ndarray, v: np.ndarray
) -> Flow:
    """The gradients of the scores. products: q·k · v: the values of each query head."""
    attended = outcome.allowed & ~np.isneginf(outcome.scores)
    delta = (dout * np.where(outcome.allowed.any(-1, keepdims=True), outcome.out, 0)).sum(-1)
    rest = -delta if call.dlse is None else np.asarray(call.dlse, np.float64) - delta
    dweights = dout @ v.swapaxes(-1, -2)
    dscores = np.where(attended, outcome.weights * (dweights + rest[..., None]), 0)
    score, slopes = arguments.scale * products, {}
    for name in arguments.scores:
        if name == "softcap":
            assert call.softcap is not None
            score = call.softcap * np.tanh(score / call.softcap)
            slopes[name] = 1 - (score / call.softcap) ** 2
        else:
            score, slopes[name] = score + np.asarray(call.bias, np.float64), np.ones(1)
    through: dict[str, np.ndarray] = {}
    gradient = dscores
    for name in reversed([*arguments.scores]):
        through[name] = gradient
        gradient = np.where(attended, gradient * slopes[name], 0)
    return Flow(dweights, delta, rest, dscores, {**through, "product": gradient})


def backward(arguments: Arguments, outcome: Outcome, call: Call) -> dict[str, np.ndarray]:
    """The gradients by role, in float64: "q", "k", "v", and "bias" and "sinks" in the shapes that the call gives them.

    dP = dout vᵀ, δ = Σ dout · out, dS = P (dP − δ + dlse); a masked pair contributes nothing, nor does a fully masked
    row.
    """
    H = call.q.shape[1]
    q, k, v = (np.asarray(part, np.float64) for part in (call.q, call.k, call.v))
    key_heads, value_heads = heads_of(arguments.key_heads, H), heads_of(arguments.value_heads, H)
    dout = np.zeros(outcome.out.shape) if call.dout is None else np.asarray(call.dout, np.float64)
    with np.errstate(all="ignore"):
        keys, values = k[:, key_heads], v[:, value_heads]
        found = flow(arguments, outcome, call, q @ keys.swapaxes(-1, -2), dout, values)
        dproduct = arguments.scale * found.through["product"]
        allowed = outcome.allowed & ~np.isneginf(outcome.scores)
        across = allowed.swapaxes(-1, -2)
        gradients = {
            "q": weighted_sum(dproduct, allowed, keys, keys),
            "k": summed_to(weighted_sum(dproduct.swapaxes(-1, -2), across, q, q), key_heads, k.shape[1]),
            "v": summed_to(weighted_sum(outcome.weights.swapaxes(-1, -2), across, dout, dout), value_heads, v.shape[1]),
        }
        if call.bias is not None:
            gradients["bias"] = over_shape(found.through["bias"], call.bias.shape)
        if arguments.sinks is not None:
            share = np.exp(arguments.sinks[:, None] - outcome.lse[..., None])
            gradients["sinks"] = (share * found.rest[..., None]).sum((0, 2))[:, 0]
    return gradients


def summed_to(of_heads: np.ndarray, heads: np.ndarray, count: int) -> np.ndarray:
    """The sum over the query heads that use each of `count` key heads."""
    found = np.zeros((of_heads.shape[0], count, *of_heads.shape[2:]))
    for place, head in enumerate(heads):
        found[:, head] += of_heads[:, place]
    return found


def over_shape(full: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sum over the axes along which an array of this shape is repeated."""
    axes = tuple(axis for axis, (size, whole) in enumerate(zip(shape, full.shape)) if size == 1 and whole != 1)
    return full.sum(axes, keepdims=True)
