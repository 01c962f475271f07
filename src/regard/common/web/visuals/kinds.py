"""The kinds of visuals: what each draws, and the data it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...errors import Reason, refuse_all

LARGEST = 100_000  # numbers of one visual: more make a page slow


class Kind(NamedTuple):
    """A kind of visual. required, optional: its data, with what they are · parts: shared scripts and styles"""

    required: Mapping[str, str]
    optional: Mapping[str, str] = {}
    parts: tuple[str, ...] = ()


OF_SCORES = {
    "labels": "a text for each score",
    "temperature": "the first temperature",
    "range": "lowest and highest score",
}

KINDS = {
    "dot-product": Kind(
        {"a": "a row of numbers", "b": "a row of as many"}, {"names": "their two names"}, parts=("numberfield", "plane")
    ),
    "hull": Kind(
        {"values": "rows of two numbers", "scores": "a number for each row"},
        {"second": "scores that are subtracted in differential attention", "labels": "a text for each row"},
        parts=("plane",),
    ),
    "projections": Kind(
        {"x": "a row of numbers", "W_q": "a row for each number of x", "W_k": "as W_q", "W_v": "as W_q"},
        {
            "rest_q": "what other numbers of x, which are not shown, add to q",
            "rest_k": "the same for k",
            "rest_v": "the same for v",
            "width": "how many numbers x has",
        },
        parts=("numberfield",),
    ),
    "attention": Kind(
        {"q": "rows of queries", "k": "rows of keys", "v": "rows of values"},
        {
            "labels": "a text for each key",
            "scale": "the first factor of q·k, or '1/√d'",
            "temperature": "the first temperature",
            "mask": "the first mask: none, causal, padding or causal window",
            "window": "the first size of the window",
            "length": "how many keys are not padding at first",
        },
        ("heatmap",),
    ),
    "heads": Kind(
        {"tokens": "the texts of the tokens", "weights": "a matrix of weights for each head"},
        {"names": "a text for each head", "head": "the first head that is large"},
        ("heatmap",),
    ),
    "layer": Kind(
        {},
        {
            "n": "the number of tokens, a power of 2",
            "width": "d_model",
            "heads": "the number of query heads",
            "groups": "the number of key heads",
            "hidden": "d_ff",
            "gated": "whether the feed-forward part has a gate, a third matrix",
            "first": "whether a norm comes before its part, and not after the sum",
            "rms": "whether norms are RMS norms, which have no offset",
            "causal": "whether the mask is causal",
            "presets": "sizes by the name of a model",
        },
    ),
    "mask": Kind(
        {"expression": "the first mask, a text such as 'key <= query'"},
        {
            "n": "the number of tokens at first",
            "rows": "the number of queries at first, which are the last tokens",
            "tables": "lists that the expression may read, by name",
            "numbers": "whole numbers that it may use, by name",
            "presets": "masks to begin with, by name",
            "block": "the size of blocks that are counted, 0 for none",
        },
        ("heatmap", "expression"),
    ),
    "alibi": Kind(
        {"scores": "the scores of each row, as a list of rows", "heads": "how many heads have slopes"},
        {"tokens": "a text for each row", "causal": "whether the mask is causal at first", "row": "the first row"},
        ("charts",),
    ),
    "cost-curves": Kind(
        {"width": "d, the width of the layer", "heads": "h"},
        {
            "quantity": "what is drawn first: operations, layers or memory",
            "tokens": "n at first",
            "taps": "of the convolution",
            "window": "keys of the restricted attention",
            "block": "rows at a time",
            "bytes": "of a number",
        },
        ("charts",),
    ),
    "groups": Kind(
        {"models": "a name → heads, key_heads, depth, layers, tokens, bytes, rank and rope"},
        {"sharing": "what is chosen first: MHA, GQA, MQA or MLA"},
        ("charts",),
    ),
    "rotary": Kind(
        {"q": "a query, an even count of numbers", "k": "a key of the same length"},
        {"base": "of the angles", "query_at": "the first position of the query", "key_at": "that of the key"},
        ("charts",),
    ),
    "sinusoids": Kind(
        {"positions": "how many", "width": "d, even"},
        {"column": "the first column", "step": "k: the rotation from PE(p) to PE(p + k) is shown, too"},
        ("charts",),
    ),
    "sentence": Kind({"sentence": "the first sentence"}, parts=("heatmap",)),
    "softmax": Kind({"scores": "a list of numbers"}, OF_SCORES),
    "overflow": Kind({"scores": "a list of numbers"}, OF_SCORES, ("softmax",)),
    "worked-example": Kind(
        {"x": "a row for each token", "W_q": "a matrix", "W_k": "a matrix", "W_v": "a matrix"},
        {"tokens": "a text for each token", "causal": "whether the mask is on at first"},
        parts=("numberfield",),
    ),
    "tokens": Kind(
        {"tokens": "the texts of the tokens", "weights": "a matrix of weights for each head"},
        {"heads": "a text for each head", "token": "the first token that is chosen", "head": "the first head"},
        ("heatmap",),
    ),
    "ring": Kind(
        {"ranks": "the number of processes", "tokens": "the number of tokens"},
        {
            "width": "how many numbers a key and its value have together",
            "bytes": "of a number",
            "layout": "contiguous, zig-zag or striped",
            "causal": "whether there is a causal mask at first",
        },
    ),
    "training": Kind(
        {
            "recorded": "the steps of training",
            "losses": "the loss at each of them",
            "weights": "the rows of the head at each of them",
            "right": "the number of the right key of each row",
        },
        {"labels": "a text for each key", "rows": "a text for each row"},
        ("charts",),
    ),
    "streaming": Kind(
        {"scores": "a list of numbers", "values": "a row of numbers for each score"},
        {"block": "how many keys are read at once, at first", "labels": "a text for each score"},
    ),
}


def given(kind: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a visual among the names that its code leaves, as types of JSON.

    Raises Refused, with every reason: a field that is missing, or values other than numbers, texts and lists of them.
    """
    wanted = KINDS[kind]
    reasons = [
        Reason(f"{name} is missing", f"a visual of kind {kind}", f"{name} = {what}", "compute it")
        for name, what in wanted.required.items()
        if name not in names
    ]
    found, count = {}, 0
    for name in (*wanted.required, *wanted.optional):
        if name not in names:
            continue
        try:
            found[name] = plain(names[name])
        except TypeError as error:
            what = {**wanted.required, **wanted.optional}[name]
            reasons.append(Reason(f"{name} cannot be shown", str(error), what, "convert it: array.tolist()"))
            continue
        count += _count(found[name])
    if count > LARGEST:
        expected = f"at most {LARGEST:,}"
        reasons.append(Reason("too many numbers", f"{count:,}", expected, "show a part of them"))
    refuse_all("visual", reasons)
    return found


def plain(value: Any) -> Any:
    """A value as types of JSON; NaN and infinities are texts there. Raises TypeError for other types."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: plain(each) for name, each in value.items()}
    raise TypeError(f"{type(value).__name__}: {value!r:.60}")


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1
