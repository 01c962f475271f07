"""Known mistakes in masks: how boolean masks are applied to the scores, and which positions a row attends to in causal
masks, windows and lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ...language.analysis import evaluate, substituted
from ...language.expr import Const, Expr, batch, head, key, query
from ...language.masks import causal
from ..arguments import Arguments
from ..mistake import (
    BLOCKS,
    Change,
    Mistake,
    Softmax,
    masks_changed,
    of_first,
    only_if,
    restricted_to,
    transposed,
    weights_by,
    with_a_mask,
    with_both_masks,
    without_masks,
)

BOUND = "a bound is off by one: < instead of ≤, or a diagonal counted from 1"
MOVE = "compare the first rows with the mask, and move the bound"


def _first_row(arguments: Arguments, mask: Expr) -> Expr:
    return substituted(mask, {query: Const(arguments.start)})


def _shifted(by: int):
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
        BOUND,
        MOVE,
        masks_changed(_shifted(1), "mask"),
    ),
    _mask(
        "mask-moved-left",
        "a mask off by one: all moved one key to the left",
        BOUND,
        MOVE,
        masks_changed(_shifted(-1), "mask"),
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


def _before(arguments: Arguments, mask: Expr) -> Expr:
    """The mask, moved one key to the right. The first key is read from the next row."""
    return ((key > 0) & substituted(mask, {key: key - 1})) | ((key <= 0) & substituted(mask, {query: query + 1}))


def _after(arguments: Arguments, mask: Expr) -> Expr:
    """The mask, moved one key to the left. The last key is read from the row before."""
    last = arguments.keys - 1
    return ((key < last) & substituted(mask, {key: key + 1})) | ((key >= last) & substituted(mask, {query: query - 1}))


def _aligned(start, *, alone: bool = False) -> Change:
    """Rows that begin at another position, for masks that depend on positions, or for a causal mask in their place."""

    def change(arguments: Arguments) -> Arguments | None:
        shift = start(arguments) - arguments.start
        here = {"causal": causal()} if alone and arguments.masks else arguments.masks
        moved = {
            name: substituted(mask, {query: query + shift}) if name in ("causal", "window", "rule") else mask
            for name, mask in here.items()
        }
        return (
            None
            if not shift or all(moved[name] is arguments.masks.get(name) for name in moved)
            else replace(arguments, masks=moved)
        )

    return change


def _by_default(arguments: Arguments) -> Arguments | None:
    if {"causal", "rule"} & set(arguments.masks):
        return None
    return replace(arguments, masks={**arguments.masks, "causal": causal()})


def _both_sides(arguments: Arguments, mask: Expr) -> Expr:
    return mask | substituted(mask, {key: 2 * query - key})


def _by_blocks(size: int) -> Callable[[Arguments, Expr], Expr]:
    """A causal mask that compares blocks of this size, not positions."""
    return lambda arguments, mask: query // size >= key // size


def _in_blocks(size: int) -> Callable[[Arguments, Expr], Expr]:
    """A causal mask that takes the position of a key in its block for its position."""
    return lambda arguments, mask: substituted(mask, {key: key % size})


def _reversed_rows(arguments: Arguments, mask: Expr) -> Expr:
    return substituted(mask, {query: 2 * arguments.start + arguments.queries - 1 - query})


def _from_the_end(arguments: Arguments, mask: Expr) -> Expr:
    return substituted(mask, {key: arguments.keys - 1 - key})


def _in_chunks(arguments: Arguments, mask: Expr) -> Expr | None:
    """Chunks as long as a row sees back, its own key included, in place of the window; None without a limit."""
    row, keys = arguments.keys + 1, np.arange(arguments.keys + 3)
    seen = evaluate(mask, {"batch": 0, "head": 0, "query": row, "key": keys})
    size = int(seen[: row + 1].sum())
    if not 0 < size <= row:
        return None
    chunk = query // size == key // size
    return chunk if seen[row + 1] else chunk & (key <= query)


def _without_a_window_of_0(arguments: Arguments) -> Arguments | None:
    """Without a window in which a row sees nothing before its own key."""
    if "window" not in arguments.masks:
        return None
    row, keys = arguments.keys + 1, np.arange(arguments.keys + 1)
    seen = evaluate(arguments.masks["window"], {"batch": 0, "head": 0, "query": row, "key": keys})
    return None if np.any(seen) else without_masks("window")(arguments)


def _dropped(name: str, what: str, rule, cause: str) -> Mistake:
    return Mistake(
        name,
        what,
        cause,
        "let the sum run over all keys",
        restricted_to(lambda arguments: rule(arguments) if arguments.keys else None),
    )


def _moved(name: str, words: str, new, *masks: str, law: int = 4) -> Mistake:
    return Mistake(
        name,
        f"a mask off by one: {words}",
        BOUND,
        MOVE,
        masks_changed(new, *masks),
        law=law,
        checks=("mask",) if "rule" in masks else (),
    )


def _wrong_end(name: str, what: str, at: str, start, alone: bool) -> Mistake:
    return Mistake(
        name,
        f"{what} aligned {at}",
        "a mask of fewer rows than keys can be aligned top left or bottom right, and the implementation uses the "
        "wrong one",
        "shift the mask by the position of row 0",
        _aligned(start, alone=alone),
        law=3,
        checks=("alignment",),
        numbers=lambda was, now: f"{was.queries} rows over {was.keys} keys, and row 0 has position {was.start}",
    )


TOP, BOTTOM = "top left: row 0 at key 0", "bottom right: the last row at the last key"

_causal = partial(Mistake, law=3)
_window = partial(Mistake, law=4)
_padding = partial(Mistake, law=2)

POSITIONS = (
    _causal(
        "causal-ignored",
        "a mask that is not causal",
        "is_causal is not passed to the kernel",
        "combine the causal mask and the other mask with &",
        lambda arguments: (
            masks_changed(lambda _, mask: mask | ~causal(), "rule")
            if "rule" in arguments.masks
            else without_masks("causal")
        )(arguments),
        checks=("mask",),
    ),
    _causal(
        "causal-ignored-when-mask",
        "a causal mask that is ignored if there is another mask",
        "the mask that was passed replaces the causal mask",
        "combine the causal mask and the other mask with &",
        with_both_masks(without_masks("causal")),
    ),
    Mistake(
        "causal-by-default",
        "a causal mask, although the call has no mask",
        "the implementation is causal by default",
        "pass is_causal=False",
        _by_default,
        law=2,
        checks=("mask",),
    ),
    _wrong_end("alignment-top-left", "the mask", TOP, lambda a: 0, False),
    _wrong_end("alignment-top-left-alone", "a causal mask", TOP, lambda a: 0, True),
    _wrong_end("alignment-bottom-right", "the mask", BOTTOM, lambda a: a.keys - a.queries, False),
    _wrong_end("alignment-bottom-right-alone", "a causal mask", BOTTOM, lambda a: a.keys - a.queries, True),
    _moved("causal-off-by-one", "one key more on the right", lambda a, m: m | _before(a, m), "causal", "rule", law=3),
    _causal(
        "causal-hides-own-key",
        "a causal mask that hides each row's own key",
        BOUND,
        MOVE,
        masks_changed(lambda arguments, mask: mask & (key < query), "causal", "rule"),
        checks=("mask",),
    ),
    _causal(
        "causal-transposed",
        "a causal mask in which a row attends to later keys instead of earlier ones",
        "triu is used instead of tril, or what triu marks is kept instead of masked",
        "let row i attend to key j if j ≤ i",
        masks_changed(lambda arguments, mask: key >= query, "causal"),
    ),
    _causal(
        "causal-inverted",
        "a causal mask in which a row attends only to later keys",
        "the causal mask is true where a pair is hidden, and the kernel reads true as 'may attend'",
        "invert the causal mask",
        masks_changed(lambda arguments, mask: ~mask, "causal"),
    ),
    _causal(
        "causal-rows-reversed",
        "a causal mask whose rows are in reverse order",
        "positions of rows are counted from the last one",
        "let row i have position start + i",
        masks_changed(_reversed_rows, "causal"),
    ),
    *(
        _causal(
            f"causal-by-blocks-{size}",
            f"a causal mask of whole blocks of {size}",
            f"blocks of {size} rows and keys are compared, and the block on the diagonal is not masked",
            "mask each pair of the blocks on the diagonal",
            masks_changed(_by_blocks(size), "causal"),
        )
        for size in BLOCKS[:3]
    ),
    *(
        _causal(
            f"causal-keys-counted-in-blocks-{size}",
            f"a causal mask whose keys are counted from the start of each block of {size}",
            "the position of a key in its block is compared with the position of the row",
            "add the start of the block to the positions of its keys",
            masks_changed(_in_blocks(size), "causal"),
        )
        for size in BLOCKS[:3]
    ),
    _window(
        "window-ignored",
        "no window",
        "the window is dropped",
        "pass the window to the kernel",
        without_masks("window"),
    ),
    _window(
        "window-ignored-when-causal",
        "no window in causal calls",
        "the window is dropped if the call is causal",
        "apply both: mask & window",
        only_if(lambda arguments: "causal" in arguments.masks, without_masks("window")),
    ),
    _window(
        "window-of-0-ignored",
        "no window, because its size is 0",
        "`if window:` is false for 0",
        "write `if window is not None:`",
        _without_a_window_of_0,
    ),
    _window(
        "window-not-causal",
        "a window that reaches as far after a row as before it",
        "the window is compared with |query − key|",
        "compare it with query − key, and mask later keys",
        masks_changed(_both_sides, "window"),
    ),
    _window(
        "window-inverted",
        "the inverted window",
        "the window is true where a pair is hidden, and the kernel reads true as 'may attend'",
        "invert the window",
        masks_changed(lambda arguments, mask: ~mask, "window"),
    ),
    _moved("window-longer-by-one", "one key more on the left", lambda a, m: m | _after(a, m), "window", "rule"),
    _moved("window-shorter-by-one", "one key less on the left", lambda a, m: m & _before(a, m), "window", "rule"),
    _moved("window-ends-later", "one key more on the right", lambda a, m: m | _before(a, m), "window"),
    _moved("window-ends-earlier", "one key less on the right", lambda a, m: m & _after(a, m), "window", "rule"),
    _moved("window-moved-right", "all moved one key to the right", _before, "window", "rule"),
    _moved("window-moved-left", "all moved one key to the left", _after, "window", "rule"),
    _window(
        "window-in-chunks",
        "chunks of keys in place of a window that moves with the row",
        "rows attend within their own chunk, and the window is not counted from each row",
        "let row i attend to key j if i − j is within the window",
        masks_changed(_in_chunks, "window"),
    ),
    _padding(
        "padding-ignored",
        "padding that is not masked",
        "the lengths are dropped",
        "mask the keys from the length of each batch entry on",
        without_masks("lengths"),
    ),
    _padding(
        "padding-at-the-wrong-end",
        "padding masked at the first keys instead of the last",
        "padding on the right is read as padding on the left",
        "mask the keys from the length of each batch entry on",
        masks_changed(_from_the_end, "lengths"),
    ),
    _padding(
        "padding-longer-by-one",
        "one key of padding less than there is",
        "key ≤ length instead of key < length",
        "mask the keys from the length of each batch entry on",
        masks_changed(lambda a, m: substituted(m, {key: key - 1}), "lengths"),
    ),
    _padding(
        "padding-shorter-by-one",
        "one key of padding more than there is",
        "key < length − 1 instead of key < length",
        "mask the keys from the length of each batch entry on",
        masks_changed(lambda a, m: substituted(m, {key: key + 1}), "lengths"),
    ),
    Mistake(
        "padding-of-first-batch-entry",
        "the length of the first batch entry in every entry",
        "the lengths are read at index 0",
        "read the length of each batch entry",
        masks_changed(of_first(batch), "lengths"),
        law=11,
    ),
    _causal(
        "diagonal-removed",
        "no row that attends to its own position",
        "the diagonal is masked",
        "let each row attend to its own position",
        restricted_to(lambda arguments: key != query),
    ),
    _dropped("first-key-dropped", "the first key dropped", lambda a: key > 0, "keys are counted from 1"),
    _dropped("last-key-dropped", "the last key dropped", lambda a: key < a.keys - 1, "a loop ends one key too early"),
    *(
        _dropped(
            f"last-block-dropped-{size}",
            f"the keys after the last whole block of {size} dropped",
            lambda a, size=size: key < a.keys // size * size if a.keys > size and a.keys % size else None,
            f"a loop over blocks of {size} keys rounds their number down",
        )
        for size in BLOCKS
    ),
)
