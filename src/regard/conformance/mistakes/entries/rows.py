"""Known mistakes in fully masked rows, and in what masked keys and values may reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..mistake import Mistake
from .changes import lse_by, weights_by


def _empty(name: str, description: str, cause: str, row: Callable[[np.ndarray], np.ndarray]) -> Mistake:
    """The mistake of other weights in fully masked rows; row: those weights, from the numbers of the keys."""

    def step(usual, scores, allowed, sinks, arguments):
        return np.where(allowed.any(-1, keepdims=True), usual(scores, allowed, sinks), row(np.arange(scores.shape[-1])))

    return Mistake(
        name=name,
        law=5,
        description=description,
        cause=cause,
        fix="set the output of fully masked rows to 0",
        change=weights_by(step),
    )


def _empty_lse(name: str, value: float, shown: str, cause: str) -> Mistake:
    def step(usual, scores, allowed, sinks, arguments):
        found = usual(scores, allowed, sinks)
        return np.where(np.isneginf(found), value, found)

    return Mistake(
        name=name,
        law=5,
        description=f"an lse of {shown} in fully masked rows",
        cause=cause,
        fix="return −infinity for fully masked rows: the logarithm of an empty sum",
        change=lambda arguments: lse_by(step)(arguments) if arguments.masks or not arguments.keys else None,
    )


def _added_mask(usual, scores, allowed, sinks, arguments):
    return usual(scores + np.where(allowed, 0, -np.inf), allowed | np.isnan(scores), sinks)


def _plain_product(weights, allowed, k, v):
    return weights @ v


ROWS = (
    _empty(
        "empty-row-nan",
        "NaN in fully masked rows",
        "the softmax of a row of −infinity is 0/0",
        lambda keys: np.full(len(keys), np.nan),
    ),
    _empty(
        "empty-row-mean",
        "the mean of all values in fully masked rows",
        "a finite number is used for −infinity, or the softmax falls back to equal weights",
        lambda keys: np.full(len(keys), 1 / max(len(keys), 1)),
    ),
    _empty(
        "empty-row-first-key",
        "the first value in fully masked rows",
        "a row without keys falls back to its first one",
        lambda keys: np.where(keys == 0, 1.0, 0.0),
    ),
    _empty(
        "empty-row-last-key",
        "the last value in fully masked rows",
        "a row without keys falls back to its last one",
        lambda keys: np.where(keys == len(keys) - 1, 1.0, 0.0),
    ),
    _empty_lse("empty-row-lse-inf", np.inf, "+infinity", "the sign of the empty sum is lost"),
    _empty_lse("empty-row-lse-zero", 0.0, "0", "the sum of a row without keys is replaced by 1"),
    _empty_lse("empty-row-lse-nan", np.nan, "NaN", "infinity is subtracted from infinity"),
    Mistake(
        name="masked-nan-leaks",
        law=6,
        description="values that reach rows which do not attend to them",
        cause="the weights of masked keys are 0, but 0 · NaN and 0 · infinity are NaN",
        fix="set the values of keys that no row attends to to 0, or skip masked pairs",
        change=lambda arguments: replace(arguments, to_output=_plain_product),
    ),
    Mistake(
        name="masked-score-nan-leaks",
        law=6,
        description="keys that reach rows which do not attend to them",
        cause="−infinity is added to masked scores, but NaN − infinity is NaN",
        fix="use where(mask, scores, −infinity)",
        change=weights_by(_added_mask),
    ),
)
