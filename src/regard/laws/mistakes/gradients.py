"""Known mistakes in the gradients. The forward pass is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..arguments import Arguments
from ..mistake import Change, Mistake, only_if, with_a_mask, with_sinks, without_masks, without_scores


def _step(**steps: Callable) -> Change:
    return lambda arguments: replace(arguments, backward=replace(arguments.backward, **steps))


def _recomputed(change: Change) -> Change:
    def changed(arguments: Arguments) -> Arguments | None:
        if change(arguments) is None:
            return None
        return replace(arguments, recomputed=lambda given: change(given) or given)

    return changed


def _with_lse(first: Callable) -> Callable:
    """A derivative of the softmax without the part of lse, which is added."""
    return lambda weights, dweights, delta, dlse: first(weights, dweights, delta) + weights * dlse[..., None]


def _of_first_head(gradient, heads, given):
    found = np.zeros((gradient.shape[0], given, *gradient.shape[2:]))
    for head in range(given):
        users = np.flatnonzero(heads == head)
        if len(users):
            found[:, head] = gradient[:, users[0]]
    return found


def _mean_of_heads(gradient, heads, given):
    found = np.zeros((gradient.shape[0], given, *gradient.shape[2:]))
    for head in set(heads.tolist()):
        found[:, head] = gradient[:, heads == head].mean(1)
    return found


def _shared(change: Change) -> Change:
    return only_if(lambda arguments: int(arguments.key_heads.max()) + 1 < arguments.heads, change)


def _with(name: str, change: Change) -> Change:
    return only_if(lambda arguments: name in arguments.scores, change)


def _first_of_broadcast(gradient, shape):
    return gradient[tuple(slice(0, 1) if size == 1 else slice(None) for size in shape)]


def _times(factor: float) -> Callable:
    return lambda gradients: {role: factor * part for role, part in gradients.items()}


def _exchanged(first: str, second: str) -> Callable:
    def exchanged(gradients):
        if gradients[first].shape != gradients[second].shape:
            return gradients
        return {**gradients, first: gradients[second], second: gradients[first]}

    return exchanged


def _missing(*roles: str) -> Callable:
    return lambda gradients: gradients | {role: 0 * gradients[role] for role in roles if role in gradients}


def _without_scale(role: str) -> Change:
    def change(arguments: Arguments) -> Arguments | None:
        if arguments.scale in (0, 1):
            return None
        return _step(finish=lambda gradients: gradients | {role: gradients[role] / arguments.scale})(arguments)

    return change


def _mean_of_values(arguments: Arguments) -> Arguments | None:
    shared = arguments.heads // max(int(arguments.value_heads.max()) + 1, 1)
    return _step(finish=lambda gradients: gradients | {"v": gradients["v"] / shared})(arguments)


def _nan_in_empty_rows(gradient, allowed):
    return np.where(allowed, gradient, np.where(allowed.any(-1, keepdims=True), 0, np.nan))


def _entry(name: str, description: str, cause: str, fix: str, change: Change, *, law: int = 1) -> Mistake:
    return Mistake(f"gradient-{name}", f"right results, and {description}", cause, fix, change, law=law)


RULE = "dS = P ∘ (dP − δ + dlse), with δ = Σ dout · out"

GRADIENTS = (
    _entry(
        "scale-missing",
        "gradients of q and k without the scale",
        "the gradient of scale · q·k is taken for that of q·k",
        "multiply dS by the scale",
        _step(times_scale=lambda gradient, scale: gradient),
    ),
    _entry(
        "scale-applied-twice",
        "gradients of q and k with the scale twice",
        "dS is scaled, and so is q or k",
        "multiply dS by the scale, once",
        _step(times_scale=lambda gradient, scale: scale * scale * gradient),
    ),
    _entry(
        "softmax-without-delta",
        "a softmax whose gradient lacks δ",
        "P ∘ dP is taken for the gradient of the softmax",
        RULE,
        _step(through_softmax=_with_lse(lambda p, dp, delta: p * dp)),
        law=7,
    ),
    _entry(
        "softmax-without-diagonal",
        "a softmax whose gradient lacks its diagonal",
        "the derivative of a weight by its own score is missing",
        RULE,
        _step(through_softmax=_with_lse(lambda p, dp, delta: -p * delta[..., None])),
        law=7,
    ),
    _entry(
        "softmax-diagonal-alone",
        "a softmax whose gradient is P (1 − P) dP",
        "the derivative of a weight by the other scores is missing",
        RULE,
        _step(through_softmax=_with_lse(lambda p, dp, delta: p * (1 - p) * dp)),
        law=7,
    ),
    _entry(
        "softmax-without-weights",
        "a softmax whose gradient is dP − δ",
        "the factor P is missing",
        RULE,
        _step(through_softmax=_with_lse(lambda p, dp, delta: dp - delta[..., None])),
        law=7,
    ),
    _entry(
        "dlse-ignored",
        "gradients that ignore that of the lse",
        "only the gradient of the output is passed on",
        RULE,
        _step(
            through_softmax=lambda p, dp, delta, dlse: p * (dp - delta[..., None]),
            of_sinks=lambda p, delta, dlse: -(p * delta).sum((0, 2)),
        ),
        law=7,
    ),
    _entry(
        "dlse-subtracted",
        "the gradient of the lse subtracted",
        "a sign is wrong",
        RULE,
        _step(
            through_softmax=lambda p, dp, delta, dlse: p * (dp - (delta + dlse)[..., None]),
            of_sinks=lambda p, delta, dlse: -(p * (delta + dlse)).sum((0, 2)),
        ),
        law=7,
    ),
    _entry(
        "mask-ignored",
        "gradients that flow through masked pairs",
        "the backward pass computes the weights again without the mask",
        "apply the mask in the backward pass too",
        _recomputed(with_a_mask(lambda arguments: replace(arguments, masks={}))),
        law=6,
    ),
    _entry(
        "causal-ignored",
        "gradients that ignore the causal mask",
        "the backward pass computes the weights again without the causal mask",
        "apply the mask in the backward pass too",
        _recomputed(without_masks("causal")),
        law=6,
    ),
    _entry(
        "bias-ignored",
        "gradients of scores without the bias",
        "the backward pass computes the weights again without the bias",
        "add the bias in the backward pass too",
        _recomputed(without_scores("bias")),
    ),
    _entry(
        "softcap-missing",
        "a softcap whose derivative is 1",
        "the factor 1 − tanh² of the softcap is missing",
        "multiply the gradient of the capped score by 1 − tanh²(score / cap)",
        _with("softcap", _step(through_score=lambda gradient, partial: gradient)),
    ),
    _entry(
        "masked-nan-leaks",
        "gradients into which NaN of masked pairs leak",
        "masked gradients are multiplied by 0, but 0 · NaN is NaN",
        "set the gradient of masked pairs to 0 with where, and skip them in the products",
        _step(only_allowed=lambda gradient, allowed: gradient),
        law=6,
    ),
    _entry(
        "empty-row-nan",
        "gradients of NaN from fully masked rows",
        "0/0 in a fully masked row is hidden in the output, but not in the gradients",
        "set the gradients of fully masked rows to 0 before the softmax, not after it",
        with_a_mask(_step(only_allowed=_nan_in_empty_rows)),
        law=5,
    ),
    _entry(
        "of-first-shared-head",
        "gradients of k and v from the first query head of each group alone",
        "the gradients of the query heads that share a key head are not summed",
        "sum them over the group",
        _shared(_step(summed_over_heads=_of_first_head)),
    ),
    _entry(
        "mean-over-shared-heads",
        "gradients of k and v that are means over each group",
        "the gradients of the query heads that share a key head are averaged",
        "sum them over the group",
        _shared(_step(summed_over_heads=_mean_of_heads)),
    ),
    _entry(
        "values-by-transposed-weights",
        "a gradient of v from the transposed weights",
        "dV = P dO is computed in place of Pᵀ dO",
        "dV = Pᵀ dO",
        only_if(lambda a: a.queries == a.keys, _step(as_weights=lambda p: p.swapaxes(-1, -2))),
    ),
    _entry(
        "keys-and-values-exchanged",
        "the gradients of k and v exchanged",
        "the gradients are returned in another order than the arguments",
        "return them in the order of the arguments",
        _step(finish=_exchanged("k", "v")),
    ),
    _entry(
        "queries-and-keys-exchanged",
        "the gradients of q and k exchanged",
        "the gradients are returned in another order than the arguments",
        "return them in the order of the arguments",
        _step(finish=_exchanged("q", "k")),
    ),
    *(
        _entry(
            f"{name}-missing",
            f"a gradient of {' and '.join(roles)} of 0",
            cause,
            "compute from the tensors themselves, and return all gradients",
            _step(finish=_missing(*roles)),
        )
        for name, roles, cause in (
            ("queries", ("q",), "q is detached, or its gradient is not returned"),
            ("keys", ("k",), "k is detached, or its gradient is not returned"),
            ("values", ("v",), "v is detached, or its gradient is not returned"),
            ("scores", ("q", "k"), "the scores or weights are detached, or computed without gradients"),
        )
    ),
    *(
        _entry(
            f"{name}-without-scale",
            f"a gradient of {role} without the scale",
            f"the scale is applied to the gradient of {other} alone",
            "multiply dS by the scale, before both products",
            _without_scale(role),
        )
        for name, role, other in (("queries", "q", "k"), ("keys", "k", "q"))
    ),
    _entry(
        "values-mean-over-shared-heads",
        "gradients of v that are means over each group",
        "the gradient of shared values is averaged instead of summed",
        "sum over the query heads that share a value head",
        _shared(_mean_of_values),
    ),
    _entry(
        "doubled",
        "gradients that are twice as large",
        "the gradient is accumulated twice",
        "set the buffers to 0 before they are added to",
        _step(finish=_times(2.0)),
        law=11,
    ),
    _entry(
        "negative",
        "gradients of the wrong sign",
        "a sign is wrong",
        RULE,
        _step(finish=_times(-1.0)),
    ),
    _entry(
        "bias-of-first-entry",
        "a gradient of the bias from the first entry of each broadcast axis",
        "the gradient of a bias that was broadcast is not summed",
        "sum it over the axes that were broadcast",
        _with("bias", _step(summed_over_shape=_first_of_broadcast)),
    ),
    _entry(
        "bias-missing",
        "a gradient of the bias of 0",
        "the bias is taken for a constant",
        "the gradient of the bias is dS, summed over the axes that were broadcast",
        _with("bias", _step(finish=lambda g: {r: np.zeros_like(p) if r == "bias" else p for r, p in g.items()})),
    ),
    _entry(
        "sinks-missing",
        "a gradient of the sinks of 0",
        "the sinks are taken for constants",
        "the gradient of a sink is Σ P_sink (dlse − δ)",
        with_sinks(_step(of_sinks=lambda shares, delta, dlse: np.zeros(shares.shape[1]))),
        law=8,
    ),
    _entry(
        "sinks-negative",
        "a gradient of the sinks of the wrong sign",
        "a sign is wrong",
        "the gradient of a sink is Σ P_sink (dlse − δ)",
        with_sinks(_step(of_sinks=lambda shares, delta, dlse: (shares * (delta - dlse)).sum((0, 2)))),
        law=8,
    ),
)
