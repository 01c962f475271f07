"""Known mistakes in the lse, the logarithm of the denominator."""

from __future__ import annotations

import math

import numpy as np

from ..mistake import Mistake
from .changes import Change, lse_by


def _top(scores, allowed, sinks):
    top = np.where(allowed, scores, -np.inf).max(-1, initial=-np.inf)
    return top if sinks is None else np.maximum(top, sinks.max(-1)[:, None])


def _base_2(usual, *given):
    return usual(*given[:3]) / math.log(2)


def _ln2_twice(usual, *given):
    return usual(*given[:3]) * math.log(2)


def _without_maximum(usual, scores, allowed, sinks, arguments):
    top = _top(scores, allowed, sinks)
    found = usual(scores, allowed, sinks)
    return np.where(np.isneginf(found), found, found - top)


def _maximum(usual, scores, allowed, sinks, arguments):
    return _top(scores, allowed, sinks)


def _without_logarithm(usual, scores, allowed, sinks, arguments):
    return np.exp(usual(scores, allowed, sinks))


def _sum_of_shifted(usual, scores, allowed, sinks, arguments):
    top = _top(scores, allowed, sinks)
    return np.exp(usual(scores, allowed, sinks) - np.where(np.isneginf(top), 0, top))


def _of_mean(usual, scores, allowed, sinks, arguments):
    return usual(scores, allowed, sinks) - math.log(max(arguments.keys, 1))


def _unscaled(usual, scores, allowed, sinks, arguments):
    return usual(scores / arguments.scale if arguments.scale else scores, allowed, sinks)


def _of_unmasked(usual, scores, allowed, sinks, arguments):
    return usual(scores, np.ones_like(allowed), sinks)


def _without_sinks(usual, scores, allowed, sinks, arguments):
    return usual(scores, allowed, None)


def _negative(usual, *given):
    return -usual(*given[:3])


def _entry(name: str, description: str, cause: str, fix: str, change: Change) -> Mistake:
    return Mistake(name=name, law=7, description=description, cause=cause, fix=fix, change=change)


NATURAL = "return the natural logarithm: multiply by ln 2, once"
SHIFT = "return maximum + ln(Σ exp(score − maximum))"

LSE = (
    _entry(
        "lse-base-2",
        "an lse in base 2",
        "the kernel works with exp2, and returns its logarithm",
        NATURAL,
        lse_by(_base_2),
    ),
    _entry(
        "lse-ln2-twice",
        "an lse that is ln 2 times too small",
        "the lse is converted twice",
        NATURAL,
        lse_by(_ln2_twice),
    ),
    _entry(
        "lse-without-maximum-added-back",
        "an lse without the maximum",
        "the maximum that was subtracted is not added back",
        SHIFT,
        lse_by(_without_maximum),
    ),
    _entry("lse-is-maximum", "the maximum as the lse", "the logarithm of the sum is missing", SHIFT, lse_by(_maximum)),
    _entry(
        "lse-without-logarithm",
        "the denominator as the lse",
        "the sum is returned instead of its logarithm",
        SHIFT,
        lse_by(_without_logarithm),
    ),
    _entry(
        "lse-is-shifted-sum",
        "Σ exp(score − maximum) as the lse",
        "the sum of the softmax is returned as it is",
        SHIFT,
        lse_by(_sum_of_shifted),
    ),
    _entry(
        "lse-of-mean",
        "the logarithm of the mean of exp(score) as the lse",
        "the sum is divided by the number of keys",
        SHIFT,
        lse_by(_of_mean),
    ),
    _entry(
        "lse-without-scale",
        "an lse of scores without the scale",
        "the lse is computed from q·k",
        "compute it from scale · q·k",
        lambda arguments: None if arguments.scores or arguments.scale == 1 else lse_by(_unscaled)(arguments),
    ),
    _entry(
        "lse-of-unmasked",
        "an lse over all keys",
        "the lse is computed before the mask",
        "sum over the keys that a row attends to",
        lambda arguments: lse_by(_of_unmasked)(arguments) if arguments.masks else None,
    ),
    _entry(
        "lse-without-sinks",
        "an lse without the sinks",
        "the sinks are applied to the output afterwards",
        "the lse is the logarithm of the whole denominator: logaddexp(lse, sink)",
        lambda arguments: None if arguments.sinks is None else lse_by(_without_sinks)(arguments),
    ),
    _entry("lse-negative", "the negative lse", "−lse is returned, as backward passes use it", SHIFT, lse_by(_negative)),
)
