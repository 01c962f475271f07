"""Known mistakes in the scores: the scale of q·k, softcap and bias."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...language.analysis import evaluate, substituted
from ...language.expr import Const, Expr, Op, Read, batch, head, walk
from ...language.expr import score as the_score
from ...language.functions import maximum, minimum, tanh
from ..arguments import Arguments
from ..mistake import (
    Change,
    Mistake,
    inputs_by,
    of_first,
    scores_changed,
    transposed,
    weights_by,
    with_a_mask,
    without_scores,
)

LOG2E = 1 / math.log(2)


def _usual(arguments: Arguments) -> float:
    return arguments.depth**-0.5


def _given(arguments: Arguments) -> bool:
    """Whether the call has another scale than the default."""
    return not math.isclose(arguments.scale, _usual(arguments))


def scaled(name: str, description: str, cause: str, scale: Callable[[Arguments], float], law: int = 1) -> Mistake:
    """The mistake of another scale."""

    def change(arguments: Arguments) -> Arguments | None:
        value = scale(arguments)
        return None if math.isclose(value, arguments.scale, rel_tol=1e-6) else replace(arguments, scale=value)

    return Mistake(
        name,
        description,
        cause,
        "multiply q·k by the scale of the call, 1/√D if it has none, once",
        change,
        law=law,
        checks=("scale",),
        numbers=lambda was, now: f"{now.scale:.6g} instead of {was.scale:.6g}",
    )


def _by_values(arguments: Arguments) -> Arguments | None:
    if _given(arguments):
        return None
    return inputs_by(lambda q, k, v: (q * math.sqrt(q.shape[-1] / max(v.shape[-1], 1)), k, v))(arguments)


SCALES = (
    scaled("scale-missing", "no scale", "the scale is missing", lambda a: 1.0),
    scaled(
        "scale-applied-twice",
        "the scale applied twice",
        "q is scaled before a call that scales again, or the scale is 1/D instead of 1/√D",
        lambda a: a.scale**2,
    ),
    scaled("scale-1/D", "scale 1/D", "the scale is 1/D instead of 1/√D", lambda a: 1 / a.depth),
    scaled("scale-inverted", "scale √D", "the scale is inverted", lambda a: math.sqrt(a.depth)),
    scaled(
        "scale-argument-ignored",
        "scale 1/√D",
        "the scale argument is ignored, and the default is used",
        _usual,
    ),
    scaled(
        "scale-argument-and-default",
        "the scale of the call times 1/√D",
        "q is scaled by 1/√D, and the scores by the scale argument as well",
        lambda a: a.scale if math.isclose(a.scale, _usual(a)) else a.scale * _usual(a),
    ),
    scaled(
        "scale-argument-divides",
        "scores divided by the scale of the call",
        "the scale argument divides the scores instead of multiplying them",
        lambda a: a.scale if math.isclose(a.scale, _usual(a)) or not a.scale else 1 / a.scale,
    ),
    scaled("scale-doubled", "twice the scale", "the scale is doubled", lambda a: 2 * a.scale),
    scaled("scale-halved", "half the scale", "the scale is halved", lambda a: a.scale / 2),
    scaled(
        "scale-by-model-width",
        "scale 1/√(H·D)",
        "the scale is computed from the width of the model, before it is split into heads",
        lambda a: a.scale if _given(a) else (a.heads * a.depth) ** -0.5,
    ),
    scaled(
        "scale-by-keys",
        "scale 1/√K",
        "the scale is computed from the number of keys, a wrong axis of k",
        lambda a: a.scale if _given(a) else max(a.keys, 1) ** -0.5,
    ),
    scaled(
        "scale-by-heads",
        "scale 1/√H",
        "the scale is computed from the number of heads, a wrong axis of q",
        lambda a: a.scale if _given(a) else a.heads**-0.5,
    ),
    Mistake(
        "scale-by-value-depth",
        "scale 1/√E",
        "the scale is computed from the depth of v",
        "multiply q·k by the scale of the call, 1/√D if it has none, once",
        _by_values,
    ),
    scaled(
        "scale-log2-twice",
        "a scale that contains log₂ e twice",
        "scores are multiplied by log₂ e for exp2, and the softmax does it again",
        lambda a: a.scale * LOG2E,
    ),
)


def has_softcap(score: Expr | None) -> bool:
    """Whether a score contains tanh, as a softcap does."""
    return score is not None and any(isinstance(node, Op) and node.name == "tanh" for node in walk(score))


def _cap(rule: Expr) -> float | None:
    """The limit of a softcap; None if it is not a single number."""
    if any(isinstance(node, Read) for node in walk(rule)):
        return None
    zero = np.zeros(())
    at = dict.fromkeys(("batch", "head", "query", "key"), zero) | {"score": np.asarray(np.inf)}
    cap = float(evaluate(rule, at))
    return cap if np.isfinite(cap) and cap > 0 else None


def _capped(new) -> Change:
    """Another expression in place of the softcap, from its limit and the arguments."""

    def other(arguments: Arguments, rule: Expr) -> Expr | None:
        cap = _cap(rule)
        return None if cap is None else new(cap, arguments)

    return scores_changed(other, "softcap")


def _before_scale(cap: float, arguments: Arguments) -> Expr | None:
    return arguments.scale * cap * tanh(the_score / (arguments.scale * cap)) if arguments.scale > 0 else None


def _after_mask(arguments: Arguments) -> Arguments | None:
    rule = arguments.scores.get("softcap")
    cap = None if rule is None else _cap(rule)
    if cap is None:
        return None
    return with_a_mask(weights_by(lambda it: it.of(np.where(it.allowed, it.scores, -cap), it.everything)))(arguments)


def _reordered(arguments: Arguments) -> Arguments | None:
    if not {"softcap", "bias"} <= set(arguments.scores):
        return None
    return replace(arguments, scores=dict(reversed(list(arguments.scores.items()))))


def _added(rule: Expr) -> Expr:
    """What a bias adds to the score."""
    return substituted(rule, {the_score: Const(0.0)})


def _biased(new) -> Change:
    return scores_changed(lambda arguments, rule: new(_added(rule), arguments), "bias")


def _as_mask(arguments: Arguments) -> Arguments | None:
    rule = arguments.scores.get("bias")
    if rule is None:
        return None
    left = {name: other for name, other in arguments.scores.items() if name != "bias"}
    return replace(arguments, scores=left, masks={**arguments.masks, "bias": _added(rule) != 0})


def _of_softcap(
    name: str, description: str, cause: str, change: Change, checks: tuple[str, ...] = ("softcap",)
) -> Mistake:
    fix = "replace each scaled score by cap · tanh(score / cap), before the bias and the mask"
    return Mistake(f"softcap-{name}", description, cause, fix, change, checks=checks)


def _of_bias(name: str, description: str, cause: str, change: Change, checks: tuple[str, ...] = ("bias",)) -> Mistake:
    fix = "add the bias of each head and batch entry to the scaled scores, once"
    return Mistake(f"bias-{name}", description, cause, fix, change, checks=checks)


SCORES = (
    Mistake(
        "softcap-ignored",
        "scores without the softcap",
        "the implementation does not support a softcap, or drops the argument",
        "use an implementation that supports it, or apply the softcap to the scores before the mask",
        without_scores("softcap"),
        checks=("softcap",),
    ),
    Mistake(
        "bias-ignored",
        "scores without the bias",
        "the implementation does not support a bias, or drops the argument",
        "use an implementation that supports it, or apply the bias to the scores before the mask",
        without_scores("bias"),
        checks=("bias",),
    ),
    _of_softcap("after-mask", "a softcap of masked scores too", "−infinity is capped to −cap", _after_mask, checks=()),
    _of_softcap(
        "before-scale", "a softcap of q·k, before the scale", "the scale is applied last", _capped(_before_scale)
    ),
    _of_softcap(
        "without-multiplying-back",
        "tanh(score / cap) as the score",
        "the result is not multiplied by the cap",
        _capped(lambda cap, arguments: tanh(the_score / cap)),
    ),
    _of_softcap(
        "without-dividing",
        "cap · tanh(score) as the score",
        "the score is not divided by the cap",
        _capped(lambda cap, arguments: cap * tanh(the_score)),
    ),
    _of_softcap(
        "clipped",
        "scores clipped at the cap",
        "clip is used in place of tanh",
        _capped(lambda cap, arguments: maximum(minimum(the_score, cap), -cap)),
    ),
    _of_softcap(
        "on-the-other-side-of-the-bias",
        "softcap and bias in the other order",
        "the bias is added before the softcap, or after it, unlike the declared order",
        _reordered,
        checks=(),
    ),
    _of_bias(
        "before-scale",
        "a bias that is scaled too",
        "the bias is added to q·k, before the scale",
        _biased(lambda bias, arguments: the_score + arguments.scale * bias),
    ),
    _of_bias("subtracted", "the bias subtracted", "a sign is wrong", _biased(lambda bias, arguments: the_score - bias)),
    _of_bias(
        "applied-twice",
        "the bias added twice",
        "the bias is in the mask and in the scores",
        _biased(lambda bias, arguments: the_score + 2.0 * bias),
    ),
    _of_bias(
        "halved",
        "half of the bias",
        "the bias is averaged with another array, or scaled",
        _biased(lambda bias, arguments: the_score + 0.5 * bias),
    ),
    _of_bias(
        "multiplied",
        "scores multiplied by the bias",
        "* is used in place of +",
        _biased(lambda bias, arguments: the_score * bias),
    ),
    _of_bias(
        "of-first-head",
        "the bias of the first head in every head",
        "the head axis of the bias is dropped",
        scores_changed(of_first(head), "bias"),
    ),
    _of_bias(
        "of-first-batch-entry",
        "the bias of the first batch entry in every entry",
        "the batch axis of the bias is dropped",
        scores_changed(of_first(batch), "bias"),
        checks=(),
    ),
    _of_bias(
        "transposed",
        "the transposed bias",
        "the axes of the bias are keys and queries instead of queries and keys",
        scores_changed(transposed, "bias"),
        checks=(),
    ),
    _of_bias(
        "as-a-mask",
        "a bias whose numbers other than 0 are read as true",
        "the bias is converted to a boolean mask",
        _as_mask,
        checks=(),
    ),
)
