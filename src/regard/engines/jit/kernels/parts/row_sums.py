"""Sums of a tile's rows over keys: what a lane accumulates, and how two partial sums of the same rows are merged.

With d = s - m ≤ 0 and p = 2**(exponent · d), every lane accumulates those requested of

    total     Σ p                 surprise  Σ p · d   they give the entropy
    moments   Σ p, Σ p·x, Σ p·x²  x = query − key, in float64
    sets      Σ p over each set of keys
    best      the largest scores, in descending order, and their keys
    least, most   of the scores     counted   keys attended, NaN, +inf

The first four depend on m and are rounded, so they are partial sums on the stack of a tree (tree.py). The others are
exact in any order, and every row has one of each. When m grows by δ, d of earlier keys decreases by δ:
Σ p (d - δ) = Σ p d - δ Σ p, and all sums are multiplied by α = 2**(-exponent · δ). To merge two partial sums, both are
rescaled to the larger m and added. An empty one (m = -inf, sums 0) has α = 0 and the other one 1, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ...code.ir import F32, F64, I1, I32, Code, vector
from .softmax import merged, some_number
from .tile import Memory, Tile

ROUNDED = ("maximum", "total", "surprise", "moments", "sets")  # m, and what depends on it


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
        """Bytes by name for a tile of `rows` rows: of the exact accumulators, and of an entry of the stack."""
        sizes = {name: count * rows * dtype.itemsize for name, (count, dtype, _) in self.kept(real).items()}
        exact = {name: size for name, size in sizes.items() if name not in ROUNDED}
        return exact, {name: size for name, size in sizes.items() if name in ROUNDED}


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
        return self.code.at(base, row, step * self.vectors)

    def get(self, number: int, row=0):
        return self.code.get(self.place(number, row), self.type, align=min(64, self.type.count * self.size))

    def put(self, value, number: int, row=0) -> None:
        self.code.put(value, self.place(number, row), align=min(64, self.type.count * self.size))

    def fill(self, value: float, rows: int) -> None:
        """Sets the first `rows` rows to a number."""
        with self.code.loop(0, rows) as row:
            for number in range(self.vectors):
                self.put(self.code.number(value, self.type), number, row.index)


TYPES = {"float32": F32, "float64": F64, "int32": I32}


def lanes_of(tile: Tile, memory, dtype: np.dtype) -> Lanes:
    """Rows of a tile's lanes at an address."""
    return Lanes(tile.code, memory, vector(TYPES[dtype.name], tile.lanes), dtype.itemsize, tile.vectors)


class PartialSums:
    """The rounded sums of some keys, at an address: m and the sums, as rows of lanes by name.

    exponent: as `Running` has it.
    """

    def __init__(self, tile: Tile, memory, sums: Sums, real: np.dtype, exponent):
        self.code, self.tile, self.exponent = tile.code, tile, exponent
        places = Memory(tile.code, memory, sums.bytes_of(real, tile.spec.rows)[1])
        self.kept = {name: row for name, row in sums.kept(real).items() if name in ROUNDED}
        self.rows = {name: lanes_of(tile, places[name], dtype) for name, (_, dtype, _) in self.kept.items()}

    def begin(self) -> None:
        """The sums of no keys."""
        for name, (count, _, first) in self.kept.items():
            self.rows[name].fill(first, count)

    def count(self, name: str) -> int:
        """The number of sums of a name; 0 if they are not requested."""
        return self.kept[name][0] if name in self.kept else 0

    def shift(self, number: int):
        """m, or 0 if every key is masked."""
        return some_number(self.code, self.rows["maximum"].get(number))

    def raise_to(self, number: int, maximum, alpha) -> None:
        """Sets m to a larger maximum and rescales the sums by α."""
        code, rows, before = self.code, self.rows, self.shift(number)
        rows["maximum"].put(maximum, number)
        total = code.fmul(rows["total"].get(number), alpha)
        rows["total"].put(total, number)
        if "surprise" in rows:
            decrease, lowest = code.fsub(before, some_number(code, maximum)), self.exponent[1]
            # If the decrease is so large that α is 0, so is the total, and any finite number is correct.
            decrease = code.select(code.fcmp_ordered("<", decrease, lowest), lowest, decrease)
            surprise = code.fmul(rows["surprise"].get(number), alpha)
            rows["surprise"].put(code.fma(decrease, total, surprise), number)
        for name, factor in (("sets", alpha), ("moments", self.widened(alpha))):
            for row in range(self.count(name)):
                rows[name].put(code.fmul(rows[name].get(number, row), factor), number, row)

    def widened(self, value):
        """As float64."""
        return value if self.tile.real == F64 else self.code.fpext(value, vector(F64, self.tile.lanes))

    def merge(self, later: PartialSums) -> None:
        """Merges the sums of later keys into these; `later` is used up."""
        code = self.code
        for number in range(self.tile.vectors):
            left, right = ([part.rows[name].get(number) for name in ("maximum", "total")] for part in (self, later))
            maximum, total, *factors = merged(code, left, right, self.exponent)
            for part, alpha in zip((self, later), factors, strict=True):
                part.raise_to(number, maximum, alpha)
            self.rows["total"].put(total, number)
            for name in ("surprise", "moments", "sets"):
                for row in range(self.count(name)):
                    mine, theirs = (part.rows[name].get(number, row) for part in (self, later))
                    self.rows[name].put(code.fadd(mine, theirs), number, row)


END = 2**61  # beyond every block: what follows the last one


def stack_entries(blocks: int) -> int:
    """The largest number of partial sums on the stack of a task that visits at most this many blocks."""
    return max(blocks - 1, 0).bit_length() + 1


def merge_complete(code: Code, levels, this, following, merge: Callable):
    """Merges the partial sums that become one subtree when every block before `following` is known.

    levels: bit i is set if the stack has an entry of level i, without the new entry, that of block `this`, which is on
    top of the others. merge(place): merges entry place + 1 into entry place. Returns `levels` with the new entry; the
    number of entries is the number of its bits.
    """
    subtree = _subtree(code, this, following)
    below = code.sub(subtree, 1)
    depth = code.intrinsic("ctpop", levels)
    with code.loop(0, code.intrinsic("ctpop", code.and_(levels, below))) as loop:
        merge(code.sub(code.sub(depth, 1), loop.index))
    return code.or_(code.and_(levels, code.not_(below)), subtree)


def merge_all(code: Code, count, merge: Callable) -> None:
    """Merges the partial sums of blocks 0 … count - 1, each of which has its own place, into that of block 0.

    merge(left, right): merges the subtree that begins with block `right` into the one that begins with block `left`.
    """
    last = code.sub(count, 1)
    with code.loop(0, count) as block:
        this = block.index
        following = code.select(code.icmp_signed("==", this, last), END, code.add(this, 1))
        below = code.sub(_subtree(code, this, following), 1)
        # Without gaps there is a waiting subtree for each bit that `this` has, and it begins where that bit ends.
        with code.loop(0, code.intrinsic("ctpop", code.and_(this, below)), 1, [this]) as loop:
            right = loop.carried[0]
            left = code.and_(right, code.sub(right, 1))
            merge(left, right)
            loop.carry(left)


def _subtree(code: Code, this, following):
    """The number of blocks of the subtree that is complete between two blocks: the highest bit in which they differ.

    Blocks are counted from -END here, so that negative ones differ from others in a bit that is below that of END.
    """
    differ = code.xor(*(code.add(block, END) for block in (this, following)))
    leading = code.intrinsic("ctlz", differ, ir.Constant(I1, 1))
    return code.shl(1, code.sub(63, leading))
