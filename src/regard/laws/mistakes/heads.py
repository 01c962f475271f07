"""Known mistakes in batch entries and heads: which keys and values a query meets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..arguments import Arguments, lse
from ..mistake import Change, Mistake, inputs_by, only_if


def _given(arguments: Arguments) -> int:
    """The number of key heads of the call."""
    return int(max(arguments.key_heads.max(initial=-1), arguments.value_heads.max(initial=-1))) + 1


def _shared(arguments: Arguments, which: str, tiled: bool) -> Arguments | None:
    """Other key heads, value heads or both for the query heads."""
    H, G = arguments.heads, _given(arguments)
    if not 1 < G < H:
        return None
    heads = np.arange(H) % G if tiled else np.arange(H) // (H // G)
    fields = [name for name in ("key_heads", "value_heads") if name[0] in which]
    if all(np.array_equal(np.repeat(old := getattr(arguments, name), H // len(old)), heads) for name in fields):
        return None
    spread: dict[str, Any] = {
        name: np.repeat(getattr(arguments, name), H // len(getattr(arguments, name)))
        for name in ("key_heads", "value_heads")
    }
    return replace(arguments, **spread | dict.fromkeys(fields, heads))


def _tiled(name: str, what: str, which: str) -> Mistake:
    return Mistake(
        name,
        f"{what} repeated as blocks",
        "keys and values are repeated as blocks (repeat, tile, expand) instead of head by head (repeat_interleave)",
        "use repeat_interleave: query head h uses key/value head h // (H / G)",
        lambda arguments: _shared(arguments, which, True),
        checks=("groups",) if which == "kv" else (),
        numbers=lambda was, now: (
            f"head h mod {_given(was)} instead of h // {was.heads // _given(was)} for query head h"
        ),
    )


def _other_heads(new: Callable[[np.ndarray], np.ndarray], *fields: str) -> Change:
    def change(arguments: Arguments) -> Arguments:
        others: dict[str, Any] = {name: new(getattr(arguments, name)) for name in fields}
        return replace(arguments, **others)

    return only_if(lambda arguments: _given(arguments) > 1, change)


def _next(heads: np.ndarray) -> np.ndarray:
    return np.roll(heads, -1)


def _regrouped(arguments: Arguments) -> Arguments | None:
    """Query heads that are read as (H / G, G) and then transposed to (G, H / G)."""
    H, G = arguments.heads, _given(arguments)
    if not 1 < G < H:
        return None
    order = np.arange(H).reshape(H // G, G).T.ravel()
    return inputs_by(lambda q, k, v: (q[:, order], k, v))(arguments)


def _split(x: np.ndarray) -> np.ndarray:
    """(B, H, S, D) as it would be if (B, S, H · D) had been viewed as (B, H, S, D)."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape)


def _merged(x: np.ndarray) -> np.ndarray:
    """(B, H, S, D) as it would be if it had been viewed as (B, S, H · D)."""
    B, H, S, D = x.shape
    return x.reshape(B, S, H, D).swapaxes(1, 2)


def _split_by_depth(x: np.ndarray) -> np.ndarray:
    """(B, H, S, D) as it would be if (B, S, H · D) had been viewed as (B, S, D, H)."""
    B, H, S, D = x.shape
    return x.swapaxes(1, 2).reshape(B, S, D, H).transpose(0, 3, 1, 2)


def _merged_by_depth(x: np.ndarray) -> np.ndarray:
    """(B, H, S, D) as it would be if (B, S, D, H) had been viewed as (B, S, H · D)."""
    B, H, S, D = x.shape
    return x.transpose(0, 2, 3, 1).reshape(B, S, H, D).swapaxes(1, 2)


def _wrong_split(split: Callable[[np.ndarray], np.ndarray]) -> Change:
    return only_if(_has_several, inputs_by(lambda q, k, v: (split(q), split(k), split(v))))


def _wrong_merge(merged: Callable[[np.ndarray], np.ndarray]) -> Change:
    def change(arguments: Arguments) -> Arguments:
        usual = arguments.finish
        return replace(arguments, finish=lambda out: merged(usual(out)))

    return only_if(_has_several, change)


def _has_several(arguments: Arguments) -> bool:
    return arguments.heads != 1


def _one_head(arguments: Arguments) -> Arguments | None:
    H = arguments.heads
    if H == 1 or _given(arguments) != H or arguments.sinks is not None:
        return None

    def wide(x: np.ndarray) -> np.ndarray:
        B, H, S, D = x.shape
        return x.swapaxes(1, 2).reshape(B, 1, S, H * D)

    def narrow(out: np.ndarray) -> np.ndarray:
        B, _, Q, width = out.shape
        return out.reshape(B, Q, H, width // H).swapaxes(1, 2)

    def of_all_heads(scores, allowed, sinks):
        found = lse(scores, allowed, sinks)
        return np.broadcast_to(found, (found.shape[0], H, found.shape[2]))

    usual = math.isclose(arguments.scale, arguments.depth**-0.5)
    return replace(
        arguments,
        inputs=lambda q, k, v: (wide(q), wide(k), wide(v)),
        key_heads=np.zeros(1, int),
        value_heads=np.zeros(1, int),
        scale=arguments.scale / math.sqrt(H) if usual else arguments.scale,
        to_lse=of_all_heads,
        finish=narrow,
    )


def _between_heads(arguments: Arguments) -> Arguments | None:
    if arguments.masks or arguments.scores or arguments.sinks is not None or arguments.queries != arguments.keys:
        return None
    if _given(arguments) != arguments.heads:
        return None
    rows = np.arange(arguments.queries)
    return replace(
        arguments,
        inputs=lambda q, k, v: (q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2)),
        key_heads=rows,
        value_heads=rows,
        to_lse=lambda scores, allowed, sinks: lse(scores, allowed, sinks).swapaxes(1, 2),
        finish=lambda out: out.swapaxes(1, 2),
    )


def _of_entry_0(*parts: str) -> Change:
    def inputs(q, k, v):
        return tuple(
            np.broadcast_to(part[:1], part.shape) if name in parts else part for name, part in zip("qkv", (q, k, v))
        )

    return inputs_by(inputs)


def _of_next(name: str, what: str, field: str) -> Mistake:
    return Mistake(
        name,
        f"{what} of the next head",
        "heads are not counted from 0",
        "count heads from 0",
        _other_heads(_next, field),
        checks=("heads",),
    )


def _entry(name: str, what: str, *parts: str) -> Mistake:
    return Mistake(
        name,
        f"the {what} of batch entry 0 for every entry",
        "the batch index or its stride is missing",
        f"read the {what} of each batch entry",
        _of_entry_0(*parts),
        law=11,
    )


HEADS = (
    _tiled("groups-tiled", "keys and values", "kv"),
    _tiled("groups-keys-tiled", "keys alone", "k"),
    _tiled("groups-values-tiled", "values alone", "v"),
    Mistake(
        "groups-interleaved",
        "keys and values repeated head by head, although blocks are declared",
        "repeat_interleave is used where the function declares tile",
        "use the order of heads that is declared",
        lambda arguments: _shared(arguments, "kv", False),
    ),
    Mistake(
        "groups-first-head-only",
        "the first key/value head for every query head",
        "only one key/value head is read",
        "use key/value head h // (H / G) for query head h",
        _other_heads(np.zeros_like, "key_heads", "value_heads"),
        checks=("heads",),
    ),
    Mistake(
        "first-head-keys",
        "the keys of the first head for every query head",
        "the head axis of the keys is dropped",
        "use the keys of head h // (H / G) for query head h",
        _other_heads(np.zeros_like, "key_heads"),
    ),
    Mistake(
        "first-head-values",
        "the values of the first head for every query head",
        "the head axis of the values is dropped",
        "use the values of head h // (H / G) for query head h",
        _other_heads(np.zeros_like, "value_heads"),
    ),
    Mistake(
        "groups-queries-regrouped",
        "query heads taken in another order than their results",
        "query heads are viewed as (H / G, G) and transposed, but the result is viewed as (G, H / G)",
        "view query heads as (G, H / G)",
        _regrouped,
    ),
    _of_next("next-head-keys", "k", "key_heads"),
    _of_next("next-head-values", "v", "value_heads"),
    Mistake(
        "heads-split-without-transpose",
        "q, k and v whose heads are split by a view alone",
        "(B, S, H·D) is viewed as (B, H, S, D), which mixes positions and heads",
        "view it as (B, S, H, D), then transpose(1, 2)",
        _wrong_split(_split),
    ),
    Mistake(
        "heads-split-by-depth",
        "q, k and v whose columns are dealt out to the heads in turn",
        "(B, S, H·D) is viewed as (B, S, D, H) instead of (B, S, H, D)",
        "view it as (B, S, H, D), then transpose(1, 2)",
        _wrong_split(_split_by_depth),
    ),
    Mistake(
        "heads-as-one",
        "one head of the whole width",
        "q, k and v are not split into heads",
        "view (B, S, H·D) as (B, S, H, D), then transpose(1, 2)",
        _one_head,
        alone=True,
    ),
    Mistake(
        "heads-merged-without-transpose",
        "the head axis and the row axis of the output swapped",
        "reshape is used where a transpose is needed",
        "call transpose(1, 2) before reshape",
        only_if(lambda arguments: arguments.queries != 1, _wrong_merge(_merged)),
    ),
    Mistake(
        "heads-merged-by-depth",
        "an output whose columns come from the heads in turn",
        "the output is merged as (B, S, E, H) instead of (B, S, H, E)",
        "call transpose(1, 2) before reshape",
        _wrong_merge(_merged_by_depth),
    ),
    Mistake(
        "attention-between-heads",
        "heads that attend to each other within each position",
        "the transpose of (B, S, H, D) to (B, H, S, D) is missing, so positions are taken for heads",
        "call transpose(1, 2) on q, k and v first",
        _between_heads,
        alone=True,
    ),
    _entry("batch-entry-0-only", "keys and values", "k", "v"),
    _entry("batch-entry-0-keys", "keys", "k"),
    _entry("batch-entry-0-values", "values", "v"),
    _entry("batch-entry-0-queries", "queries", "q"),
)
