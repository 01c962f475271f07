"""Known mistakes in which of q, k and v is used, and in the weighted sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arguments import Arguments
from ..mistake import Mistake
from .changes import Change, inputs_by


def _keys_as_values(arguments: Arguments) -> Arguments:
    usual = arguments.to_output

    def to_output(weights, allowed, k, v):
        return usual(weights, allowed, k, k if k.shape == v.shape else v)

    return replace(arguments, to_output=to_output)


def _values_as_keys(q, k, v):
    return q, v if k.shape == v.shape else k, v


def _swapped(q, k, v):
    return (q, v, k) if k.shape == v.shape else (q, k, v)


def _queries_as_keys(q, k, v):
    return q, q if q.shape == k.shape else k, v


def _keys_as_queries(q, k, v):
    return k if q.shape == k.shape else q, k, v


def _queries_as_values(q, k, v):
    return q, k, q if q.shape == v.shape else v


def _transposed(arguments: Arguments) -> Arguments | None:
    if arguments.queries != arguments.keys:
        return None
    usual = arguments.to_output

    def to_output(weights, allowed, k, v):
        return usual(weights.swapaxes(-1, -2), allowed.swapaxes(-1, -2), k, v)

    return replace(arguments, to_output=to_output)


def _shifted(*parts: str) -> Change:
    def inputs(q, k, v):
        return tuple(np.roll(part, 1, -2) if name in parts else part for name, part in zip("qkv", (q, k, v)))

    return inputs_by(inputs)


def _reversed(q, k, v):
    return q, k, v[..., ::-1, :]


def _exchanged(arguments: Arguments) -> Arguments | None:
    """With transposed scores."""
    usual = arguments.product
    if arguments.queries != arguments.keys:
        return None
    return replace(arguments, product=lambda q, k: usual(q, k).swapaxes(-1, -2))


def _entry(name: str, description: str, cause: str, fix: str, change: Change) -> Mistake:
    return Mistake(name=name, law=1, description=description, cause=cause, fix=fix, change=change)


NAMES = "pass q, k and v by name"

VALUES = (
    _entry("keys-as-values", "keys in place of values", "k is passed or projected twice", NAMES, _keys_as_values),
    _entry(
        "values-as-keys",
        "values in place of keys",
        "v is passed or projected twice",
        NAMES,
        inputs_by(_values_as_keys),
    ),
    _entry("keys-and-values-swapped", "keys and values swapped", "k and v are exchanged", NAMES, inputs_by(_swapped)),
    _entry(
        "queries-as-keys",
        "queries in place of keys",
        "q is passed or projected twice",
        NAMES,
        inputs_by(_queries_as_keys),
    ),
    _entry(
        "queries-and-keys-swapped",
        "queries and keys swapped",
        "q and k are exchanged, or the scores transposed",
        NAMES,
        _exchanged,
    ),
    _entry(
        "keys-as-queries",
        "keys in place of queries",
        "k is multiplied with itself",
        NAMES,
        inputs_by(_keys_as_queries),
    ),
    _entry(
        "queries-as-values",
        "queries in place of values",
        "q is passed or projected twice",
        NAMES,
        inputs_by(_queries_as_values),
    ),
    _entry(
        "weights-transposed",
        "transposed weights",
        "the weights are multiplied from the wrong side",
        "multiply weights (Q, K) by values (K, E)",
        _transposed,
    ),
    _entry(
        "values-reversed",
        "values in reverse order",
        "values are read from the last key to the first",
        "let weight j multiply value j",
        inputs_by(_reversed),
    ),
    _entry(
        "values-of-the-key-before",
        "the value of the key before at each key",
        "keys and values are written at different positions",
        "write key i and value i at the same position",
        _shifted("v"),
    ),
    _entry(
        "keys-of-the-key-before",
        "the key before in place of each key",
        "keys and values are written at different positions",
        "write key i and value i at the same position",
        _shifted("k"),
    ),
    _entry(
        "keys-and-values-moved",
        "keys and values one position late",
        "keys and values are written one position late",
        "write key i and value i at position i",
        _shifted("k", "v"),
    ),
)
