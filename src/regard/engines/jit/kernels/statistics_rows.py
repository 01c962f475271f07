"""The kernel of statistics per row: one pass over the keys, like the forward kernel, with other sums instead of values.

The keys that a tile of rows visits are summed in pieces, each from nothing, and the pieces are merged in a tree
(score_sweep.py). Moments are float64, and all three use the same p, so mean and variance are those of slightly
perturbed weights, without cancellation, however distant the keys are. The kernel stores the sums of all keys;
`statistics.py` computes the results from them.

With d = s - m ≤ 0 and p = 2**(exponent · d), every lane accumulates those requested of

    total     Σ p                 surprise  Σ p · d   they give the entropy
    moments   Σ p, Σ p·x, Σ p·x²  x = query − key, in float64
    sets      Σ p over each set of keys
    best      the largest scores, in descending order, and their keys
    least, most   of the scores     counted   keys attended, NaN, +inf

The first four depend on m and are rounded, so they are partial sums on the stack of a tree (tasks.py). The others are
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

from ....common.dtypes import FLOATS
from ..code import special
from ..code.emit import Emitter
from ..code.ir import F32, F64, I1, I32, I64, Code, vector
from .parts.softmax import merged, some_number
from .parts.tile import Memory, Tile, regions
from .score_sweep import Frame, Sweep

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


def _plus(code: Code, before, more):
    """A sum plus a number, or plus the product of two."""
    return code.fma(more[0], more[1], before) if isinstance(more, tuple) else code.fadd(before, more)


# How an accumulator is combined with a new value.
JOINED: dict[str, Callable] = {
    **dict.fromkeys(("total", "surprise", "moments", "sets"), _plus),
    "least": lambda code, before, more: code.intrinsic("minimum", before, more),
    "most": lambda code, before, more: code.intrinsic("maximum", before, more),
    "counted": lambda code, before, more: code.add(before, more),
}


def rows_memory(frame: Frame, sums: Sums, entries: int = 1) -> dict[str, int]:
    """Bytes of working memory by name. entries: of the stack of partial sums, which is at the end, so the kernel does
    not depend on their number.
    """
    own, entry = sums.bytes_of(real_of(frame), frame.spec.rows)
    return regions(frame.spec, frame.target) | own | {"stack": entries * Memory.total(entry)}


def rows_kernel(frame: Frame, sums: Sums) -> ir.Module:
    """The kernel `rows(arguments, scratch, budget)`; its additional slots are the addresses of the sums, (B, H, count,
    whole tiles).
    """
    return _RowsKernel(frame, sums).written()


def real_of(frame: Frame) -> np.dtype:
    """The dtype that the kernel computes in."""
    return np.dtype(FLOATS[frame.spec.dtype].sums)


class _RowsKernel(Sweep):
    def __init__(self, frame: Frame, sums: Sums):
        self.sums, self.real = sums, real_of(frame)
        self.kept = sums.kept(self.real)
        super().__init__("rows", frame, tuple(f"sum_{name}" for name in self.kept), rows_memory(frame, sums))
        tile = self.tile
        self.sets = KeySets(self, frame)
        own, entry = sums.bytes_of(self.real, tile.spec.rows)
        self.entry_bytes = Memory.total(entry)
        self.exact = {name: lanes_of(tile, tile.memory[name], self.kept[name][1]) for name in own}

    def task(self, number) -> None:
        """A tile of query rows."""
        code, arg = self.code, self.arg
        self.set_head(code.sdiv(number, arg["tiles"]))
        place = code.add(code.mul(self.group, arg["tiles"]), code.srem(number, arg["tiles"]))
        which = code.sext(code.get(arg.at("order", place, 4), I32, 4), I64)
        self.enter(which)
        self.sets.open(self.b, self.h, self.position)
        self.queries = [self.positions(number) for number in range(self.tile.vectors)]
        for name, lanes in self.exact.items():
            count, _, first = self.kept[name]
            lanes.fill(first, count)
        self.each_piece(which, self.begin, self.block, self.merge)
        self.store(which)

    def entry(self, place) -> PartialSums:
        """An entry of the stack of partial sums."""
        code = self.code
        memory = code.at(self.tile.memory["stack"], place, self.entry_bytes)
        return PartialSums(self.tile, memory, self.sums, self.real, self.run.exponent)

    def begin(self, place) -> None:
        """Begins a piece, whose sums are an entry of the stack."""
        self.run.begin()
        self.piece = self.entry(place)
        self.piece.begin()
        self.rows = self.piece.rows | self.exact

    def merge(self, place) -> None:
        """Merges entry place + 1 of the stack into entry place."""
        self.entry(place).merge(self.entry(self.code.add(place, 1)))

    def positions(self, number: int):
        """The positions of the lanes of a vector, in float64."""
        code, lanes = self.code, self.tile.lanes
        first = code.splat(code.sitofp(self.position, F64), lanes)
        return code.fadd(first, ir.Constant(first.type, [float(number * lanes + lane) for lane in range(lanes)]))

    def store(self, which) -> None:
        """Stores the sums of the whole tile; entries past the last row are never read."""
        code, arg, tile = self.code, self.arg, self.tile
        width = code.mul(arg["tiles"], tile.spec.rows)
        rows = self.entry(code.index(0)).rows | self.exact
        for name, (count, dtype, _) in self.kept.items():
            with code.loop(0, count) as row:
                line = code.mul(code.add(code.mul(self.pair, count), row.index), width)
                begin = code.add(line, code.mul(which, tile.spec.rows))
                target = arg.at(f"sum_{name}", begin, dtype.itemsize)
                for number in range(tile.vectors):
                    value = rows[name].get(number, row.index)
                    code.put(value, code.at(target, number * tile.lanes * dtype.itemsize), align=dtype.itemsize)

    # a block of keys --------------------------------------------------------------------------------------------------

    def block(self, first, count, mixed) -> None:
        """Adds some keys of a block to the sums."""
        piece, tile = self.piece, self.tile
        self.scores(first, count, mixed)
        self.run.end_block()
        for number in range(tile.vectors):
            if self.sums.best:
                self.rank(number, first, count)
            piece.raise_to(number, self.run.state(number)[0], self.run.factor(number))
            self.add(number, first, count)

    def add(self, number: int, first, count) -> None:
        """Adds the keys of the block to the sums of a vector of lanes."""
        code, tile, shift = self.code, self.tile, self.piece.shift(number)
        names = [(name, row) for name, (rows, _, _) in self.kept.items() for row in range(rows) if name in JOINED]
        # Each block is summed separately: short chains have smaller rounding errors.
        begin = [code.number(self.kept[name][2], self.rows[name].type) for name, _ in names]
        with code.loop(0, count, 1, begin) as key:
            s = tile.get(tile.place(tile.s, key.index), number)
            found = self.seen(number, s, code.fsub(s, shift), code.add(first, key.index))
            key.carry(
                *(JOINED[name](code, before, found[name][row]) for (name, row), before in zip(names, key.carried))
            )
        for (name, row), after in zip(names, key.result, strict=True):
            lanes = self.rows[name]
            lanes.put(JOINED[name](code, lanes.get(number, row), after), number, row)

    def seen(self, number: int, s, d, position) -> dict[str, list]:
        """The contribution of one key to every sum. d: s - m."""
        code, run, sums = self.code, self.run, self.sums
        zero, minus, plus = (code.number(value, s) for value in (0.0, -math.inf, math.inf))
        d = code.select(code.fcmp_ordered("<", d, run.exponent[1]), run.exponent[1], d)  # 0 · -inf is NaN
        p = special.softmax_exp2(code, d, *run.exponent)
        removed = code.fcmp_ordered("==", s, minus)
        found = {"total": [p]}
        if sums.surprise:
            found["surprise"] = [(p, d)]
        if sums.sets:
            found["sets"] = [code.select(holds, p, zero) for holds in self.sets.membership(number, position)]
        if sums.moments:
            away = code.fsub(self.queries[number], code.splat(code.sitofp(position, F64), self.tile.lanes))
            wide = self.piece.widened(p)
            once = code.fmul(wide, away)
            found["moments"] = [wide, once, (once, away)]
        if sums.reach:
            found |= {"least": [code.select(removed, plus, s)], "most": [s]}
        if sums.counted:
            holds = code.not_(removed), code.fcmp_unordered("uno", s, s), code.fcmp_ordered("==", s, plus)
            found["counted"] = [code.zext(each, self.exact["counted"].type) for each in holds]
        return found

    # the largest scores -----------------------------------------------------------------------------------------------

    def rank(self, number: int, first, count) -> None:
        """Inserts the scores that are larger than the last of the best; most blocks have none."""
        code, tile = self.code, self.tile
        last = self.exact["best"].place(number, self.sums.best - 1)
        with code.loop(0, count) as key:
            s = tile.get(tile.place(tile.s, key.index), number)
            beats = code.fcmp_ordered(">", s, code.get(last, tile.type, align=tile.size * tile.lanes))
            some = code.icmp_unsigned(
                "!=", code.bitcast(beats, ir.IntType(tile.lanes)), ir.Constant(ir.IntType(tile.lanes), 0)
            )
            with code.when(some):
                self.insert(number, s, code.trunc(code.add(first, key.index), I32))

    def insert(self, number: int, s, position) -> None:
        """Inserts s in sorted order, per lane; scores equal to s, whose keys are earlier, remain before it."""
        code, scores, keys = self.code, self.exact["best"], self.exact["best_keys"]
        lanes = self.tile.lanes
        none = ir.Constant(ir.VectorType(I1, lanes), [0] * lanes)
        with code.loop(0, self.sums.best, 1, [s, code.splat(position, lanes), none]) as row:
            moving, key, moves = row.carried
            here, here_key = scores.get(number, row.index), keys.get(number, row.index)
            moves = code.or_(moves, code.fcmp_ordered(">", moving, here))
            scores.put(code.select(moves, moving, here), number, row.index)
            keys.put(code.select(moves, key, here_key), number, row.index)
            row.carry(code.select(moves, here, moving), code.select(moves, here_key, key), moves)


class KeySets:
    """Sets of keys as masks on lanes; parts that do not depend on the key are computed once per tile."""

    def __init__(self, sweep: Sweep, frame: Frame):
        self.code, self.tile, self.arg, self.sets = sweep.code, sweep.tile, sweep.arg, frame.sets
        self.emitter = Emitter(self.code, F64, self.arg)

    def open(self, b, h, first) -> None:
        """Computes the parts that depend on the tile only."""
        code, lanes = self.code, self.tile.lanes
        b, h, first = map(self.arg.narrowed, (b, h, first))
        self.per_vector = []
        for number in range(self.tile.vectors):
            numbers = [number * lanes + lane for lane in range(lanes)]
            query = code.add(code.splat(first, lanes), ir.Constant(vector(self.arg.whole, lanes), numbers))
            scope = self.emitter.scope(batch=b, head=h, query=query)
            for keys in self.sets:
                scope.prepare(keys)
            self.per_vector.append(scope)

    def membership(self, number: int, position) -> list:
        """Per set, in which lanes it contains the key."""
        scope = self.per_vector[number].scope(key=self.arg.narrowed(position))
        return [self.code.splat(scope.value(keys), self.tile.lanes) for keys in self.sets]
