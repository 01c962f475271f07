"""Bounds: whatever the operator and the intervals, no value leaves them; ranges of arrays are checked against brute
force.
"""

from __future__ import annotations

import numpy as np
import pytest

import regard as rg
from regard.language.analysis import bounds
from regard.language.intervals import EXACT, Interval, RangeTable, point, sound
from regard.language.operators import OPERATORS

SPECIAL = np.array([0.0, 1.0, -1.0, 0.5, 2.0**31, -(2.0**40), 2.0**53 - 1, 1e-300, 1e300, np.inf, -np.inf])


def intervals(random, kind: str, count: int) -> Interval:
    """Random intervals of numbers (n), of whole numbers (i), or of truth (b)."""
    if kind == "b":
        a, b = random.integers(0, 2, (2, count)).astype(np.float64)
    elif kind == "i":
        a, b = random.integers(-9, 10, (2, count)).astype(np.float64) * random.choice([1, 7, 1000], count)
    else:
        a, b = random.normal(size=(2, count)) * random.choice([0.1, 3, 1000], count)
        a = np.where(random.random(count) < 0.15, random.choice(SPECIAL, count), a)
        b = np.where(random.random(count) < 0.15, random.choice(SPECIAL, count), b)
    b = np.where(random.random(count) < 0.2, a, b)
    return sound(Interval(np.minimum(a, b), np.maximum(a, b)))


def members(random, x: Interval, kind: str, samples: int) -> np.ndarray:
    """(samples, …) numbers of each interval, its ends among them."""
    share = random.random((samples, len(x.lo)))
    share[:2] = [[0.0], [1.0]]
    lo, hi = np.clip(x.lo, -1e308, 1e308), np.clip(x.hi, -1e308, 1e308)
    inside = np.clip(lo * (1 - share) + hi * share, lo, hi)
    if kind != "n":
        return np.clip(np.rint(inside), lo, hi).astype(np.int64 if kind == "i" else np.bool_)
    inside[0], inside[1] = x.lo, x.hi
    return inside


@pytest.mark.parametrize("numbers", ["n", "i"], ids=["floats", "integers"])
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_no_value_leaves_its_bounds(name, numbers):
    """For every operator: the value at any members of the intervals is within the bounds, and NaN only where they allow
    so.
    """
    row = OPERATORS[name]
    for seed in range(20):
        random = np.random.default_rng(seed)
        kinds = [numbers if code in "nx" else "b" for code in row.takes]
        tiles = [intervals(random, kind, 300) for kind in kinds]
        with np.errstate(all="ignore"):
            found = row.bounds(*tiles)
            values = np.asarray(
                row.value(*(members(random, x, kind, 25) for x, kind in zip(tiles, kinds, strict=True)))
            )
        values = values.astype(np.float64)
        lo, hi, nan = (np.broadcast_to(part, values.shape) for part in found)
        missing = np.isnan(values)
        assert nan[missing].all()
        assert (lo <= values)[~missing].all() and (values <= hi)[~missing].all()


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("add", (1, 2), (10, 20), (11, 22)),
        ("sub", (1, 2), (10, 20), (-19, -8)),
        ("mul", (-2, 3), (-5, 1), (-15, 10)),
        ("floordiv", (7, 9), (2, 2), (3, 4)),
        ("mod", (16, 19), (8, 8), (0, 3)),
        ("mod", (15, 16), (8, 8), (0, 8)),
        ("minimum", (1, 5), (3, 4), (1, 4)),
        ("maximum", (1, 5), (3, 4), (3, 5)),
        ("lt", (1, 2), (3, 4), (1, 1)),
        ("lt", (1, 3), (3, 4), (0, 1)),
        ("le", (4, 5), (1, 3), (0, 0)),
        ("eq", (4, 4), (4, 4), (1, 1)),
        ("ne", (4, 4), (4, 4), (0, 0)),
    ],
)
def test_closed_forms(name, x, y, expected):
    """Where a closed form exists, the bounds are the tightest there are (a remainder across periods is the whole
    period).
    """
    found = OPERATORS[name].bounds(*(Interval(*np.array(part, np.float64)) for part in (x, y)))
    assert (float(found.lo), float(found.hi)) == expected


def test_a_term_on_both_sides_cancels():
    """Differences of positions are exact, however they are written."""
    ranges = {"query": Interval(np.array([10.0]), np.array([20.0])), "key": Interval(np.array([0.0]), np.array([5.0]))}
    for rule in (
        rg.key <= rg.query,
        rg.query + 3 > rg.query,
        2 * rg.query - rg.key >= rg.query + 5,
        -rg.key < rg.query - 4,
    ):
        found = bounds(rule, ranges)
        assert found.lo == found.hi == 1, rule
    assert bounds(rg.query - rg.key < 6, ranges)[:2] == (0, 1)


def test_integers_past_the_exact_ones_open_up():
    """A whole number that float64 cannot hold is never taken for its neighbour."""
    for number in (2**53, 2**53 + 1, -(2**53) - 1, 2**62):
        found = point(np.int64(number))
        assert found.lo <= number <= found.hi and np.isinf([found.lo, found.hi]).any()
    huge = {"query": point(2.0**40), "key": point(1.0)}
    rule = (rg.query * 8192) * 8192 + rg.key > (rg.query * 8192) * 8192
    assert bounds(rule, huge).hi == 1
    assert point(EXACT - 1).lo == point(EXACT - 1).hi


def ranges_of(random, size: int, count: int) -> Interval:
    """Random ranges of indices, some of them outside the array."""
    a, b = np.sort(random.integers(-3, size + 3, (2, count)), axis=0).astype(np.float64)
    return Interval(a, np.where(random.random(count) < 0.2, a, b))


def brute(array: np.ndarray, index) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minimum, maximum and NaN of array[index] by taking each rectangle out of the array."""
    found = []
    for box in zip(*(zip(part.lo, part.hi, strict=True) for part in index), strict=True):
        cut = array[
            tuple(
                slice(int(np.clip(lo, 0, size - 1)), int(np.clip(hi, 0, size - 1)) + 1)
                for (lo, hi), size in zip(box, array.shape, strict=True)
            )
        ].astype(np.float64)
        found.append((np.fmin.reduce(cut, None), np.fmax.reduce(cut, None), np.isnan(cut).any()))
    lo, hi, nan = zip(*found, strict=True)
    return np.array(lo), np.array(hi), np.array(nan)


ARRAYS = {
    "rising": lambda r: np.sort(r.integers(0, 50, 137)),
    "falling": lambda r: np.sort(r.integers(0, 50, 137))[::-1],
    "any": lambda r: r.integers(-50, 50, 137),
    "booleans": lambda r: r.random(137) < 0.9,
    "floats": lambda r: r.normal(size=137),
    "one": lambda r: r.integers(0, 9, 1),
    "short": lambda r: r.integers(0, 9, 2),
    "rising rows": lambda r: np.sort(r.integers(0, 50, (5, 64)), axis=1),
    "rows": lambda r: r.integers(0, 50, (5, 33)),
    "columns": lambda r: r.integers(0, 50, (65, 3)),
    "boolean image": lambda r: r.random((23, 41)) < 0.97,
    "boolean images": lambda r: r.random((2, 3, 17, 16)) < 0.9,
}


@pytest.mark.parametrize("cells", [1 << 17, 8], ids=["exact", "in cells"])
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("seed", range(5))
def test_ranges_of_arrays(name, seed, cells, monkeypatch):
    """Bounds of an array over ranges: exact along one axis and for boolean images; wider in cells, but never wrong."""
    monkeypatch.setattr(RangeTable, "CELLS", cells)
    monkeypatch.setattr(RangeTable, "IMAGE", cells)
    random = np.random.default_rng(seed)
    array = ARRAYS[name](random)
    for ranged in range(min(2, array.ndim) + 1):
        index = [ranges_of(random, size, 200) for size in array.shape]
        still = array.ndim - ranged
        index = [Interval(part.lo, part.lo) if axis < still else part for axis, part in enumerate(index)]
        lo, hi, _ = brute(array, index)
        summary = RangeTable(array)
        found = summary.bounds(index)
        assert (found.lo <= lo).all() and (hi <= found.hi).all()
        if cells > array.size and (ranged < 2 or array.dtype == np.bool_):
            assert (found.lo == lo).all() and (hi == found.hi).all()
        again = summary.bounds(index)  # the summaries are kept
        assert (again.lo == found.lo).all() and (again.hi == found.hi).all()


def test_ranges_of_arrays_with_nan():
    """A range that holds a NaN says so, and everything is possible in it."""
    random = np.random.default_rng(0)
    array = np.arange(100.0)
    array[[7, 50]] = np.nan
    index = [ranges_of(random, 100, 300)]
    lo, hi, nan = brute(array, index)
    found = RangeTable(array).bounds(index)
    assert np.broadcast_to(found.nan, nan.shape)[nan].all()
    with np.errstate(invalid="ignore"):
        assert ((found.lo <= lo) & (hi <= found.hi) | np.isnan(lo)).all()
    assert np.isinf(found.lo[nan]).all() and np.isfinite(found.lo[~nan]).all()
