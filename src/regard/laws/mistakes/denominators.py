"""Known mistakes in the denominator: its logarithm, the lse, and the sinks that are added to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..arguments import Arguments, highest
from ..mistake import Change, Mistake, Softmax, both, lse_by, weights_by, with_a_mask, with_sinks


def _without_maximum(it: Softmax) -> np.ndarray:
    lse = it.of()
    return np.where(np.isneginf(lse), lse, lse - _maximum(it))


def _maximum(it: Softmax) -> np.ndarray:
    return highest(it.kept, it.sinks)[..., 0]


def _sum_of_shifted(it: Softmax) -> np.ndarray:
    top = _maximum(it)
    return np.exp(it.of() - np.where(np.isneginf(top), 0, top))


def _unscaled(it: Softmax) -> np.ndarray:
    return it.of(it.scores / it.arguments.scale if it.arguments.scale else it.scores)


_lse = partial(Mistake, law=7)
NATURAL = "return the natural logarithm: multiply by ln 2, once"
SHIFT = "return maximum + ln(Σ exp(score − maximum))"

LSE = (
    _lse(
        "lse-base-2",
        "an lse in base 2",
        "the kernel works with exp2, and returns its logarithm",
        NATURAL,
        lse_by(lambda it: it.of() / math.log(2)),
    ),
    _lse(
        "lse-ln2-twice",
        "an lse that is ln 2 times too small",
        "the lse is converted twice",
        NATURAL,
        lse_by(lambda it: it.of() * math.log(2)),
    ),
    _lse(
        "lse-without-maximum-added-back",
        "an lse without the maximum",
        "the maximum that was subtracted is not added back",
        SHIFT,
        lse_by(_without_maximum),
    ),
    _lse("lse-is-maximum", "the maximum as the lse", "the logarithm of the sum is missing", SHIFT, lse_by(_maximum)),
    _lse(
        "lse-without-logarithm",
        "the denominator as the lse",
        "the sum is returned instead of its logarithm",
        SHIFT,
        lse_by(lambda it: np.exp(it.of())),
    ),
    _lse(
        "lse-is-shifted-sum",
        "Σ exp(score − maximum) as the lse",
        "the sum of the softmax is returned as it is",
        SHIFT,
        lse_by(_sum_of_shifted),
    ),
    _lse(
        "lse-of-mean",
        "the logarithm of the mean of exp(score) as the lse",
        "the sum is divided by the number of keys",
        SHIFT,
        lse_by(lambda it: it.of() - math.log(max(it.arguments.keys, 1))),
    ),
    _lse(
        "lse-without-scale",
        "an lse of scores without the scale",
        "the lse is computed from q·k",
        "compute it from scale · q·k",
        lambda arguments: None if arguments.scores or arguments.scale == 1 else lse_by(_unscaled)(arguments),
    ),
    _lse(
        "lse-of-unmasked",
        "an lse over all keys",
        "the lse is computed before the mask",
        "sum over the keys that a row attends to",
        with_a_mask(lse_by(lambda it: it.of(allowed=it.everything))),
    ),
    _lse(
        "lse-without-sinks",
        "an lse without the sinks",
        "the sinks are applied to the output afterwards",
        "the lse is the logarithm of the whole denominator: logaddexp(lse, sink)",
        with_sinks(lse_by(lambda it: it.usual(it.scores, it.allowed, None))),
    ),
    _lse(
        "lse-negative",
        "the negative lse",
        "−lse is returned, as backward passes use it",
        SHIFT,
        lse_by(lambda it: -it.of()),
    ),
)


def _changed(new: Callable[[np.ndarray, Arguments], np.ndarray | None]) -> Change:
    return lambda arguments: (
        None if arguments.sinks is None else replace(arguments, sinks=new(arguments.sinks, arguments))
    )


def _first(sinks: np.ndarray, arguments: Arguments) -> np.ndarray:
    return np.broadcast_to(sinks[:1], sinks.shape)


def _without_exp(sinks: np.ndarray, arguments: Arguments) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(sinks, 0))


def _as_first_value(it: Softmax) -> np.ndarray:
    weights = it.of()
    rest = 1 - weights.sum(-1, keepdims=True)
    return np.concatenate([weights[..., :1] + rest, weights[..., 1:]], -1)


def _not_shifted(sum_of: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Weights, or the lse, whose denominator has exp(sink) although its scores are shifted by their maximum."""

    def step(it: Softmax) -> np.ndarray:
        assert it.sinks is not None
        top = highest(it.kept, it.sinks)
        powers = np.exp(it.kept - top)
        return sum_of(powers, powers.sum(-1, keepdims=True) + np.exp(it.sinks[:, None]).sum(-1, keepdims=True), top)

    return step


def _added_to_scores(arguments: Arguments) -> Arguments | None:
    if arguments.sinks is None:
        return None
    added = arguments.sinks[:, :1, None]
    weights, lse = arguments.to_weights, arguments.to_lse
    return replace(
        arguments,
        to_weights=lambda scores, allowed, sinks: weights(scores + added, allowed, sinks),
        to_lse=lambda scores, allowed, sinks: lse(scores + added, allowed, sinks),
    )


_sinks = partial(Mistake, law=8, checks=("sinks",))
ADD = "add the sinks to the denominator: out · exp(lse − logaddexp(lse, sink))"

SINKS = (
    _sinks(
        "sinks-ignored",
        "a softmax without its sinks",
        "the implementation drops the sinks",
        ADD,
        _changed(lambda sinks, arguments: None),
    ),
    _sinks(
        "sinks-of-first-head",
        "the sinks of the first head in every head",
        "the sinks are read at index 0",
        ADD,
        _changed(_first),
    ),
    _sinks(
        "sinks-of-next-head",
        "the sinks of the next head",
        "heads are not counted from 0",
        ADD,
        _changed(lambda sinks, arguments: np.roll(sinks, -1, 0)),
    ),
    _sinks(
        "sinks-scaled",
        "sinks times the scale",
        "sinks are added before the scores are scaled",
        "add them to the scaled scores",
        _changed(lambda sinks, arguments: sinks * arguments.scale),
    ),
    _sinks(
        "sinks-without-exp",
        "sinks added to the denominator as they are",
        "exp(sink) is replaced by sink",
        ADD,
        _changed(_without_exp),
    ),
    _sinks(
        "sinks-negative",
        "sinks of the wrong sign",
        "exp(−sink) is used",
        ADD,
        _changed(lambda sinks, arguments: -sinks),
    ),
    _sinks(
        "sinks-not-shifted",
        "exp(sink) added to a sum of exp(score − maximum)",
        "the maximum is subtracted from the scores, and not from the sinks",
        "add exp(sink − maximum)",
        with_sinks(
            both(
                weights_by(_not_shifted(lambda powers, total, top: powers / total)),
                lse_by(_not_shifted(lambda powers, total, top: (np.log(total) + top)[..., 0])),
            )
        ),
    ),
    _sinks(
        "sinks-added-to-scores",
        "sinks added to all scores too",
        "the sink is added to the scores before it is joined to them",
        ADD,
        _added_to_scores,
    ),
    _sinks(
        "sinks-as-values",
        "sinks whose weight goes to the first value",
        "the first key is taken for the sink",
        "a sink has a weight, but no value",
        with_sinks(weights_by(_as_first_value)),
        checks=(),
    ),
)
