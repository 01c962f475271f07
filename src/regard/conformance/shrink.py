"""Shrinks a failing call to a small one, in a fixed order, so that equal failures give equal counterexamples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..laws.call import AXES, Call

Fails = Callable[[Call], bool]
CALLS, SECONDS = 400, 6.0  # at most, for one counterexample


def shrunk(call: Call, fails: Fails, *, numbers: bool = True) -> Call:
    """The smallest call that was found to fail in the same way: fewer arguments, entries, heads, rows, keys and depth,
    then, if `numbers`, numbers that can be checked by hand.
    """
    until, left = time.monotonic() + SECONDS, iter(range(CALLS))

    def still(candidate: Call) -> bool:
        return time.monotonic() < until and next(left, None) is not None and fails(candidate)

    for step in (_without_arguments, _smaller, _simpler_masks):
        changed = True
        while changed:
            changed = False
            for candidate in step(call):
                if still(candidate):
                    call, changed = candidate, True
                    break
    return _with_simpler_numbers(call, still) if numbers else call


def _with_simpler_numbers(call: Call, still: Fails) -> Call:
    """The call with simpler numbers, array by array."""
    for name in ("v", "k", "q", "bias", "sinks", "dout", "dlse"):
        array = getattr(call, name)
        if array is None:
            continue
        for simpler in _numbers(array):
            if not _same(simpler, array) and still(call.changed(**{name: simpler})):
                call = call.changed(**{name: simpler})
                break
    return call


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one.astype(np.float64), other.astype(np.float64), equal_nan=True)


def _without_arguments(call: Call) -> Iterator[Call]:
    for name in ("softcap", "bias", "sinks", "window", "lengths", "mask", "scale", "dropout", "dlse"):
        if getattr(call, name) is not None:
            yield call.changed(**{name: None})
    if call.causal:
        yield call.changed(causal=False)
    if call.memory != "contiguous":
        yield call.changed(memory="contiguous")


def _smaller(call: Call) -> Iterator[Call]:
    sizes = call.dims
    yield from _cuts(call, "BG")
    for count in _counts(sizes["H"] // max(sizes["G"], 1)):  # of the heads that share a key head
        yield cut(call, "H", sharing(call, (slice(None), slice(count))))
    yield from _cuts(call, "QK")
    for one, other in ("QK", "DE"):
        for count in _counts(sizes[one]) if sizes[one] == sizes[other] else ():
            yield cut(cut(call, one, slice(0, count)), other, slice(0, count))
    for axis in "DE":
        for count in _counts(sizes[axis]):
            yield cut(call, axis, slice(0, count))


def _cuts(call: Call, axes: str) -> Iterator[Call]:
    """The call with fewer entries along one of these axes."""
    for axis in axes:
        size = call.dims[axis]
        for count in _counts(size):
            for start in dict.fromkeys((0, size - count, (size - count) // 2)):  # the first, the last, the middle
                yield cut(call, axis, slice(start, start + count))


def _counts(size: int) -> Iterator[int]:
    """Smaller sizes, the smallest first."""
    for count in dict.fromkeys((1, 2, 3, size // 4, size // 2, size - 1)):
        if 0 < count < size:
            yield count


ARRAYS = {
    **{name: AXES[name] for name in "qkv"},
    "mask": "BHQK",
    "bias": "BHQK",
    "lengths": "B",
    "sinks": "H",
    "dout": AXES["out"],
    "dlse": AXES["lse"],
}


def cut(call: Call, axis: str, part: slice | np.ndarray) -> Call:
    """The call with a part of one axis. A head axis is cut by key heads, with the query heads that share them."""
    if axis == "G":
        call = cut(call, "H", sharing(call, part))
    changes = {}
    for name, axes in ARRAYS.items():
        array, at = getattr(call, name), axes.find(axis)
        if array is not None and at >= 0 and array.shape[at] > 1:
            changes[name] = array[(slice(None),) * at + (part,)]
    if axis == "K" and isinstance(part, slice) and call.lengths is not None:
        changes["lengths"] = np.minimum(call.lengths, part.stop - part.start)
    return call.changed(**changes)


def sharing(call: Call, part: Any) -> np.ndarray:
    """The query heads that share some key heads. part: an index into (key heads, query heads of each)"""
    return np.arange(call.dims["H"]).reshape(call.dims["G"], -1)[part].ravel()


def _simpler_masks(call: Call) -> Iterator[Call]:
    for name, plain in (("mask", True), ("bias", 0.0)):
        array = getattr(call, name)
        if array is None:
            continue
        for place in np.argwhere(array != plain):
            simpler = array.copy()
            simpler[tuple(place)] = plain
            yield call.changed(**{name: simpler})


def _numbers(array: np.ndarray) -> list[np.ndarray]:
    """Simpler numbers for an array, the simplest first: 0, 1, one-hot, few digits. NaN and infinities stay."""
    wide = array.astype(np.float64)
    simpler: list[np.ndarray] = [np.zeros(array.shape), np.ones(array.shape)]
    if array.ndim >= 2:
        rows, columns = array.shape[-2:]
        simpler += [np.eye(rows, columns), np.arange(1.0, rows + 1)[:, None]]
    simpler.append(np.arange(float(array.size)).reshape(array.shape))
    with np.errstate(all="ignore"):
        simpler += [np.sign(wide), np.round(wide), np.round(wide, 1), np.round(wide, 2)]
        return [np.where(np.isfinite(wide), numbers, wide).astype(array.dtype) for numbers in simpler]
