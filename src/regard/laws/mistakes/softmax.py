"""Known mistakes in the softmax."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ...language.analysis import in_range
from ..arguments import Arguments, highest, lse
from ..mistake import Change, Mistake, both, lse_by, weights_by


def _over(first: int, second: int) -> Change:
    """A softmax over another axis."""

    def step(usual, scores, allowed, sinks, arguments):
        swapped = usual(scores.swapaxes(first, second), allowed.swapaxes(first, second), None)
        return swapped.swapaxes(first, second)

    return weights_by(step, masked=False)


def _over_everything(usual, scores, allowed, sinks, arguments):
    flat = (*scores.shape[:-2], 1, scores.shape[-2] * scores.shape[-1])
    return usual(scores.reshape(flat), allowed.reshape(flat), sinks).reshape(scores.shape)


def _powers(scores, allowed, sinks, arguments):
    """exp(score) and its sum, in the range of the dtype of sums."""
    powers = in_range(np.where(allowed, np.exp(np.where(allowed, scores, 0)), 0), arguments.real)
    total = powers.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, :]).sum(-1, keepdims=True)
    return powers, in_range(total, arguments.real)


def _without_maximum(usual, scores, allowed, sinks, arguments):
    powers, total = _powers(scores, allowed, sinks, arguments)
    return powers / total


def _lse_without_maximum(usual, scores, allowed, sinks, arguments):
    return np.log(_powers(scores, allowed, sinks, arguments)[1])[..., 0]


def _not_normalized(usual, scores, allowed, sinks, arguments):
    return _powers(scores, allowed, sinks, arguments)[0]


def _only_shifted(usual, scores, allowed, sinks, arguments):
    kept = np.where(allowed, scores, -np.inf)
    top = kept.max(-1, initial=-np.inf, keepdims=True)
    return np.exp(kept - np.where(np.isneginf(top), 0, top))


def _global_maximum(usual, scores, allowed, sinks, arguments):
    kept = np.where(allowed, scores, -np.inf)
    top = kept.max(initial=-np.inf)
    powers = in_range(np.exp(kept - (0 if np.isneginf(top) else top)), arguments.real)
    return powers / powers.sum(-1, keepdims=True)


def _linear(usual, scores, allowed, sinks, arguments):
    return np.where(allowed, scores, 0)


def _sigmoid(usual, scores, allowed, sinks, arguments):
    return np.where(allowed, 1 / (1 + np.exp(-scores)), 0)


def _hard(usual, scores, allowed, sinks, arguments):
    kept = np.where(allowed, scores, -np.inf)
    first = np.arange(scores.shape[-1]) == kept.argmax(-1)[..., None] if scores.shape[-1] else allowed
    return np.where(allowed & first, 1.0, 0.0)


def _divided_by_keys(*given):
    return _only_shifted(*given) / max(given[1].shape[-1], 1)


def _divided_by_mean(usual, scores, allowed, sinks, arguments):
    return usual(scores, allowed, sinks) * scores.shape[-1]


def _more_in_denominator(more: float) -> Change:
    """With a number added to the sum of exp(score − maximum)."""

    def step(usual, scores, allowed, sinks, arguments):
        top = highest(np.where(allowed, scores, -np.inf), sinks)
        total = np.exp(lse(scores, allowed, sinks)[..., None] - top)
        return usual(scores, allowed, sinks) * np.where(np.isnan(total), 1, total / (total + more))

    return weights_by(step, masked=False)


def _twice(usual, scores, allowed, sinks, arguments):
    return usual(usual(scores, allowed, sinks), allowed, sinks)


def _twice_unmasked(usual, scores, allowed, sinks, arguments):
    return usual(usual(scores, allowed, sinks), np.ones_like(allowed), sinks)


def _base_2(usual, scores, allowed, sinks, arguments):
    return usual(scores * math.log(2), allowed, None if sinks is None else sinks * math.log(2))


def _one_more(usual, scores, allowed, sinks, arguments):
    one = np.zeros((scores.shape[-3], 1))
    return usual(scores, allowed, one if sinks is None else np.concatenate([sinks, one], -1))


def _times_scale(usual, scores, allowed, sinks, arguments):
    return usual(scores / arguments.scale if arguments.scale else scores, allowed, sinks) * arguments.scale


def _across_heads(arguments: Arguments) -> Arguments | None:
    return None if arguments.heads == 1 else _over(-3, -1)(arguments)


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
        _across_heads,
    ),
    Mistake(
        "softmax-over-everything",
        "one softmax over all queries and keys together",
        "the softmax is taken over two axes",
        AXIS,
        weights_by(_over_everything, masked=False),
    ),
    Mistake(
        "softmax-without-maximum",
        "a softmax that does not subtract the maximum",
        "exp(score) is computed as it is, and overflows from 89 on in float32",
        "subtract the maximum of each row before exp",
        both(weights_by(_without_maximum, masked=False), lse_by(_lse_without_maximum)),
        law=10,
    ),
    Mistake(
        "softmax-maximum-of-everything",
        "a softmax that subtracts the maximum of the whole array",
        "the maximum is not taken per row; rows with much lower scores become 0/0",
        "subtract the maximum of each row",
        weights_by(_global_maximum, masked=False),
        law=11,
    ),
    _softmax(
        "softmax-base-2",
        "a softmax with powers of 2",
        "exp2 is used without multiplying the scores by log₂ e",
        "multiply the scores by log₂ e, or use exp",
        weights_by(_base_2, masked=False),
    ),
    _softmax(
        "softmax-twice",
        "a softmax of the softmax",
        "the softmax is applied in two places",
        "apply it once",
        weights_by(_twice, masked=False),
    ),
    _softmax(
        "softmax-twice-unmasked",
        "a softmax of the softmax, the second one without the mask",
        "the softmax is applied in two places",
        "apply it once",
        weights_by(_twice_unmasked),
    ),
    _softmax(
        "softmax-plus-one",
        "a softmax with 1 added to its denominator",
        "a sink of 0 that the caller did not pass is in the denominator",
        "divide by the sum over keys and the given sinks only",
        weights_by(_one_more, masked=False),
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
        weights_by(_divided_by_mean, masked=False),
    ),
    Mistake(
        "softmax-divided-by-keys",
        "exp(score − maximum) divided by the number of keys as the weights",
        "exp(score) is divided by the number of keys instead of its sum",
        "divide by the sum over keys",
        weights_by(_divided_by_keys, masked=False),
    ),
    _softmax(
        "no-normalization",
        "exp(score) as the weights",
        "the weights are not divided by their sum",
        "divide by the sum over keys",
        weights_by(_not_normalized, masked=False),
    ),
    _softmax(
        "no-normalization-after-shift",
        "exp(score − maximum) as the weights",
        "the weights are not divided by their sum",
        "divide by the sum over keys",
        weights_by(_only_shifted, masked=False),
    ),
    _softmax(
        "no-softmax",
        "scores as the weights",
        "the softmax is missing",
        "apply the softmax to the masked scores",
        weights_by(_linear, masked=False),
    ),
    _softmax(
        "sigmoid",
        "a sigmoid in place of the softmax",
        "each score is squashed on its own",
        "apply the softmax to the masked scores",
        weights_by(_sigmoid, masked=False),
    ),
    _softmax(
        "hard-maximum",
        "all weight on the largest score",
        "argmax is used in place of the softmax",
        "apply the softmax to the masked scores",
        weights_by(_hard, masked=False),
    ),
    _softmax(
        "scale-after-softmax",
        "weights that are scaled instead of scores",
        "the scale is applied after the softmax",
        "multiply the scores by the scale, before the softmax",
        weights_by(_times_scale, masked=False),
    ),
)
