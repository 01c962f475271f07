"""Sums of a tile's rows over keys: what a lane accumulates, and how two partial sums of the same rows are merged.

With d = s - m ≤ 0 and p = 2**(exponent · d), every lane accumulates those requested of

    total     Σ p                 surprise  Σ p · d   they give the entropy
    moments   Σ p, Σ p·x, Σ p·x²  x = query − key, in float64
    sets      Σ p over each set of keys
    best      the largest scores, in descending order, and their keys
    least, most   of the scores     counted   keys attended, NaN, +inf

The first four depend on m and are rounded: they are partial sums on the stack of a tree (tree.py). The others are exact
in any order, so there is one of each per row. When m grows by δ, d of earlier keys decreases by δ:
Σ p (d - δ) = Σ p d - δ Σ p, and every sum is multiplied by α = 2**(-exponent · δ). Merging two partial sums is: raise
both to the larger m, then add. An empty one (m = -inf, sums 0) has α = 0 and the other one 1, which is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...code.ir import F32, F64, I32, Code, vector
from .softmax import Running
from .tile import Memory, Tile

__all__ = ["Lanes", "PartialSums", "Sums", "lanes_of"]

ROUNDED = ("total", "surprise", "moments", "sets")  # the sums that depend on m


@dataclass(frozen=True)
class Sums:
    """The sums that a kernel computes. sets: number of sets of keys; best: number of keys per row."""

    surprise: bool
    moments: bool
    sets: int
    best: int
    reach: bool
    counted: bool

    def kept(self, real: np.dtype) -> dict[str, tuple[int, np.dtype, float]]:
        """The accumulators of every lane, by name: (how many, their dtype, their initial value)."""
        whole, double = np.dtype(np.int32), np.dtype(np.float64)
        found = {
            "maximum": (1, real, -math.inf),
            "total": (1, real, 0),
            "surprise": (int(self.surprise), real, 0),
            "moments": (3 * self.moments, double, 0),
            "sets": (self.sets, real, 0),
            "best": (self.best, real, -math.inf),
            "best_keys": (self.best, whole, -1),
            "least": (int(self.reach), real, math.inf),
            "most": (int(self.reach), real, -math.inf),
            "counted": (3 * self.counted, whole, 0),
        }
        return {name: row for name, row in found.items() if row[0]}

    def bytes_of(self, real: np.dtype, rows: int) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes by name for a tile of `rows` rows: of the exact accumulators, and of one entry of the stack."""
        sizes = {name: count * rows * dtype.itemsize for name, (count, dtype, _) in self.kept(real).items()}
        entry = {"running": len(Running.ROWS) * rows * real.itemsize}
        entry |= {name: size for name, size in sizes.items() if name in ROUNDED}
        return {name: size for name, size in sizes.items() if name not in ("maximum", *ROUNDED)}, entry


class Lanes(NamedTuple):
    """Rows of lanes in working memory, each as wide as the tile: `vectors` vectors of numbers of `size` bytes."""

    code: Code
    memory: Any
    type: Any
    size: int
    vectors: int

    def place(self, number: int, row):
        """The address of a vector of a row, given as an int or as a value at run time."""
        step = self.type.count * self.size
        base = self.code.at(self.memory, step * number)
        if isinstance(row, int):
            return self.code.at(base, step * self.vectors * row)
        return self.code.at(base, self.code.mul(row, self.code.index(step * self.vectors)))

    def get(self, number: int, row=0):
        return self.code.get(self.place(number, row), self.type, align=min(64, self.type.count * self.size))

    def put(self, value, number: int, row=0) -> None:
        self.code.put(value, self.place(number, row), align=min(64, self.type.count * self.size))

    def fill(self, value: float, rows: int) -> None:
        """Sets the first `rows` rows to a number."""
        with self.code.loop(self.code.index(0), self.code.index(rows)) as row:
            for number in range(self.vectors):
                self.put(self.code.number(value, self.type), number, row.index)


TYPES = {"float32": F32, "float64": F64, "int32": I32}


def lanes_of(tile: Tile, memory, dtype: np.dtype) -> Lanes:
    """Rows of a tile's lanes at an address."""
    return Lanes(tile.code, memory, vector(TYPES[dtype.name], tile.lanes), dtype.itemsize, tile.vectors)


class PartialSums:
    """The rounded sums of some keys, at an address: m, and the rows of lanes by name.

    factors: the exponent and the unit of the softmax, in every lane.
    """

    def __init__(self, tile: Tile, memory, sums: Sums, real: np.dtype, factors: tuple):
        self.code, self.tile = tile.code, tile
        places = Memory(tile.code, memory, sums.bytes_of(real, tile.spec.rows)[1])
        self.run = Running(tile.code, places["running"], tile.type, tile.vectors, *factors)
        self.counts = {name: row[0] for name, row in sums.kept(real).items() if name in ROUNDED}
        self.rows = {name: lanes_of(tile, places[name], sums.kept(real)[name][1]) for name in self.counts}

    def begin(self) -> None:
        """The sums of no keys."""
        self.run.begin()
        for name, count in self.counts.items():
            self.rows[name].fill(0, count)

    def shift(self, number: int):
        """m, or 0 if every key is masked."""
        code, top = self.code, self.run.state(number)[0]
        return code.select(code.fcmp_ordered("==", top, code.number(-math.inf, top)), code.number(0.0, top), top)

    def rescale(self, number: int, alpha, decrease) -> None:
        """Rescales the sums to a larger maximum; decrease: the old maximum minus the new one."""
        code, rows, lowest = self.code, self.rows, self.run.exponent[1]
        total = code.fmul(rows["total"].get(number), alpha)
        rows["total"].put(total, number)
        if "surprise" in rows:
            # If the decrease is so large that α is 0, so is the total, and any finite number is correct.
            decrease = code.select(code.fcmp_ordered("<", decrease, lowest), lowest, decrease)
            surprise = code.fmul(rows["surprise"].get(number), alpha)
            rows["surprise"].put(code.fma(decrease, total, surprise), number)
        for name, factor in (("sets", alpha), ("moments", self.widened(alpha))):
            for row in range(self.counts.get(name, 0)):
                rows[name].put(code.fmul(rows[name].get(number, row), factor), number, row)

    def widened(self, value):
        """As float64."""
        return value if self.tile.real == F64 else self.code.fpext(value, vector(F64, self.tile.lanes))

    def merge(self, later: PartialSums) -> None:
        """Merges the sums of later keys into these, and leaves `later` undefined."""
        code = self.code
        for number in range(self.tile.vectors):
            shifts = [part.shift(number) for part in (self, later)]
            factor = self.run.merge(number, *later.run.state(number))
            top = self.shift(number)
            for part, alpha, shift in zip((self, later), (self.run.factor(number), factor), shifts, strict=True):
                part.rescale(number, alpha, code.fsub(shift, top))
            for name, count in self.counts.items():
                mine, theirs = self.rows[name], later.rows[name]
                for row in range(count):
                    mine.put(code.fadd(mine.get(number, row), theirs.get(number, row)), number, row)
