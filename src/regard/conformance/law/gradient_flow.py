"""What flows back through the law in float64: the gradients of the scores, of which the bounds are made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..call import Call
from .arguments import Arguments
from .forward import Outcome


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
