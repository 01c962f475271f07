"""Why decoding differs from one forward pass: the first attention call where a step sees something else than the same
row of one forward pass, and what that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...common.errors import Refused
from ...lens import Call
from ...lens.look import look
from ..subject import Subject
from .decoding import Decoder

CLOSE = 1e-3  # relative to the largest number


class Cause(NamedTuple):
    """What is wrong, in words, and what to do about it."""

    words: str
    fix: str


APPEND = "append the new keys and values after those of the cache, once, and return or keep the result"
ALIGN = "align the causal mask with the end of the keys: row i of n new tokens sees the first (keys − n + i + 1) keys"
ROTATE = "rotate queries and keys by their positions, which begin at the length of the cache, before keys are appended"
BEGIN = "read the length of the cache once, before any layer appends to it, and count the new positions from there"
UNREAD = Cause("this layer does not read the cache: a step sees its own keys only", APPEND)
NOT_APPENDED = Cause("new keys are not appended to the cache, which keeps those of its first step only", APPEND)
REPLACED = Cause(
    "the oldest keys are lost: new keys replace (overwrite) them, or only the cache applies a sliding window",
    "append new keys; a sliding window has to be that of the mask of one forward pass",
)
TWICE = Cause("keys are appended twice: there are more of them than tokens", APPEND)
TOP_LEFT = Cause(
    "the causal mask of several new tokens is aligned at the top left, as is_causal=True does: their first row sees "
    "the first key only, instead of the whole cache",
    ALIGN,
)
UNMASKED = Cause("no causal mask among several new tokens: they see each other's later tokens", ALIGN)
HIDDEN = Cause("the mask of a step hides keys of the cache: it is not sliced to the length of the cache", ALIGN)
SHOWN = Cause(
    "a step sees keys that the mask of one forward pass hides: only one of the two applies a sliding window", ALIGN
)
ORDER = Cause("the cache holds its keys, or its values, in the wrong order", APPEND)
UNROTATED = Cause(
    "keys are kept unrotated (before their rotary positions are applied), or rotated again, while queries are right",
    ROTATE,
)
QUERY = Cause("the new query is not rotated by its position, as keys are", ROTATE)
UPPER = Cause(
    "positions of upper layers are ahead: they are read from the length of the cache after the first layer appended "
    "to it",
    BEGIN,
)
OVERWRITTEN = Cause("the cache changes what it keeps: keys and values of earlier tokens are overwritten", APPEND)
VALUES = Cause(
    "the values in the cache are not those of one forward pass: lost, or not reordered with the keys", APPEND
)
BIAS = Cause(
    "the position bias has no offset: its rows count from 0 again, not from the length of the cache",
    "add the length of the cache to the positions of the rows before the bias (ALiBi, relative positions) is computed",
)
POSITION = Cause("the position of a new token is wrong", BEGIN)
RESTART = Cause("positions restart: a new token is given position 0, as without a cache", BEGIN)
BELOW = Cause(
    "the input of this layer differs, although the attention below agrees: another layer below it has no memory of the "
    "tokens before, or starts anew",
    "keep the state of that layer, such as the last inputs of a convolution, next to the keys and values",
)


def explain(decoder: Decoder, first: int, end: int) -> tuple[str, Cause] | None:
    """(the attention call, the cause) of what goes wrong in the step of these tokens; None if no call shows it."""
    subject = decoder.subject
    full = _calls(subject, subject.inputs)
    with decoder.unchanged():
        cuts = [cut for cut in decoder.cuts if cut <= first]
        *_, (_, memory) = decoder.steps(subject.inputs, cuts)
        step = _calls(subject, decoder.given(subject.inputs, memory, first, end))
    pairs = [
        (one, other)
        for one, other in zip(full, step, strict=False)
        if one.name == other.name and other.shape[1] == end - first < one.shape[1]
    ]
    for layer, (one, other) in enumerate(pairs):
        for row in range(end - first):
            cause = _changed(one, other, first + row, row, end)
            if cause is POSITION:
                cause = _placed(subject, other, first) if not layer else UPPER
            if cause is not None:
                return other.name, cause
    return None


def _calls(subject: Subject, inputs: Mapping[str, Any]) -> list[Call]:
    """The attention calls of one run that were recorded with queries, keys and values."""
    _, named = replace(subject, ordered=()).arguments(inputs)
    try:
        calls = look(subject.model, inputs=named, values=True).calls
    except Refused:
        return []
    return [call for call in calls if call.given is None and call.v is not None]


def _seen(call: Call, row: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(the keys that a row attends to; its query, and the keys, values and scores at them)."""
    at = np.flatnonzero(call.allowed([row], heads=0))
    query, keys, values = (np.asarray(part)[:, rows] for part, rows in ((call.q, [row]), (call.k, at), (call.v, at)))
    return at, {"q": query, "k": keys, "v": values, "scores": call.scores([row], at).swapaxes(1, 2)}


def _changed(one: Call, other: Call, at: int, row: int, end: int) -> Cause | None:
    """What the row of a step sees else than the row `at` of one forward pass."""
    (old, right), (new, seen) = _seen(one, at), _seen(other, row)
    if len(new) < len(old):
        if other.shape[2] >= len(old):
            return TOP_LEFT if len(new) == row + 1 and end > at - row + 1 else HIDDEN
        if len(new) <= row + 1:
            return UNREAD
        return NOT_APPENDED if _differ(right["k"][:, -len(new) :], seen["k"]) else REPLACED
    if len(new) > len(old):
        return TWICE if other.shape[2] > end else UNMASKED if new[-1] > at else SHOWN
    off = {name: _differ(part, seen[name]) for name, part in right.items()}
    if any(off[name] and _permuted(right[name], seen[name]) for name in "kv"):
        return ORDER
    if off["k"] and off["v"]:
        return OVERWRITTEN if len(new) - 1 not in off["k"] else BELOW if one.layer else POSITION
    if off["k"]:
        return POSITION if off["q"] else UNROTATED
    return VALUES if off["v"] else QUERY if off["q"] else BIAS if off["scores"] else None


def _placed(subject: Subject, step: Call, first: int) -> Cause:
    """Which position the new token of a step has: that of the one in which another text has the same key for it."""
    import torch

    for place in (0, *range(first - 2, first + 3)):
        text = {
            name: torch.cat([part[:, :place], part[:, first : first + 1]], 1) if name in subject.of_sequence else part
            for name, part in subject.inputs.items()
        }
        keys = [np.asarray(call.k)[:, -1:] for call in _calls(subject, text) if call.name == step.name]
        if keys and not _differ(keys[0], np.asarray(step.k)[:, [-step.shape[1]]]):
            size = "large" if place > first else "small"
            words = f"positions are {abs(place - first)} too {size}: the length of the cache is read at the wrong time"
            return POSITION._replace(words=words) if place else RESTART
    return POSITION


def _differ(one: np.ndarray, other: np.ndarray) -> list[int]:
    """Which rows of two arrays (heads, rows, …) differ."""
    off = np.abs(np.subtract(one, other, dtype=np.float64)).max((0, 2))
    return np.flatnonzero(~(off <= CLOSE * np.abs(one).max(initial=0))).tolist()


def _permuted(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether these rows of two arrays are the same, in another order."""
    a, b = (np.sort(part.sum((0, 2), dtype=np.float64)) for part in (one, other))
    return np.allclose(a, b, rtol=0, atol=CLOSE)
