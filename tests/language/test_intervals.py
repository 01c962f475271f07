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

SPECIAL = np.array([0, -0.0, 1, -1, 0.5, 700, -700, 2.0**31, -(2.0**40), 2.0**53 - 1, 1e-300, 1e300, np.inf, -np.inf])


def intervals(random, kind: str, count: int) -> Interval:
    """Random intervals of numbers (n), of whole numbers (i), or of truth (b)."""
    if kind == "b":
        ends = random.integers(0, 2, (2, count)).astype(np.float64)
    elif kind == "i":
        ends = random.integers(-9, 10, (2, count)) * random.choice([1.0, 7, 1000], count)
    else:
        ends = random.normal(size=(2, count)) * random.choice([0.1, 3, 1000], count)
        ends = np.where(random.random((2, count)) < 0.3, random.choice(SPECIAL, (2, count)), ends)
    ends[1] = np.where(random.random(count) < 0.2, *ends)
    return sound(Interval(ends.min(0), ends.max(0)))


def members(random, x: Interval, kind: str, samples: int) -> np.ndarray:
    """(samples, …) numbers of each interval, its ends and what is nearest to 0 among them."""
    lo, hi = np.clip(x.lo, -1e308, 1e308), np.clip(x.hi, -1e308, 1e308)
    share = random.random((samples, len(lo)))
    inside = np.clip(lo * (1 - share) + hi * share, lo, hi)
    inside[:3] = x.lo, x.hi, np.clip(0, lo, hi)
    return inside if kind == "n" else np.clip(np.rint(inside), lo, hi).astype(np.int64 if kind == "i" else np.bool_)


@pytest.mark.parametrize("numbers", ["n", "i"], ids=["floats", "integers"])
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_no_value_leaves_its_bounds(name, numbers):
    """For every operator: the value at any members of the intervals is within the bounds, and NaN only where they allow
    so. A condition on single numbers is decided.
    """
    row = OPERATORS[name]
    random = np.random.default_rng(len(name))
    kinds = [numbers if code in "nx" else code for code in row.takes]
    for _ in range(20):
        tiles = [intervals(random, kind, 300) for kind in kinds]
        with np.errstate(all="ignore"):
            found = row.bounds(*tiles)
            value = row.value(*(members(random, x, kind, 25) for x, kind in zip(tiles, kinds)))
        lo, hi, nan, value = np.broadcast_arrays(*found, np.asarray(value, np.float64))
        assert nan[np.isnan(value)].all()
        assert ((lo <= value) & (value <= hi) | np.isnan(value)).all()
        single = np.all([(x.lo == x.hi) & (np.abs(x.lo) < 2**53) for x in tiles], axis=0)
        assert row.gives != "bool" or (lo == hi)[:, single].all()


CLOSED = [
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
    ("ne", (4, 4), (4, 4), (0, 0)),
    ("bitand", (0, 9), (3, 5), (0, 5)),
    ("bitand", (-4, 9), (0, 5), (0, 5)),
    ("bitor", (0, 9), (3, 5), (0, 15)),
    ("bitxor", (6, 6), (3, 3), (5, 5)),
    ("lshift", (1, 3), (2, 4), (4, 48)),
    ("rshift", (16, 35), (2, 3), (2, 8)),
    ("rshift", (-5, 5), (1, 80), (-3, 2)),
]


@pytest.mark.parametrize(("name", "x", "y", "expected"), CLOSED)
def test_closed_forms(name, x, y, expected):
    """Where a closed form exists, the bounds are the tightest there are (a remainder across periods is the whole
    period).
    """
    found = OPERATORS[name].bounds(*(Interval(*np.array(part, np.float64)) for part in (x, y)))
    assert (float(found.lo), float(found.hi)) == expected


def test_integers_past_the_exact_ones_open_up():
    """A whole number that float64 cannot hold is never taken for its neighbour."""
    for number in (2**53, -(2**53) - 1):
        found = point(np.int64(number))
        assert found.lo <= number <= found.hi and np.isinf([found.lo, found.hi]).any()
    far = rg.query * 2**26
    assert bounds(far + rg.key > far, {"query": point(2.0**40), "key": point(1.0)}).hi == 1
    assert point(EXACT - 1).lo == point(EXACT - 1).hi


def ranges_of(random, size: int, count: int) -> Interval:
    """Random ranges of indices, some of them outside the array."""
    a, b = np.sort(random.integers(-3, size + 3, (2, count)), axis=0).astype(np.float64)
    return Interval(a, np.where(random.random(count) < 0.2, a, b))


def brute(array: np.ndarray, index) -> np.ndarray:
    """Minimum, maximum and NaN of array[index] by taking each rectangle out of the array."""
    found = []
    sides = [zip(*np.clip(part[:2], 0, size - 1).astype(int)) for part, size in zip(index, array.shape)]
    for box in zip(*sides):
        cut = array[tuple(slice(lo, hi + 1) for lo, hi in box)].astype(np.float64)
        nan = np.isnan(cut).any()
        found.append((-np.inf, np.inf, 1) if nan else (cut.min(), cut.max(), 0))
    return np.transpose(found)


ARRAYS = {
    "rising": lambda r: np.sort(r.integers(0, 50, 137)),
    "falling": lambda r: np.sort(r.integers(0, 50, 137))[::-1],
    "any": lambda r: r.integers(-50, 50, 137),
    "booleans": lambda r: r.random(137) < 0.9,
    "floats": lambda r: r.normal(size=137),
    "NaN": lambda r: np.where(r.random(137) < 0.02, np.nan, r.normal(size=137)),
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
def test_ranges_of_arrays(name, cells, monkeypatch):
    """Bounds of an array over ranges: exact along one axis and for boolean images; wider in cells, but never wrong. A
    range that holds a NaN says so, and everything is possible in it.
    """
    monkeypatch.setattr(RangeTable, "CELLS", cells)
    monkeypatch.setattr(RangeTable, "IMAGE", cells)
    random = np.random.default_rng(len(name))
    array = ARRAYS[name](random)
    for ranged in range(min(2, array.ndim) + 1):
        index = [ranges_of(random, size, 500) for size in array.shape]
        still = array.ndim - ranged
        index = [Interval(part.lo, part.lo) if axis < still else part for axis, part in enumerate(index)]
        lo, hi, nan = brute(array, index)
        summary = RangeTable(array)
        found = summary.bounds(index)
        assert ((found.lo <= lo) & (hi <= found.hi) & (found.nan >= nan)).all()
        if cells > array.size and (ranged < 2 or array.dtype == np.bool_):
            np.testing.assert_array_equal([found.lo, found.hi], [lo, hi])
        np.testing.assert_array_equal(summary.bounds(index)[:2], found[:2])  # the summaries are kept
