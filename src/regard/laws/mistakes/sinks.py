"""Known mistakes in sinks, the logits in the denominator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..arguments import Arguments
from ..mistake import Mistake
from .changes import Change, both, lse_by, weights_by


def _changed(new: Callable[[np.ndarray, Arguments], np.ndarray | None]) -> Change:
    return lambda arguments: (
        None if arguments.sinks is None else replace(arguments, sinks=new(arguments.sinks, arguments))
    )


def _first(sinks: np.ndarray, arguments: Arguments) -> np.ndarray:
    return np.broadcast_to(sinks[:1], sinks.shape)


def _without_exp(sinks: np.ndarray, arguments: Arguments) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(sinks, 0))


def _as_first_value(usual, scores, allowed, sinks, arguments):
    weights = usual(scores, allowed, sinks)
    rest = 1 - weights.sum(-1, keepdims=True)
    return np.concatenate([weights[..., :1] + rest, weights[..., 1:]], -1)


def _not_shifted(sum_of: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Weights, or the lse, whose denominator has exp(sink) although its scores are shifted by their maximum."""

    def step(usual, scores, allowed, sinks, arguments):
        kept = np.where(allowed, scores, -np.inf)
        top = np.maximum(kept.max(-1, initial=-np.inf, keepdims=True), sinks.max(-1)[:, None, None])
        powers = np.exp(kept - top)
        return sum_of(powers, powers.sum(-1, keepdims=True) + np.exp(sinks[:, None]).sum(-1, keepdims=True), top)

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


def _only_in_calls_with_sinks(change: Change) -> Change:
    return lambda arguments: None if arguments.sinks is None else change(arguments)


def _entry(name: str, description: str, cause: str, fix: str, change: Change, *, seen: bool = True) -> Mistake:
    checks = ("sinks",) if seen else ()
    return Mistake(name=name, law=8, checks=checks, description=description, cause=cause, fix=fix, change=change)


ADD = "add the sinks to the denominator: out · exp(lse − logaddexp(lse, sink))"

SINKS = (
    _entry(
        "sinks-ignored",
        "a softmax without its sinks",
        "the implementation drops the sinks",
        ADD,
        _changed(lambda sinks, arguments: None),
    ),
    _entry(
        "sinks-of-first-head",
        "the sinks of the first head in every head",
        "the sinks are read at index 0",
        ADD,
        _changed(_first),
    ),
    _entry(
        "sinks-of-next-head",
        "the sinks of the next head",
        "heads are not counted from 0",
        ADD,
        _changed(lambda sinks, arguments: np.roll(sinks, -1, 0)),
    ),
    _entry(
        "sinks-scaled",
        "sinks times the scale",
        "sinks are added before the scores are scaled",
        "add them to the scaled scores",
        _changed(lambda sinks, arguments: sinks * arguments.scale),
    ),
    _entry(
        "sinks-without-exp",
        "sinks added to the denominator as they are",
        "exp(sink) is replaced by sink",
        ADD,
        _changed(_without_exp),
    ),
    _entry(
        "sinks-negative",
        "sinks of the wrong sign",
        "exp(−sink) is used",
        ADD,
        _changed(lambda sinks, arguments: -sinks),
    ),
    _entry(
        "sinks-not-shifted",
        "exp(sink) added to a sum of exp(score − maximum)",
        "the maximum is subtracted from the scores, and not from the sinks",
        "add exp(sink − maximum)",
        _only_in_calls_with_sinks(
            both(
                weights_by(_not_shifted(lambda powers, total, top: powers / total), masked=False),
                lse_by(_not_shifted(lambda powers, total, top: (np.log(total) + top)[..., 0])),
            )
        ),
    ),
    _entry(
        "sinks-added-to-scores",
        "sinks added to all scores too",
        "the sink is added to the scores before it is joined to them",
        ADD,
        _added_to_scores,
    ),
    _entry(
        "sinks-as-values",
        "sinks whose weight goes to the first value",
        "the first key is taken for the sink",
        "a sink has a weight, but no value",
        _only_in_calls_with_sinks(weights_by(_as_first_value, masked=False)),
        seen=False,
    ),
)
