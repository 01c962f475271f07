"""Known mistakes in the two products: which of q, k and v is used, another measure than q·k, columns that are left out,
numbers of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...common.dtypes import FLOATS, Float
from ..arguments import Arguments, product
from ..mistake import Change, Mistake, Softmax, both, inputs_by, lse_by, weights_by

Array = np.ndarray


def _keys_as_values(arguments: Arguments) -> Arguments:
    usual = arguments.to_output

    def to_output(weights, allowed, k, v):
        return usual(weights, allowed, k, k if k.shape == v.shape else v)

    return replace(arguments, to_output=to_output)


def _in_place_of(new: str, old: str) -> Change:
    """One of q, k and v in place of another one of the same shape."""

    def inputs(q, k, v):
        arrays = {"q": q, "k": k, "v": v}
        if arrays[new].shape == arrays[old].shape:
            arrays[old] = arrays[new]
        return tuple(arrays.values())

    return inputs_by(inputs)


def _swapped(q, k, v):
    return (q, v, k) if k.shape == v.shape else (q, k, v)


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


NAMES = "pass q, k and v by name"

VALUES = (
    Mistake("keys-as-values", "keys in place of values", "k is passed or projected twice", NAMES, _keys_as_values),
    Mistake(
        "values-as-keys",
        "values in place of keys",
        "v is passed or projected twice",
        NAMES,
        _in_place_of("v", "k"),
    ),
    Mistake("keys-and-values-swapped", "keys and values swapped", "k and v are exchanged", NAMES, inputs_by(_swapped)),
    Mistake(
        "queries-as-keys",
        "queries in place of keys",
        "q is passed or projected twice",
        NAMES,
        _in_place_of("q", "k"),
    ),
    Mistake(
        "queries-and-keys-swapped",
        "queries and keys swapped",
        "q and k are exchanged, or the scores transposed",
        NAMES,
        _exchanged,
    ),
    Mistake(
        "keys-as-queries",
        "keys in place of queries",
        "k is multiplied with itself",
        NAMES,
        _in_place_of("k", "q"),
    ),
    Mistake(
        "queries-as-values",
        "queries in place of values",
        "q is passed or projected twice",
        NAMES,
        _in_place_of("q", "v"),
    ),
    Mistake(
        "weights-transposed",
        "transposed weights",
        "the weights are multiplied from the wrong side",
        "multiply weights (Q, K) by values (K, E)",
        _transposed,
    ),
    Mistake(
        "values-reversed",
        "values in reverse order",
        "values are read from the last key to the first",
        "let weight j multiply value j",
        inputs_by(_reversed),
    ),
    Mistake(
        "values-of-the-key-before",
        "the value of the key before at each key",
        "keys and values are written at different positions",
        "write key i and value i at the same position",
        _shifted("v"),
    ),
    Mistake(
        "keys-of-the-key-before",
        "the key before in place of each key",
        "keys and values are written at different positions",
        "write key i and value i at the same position",
        _shifted("k"),
    ),
    Mistake(
        "keys-and-values-moved",
        "keys and values one position late",
        "keys and values are written one position late",
        "write key i and value i at position i",
        _shifted("k", "v"),
    ),
)


def _unit(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


def _squared_distance(q: Array, k: Array) -> Array:
    return 2 * product(q, k) - (q * q).sum(-1)[..., :, None] - (k * k).sum(-1)[..., None, :]


def _distance(q: Array, k: Array) -> Array:
    return -np.sqrt(np.maximum(-_squared_distance(q, k), 0))


def _manhattan(q: Array, k: Array) -> Array:
    found = np.zeros((*q.shape[:-1], k.shape[-2]))
    for place in range(q.shape[-1]):
        found -= np.abs(q[..., :, None, place] - k[..., None, :, place])
    return found


def _by(measure: Callable[[Array, Array], Array]) -> Change:
    return lambda arguments: replace(arguments, product=measure)


def _odd_column_dropped(arguments: Arguments) -> Arguments | None:
    if arguments.depth % 2 == 0 or arguments.depth == 1:
        return None
    return inputs_by(lambda q, k, v: (q[..., :-1], k[..., :-1], v))(arguments)


def _rounded_to(row: Float) -> Callable[[Array], Array]:
    return lambda x: x.astype(row.numpy).astype(np.float64)


def _scores(rounded: Callable[[Array], Array]) -> Change:
    def step(it: Softmax) -> Array:
        return it.of(rounded(it.scores))

    return both(weights_by(step), lse_by(step))


def _weights(rounded: Callable[[Array], Array]) -> Change:
    return weights_by(lambda it: rounded(it.of()))


def _inputs(rounded: Callable[[Array], Array]) -> Change:
    return inputs_by(lambda q, k, v: (rounded(q), rounded(k), rounded(v)))


def _of_product(name: str, description: str, cause: str, change: Change) -> Mistake:
    return Mistake(name, description, cause, "multiply all columns of q and k, and add the products", change)


def _of_16_bits(what: str, dtype: str, rounded: Callable[[Array], Array], change: Callable[..., Change]) -> Mistake:
    return Mistake(
        f"{what}-rounded-to-{dtype}",
        f"{'q, k and v' if what == 'inputs' else what} rounded to {dtype}",
        f"{'q, k and v' if what == 'inputs' else what} are stored in {dtype}, which has fewer digits than the "
        "dtype of the call",
        "compute in the dtype of the call or a wider one",
        change(rounded),
        law=10,
    )


PRODUCTS = (
    _of_product(
        "queries-normalized",
        "queries of length 1",
        "queries are divided by their norms",
        _by(lambda q, k: product(_unit(q), k)),
    ),
    _of_product(
        "keys-normalized",
        "keys of length 1",
        "keys are divided by their norms",
        _by(lambda q, k: product(q, _unit(k))),
    ),
    _of_product(
        "cosine",
        "the cosine of query and key in place of q·k",
        "queries and keys are divided by their norms",
        _by(lambda q, k: product(_unit(q), _unit(k))),
    ),
    _of_product(
        "squared-distance",
        "the negative squared distance of query and key in place of q·k",
        "−Σ (q − k)² is computed",
        _by(_squared_distance),
    ),
    _of_product(
        "distance",
        "the negative distance of query and key in place of q·k",
        "−√Σ (q − k)² is computed",
        _by(_distance),
    ),
    _of_product(
        "distance-of-columns",
        "the negative sum of differences of query and key in place of q·k",
        "−Σ |q − k| is computed",
        _by(_manhattan),
    ),
    _of_product(
        "last-column-dropped",
        "q·k without the last column of an odd depth",
        "columns are read in pairs, and an odd depth is rounded down",
        _odd_column_dropped,
    ),
    *(
        _of_16_bits(what, row.name, _rounded_to(row), change)
        for what, change in (("scores", _scores), ("weights", _weights), ("inputs", _inputs))
        for row in FLOATS.values()
        if row.bits == 16
    ),
)
