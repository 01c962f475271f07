"""Known mistakes in the product of queries and keys: another measure, columns that are left out, numbers of 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...common.dtypes import FLOATS, Float
from ..arguments import Arguments, product
from ..mistake import Mistake
from .changes import Change, both, inputs_by, lse_by, weights_by

Array = np.ndarray


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
    def step(usual, scores, allowed, sinks, arguments):
        return usual(rounded(scores), allowed, sinks)

    return both(weights_by(step, masked=False), lse_by(step))


def _weights(rounded: Callable[[Array], Array]) -> Change:
    return weights_by(lambda usual, *given: rounded(usual(*given[:3])), masked=False)


def _inputs(rounded: Callable[[Array], Array]) -> Change:
    return inputs_by(lambda q, k, v: (rounded(q), rounded(k), rounded(v)))


def _entry(name: str, description: str, cause: str, change: Change) -> Mistake:
    fix = "multiply all columns of q and k, and add the products"
    return Mistake(name=name, law=1, description=description, cause=cause, fix=fix, change=change)


def _of_16_bits(what: str, dtype: str, rounded: Callable[[Array], Array], change: Callable[..., Change]) -> Mistake:
    return Mistake(
        name=f"{what}-rounded-to-{dtype}",
        law=10,
        description=f"{'q, k and v' if what == 'inputs' else what} rounded to {dtype}",
        cause=f"{'q, k and v' if what == 'inputs' else what} are stored in {dtype}, which has fewer digits than the "
        "dtype of the call",
        fix="compute in the dtype of the call or a wider one",
        change=change(rounded),
    )


PRODUCTS = (
    _entry(
        "queries-normalized",
        "queries of length 1",
        "queries are divided by their norms",
        _by(lambda q, k: product(_unit(q), k)),
    ),
    _entry(
        "keys-normalized",
        "keys of length 1",
        "keys are divided by their norms",
        _by(lambda q, k: product(q, _unit(k))),
    ),
    _entry(
        "cosine",
        "the cosine of query and key in place of q·k",
        "queries and keys are divided by their norms",
        _by(lambda q, k: product(_unit(q), _unit(k))),
    ),
    _entry(
        "squared-distance",
        "the negative squared distance of query and key in place of q·k",
        "−Σ (q − k)² is computed",
        _by(_squared_distance),
    ),
    _entry(
        "distance",
        "the negative distance of query and key in place of q·k",
        "−√Σ (q − k)² is computed",
        _by(_distance),
    ),
    _entry(
        "distance-of-columns",
        "the negative sum of differences of query and key in place of q·k",
        "−Σ |q − k| is computed",
        _by(_manhattan),
    ),
    _entry(
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
