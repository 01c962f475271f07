"""Known mistakes in the softmax: its weights; its denominator, whose logarithm is the lse; and the sinks that are added
to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ...language.analysis import in_range
from ..arguments import Arguments, highest, lse
from ..mistake import BLOCKS, Change, Mistake, Softmax, both, lse_by, only_if, weights_by, with_a_mask, with_sinks


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


def _streaming(size: int, output: bool, total: bool) -> Change:
    """Over blocks of so many keys, as flash attention: whether the output and the sum of the blocks before are
    multiplied by exp(old maximum − new maximum).
    """

    def shifted(it: Softmax) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        keys, last = it.kept.shape[-1], highest(it.kept, it.sinks)
        ends = np.minimum(np.arange(keys) // size * size + size, keys) - 1
        then = np.maximum.accumulate(it.kept, -1)[..., ends]
        then, last = (np.where(np.isneginf(each), 0, each) for each in (then, last))
        sums = np.exp(it.kept - (last if total else then)).sum(-1, keepdims=True)
        if it.sinks is not None:
            sums = sums + np.exp(it.sinks[:, None] - last).sum(-1, keepdims=True)
        return np.exp(it.kept - (last if output else then)), sums, last

    def weights(it: Softmax) -> np.ndarray:
        powers, sums, _ = shifted(it)
        return powers / np.where(sums == 0, 1, sums)

    def of_sums(it: Softmax) -> np.ndarray:
        _, sums, last = shifted(it)
        return (np.log(sums) + last)[..., 0]

    return only_if(lambda arguments: arguments.keys > size, both(weights_by(weights), lse_by(of_sums)))


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
    *(
        Mistake(
            f"{name}-{size}",
            f"a softmax over blocks of {size} keys that does not rescale {what}",
            f"what earlier blocks added to {what} is not rescaled when the maximum grows",
            "multiply the sum and the output so far by exp(old maximum − new maximum)",
            _streaming(size, output, total),
        )
        for size in BLOCKS
        for name, what, output, total in (
            ("running-output-not-rescaled", "the output", False, True),
            ("running-sum-not-rescaled", "the sum", True, False),
            ("running-softmax-not-rescaled", "the sum and the output", False, False),
        )
    ),
    _softmax(
        "scale-after-softmax",
        "weights that are scaled instead of scores",
        "the scale is applied after the softmax",
        "multiply the scores by the scale, before the softmax",
        weights_by(_times_scale),
    ),
)


def _without_maximum_added_back(it: Softmax) -> np.ndarray:
    found = it.of()
    return np.where(np.isneginf(found), found, found - _maximum(it))


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
        lse_by(_without_maximum_added_back),
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


def _of_every_block(size: int) -> Callable[[np.ndarray, Arguments], np.ndarray]:
    return lambda sinks, arguments: sinks + np.log(max(-(-arguments.keys // size), 1))


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
    weights, of_sum = arguments.to_weights, arguments.to_lse
    return replace(
        arguments,
        to_weights=lambda scores, allowed, sinks: weights(scores + added, allowed, sinks),
        to_lse=lambda scores, allowed, sinks: of_sum(scores + added, allowed, sinks),
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
    *(
        _sinks(
            f"sinks-in-every-block-{size}",
            f"sinks added for each block of {size} keys",
            "the sinks are added to the sum in every step of a loop over keys",
            "add the sinks once, before or after the loop",
            _changed(_of_every_block(size)),
        )
        for size in BLOCKS
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
