"""The measures of `attention_stats`, the results of each, and every check of a request.

P is the matrix of weights, as in `attention_weights`, one row per query: with sinks a row sums to less than 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..common.errors import Reason, Refused, did_you_mean, refuse
from .callables import Mask
from .expr import Expr
from .masks import everything
from .problem import Problem

LARGEST_TOP = 1024  # keys per row


class Maximum(NamedTuple):
    """The largest weight of each row and its key, (…, H, Q): the first key if several have it, -1 if there is none."""

    weight: Any
    key: Any


class Top(NamedTuple):
    """The largest weights of each row in descending order, and their keys, (…, H, Q, count); missing ones are weight 0,
    key -1.
    """

    weight: Any
    key: Any


class Distance(NamedTuple):
    """Mean and variance of query − key under the weights of each row, in positions, (…, H, Q)."""

    mean: Any
    variance: Any


class Range(NamedTuple):
    """The smallest and largest score of each row over its allowed keys, (…, H, Q); inf and -inf if there are none."""

    minimum: Any
    maximum: Any


class Counts(NamedTuple):
    """The number of allowed keys of each row, and how many of their scores are NaN and +inf, (…, H, Q) int64."""

    attended: Any
    nan: Any
    inf: Any

    @property
    def empty(self):
        """Which rows are fully masked."""
        return self.attended == 0


class Pooled(NamedTuple):
    """Mean and maximum of the weights in each cell of a map, (…, H, rows, columns)."""

    mean: Any
    maximum: Any


@dataclass(frozen=True, eq=False)
class Measure:
    """One statistic. kind: which one; name: the name of its result."""

    kind: str
    name: str


@dataclass(frozen=True, eq=False)
class Mass(Measure):
    """The weight on a set of keys; see `mass`."""

    keys: Any


@dataclass(frozen=True, eq=False)
class TopKeys(Measure):
    """The largest weights; see `top`."""

    count: int


@dataclass(frozen=True, eq=False)
class PooledMap(Measure):
    """The weights as a small map; see `pooled`."""

    rows: int
    columns: int


PLAIN = {
    "lse": "the logarithm of the denominator",
    "maximum": "the largest weight and its key",
    "entropy": "−Σ p ln p",
    "distance": "mean and variance of query − key",
    "received": "Σ over rows",
    "counts": "attended keys, NaN and infinite scores",
    "range": "smallest and largest score",
}
WITH_ARGUMENTS = {"mass": "mass(key < 4)", "top": "top(5)", "pooled": "pooled(64, 64)"}


def mass(keys: Mask | None, name: str = "mass") -> Mass:
    """A measure for `attention_stats`: the weight of a set of keys, Σ p over the set.

    Its result is (…, H, Q). The mask of the call still applies.

    Args:
        keys: the set, as a mask: an expression, a callable or booleans. None is all keys.
        name: the name of the result, a Python identifier.

    Returns:
        The measure.

    Raises:
        Refused: `name` is not an identifier.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = np.zeros((4, 8), np.float32)
        >>> previous = rg.mass(rg.key == rg.query - 1, name="previous")
        >>> rg.attention_stats(q, k, of=previous, mask=rg.causal()).previous.tolist()
        [0.0, 0.5, 0.3333333432674408, 0.25]
    """
    return Mass("mass", _name("mass", name), keys)


def top(count: int, name: str = "top") -> TopKeys:
    """A measure for `attention_stats`: the largest weights of each row, in descending order, and their keys.

    Its result is a named tuple (weight, key), (…, H, Q, count) each. The first key comes first if weights are equal.

    Args:
        count: the number of weights, 1 … 1024.
        name: the name of the result, a Python identifier.

    Returns:
        The measure.

    Raises:
        Refused: `count` is not in 1 … 1024, or `name` is not an identifier.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = np.zeros((4, 8), np.float32)
        >>> rg.attention_stats(q, k, of=rg.top(2), mask=rg.causal()).top.key[0].tolist()
        [0, -1]
    """
    return TopKeys("top", _name("top", name), _whole("top", "count", count, LARGEST_TOP))


def pooled(rows: int, columns: int, name: str = "pooled") -> PooledMap:
    """A measure for `attention_stats`: mean and maximum of the weights in each cell of a map of rows × columns.

    Its result is a named tuple (mean, maximum), (…, H, rows, columns) each. Cell (r, c) covers the query rows
    ⌊r·Q/rows⌋ … ⌊(r+1)·Q/rows⌋ − 1 and the keys ⌊c·K/columns⌋ … ⌊(c+1)·K/columns⌋ − 1. Masked pairs count as 0.

    Args:
        rows: the number of cells along the queries, at most Q.
        columns: the number of cells along the keys, at most K.
        name: the name of the result, a Python identifier.

    Returns:
        The measure.

    Raises:
        Refused: a size is not a positive integer, or `name` is not an identifier.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q = k = np.zeros((4, 8), np.float32)
        >>> rg.attention_stats(q, k, of=rg.pooled(2, 2)).pooled.mean.tolist()
        [[0.25, 0.25], [0.25, 0.25]]
    """
    return PooledMap(
        "pooled", _name("pooled", name), _whole("pooled", "rows", rows), _whole("pooled", "columns", columns)
    )


def edges(size: int, cells: int) -> np.ndarray:
    """The bounds of `cells` parts of `size`, whose sizes differ by one at most, (cells + 1,) int64."""
    return np.arange(cells + 1, dtype=np.int64) * size // cells


def _name(where: str, name) -> str:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise refuse(
            where,
            "a measure's name is not an identifier",
            f"name={name!r}",
            "a Python identifier, such as 'first_tokens'",
            "choose another",
        )
    return name


def _whole(where: str, name: str, value, most: int = 1 << 31) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise refuse(
            where, f"{name} is not a valid count", f"{name}={value!r}", f"an integer, 1 … {most}", "pass an integer"
        )
    return int(value)


class Request(NamedTuple):
    """Checked arguments of `attention_stats`: the problem without values, and the measures, with key sets as
    expressions.
    """

    problem: Problem
    measures: tuple[Measure, ...]

    def of_kind(self, *kinds: str) -> Iterator[Any]:
        return (measure for measure in self.measures if measure.kind in kinds)


def checked_request(q, k, of, *, where="attention_stats", device="cpu", **arguments) -> Request:
    """The checked request; raises `Refused`, which lists every problem. device and arguments: as for `Problem.of`."""
    reasons: list[Reason] = []
    measures = _measures(of, reasons)
    problem = None
    try:
        problem = Problem.of(q, k, None, **arguments, where=where, device=device)
    except Refused as refused:
        reasons += refused.reasons
    if problem is not None:
        places = {name: arguments.get(name) for name in ("query_start", "batch_start", "head_start")}

        def key_set(rule) -> Expr | None:
            return Problem.of(q, k, None, mask=rule, **places, device=device).mask

        measures = tuple(_settled(measure, problem.dims, key_set, reasons) for measure in measures)
    if reasons or problem is None:
        raise Refused(where, reasons)
    return Request(problem, measures)


def _measures(of, reasons: list[Reason]) -> tuple[Measure, ...]:
    """The requested measures; every unknown one adds a reason."""
    known = (*PLAIN, *WITH_ARGUMENTS)
    listed = [of] if isinstance(of, str | Measure) else list(of) if hasattr(of, "__iter__") else [of]
    if not listed:
        reasons.append(
            Reason("no measure was requested", f"of={of!r}", "at least one measure", f"choose from {', '.join(known)}")
        )
    found: list[Measure] = []
    for each in listed:
        if isinstance(each, Measure):
            found.append(each)
        elif isinstance(each, str) and each in PLAIN:
            found.append(Measure(each, each))
        elif isinstance(each, str) and each in WITH_ARGUMENTS:
            reasons.append(
                Reason(
                    f"{each} needs arguments", f"{each!r}", f"regard.{each}(…)", f"write regard.{WITH_ARGUMENTS[each]}"
                )
            )
        else:
            given = repr(each) if isinstance(each, str | int | float) else f"{type(each).__name__}"
            reasons.append(
                Reason("unknown measure", given, f"one of {', '.join(known)}", did_you_mean(str(each), known))
            )
    names = [measure.name for measure in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        kind = next(measure.kind for measure in found if measure.name == name)
        reasons.append(
            Reason(
                f"two measures are called {name!r}",
                ", ".join(names),
                "one name for each",
                "request it once" if kind in PLAIN else f"name them: {kind}(…, name='another')",
            )
        )
    return tuple(found)


def _settled(measure: Measure, dims: dict[str, int], key_set: Callable, reasons: list[Reason]) -> Measure:
    """The measure for this problem: key sets become expressions, and a map must not be finer than the matrix."""
    if isinstance(measure, Mass):
        try:
            keys = key_set(measure.keys)
        except Refused as refused:
            reasons += [replace(each, what=f"{measure.name}: {each.what}") for each in refused.reasons]
            return measure
        return replace(measure, keys=everything() if keys is None else keys)
    if isinstance(measure, PooledMap):
        Q, K = (dims[name] for name in "QK")
        if measure.rows > Q or measure.columns > K:
            reasons.append(
                Reason(
                    f"{measure.name} has more cells than the matrix",
                    f"{measure.rows} × {measure.columns}",
                    f"at most Q × K = {Q} × {K}",
                    f"pooled({min(measure.rows, Q)}, {min(measure.columns, K)})",
                )
            )
    return measure
