"""Known mistakes in what masked scores become: finite numbers, or weights that are set to 0 later."""

from __future__ import annotations

import numpy as np

from ....language.analysis import in_range
from ..mistake import Mistake
from .changes import both, lse_by, weights_by


def _renormalized(guarded: bool):
    def step(usual, scores, allowed, sinks, arguments):
        kept = in_range(usual(scores, np.ones_like(allowed), sinks), arguments.real) * allowed
        total = kept.sum(-1, keepdims=True)
        return kept / (np.where(total == 0, 1, total) if guarded else total)

    return weights_by(step)


def _filled(fill, *, add: bool = False):
    """The mask as a finite number in place of masked scores, or added to them."""

    def low(arguments) -> float:
        return float(np.finfo(arguments.real).min) if fill is None else fill

    def scores_of(scores, allowed, arguments):
        return np.where(allowed, scores, (scores + low(arguments) if add else low(arguments))).astype(arguments.real)

    def weights(usual, scores, allowed, sinks, arguments):
        filled = np.where(allowed, scores, scores_of(scores, allowed, arguments))
        return usual(filled, np.ones_like(allowed), sinks)

    def lse(usual, scores, allowed, sinks, arguments):
        filled = np.where(allowed, scores, scores_of(scores, allowed, arguments))
        return usual(filled, np.ones_like(allowed), sinks)

    return both(weights_by(weights), lse_by(lse))


def _finite(name: str, description: str, fill: float | None, *, add: bool = False) -> Mistake:
    return Mistake(
        name=name,
        law=5,
        description=description,
        cause="a finite number is used for −infinity, so a fully masked row attends to masked keys",
        fix="use −infinity, and set fully masked rows to 0",
        change=_filled(fill, add=add),
    )


FILLS = (
    Mistake(
        name="mask-after-softmax-renormalized",
        law=10,
        description="weights that are masked and normalized again",
        cause="the softmax is taken over all keys; if masked scores are much larger than the others, the rest is 0",
        fix="mask the scores before the softmax",
        change=_renormalized(False),
    ),
    Mistake(
        name="mask-after-softmax-renormalized-or-0",
        law=10,
        description="weights that are masked and normalized again, 0 where nothing is left",
        cause="the softmax is taken over all keys; if masked scores are much larger than the others, the rest is 0",
        fix="mask the scores before the softmax",
        change=_renormalized(True),
    ),
    _finite("mask-finite-fill", "masked scores of −1e9", -1e9),
    _finite("mask-finite-fill-1e4", "masked scores of −1e4", -1e4),
    _finite("mask-finite-fill-100", "masked scores of −100", -100.0),
    _finite("mask-finite-fill-10", "masked scores of −10", -10.0),
    _finite("mask-finite-fill-lowest", "masked scores of the lowest finite number", None),
    _finite("mask-finite-added", "−1e9 added to masked scores", -1e9, add=True),
    _finite("mask-finite-added-1e4", "−1e4 added to masked scores", -1e4, add=True),
)
