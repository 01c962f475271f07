"""Dropout on lanes: the random numbers of `regard.language.dropout`, four keys at a time, stored as one bit per pair.

    open(batch, heads, queries)   once per tile: the counters of every lane, except for the key
    draw(first, count)            once per block of keys: rows of bits; `first` is a multiple of 4, as blocks are
    factor(number, row)           0 or 1 / (1 - rate) in the lanes of a vector, for a key of the block

A 32 x 32 bit product needs a 64-bit lane, so a vector is computed in several parts if necessary; the upper halves of
these lanes are ignored until the end. Values that all lanes share (the key, a single head, the first rounds) stay
scalar.
"""

from __future__ import annotations

from llvmlite import ir

from .....language import dropout as counting
from ...code.arguments import Block
from ...code.ir import BYTE, I1, I32, I64, Code, is_vector, lane_count, vector
from ...code.target import Target

WORD = 0xFFFFFFFF
TOGETHER = 4  # keys that share a counter


def slots(dropout: counting.Dropout) -> dict[str, int | float]:
    """The slots of the argument block by name; the seed is reinterpreted as a signed integer."""
    seed = dropout.seed - 2**64 if dropout.seed >= 2**63 else dropout.seed
    return {
        "dropout_seed": seed,
        "dropout_threshold": dropout.threshold,
        "dropout_scale": dropout.scale,
        "dropout_batch": dropout.batch_start,
        "dropout_head": dropout.head_start,
    }


def room(keys: int, rows: int, lanes: int) -> int:
    """Bytes of working memory for a block of keys and query rows: one bit per pair, at least one byte per vector."""
    return keys * rows // min(lanes, 8)


class Dropout:
    """The dropout of a tile. type: of a vector of weights. memory: an address with `room` bytes."""

    def __init__(self, code: Code, target: Target, arg: Block, type: ir.VectorType, vectors: int, memory):
        self.code, self.lanes, self.vectors, self.memory = code, type.count, vectors, memory
        self.part = min(self.lanes, target.lanes(8))
        seed = arg["dropout_seed"]
        halves = code.and_(seed, WORD), code.lshr(seed, 32)
        self.keys = [
            [code.add(half, number * step) for half, step in zip(halves, counting.STEPS, strict=True)]
            for number in range(counting.ROUNDS)
        ]
        self.threshold = code.splat(code.trunc(arg["dropout_threshold"], I32), self.lanes)
        self.factors = code.number(0.0, type), arg.factor("dropout_scale", type)
        self.first_batch, self.first_head = arg["dropout_batch"], arg["dropout_head"]

    def open(self, batch, heads: list, queries: list) -> None:
        """Sets the counters of a tile: the batch entry; per vector the head (a scalar, or one per lane) and the query
        positions of its lanes.
        """
        self.batch = self._from(self.first_batch, batch)
        self.counters = [
            (self._parts(query), [self._from(self.first_head, part) for part in self._parts(head)])
            for query, head in zip(queries, heads, strict=True)
        ]

    def _from(self, first, number):
        """A batch entry or head, counted from 0 in the call, as the counter has it."""
        return self.code.add(number, self._like(number, first))

    def _parts(self, value) -> list:
        """Integers of any width as parts with 64-bit lanes; a scalar is shared by all parts."""
        code, lanes = self.code, self.lanes
        if not is_vector(value):
            return [value if value.type == I64 else code.sext(value, I64)] * (lanes // self.part)
        cuts = [
            code.shuffle(value, value, list(range(first, first + self.part))) for first in range(0, lanes, self.part)
        ]
        return [cut if cut.type.element == I64 else code.sext(cut, vector(I64, self.part)) for cut in cuts]

    def draw(self, first, count) -> None:
        """Draws one bit per pair for keys first … first + count; those of up to three further keys are ignored."""
        code = self.code
        with code.loop(0, count, TOGETHER) as loop:
            four = code.lshr(code.add(first, loop.index), 2)
            for number, (queries, heads) in enumerate(self.counters):
                parts = [
                    self._words([four, query, head, self.batch]) for query, head in zip(queries, heads, strict=True)
                ]
                for key, words in enumerate(zip(*parts, strict=True)):
                    row = code.add(loop.index, key)
                    numbers = code.joined([code.trunc(word, vector(I32, self.part)) for word in words])
                    self._put(code.icmp_unsigned(">=", numbers, self.threshold), number, row)

    def _words(self, counter: list) -> list:
        """Philox4x32-10 of a counter, each word in the lower half of its lanes."""
        a, b, c, d = counter
        for low, high in self.keys:
            first, third = self._product(a, counting.MULTIPLIERS[0]), self._product(c, counting.MULTIPLIERS[1])
            a, b, c, d = self._mixed(third, b, low), third, self._mixed(first, d, high), first
        return [a, b, c, d]

    def _product(self, word, by: int):
        return self.code.mul(self.code.and_(word, WORD), by)

    def _mixed(self, product, word, key):
        """The xor of the upper half of a product with a word and a key."""
        high = self.code.xor(self.code.lshr(product, 32), self._like(product, key))
        count = max(lane_count(value) for value in (high, word))
        return self.code.xor(self.code.splat(high, count), self.code.splat(word, count))

    def _like(self, value, scalar):
        return self.code.splat(scalar, lane_count(value))

    def _place(self, number: int, row):
        size = room(1, self.lanes, self.lanes)
        offset = self.code.mul(row, size * self.vectors)
        return self.code.at(self.code.at(self.memory, offset), number * size)

    def _put(self, kept, number: int, row) -> None:
        bits = self.code.bitcast(kept, ir.IntType(self.lanes))
        self.code.put(bits if self.lanes >= 8 else self.code.zext(bits, BYTE), self._place(number, row))

    def factor(self, number: int, row):
        """The dropout factors of a vector of lanes, for a row of the block; a dropped weight keeps its sign."""
        code, lanes = self.code, self.lanes
        bits = code.get(self._place(number, row), ir.IntType(max(lanes, 8)))
        kept = code.bitcast(bits if lanes >= 8 else code.trunc(bits, ir.IntType(lanes)), vector(I1, lanes))
        nothing, scale = self.factors
        return code.select(kept, scale, nothing)
