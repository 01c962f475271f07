"""Known mistakes in the output: other factors, what is added, what empty rows and unused places hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...language.analysis import in_range
from ..arguments import Added, Arguments
from ..mistake import Change, Mistake, Softmax, both, lse_by, weights_by, with_a_mask


def _times(factor: float) -> Change:
    def change(arguments: Arguments) -> Arguments:
        usual = arguments.finish
        return replace(arguments, finish=lambda out: factor * usual(out))

    return change


def _plus(added: Added) -> Change:
    def change(arguments: Arguments) -> Arguments:
        usual = arguments.added
        return replace(arguments, added=lambda q, v: usual(q, v) + added(q, v))

    return change


def _queries(q, v):
    return q if q.shape[-1] == v.shape[-1] else 0.0


def _values(q, v):
    return v if q.shape[-2] == v.shape[-2] else 0.0


def _residual(name: str, what: str, added: Added) -> Mistake:
    return Mistake(
        f"{name}-added-to-output",
        f"{what} added to the output",
        "the residual connection is inside the function",
        "return weights @ v alone, and add the residual outside",
        _plus(added),
    )


OUTPUTS = (
    _residual("queries", "the queries", _queries),
    _residual("values", "the values of each position", _values),
    *(
        Mistake(
            f"dropout-scaling-{p}",
            f"an output divided by {1 - p:g}",
            f"the factor 1 / (1 − {p}) of dropout is applied, although nothing is dropped",
            "apply the factor only to weights from which some are dropped",
            _times(1 / (1 - p)),
            law=9,
        )
        for p in (0.1, 0.2, 0.5)
    ),
)


def _renormalized(guarded: bool):
    def step(it: Softmax) -> np.ndarray:
        kept = in_range(it.of(allowed=it.everything), it.arguments.real) * it.allowed
        total = kept.sum(-1, keepdims=True)
        return kept / (np.where(total == 0, 1, total) if guarded else total)

    return with_a_mask(weights_by(step))


def _filled(fill, *, add: bool = False):
    """The mask as a finite number in place of masked scores, or added to them."""

    def step(it: Softmax) -> np.ndarray:
        low = float(np.finfo(it.arguments.real).min) if fill is None else fill
        other: np.ndarray = np.asarray(it.scores + low if add else low).astype(it.arguments.real)
        return it.of(np.where(it.allowed, it.scores, other), it.everything)

    return with_a_mask(both(weights_by(step), lse_by(step)))


def _finite(name: str, description: str, fill: float | None, *, add: bool = False) -> Mistake:
    return Mistake(
        name,
        description,
        "a finite number is used for −infinity, so a fully masked row attends to masked keys",
        "use −infinity, and set fully masked rows to 0",
        _filled(fill, add=add),
        law=5,
    )


FILLS = (
    Mistake(
        "mask-after-softmax-renormalized",
        "weights that are masked and normalized again",
        "the softmax is taken over all keys; if masked scores are much larger than the others, the rest is 0",
        "mask the scores before the softmax",
        _renormalized(False),
        law=10,
    ),
    Mistake(
        "mask-after-softmax-renormalized-or-0",
        "weights that are masked and normalized again, 0 where nothing is left",
        "the softmax is taken over all keys; if masked scores are much larger than the others, the rest is 0",
        "mask the scores before the softmax",
        _renormalized(True),
        law=10,
    ),
    _finite("mask-finite-fill", "masked scores of −1e9", -1e9),
    _finite("mask-finite-fill-1e4", "masked scores of −1e4", -1e4),
    _finite("mask-finite-fill-100", "masked scores of −100", -100.0),
    _finite("mask-finite-fill-10", "masked scores of −10", -10.0),
    _finite("mask-finite-fill-lowest", "masked scores of the lowest finite number", None),
    _finite("mask-finite-added", "−1e9 added to masked scores", -1e9, add=True),
    _finite("mask-finite-added-1e4", "−1e4 added to masked scores", -1e4, add=True),
)


def _empty(name: str, description: str, cause: str, row: Callable[[np.ndarray], np.ndarray]) -> Mistake:
    """The mistake of other weights in fully masked rows; row: those weights, from the numbers of the keys."""

    def step(it: Softmax) -> np.ndarray:
        return np.where(it.allowed.any(-1, keepdims=True), it.of(), row(np.arange(it.scores.shape[-1])))

    return Mistake(
        name,
        description,
        cause,
        "set the output of fully masked rows to 0",
        with_a_mask(weights_by(step)),
        law=5,
    )


def _empty_lse(name: str, value: float, shown: str, cause: str) -> Mistake:
    change = lse_by(lambda it: np.where(np.isneginf(it.of()), value, it.of()))
    return Mistake(
        name,
        f"an lse of {shown} in fully masked rows",
        cause,
        "return −infinity for fully masked rows: the logarithm of an empty sum",
        lambda arguments: change(arguments) if arguments.masks or not arguments.keys else None,
        law=5,
    )


def _added_mask(it: Softmax) -> np.ndarray:
    return it.of(it.scores + np.where(it.allowed, 0, -np.inf), it.allowed | np.isnan(it.scores))


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
        "masked-nan-leaks",
        "values that reach rows which do not attend to them",
        "the weights of masked keys are 0, but 0 · NaN and 0 · infinity are NaN",
        "in each row, replace the values of its masked keys by 0 before the product, or skip masked pairs",
        lambda arguments: replace(arguments, to_output=_plain_product),
        law=6,
    ),
    Mistake(
        "masked-score-nan-leaks",
        "keys that reach rows which do not attend to them",
        "−infinity is added to masked scores, but NaN − infinity is NaN",
        "use where(mask, scores, −infinity)",
        with_a_mask(weights_by(_added_mask)),
        law=6,
    ),
)
