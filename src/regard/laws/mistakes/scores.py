"""Known mistakes in softcap and bias, the changes of the score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...language.analysis import evaluate, substituted
from ...language.expr import Const, Expr, Op, Read, batch, head, key, query, walk
from ...language.expr import score as the_score
from ...language.functions import maximum, minimum, tanh
from ..arguments import Arguments
from ..mistake import Mistake
from .changes import Change, scores_changed, weights_by


def has_softcap(score: Expr | None) -> bool:
    """Whether a score contains tanh, as a softcap does."""
    return score is not None and any(isinstance(node, Op) and node.name == "tanh" for node in walk(score))


def _without(name: str) -> Change:
    def change(arguments: Arguments) -> Arguments | None:
        if name not in arguments.scores:
            return None
        return replace(arguments, scores={other: rule for other, rule in arguments.scores.items() if other != name})

    return change


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

    def step(usual, scores, allowed, sinks, arguments):
        return usual(np.where(allowed, scores, -cap), np.ones_like(allowed), sinks)

    return weights_by(step)(arguments)


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


def _first(variable: Expr) -> Change:
    return scores_changed(lambda arguments, rule: substituted(rule, {variable: Const(0)}), "bias")


def _transposed(arguments: Arguments, rule: Expr) -> Expr | None:
    if arguments.queries != arguments.keys:
        return None
    return substituted(rule, {query: key + arguments.start, key: query - arguments.start})


def _entry(
    check: str, name: str, description: str, cause: str, fix: str, change: Change, *, seen: bool = True
) -> Mistake:
    checks = (check,) if seen else ()
    return Mistake(name=name, law=1, checks=checks, description=description, cause=cause, fix=fix, change=change)


def _of_softcap(name: str, description: str, cause: str, change: Change, *, seen: bool = True) -> Mistake:
    fix = "replace each scaled score by cap · tanh(score / cap), before the bias and the mask"
    return _entry("softcap", f"softcap-{name}", description, cause, fix, change, seen=seen)


def _of_bias(name: str, description: str, cause: str, change: Change, *, seen: bool = True) -> Mistake:
    fix = "add the bias of each head and batch entry to the scaled scores, once"
    return _entry("bias", f"bias-{name}", description, cause, fix, change, seen=seen)


SCORES = (
    _entry(
        "softcap",
        "softcap-ignored",
        "scores without the softcap",
        "the implementation does not support a softcap, or drops the argument",
        "use an implementation that supports it, or apply the softcap to the scores before the mask",
        _without("softcap"),
    ),
    _entry(
        "bias",
        "bias-ignored",
        "scores without the bias",
        "the implementation does not support a bias, or drops the argument",
        "use an implementation that supports it, or apply the bias to the scores before the mask",
        _without("bias"),
    ),
    _of_softcap("after-mask", "a softcap of masked scores too", "−infinity is capped to −cap", _after_mask, seen=False),
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
        seen=False,
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
        _first(head),
    ),
    _of_bias(
        "of-first-batch-entry",
        "the bias of the first batch entry in every entry",
        "the batch axis of the bias is dropped",
        _first(batch),
        seen=False,
    ),
    _of_bias(
        "transposed",
        "the transposed bias",
        "the axes of the bias are keys and queries instead of queries and keys",
        scores_changed(_transposed, "bias"),
        seen=False,
    ),
    _of_bias(
        "as-a-mask",
        "a bias whose numbers other than 0 are read as true",
        "the bias is converted to a boolean mask",
        _as_mask,
        seen=False,
    ),
)
