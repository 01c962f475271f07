"""Interval arithmetic: bounds of a number over a tile, vectorized over tiles.

An `Interval` has two float64 arrays, one entry per tile, and whether NaN is possible. Endpoints are computed by the
operations that compute the values, so they remain sound under rounding, which is monotone. Integers beyond 2**53, where
float64 is not exact, become unbounded, and arithmetic on them may wrap around 64 bits (see `wrapped`). A condition is
an interval too: [1, 1] always true, [0, 0] never, [0, 1] unknown. An interval may be wider than necessary, which costs
speed but not correctness.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

EXACT = 2.0**53


class Interval(NamedTuple):
    lo: np.ndarray
    hi: np.ndarray
    nan: np.ndarray | bool = False


def point(value) -> Interval:
    """The interval of one number."""
    value = np.asarray(value, dtype=np.float64)
    return sound(Interval(value, value))


def truth(surely, possibly) -> Interval:
    """The interval of a condition that is `surely` true, or `possibly` true."""
    return Interval(np.asarray(surely, np.float64), np.asarray(possibly, np.float64))


def sound(x: Interval) -> Interval:
    """Replaces NaN endpoints, and endpoints beyond the exact integers, by infinities."""
    if reach(x) < EXACT:  # nearly always; false for NaN
        return x
    lost = np.isnan(x.lo) | np.isnan(x.hi)
    lo = np.where(lost | (np.abs(x.lo) >= EXACT), np.where(lost | (x.lo < 0), -np.inf, EXACT), x.lo)
    hi = np.where(lost | (np.abs(x.hi) >= EXACT), np.where(lost | (x.hi > 0), np.inf, -EXACT), x.hi)
    return Interval(lo, hi, x.nan | lost)


def wrapped(x: Interval) -> Interval:
    """The interval of an integer result: unbounded if it may leave 64 bits, because it then wraps around."""
    lost = ~((np.abs(x.lo) < EXACT) & (np.abs(x.hi) < EXACT))
    return Interval(np.where(lost, -np.inf, x.lo), np.where(lost, np.inf, x.hi), x.nan)


def reach(x: Interval) -> float:
    """An upper bound of the magnitude of all entries; NaN if an endpoint is NaN."""
    return abs(np.min(x.lo, initial=0.0)) + abs(np.max(x.hi, initial=0.0))


def hull(corners, nan) -> Interval:
    """The smallest interval that contains the values at all corners; unbounded if one is NaN."""
    corners = np.broadcast_arrays(*corners)
    lo = functools.reduce(np.minimum, corners)
    hi = functools.reduce(np.maximum, corners)
    return sound(Interval(lo, hi, nan))


def unbounded(value):
    return np.isinf(value.lo) | np.isinf(value.hi)


def spans_zero(value):
    return (value.lo <= 0) & (value.hi >= 0)


def whole(value):
    """Whether both ends are integers: the rounded quotient of two is then on the correct side of every integer."""
    with np.errstate(invalid="ignore"):
        return (np.floor(value.lo) == value.lo) & (np.floor(value.hi) == value.hi) & ~unbounded(value)


def add(x, y):
    # inf - inf is NaN.
    return sound(Interval(x.lo + y.lo, x.hi + y.hi, x.nan | y.nan | (unbounded(x) & unbounded(y))))


def neg(x):
    return Interval(-x.hi, -x.lo, x.nan)


def sub(x, y):
    return add(x, neg(y))


def mul(x, y):
    with np.errstate(invalid="ignore"):
        corners = [x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi]
    # 0 · inf is NaN, and the 0 may be between the ends.
    return hull(corners, x.nan | y.nan | (unbounded(x) & spans_zero(y)) | (unbounded(y) & spans_zero(x)))


def div(x, y):
    crosses = spans_zero(y)
    with np.errstate(all="ignore"):
        corners = [x.lo / y.lo, x.lo / y.hi, x.hi / y.lo, x.hi / y.hi]
    found = hull(corners, x.nan | y.nan | crosses)
    return Interval(np.where(crosses, -np.inf, found.lo), np.where(crosses, np.inf, found.hi), found.nan)


def floordiv(x, y):
    """The floor of the quotient: both are monotone, so the corners are bounds; -0 by an infinite divisor means -1."""
    crosses = spans_zero(y)
    with np.errstate(all="ignore"):
        corners = [np.floor(a / b) for a in (x.lo, x.hi) for b in (y.lo, y.hi)]
    found = hull(corners, x.nan | y.nan | crosses)
    lo = np.where(unbounded(y), found.lo - 1, found.lo)
    return Interval(np.where(crosses, -np.inf, lo), np.where(crosses, np.inf, found.hi), found.nan)


def mod(x, y):
    """The remainder: within one period it is monotone; across periods it has the full range."""
    fixed = (y.lo == y.hi) & (y.lo != 0) & whole(x) & whole(y)
    divisor = np.where(fixed, y.lo, 1.0)
    with np.errstate(all="ignore"):
        inside = fixed & (np.floor(x.lo / divisor) == np.floor(x.hi / divisor))
        at_lo, at_hi = np.mod(x.lo, divisor), np.mod(x.hi, divisor)
    lo = np.where(inside, np.minimum(at_lo, at_hi), np.minimum(y.lo, 0.0))
    hi = np.where(inside, np.maximum(at_lo, at_hi), np.maximum(y.hi, 0.0))
    return sound(Interval(lo, hi, x.nan | y.nan | spans_zero(y) | unbounded(x)))


def absolute(x):
    a, b = np.abs(x.lo), np.abs(x.hi)
    return Interval(np.where(spans_zero(x), 0.0, np.minimum(a, b)), np.maximum(a, b), x.nan)


def minimum(x, y):
    return Interval(np.minimum(x.lo, y.lo), np.minimum(x.hi, y.hi), x.nan | y.nan)


def maximum(x, y):
    return Interval(np.maximum(x.lo, y.lo), np.maximum(x.hi, y.hi), x.nan | y.nan)


def where(condition, x, y):
    yes, no = condition.lo >= 1, condition.hi <= 0
    return Interval(
        np.where(yes, x.lo, np.where(no, y.lo, np.minimum(x.lo, y.lo))),
        np.where(yes, x.hi, np.where(no, y.hi, np.maximum(x.hi, y.hi))),
        (x.nan & ~no) | (y.nan & ~yes),
    )


def exactly(function):
    """Bounds of an increasing function that every engine computes exactly (floor, ceil …)."""

    def bounds(x):
        return sound(Interval(function(x.lo), function(x.hi), x.nan))

    return bounds


def rising(function, domain=(-np.inf, np.inf)):
    """Bounds of an increasing function whose implementations may differ by a few units in the last place."""

    def bounds(x):
        outside = (x.lo < domain[0]) | (x.hi > domain[1])
        with np.errstate(all="ignore"):
            lo, hi = function(np.maximum(x.lo, domain[0])), function(np.minimum(x.hi, domain[1]))
        slack = 1e-12
        return sound(Interval(lo - slack * np.abs(lo), hi + slack * np.abs(hi), x.nan | outside))

    return bounds


def within(lo, hi):
    """Bounds of a function by its range only, such as the sine; NaN at infinities."""

    def bounds(x):
        shape = np.shape(x.lo)
        return Interval(np.full(shape, lo), np.full(shape, hi), x.nan | unbounded(x))

    return bounds


def anything(*arguments):
    """Bounds of a function of which nothing is known."""
    shape = np.broadcast_shapes(*(np.shape(x.lo) for x in arguments))
    return Interval(np.full(shape, -np.inf), np.full(shape, np.inf), True)


def sign(difference: Interval, test) -> Interval:
    """The interval of the condition `test(difference)`; `test` maps both ends to (surely, possibly)."""
    surely, possibly = test(difference.lo, difference.hi)
    return truth(surely & ~np.asarray(difference.nan), possibly | difference.nan)


COMPARISONS = {
    "lt": lambda lo, hi: (hi < 0, lo < 0),
    "le": lambda lo, hi: (hi <= 0, lo <= 0),
    "gt": lambda lo, hi: (lo > 0, hi > 0),
    "ge": lambda lo, hi: (lo >= 0, hi >= 0),
    "eq": lambda lo, hi: ((lo == 0) & (hi == 0), (lo <= 0) & (hi >= 0)),
    "ne": lambda lo, hi: ((lo > 0) | (hi < 0), (lo != 0) | (hi != 0)),
}


def comparison(name):
    """Bounds of x < y and the other comparisons, from both operands."""
    test = COMPARISONS[name]

    def bounds(x, y):
        # The sign of the difference of the endpoints is exact; equal infinities are undecided.
        with np.errstate(invalid="ignore"):
            difference = Interval(x.lo - y.hi, x.hi - y.lo, x.nan | y.nan)
        return sign(sound(difference), test)

    return bounds


logical_and, logical_or = minimum, maximum  # of conditions, which are 0 or 1 and never NaN


def logical_not(x):
    return Interval(1 - x.hi, 1 - x.lo)


def logical_xor(x, y):
    known = (x.lo == x.hi) & (y.lo == y.hi)
    value = (x.lo != y.lo).astype(np.float64)
    return Interval(np.where(known, value, 0.0), np.where(known, value, 1.0))


def _power(*arguments):
    """The least 2**p such that all arguments are in [-2**p, 2**p); infinite beyond exact integers."""
    most = functools.reduce(np.maximum, [np.maximum(x.hi, -x.lo - 1) for x in arguments])
    far = ~(most < EXACT)
    return np.where(far, np.inf, np.ldexp(1.0, np.frexp(np.where(far | (most < 1), 0, np.floor(most)))[1]))


def _bitwise(function, bounds):
    """Bounds of a bitwise function of two integers: its value where both are known, else what `bounds` says."""

    def between(x, y):
        known = (x.lo == x.hi) & (y.lo == y.hi) & (np.abs(x.lo) < EXACT) & (np.abs(y.lo) < EXACT)
        a, b = (np.where(known, each.lo, 0).astype(np.int64) for each in (x, y))
        value, (lo, hi) = function(a, b).astype(np.float64), bounds(x, y)
        return Interval(np.where(known, value, lo), np.where(known, value, hi))

    return between


def _bounds_of_and(x, y):
    """Between numbers of 0 and more the smaller one bounds it; beside a negative one, the other."""
    either = (x.lo >= 0) | (y.lo >= 0)
    beside_x = np.where(y.lo >= 0, np.minimum(x.hi, y.hi), x.hi)
    beside_any = np.where(y.lo >= 0, y.hi, np.maximum(x.hi, y.hi))
    return np.where(either, 0.0, -_power(x, y)), np.where(x.lo >= 0, beside_x, beside_any)


def _bounds_of_or(x, y):
    positive = (x.lo >= 0) & (y.lo >= 0)
    return np.where(positive, 0.0, -_power(x, y)), _power(x, y) - 1


bitand = _bitwise(np.bitwise_and, _bounds_of_and)
bitor = _bitwise(np.bitwise_or, _bounds_of_or)
bitxor = _bitwise(np.bitwise_xor, _bounds_of_or)


def _bits(y):
    """The smallest and the largest number of bits of a shift, and whether there may be 64 or more, as below 0."""
    beyond = (y.lo < 0) | (y.hi > 63)
    return np.clip(np.where(y.lo < 0, 0, y.lo), 0, 63), np.where(beyond, 63, np.clip(y.hi, 0, 63)), beyond


def lshift(x, y):
    """x · 2**y, which wraps around; 0 where all bits are lost."""
    least, most, beyond = _bits(y)
    found = mul(x, Interval(np.exp2(least), np.exp2(most)))
    lo, hi = np.minimum(found.lo, 0), np.maximum(found.hi, 0)
    return wrapped(Interval(np.where(beyond, lo, found.lo), np.where(beyond, hi, found.hi)))


def rshift(x, y):
    """⌊x / 2**y⌋, which is 0 or -1 where all bits are lost."""
    least, most, _ = _bits(y)
    return floordiv(x, Interval(np.exp2(least), np.exp2(most)))


def between(low: float, high: float) -> Interval:
    """The numbers from low to high, and NaN if low is infinite."""
    return Interval(np.array([low], np.float64), np.array([high], np.float64), not np.isfinite(low))


class Extremes:
    """The bounds of a table wherever it is read: the smallest and largest value of integers, none for floats and for
    tensors that have no numbers yet.
    """

    def __init__(self, table):
        known = table.kind != "float" and isinstance(table.array, np.ndarray)
        self.ends = between(table.array.min(), table.array.max()) if known else between(-np.inf, np.inf)

    def bounds(self, _: list[Interval]) -> Interval:
        return self.ends


class RangeTable:
    """Minimum and maximum of an array over index ranges, many ranges at once.

    One ranged axis: the ends of the range if the array is increasing along it (as document numbers are), else a sparse
    table (every power of two) over small cells. Two ranged axes of a boolean array: counts by an integral image.
    Anything else: the minimum and maximum of the array.
    """

    CELLS = 1 << 17  # a sparse table has at most this many cells, so that a million entries cost a few milliseconds
    IMAGE = 1 << 22  # an integral image has at most this many cells
    EXACT = 1 << 14  # an array with more elements is summarized in cells: plans have no smaller tiles
    TILE = 8

    def __init__(self, array: np.ndarray):
        self.array = array if array.dtype.kind in "biuf" else array.astype(np.float32)  # an added dtype, as bfloat16
        self.rising: dict[int, bool] = {}
        self.sparse: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}
        self.images: dict[tuple[int, int], tuple[np.ndarray, np.ndarray, int]] = {}

    def bounds(self, index: list[Interval]) -> Interval:
        """The interval of array[index] with clamped indices."""
        if self.array.size == 0:
            return Interval(np.zeros(()), np.zeros(()))
        shape = np.broadcast_shapes(*(np.shape(part.lo) for part in index))
        first, last = [], []
        for part, size in zip(index, self.array.shape, strict=True):
            first.append(np.broadcast_to(np.clip(part.lo, 0, size - 1).astype(np.int64), shape))
            last.append(np.broadcast_to(np.clip(part.hi, 0, size - 1).astype(np.int64), shape))
        ranged = [axis for axis in range(len(index)) if (first[axis] != last[axis]).any()]
        if not ranged:
            return self._interval(self.array[tuple(first)], self.array[tuple(first)])
        if len(ranged) == 1:
            if self._rises(ranged[0]):
                return self._interval(self.array[tuple(first)], self.array[tuple(last)])
            return self._along(ranged[0], first, last)
        if len(ranged) == 2 and self.array.dtype == np.bool_:
            return self._image(ranged, first, last)
        lo, hi = self.whole
        return self._interval(np.broadcast_to(lo, shape), np.broadcast_to(hi, shape))

    @functools.cached_property
    def whole(self):
        return self.array.min(), self.array.max()

    @staticmethod
    def _interval(lo, hi) -> Interval:
        return sound(Interval(np.asarray(lo, np.float64), np.asarray(hi, np.float64)))

    def _rises(self, axis: int) -> bool:
        if axis not in self.rising:
            turned = np.moveaxis(self.array, axis, -1)
            self.rising[axis] = bool((turned[..., 1:] >= turned[..., :-1]).all())  # False with a NaN
        return self.rising[axis]

    def _along(self, axis, first, last) -> Interval:
        if axis not in self.sparse:
            turned = np.moveaxis(self.array, axis, -1)
            cell = _cell(turned.size, self.CELLS, 1)
            starts = np.arange(0, turned.shape[-1], cell)
            self.sparse[axis] = (
                _doubling(np.minimum, np.minimum.reduceat(turned, starts, axis=-1)),
                _doubling(np.maximum, np.maximum.reduceat(turned, starts, axis=-1)),
                cell,
            )
        low, high, cell = self.sparse[axis]
        others = [part for number, part in enumerate(first) if number != axis]
        left, right = first[axis] // cell, last[axis] // cell
        power = np.frexp((right - left + 1).astype(np.float64))[1] - 1
        right = right + 1 - (1 << power.astype(np.int64))
        ends = (power, *others, left), (power, *others, right)
        return self._interval(np.minimum(*(low[end] for end in ends)), np.maximum(*(high[end] for end in ends)))

    def _image(self, axes, first, last) -> Interval:
        if tuple(axes) not in self.images:
            turned = np.moveaxis(self.array, axes, (-2, -1))
            cell = _cell(turned.size, self.IMAGE, 2)
            if turned.size > self.EXACT:
                cell = max(cell, self.TILE)
            some = every = turned
            if cell > 1:
                some, every = (_by_cells(each, turned, cell) for each in (np.bitwise_or, np.bitwise_and))
            image = _integral(some)
            self.images[tuple(axes)] = image, image if every is some else _integral(every), cell
        some, every, cell = self.images[tuple(axes)]
        others = tuple(part for number, part in enumerate(first) if number not in axes)
        top, left = (first[axis] // cell for axis in axes)
        bottom, right = (last[axis] // cell + 1 for axis in axes)

        def count(image):
            corner = image[(*others, bottom, right)] - image[(*others, top, right)]
            return corner - image[(*others, bottom, left)] + image[(*others, top, left)]

        area = (bottom - top) * (right - left)
        return truth(count(every) == area, count(some) > 0)


def _cell(entries: int, limit: int, axes: int) -> int:
    """The smallest power of two for which the number of cells of that size, along `axes` axes, is about the limit."""
    cell = 1
    while entries > limit * cell**axes:
        cell *= 2
    return cell


def _by_cells(reduction: np.ufunc, array: np.ndarray, cell: int) -> np.ndarray:
    """A bitwise reduction of booleans over squares of the last two axes; those at the end may be smaller.

    Bytes are reduced along the rows of the array: a thirtieth of the time of `logical_or.reduceat`.
    """
    found = array.view(np.uint8)
    for axis in (-2, -1):
        found = np.moveaxis(found, axis, -2)
        whole = found.shape[-2] // cell * cell
        parts = found[..., :whole, :].reshape(*found.shape[:-2], -1, cell, found.shape[-1])
        pieces = [reduction.reduce(parts, axis=-2)]
        if whole < found.shape[-2]:
            pieces.append(reduction.reduce(found[..., whole:, :], axis=-2, keepdims=True))
        found = np.moveaxis(np.concatenate(pieces, axis=-2), -2, axis)
    return found != 0


def _doubling(smaller, cells: np.ndarray) -> np.ndarray:
    """(powers, …, n): entry [p, …, i] is the extreme of the 2**p cells from i on; the tail of a power is not read."""
    size = cells.shape[-1]
    found = np.empty((size.bit_length(), *cells.shape), cells.dtype)
    found[0] = cells
    for power in range(1, len(found)):
        half, count = 1 << (power - 1), size - (1 << power) + 1
        smaller(
            found[power - 1, ..., :count], found[power - 1, ..., half : half + count], out=found[power, ..., :count]
        )
    return found


def _integral(cells: np.ndarray) -> np.ndarray:
    """Sums over all cells above and to the left, with a leading row and column of zeros."""
    image = np.zeros((*cells.shape[:-2], cells.shape[-2] + 1, cells.shape[-1] + 1), np.int32)
    np.cumsum(cells.cumsum(-2, dtype=np.int32), axis=-1, out=image[..., 1:, 1:])
    return image
