"""Known mistakes in boolean masks, and in how they are applied to the scores."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ...language.analysis import evaluate, substituted
from ...language.expr import Const, Expr, batch, head, key, query
from ...language.masks import causal
from ..arguments import Arguments
from ..mistake import (
    Mistake,
    Softmax,
    masks_changed,
    of_first,
    transposed,
    weights_by,
    with_a_mask,
    with_both_masks,
    without_masks,
)


def _first_row(arguments: Arguments, mask: Expr) -> Expr:
    return substituted(mask, {query: Const(arguments.start)})


def _moved(by: int):
    return lambda arguments, mask: substituted(mask, {key: key - by}) if arguments.keys > 1 else None


def _alone(arguments: Arguments) -> Arguments | None:
    if not {"mask", "rule"} & set(arguments.masks):
        return None
    return replace(arguments, masks={"causal": causal()})


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


def _padding_only(it: Softmax) -> np.ndarray:
    return it.of(allowed=np.broadcast_to(it.allowed.any(-2, keepdims=True), it.allowed.shape))


_mask = partial(Mistake, law=2)
_shown = partial(_mask, checks=("mask",))  # in what a run records

MASKS = (
    _shown(
        "mask-ignored",
        "no mask at all",
        "the mask is dropped, or is_causal is overridden",
        "pass the mask to the kernel",
        without_masks("mask", "rule"),
    ),
    _mask(
        "mask-ignored-when-causal",
        "a mask that is ignored in causal calls",
        "is_causal overrides the mask that was passed",
        "combine the causal mask and the other mask with &",
        with_both_masks(without_masks("mask")),
    ),
    _shown(
        "causal-alone",
        "a causal mask alone",
        "is_causal overrides the mask that was passed",
        "combine the causal mask and the other mask with &, and pass the result only",
        _alone,
    ),
    _shown(
        "mask-inverted",
        "the inverted mask",
        "True means 'masked' to the caller and 'may attend' to the kernel, or vice versa",
        "invert it: ~mask",
        masks_changed(lambda arguments, mask: ~mask, "mask", "rule"),
    ),
    _shown(
        "mask-transposed",
        "the transposed mask",
        "the axes of the mask are keys and queries instead of queries and keys",
        "index the mask by (query, key)",
        masks_changed(transposed, "mask", "rule"),
    ),
    _mask(
        "mask-of-first-batch-entry",
        "the mask of the first batch entry in every entry",
        "the batch axis of the mask is dropped (mask[0], or a stride of 0)",
        "read the mask of each batch entry",
        masks_changed(of_first(batch), "mask"),
    ),
    _shown(
        "mask-of-first-head",
        "the mask of the first head in every head",
        "the head axis of the mask is dropped (mask[:, 0], or a stride of 0)",
        "read the mask of each head",
        masks_changed(of_first(head), "mask", "rule"),
    ),
    _mask(
        "mask-of-first-row",
        "the mask of the first row in every row",
        "the row axis of the mask is dropped, as if it were a padding mask",
        "read the mask of each row",
        masks_changed(_first_row, "mask"),
    ),
    _mask(
        "mask-moved-right",
        "a mask off by one: all moved one key to the right",
        "a bound is off by one: < instead of ≤, or a diagonal counted from 1",
        "compare the first rows with the mask, and move the bound",
        masks_changed(_moved(1), "mask"),
    ),
    _mask(
        "mask-moved-left",
        "a mask off by one: all moved one key to the left",
        "a bound is off by one: < instead of ≤, or a diagonal counted from 1",
        "compare the first rows with the mask, and move the bound",
        masks_changed(_moved(-1), "mask"),
    ),
    _mask(
        "mask-last-key-open",
        "a mask that never hides the last key",
        "the mask is one key too short, and what it lacks is taken as true",
        "make the mask as long as there are keys",
        masks_changed(_last_key_open, "mask"),
    ),
    _shown(
        "mask-of-padding-only",
        "only those keys masked that are masked for every row",
        "the padding mask is applied, and nothing else",
        "combine the padding mask and the rest of the mask with &",
        with_a_mask(weights_by(_padding_only)),
    ),
    _shown(
        "mask-added-as-numbers",
        "a mask added as numbers 0 and 1",
        "a boolean mask is added to the scores",
        "convert it to 0 and −infinity, or use where(mask, scores, −infinity)",
        with_a_mask(weights_by(lambda it: it.of(it.scores + it.allowed, it.everything))),
    ),
    _shown(
        "mask-multiplied",
        "scores multiplied by the mask",
        "scores are multiplied by the mask before the softmax",
        "use where(mask, scores, −infinity)",
        with_a_mask(weights_by(lambda it: it.of(it.scores * it.allowed, it.everything))),
    ),
    Mistake(
        "mask-after-softmax",
        "a mask that is applied after the softmax",
        "weights are set to 0 after they are normalized",
        "mask the scores before the softmax",
        with_a_mask(weights_by(lambda it: it.of(allowed=it.everything) * it.allowed)),
        checks=("mask",),
    ),
    Mistake(
        "causal-after-softmax",
        "a causal mask that is applied after the softmax",
        "weights of later keys are set to 0 after they are normalized",
        "mask the scores before the softmax",
        _causal_after,
        law=3,
        alone=True,
    ),
)
