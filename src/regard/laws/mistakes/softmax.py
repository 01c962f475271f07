"""Known mistakes in the softmax."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ...language.analysis import in_range
from ..arguments import highest, lse
from ..mistake import Change, Mistake, Softmax, both, lse_by, only_if, weights_by, with_a_mask


def _over(first: int, second: int) -> Change:
    """A softmax over another axis."""

    def step(it: Softmax) -> np.ndarray:
        swapped = it.usual(it.scores.swapaxes(first, second), it.allowed.swapaxes(first, second), None)
        return swapped.swapaxes(first, second)

    return weights_by(step)


def _over_everything(it: Softmax) -> np.ndarray:
    flat = (*it.scores.shape[:-2], 1, it.scores.shape[-2] * it.scores.shape[-1])
    return it.of(it.scores.reshape(flat), it.allowed.reshape(flat)).reshape(it.scores.shape)


def _powers(it: Softmax) -> tuple[np.ndarray, np.ndarray]:
    """exp(score) and its sum, in the range of the dtype of sums."""
    powers = in_range(np.where(it.allowed, np.exp(np.where(it.allowed, it.scores, 0)), 0), it.arguments.real)
    total = powers.sum(-1, keepdims=True)
    if it.sinks is not None:
        total = total + np.exp(it.sinks[:, None, :]).sum(-1, keepdims=True)
    return powers, in_range(total, it.arguments.real)


def _without_maximum(it: Softmax) -> np.ndarray:
    powers, total = _powers(it)
    return powers / total


def _only_shifted(it: Softmax) -> np.ndarray:
    top = highest(it.kept, None)
    return np.exp(it.kept - np.where(np.isneginf(top), 0, top))


def _global_maximum(it: Softmax) -> np.ndarray:
    top = it.kept.max(initial=-np.inf)
    powers = in_range(np.exp(it.kept - (0 if np.isneginf(top) else top)), it.arguments.real)
    return powers / powers.sum(-1, keepdims=True)


def _hard(it: Softmax) -> np.ndarray:
    keys = it.scores.shape[-1]
    first = np.arange(keys) == it.kept.argmax(-1)[..., None] if keys else it.allowed
    return np.where(it.allowed & first, 1.0, 0.0)


def _more_in_denominator(more: float) -> Change:
    """With a number added to the sum of exp(score − maximum)."""

    def step(it: Softmax) -> np.ndarray:
        top = highest(it.kept, it.sinks)
        total = np.exp(lse(it.scores, it.allowed, it.sinks)[..., None] - top)
        return it.of() * np.where(np.isnan(total), 1, total / (total + more))

    return weights_by(step)


def _base_2(it: Softmax) -> np.ndarray:
    return it.usual(it.scores * math.log(2), it.allowed, None if it.sinks is None else it.sinks * math.log(2))


def _one_more(it: Softmax) -> np.ndarray:
    one = np.zeros((it.scores.shape[-3], 1))
    return it.usual(it.scores, it.allowed, one if it.sinks is None else np.concatenate([it.sinks, one], -1))


def _times_scale(it: Softmax) -> np.ndarray:
    scale = it.arguments.scale
    return it.of(it.scores / scale if scale else it.scores) * scale


_softmax = partial(Mistake, checks=("softmax",))

AXIS = "take the softmax over the last axis, the keys"

SOFTMAX = (
    _softmax(
        "softmax-over-queries",
        "a softmax over the queries",
        "the softmax is taken over the wrong axis",
        AXIS,
        _over(-2, -1),
    ),
    Mistake(
        "softmax-over-heads",
        "a softmax over the heads",
        "the softmax is taken over the wrong axis",
        AXIS,
        only_if(lambda arguments: arguments.heads != 1, _over(-3, -1)),
    ),
    Mistake(
        "softmax-over-everything",
        "one softmax over all queries and keys together",
        "the softmax is taken over two axes",
        AXIS,
        weights_by(_over_everything),
    ),
    Mistake(
        "softmax-without-maximum",
        "a softmax that does not subtract the maximum",
        "exp(score) is computed as it is, and overflows from 89 on in float32",
        "subtract the maximum of each row before exp",
        both(weights_by(_without_maximum), lse_by(lambda it: np.log(_powers(it)[1])[..., 0])),
        law=10,
    ),
    Mistake(
        "softmax-maximum-of-everything",
        "a softmax that subtracts the maximum of the whole array",
        "the maximum is not taken per row; rows with much lower scores become 0/0",
        "subtract the maximum of each row",
        weights_by(_global_maximum),
        law=11,
    ),
    _softmax(
        "softmax-base-2",
        "a softmax with powers of 2",
        "exp2 is used without multiplying the scores by log₂ e",
        "multiply the scores by log₂ e, or use exp",
        weights_by(_base_2),
    ),
    _softmax(
        "softmax-twice",
        "a softmax of the softmax",
        "the softmax is applied in two places",
        "apply it once",
        weights_by(lambda it: it.of(it.of())),
    ),
    _softmax(
        "softmax-twice-unmasked",
        "a softmax of the softmax, the second one without the mask",
        "the softmax is applied in two places",
        "apply it once",
        with_a_mask(weights_by(lambda it: it.of(it.of(), it.everything))),
    ),
    _softmax(
        "softmax-plus-one",
        "a softmax with 1 added to its denominator",
        "a sink of 0 that the caller did not pass is in the denominator",
        "divide by the sum over keys and the given sinks only",
        weights_by(_one_more),
        law=8,
    ),
    Mistake(
        "softmax-plus-one-after-shift",
        "a softmax with 1 added to the sum of exp(score − maximum)",
        "1 is added to the denominator after the maximum is subtracted, so it is not even a sink of 0",
        "divide by the sum over keys and the given sinks only",
        _more_in_denominator(1),
        law=8,
    ),
    *(
        Mistake(
            f"softmax-epsilon-{shown}",
            f"a softmax with {shown} added to its denominator",
            "a small number is added against a division by 0, which makes every weight too small",
            "divide by the sum, and set fully masked rows to 0 with where",
            _more_in_denominator(float(shown)),
            law=8,
        )
        for shown in ("1e-3", "1e-5", "1e-6", "1e-8", "1e-9")
    ),
    Mistake(
        "softmax-divided-by-mean",
        "a softmax that divides by the mean",
        "exp(score) is divided by its mean over the keys instead of its sum",
        "divide by the sum over keys",
        weights_by(lambda it: it.of() * it.scores.shape[-1]),
    ),
    Mistake(
        "softmax-divided-by-keys",
        "exp(score − maximum) divided by the number of keys as the weights",
        "exp(score) is divided by the number of keys instead of its sum",
        "divide by the sum over keys",
        weights_by(lambda it: _only_shifted(it) / max(it.scores.shape[-1], 1)),
    ),
    _softmax(
        "no-normalization",
        "exp(score) as the weights",
        "the weights are not divided by their sum",
        "divide by the sum over keys",
        weights_by(lambda it: _powers(it)[0]),
    ),
    _softmax(
        "no-normalization-after-shift",
        "exp(score − maximum) as the weights",
        "the weights are not divided by their sum",
        "divide by the sum over keys",
        weights_by(_only_shifted),
    ),
    _softmax(
        "no-softmax",
        "scores as the weights",
        "the softmax is missing",
        "apply the softmax to the masked scores",
        weights_by(lambda it: np.where(it.allowed, it.scores, 0)),
    ),
    _softmax(
        "sigmoid",
        "a sigmoid in place of the softmax",
        "each score is squashed on its own",
        "apply the softmax to the masked scores",
        weights_by(lambda it: np.where(it.allowed, 1 / (1 + np.exp(-it.scores)), 0)),
    ),
    _softmax(
        "hard-maximum",
        "all weight on the largest score",
        "argmax is used in place of the softmax",
        "apply the softmax to the masked scores",
        weights_by(_hard),
    ),
    _softmax(
        "scale-after-softmax",
        "weights that are scaled instead of scores",
        "the scale is applied after the softmax",
        "multiply the scores by the scale, before the softmax",
        weights_by(_times_scale),
    ),
)
