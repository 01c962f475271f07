"""Known mistakes in boolean masks, and in how they are applied to the scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...language.analysis import evaluate, substituted
from ...language.expr import Const, Expr, batch, head, key, query
from ...language.masks import causal
from ..arguments import Arguments
from ..mistake import Mistake
from .changes import masks_changed, weights_by, without_masks


def _inverted(arguments: Arguments, mask: Expr) -> Expr:
    return ~mask


def _transposed(arguments: Arguments, mask: Expr) -> Expr | None:
    if arguments.queries != arguments.keys:
        return None
    return substituted(mask, {query: key + arguments.start, key: query - arguments.start})


def _first(variable: Expr):
    return lambda arguments, mask: substituted(mask, {variable: Const(0)})


def _first_row(arguments: Arguments, mask: Expr) -> Expr:
    return substituted(mask, {query: Const(arguments.start)})


def _moved(by: int):
    return lambda arguments, mask: substituted(mask, {key: key - by}) if arguments.keys > 1 else None


def _alone(arguments: Arguments) -> Arguments | None:
    if not {"mask", "rule"} & set(arguments.masks):
        return None
    return replace(arguments, masks={"causal": causal()})


def _ignored_when_causal(arguments: Arguments) -> Arguments | None:
    if not {"mask", "causal"} <= set(arguments.masks):
        return None
    return without_masks("mask")(arguments)


def _last_key_open(arguments: Arguments, mask: Expr) -> Expr:
    return mask | (key >= arguments.keys - 1)


def _causal_after(arguments: Arguments) -> Arguments | None:
    """The causal mask after the softmax, and the other masks before it."""
    rule = arguments.masks.get("causal")
    if rule is None:
        return None
    usual, sizes = arguments.to_weights, (arguments.queries, arguments.keys)
    rows, keys = arguments.start + np.arange(sizes[0])[:, None], np.arange(sizes[1])
    seen = np.broadcast_to(evaluate(rule, {"batch": 0, "head": 0, "query": rows, "key": keys}), sizes)
    return replace(
        arguments,
        masks={name: mask for name, mask in arguments.masks.items() if name != "causal"},
        to_weights=lambda scores, allowed, sinks: usual(scores, allowed, sinks) * seen,
    )


def _padding_only(usual, scores, allowed, sinks, arguments):
    return usual(scores, np.broadcast_to(allowed.any(-2, keepdims=True), allowed.shape), sinks)


def _added(usual, scores, allowed, sinks, arguments):
    return usual(scores + allowed, np.ones_like(allowed), sinks)


def _multiplied(usual, scores, allowed, sinks, arguments):
    return usual(scores * allowed, np.ones_like(allowed), sinks)


def _after(usual, scores, allowed, sinks, arguments):
    return usual(scores, np.ones_like(allowed), sinks) * allowed


MASKS = (
    Mistake(
        name="mask-ignored",
        law=2,
        checks=("mask",),
        description="no mask at all",
        cause="the mask is dropped, or is_causal is overridden",
        fix="pass the mask to the kernel",
        change=without_masks("mask", "rule"),
    ),
    Mistake(
        name="mask-ignored-when-causal",
        law=2,
        description="a mask that is ignored in causal calls",
        cause="is_causal overrides the mask that was passed",
        fix="combine the causal mask and the other mask with &",
        change=_ignored_when_causal,
    ),
    Mistake(
        name="causal-alone",
        law=2,
        checks=("mask",),
        description="a causal mask alone",
        cause="is_causal overrides the mask that was passed",
        fix="combine the causal mask and the other mask with &, and pass the result only",
        change=_alone,
    ),
    Mistake(
        name="mask-inverted",
        law=2,
        checks=("mask",),
        description="the inverted mask",
        cause="True means 'masked' to the caller and 'may attend' to the kernel, or vice versa",
        fix="invert it: ~mask",
        change=masks_changed(_inverted, "mask", "rule"),
    ),
    Mistake(
        name="mask-transposed",
        law=2,
        checks=("mask",),
        description="the transposed mask",
        cause="the axes of the mask are keys and queries instead of queries and keys",
        fix="index the mask by (query, key)",
        change=masks_changed(_transposed, "mask", "rule"),
    ),
    Mistake(
        name="mask-of-first-batch-entry",
        law=2,
        description="the mask of the first batch entry in every entry",
        cause="the batch axis of the mask is dropped (mask[0], or a stride of 0)",
        fix="read the mask of each batch entry",
        change=masks_changed(_first(batch), "mask"),
    ),
    Mistake(
        name="mask-of-first-head",
        law=2,
        checks=("mask",),
        description="the mask of the first head in every head",
        cause="the head axis of the mask is dropped (mask[:, 0], or a stride of 0)",
        fix="read the mask of each head",
        change=masks_changed(_first(head), "mask", "rule"),
    ),
    Mistake(
        name="mask-of-first-row",
        law=2,
        description="the mask of the first row in every row",
        cause="the row axis of the mask is dropped, as if it were a padding mask",
        fix="read the mask of each row",
        change=masks_changed(_first_row, "mask"),
    ),
    Mistake(
        name="mask-moved-right",
        law=2,
        description="a mask off by one: all moved one key to the right",
        cause="a bound is off by one: < instead of ≤, or a diagonal counted from 1",
        fix="compare the first rows with the mask, and move the bound",
        change=masks_changed(_moved(1), "mask"),
    ),
    Mistake(
        name="mask-moved-left",
        law=2,
        description="a mask off by one: all moved one key to the left",
        cause="a bound is off by one: < instead of ≤, or a diagonal counted from 1",
        fix="compare the first rows with the mask, and move the bound",
        change=masks_changed(_moved(-1), "mask"),
    ),
    Mistake(
        name="mask-last-key-open",
        law=2,
        description="a mask that never hides the last key",
        cause="the mask is one key too short, and what it lacks is taken as true",
        fix="make the mask as long as there are keys",
        change=masks_changed(_last_key_open, "mask"),
    ),
    Mistake(
        name="mask-of-padding-only",
        law=2,
        checks=("mask",),
        description="only those keys masked that are masked for every row",
        cause="the padding mask is applied, and nothing else",
        fix="combine the padding mask and the rest of the mask with &",
        change=weights_by(_padding_only),
    ),
    Mistake(
        name="mask-added-as-numbers",
        law=2,
        checks=("mask",),
        description="a mask added as numbers 0 and 1",
        cause="a boolean mask is added to the scores",
        fix="convert it to 0 and −infinity, or use where(mask, scores, −infinity)",
        change=weights_by(_added),
    ),
    Mistake(
        name="mask-multiplied",
        law=2,
        checks=("mask",),
        description="scores multiplied by the mask",
        cause="scores are multiplied by the mask before the softmax",
        fix="use where(mask, scores, −infinity)",
        change=weights_by(_multiplied),
    ),
    Mistake(
        name="mask-after-softmax",
        law=1,
        checks=("mask",),
        description="a mask that is applied after the softmax",
        cause="weights are set to 0 after they are normalized",
        fix="mask the scores before the softmax",
        change=weights_by(_after),
    ),
    Mistake(
        name="causal-after-softmax",
        law=3,
        description="a causal mask that is applied after the softmax",
        cause="weights of later keys are set to 0 after they are normalized",
        fix="mask the scores before the softmax",
        change=_causal_after,
        alone=True,
    ),
)
