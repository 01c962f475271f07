"""One matrix product on working memory, which all five of the backward pass are: an element, broadcast, times vectors of lanes.

    out[row][lane]  (+)=  Σ_term  a(row, term) · b[term][lane]

`a` is read by strides, so it may be the transpose of what lies there. Sums run in chains that are then added, which rounds less
than one long chain; chains begin at fixed places, so the bits do not depend on how the work was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from .ir import Code, is_vector, vector
from .target import Target

__all__ = ["CHAIN", "GRAIN", "Matrix", "Multiplier", "sum_of_lanes"]

CHAIN = 32  # terms of a sum that are added one after the other
GRAIN = 16  # sizes of matrices in working memory are multiples of this, so that no register tile is cut
UNROLL = 4  # terms per round of the innermost loop


@dataclass(frozen=True)
class Matrix:
    """Rows in working memory: where the first begins, and bytes from one to the next."""

    base: Any
    row: int


class Multiplier:
    def __init__(self, code: Code, target: Target, real, size: int):
        self.code, self.size = code, size
        self.lanes = target.lanes(size)
        self.type = vector(real, self.lanes)
        self.widest = target.tile.query_vectors
        # As many accumulators as hide the latency of a multiply-add: rows · vectors.
        self.sums = 16 if target.tile.vector == 64 else 8

    def place(self, matrix: Matrix, row, column=None):
        """The address of an element."""
        code = self.code
        offset = code.mul(row, code.index(matrix.row))
        return code.at(matrix.base, offset if column is None else code.add(offset, code.mul(column, code.index(self.size))))

    def get(self, place, number: int, offset: int = 0):
        """A vector, counted from a place."""
        return self.code.get(
            self.code.at(place, offset + number * self.lanes * self.size), self.type, align=self.lanes * self.size
        )

    def put(self, value, place, number: int, offset: int = 0) -> None:
        self.code.put(value, self.code.at(place, offset + number * self.lanes * self.size), align=self.lanes * self.size)

    def __call__(self, out: Matrix, a: Matrix, b: Matrix, width: int, rows: tuple, terms: tuple, *,
                 turned: bool = False, anew: bool = False, chain: int | None = CHAIN,
                 removed: Callable | None = None) -> None:  # fmt: skip
        """Rows (first, last), terms (first, last) and `width` elements per row; all but the last term are multiples of GRAIN.

        turned: a lies as [term][row]. anew: the product replaces what lay there. chain: None is one chain.
        removed(row, term, column) says, for a row, a term and the vector at a column, which products are left out: slower, the same
        bits.
        """
        vectors = width // self.lanes
        entire = vectors // self.widest * self.widest
        for first, last, some in ((0, entire, self.widest), (entire, vectors, 2 if vectors - entire == 2 else 1)):
            if first < last:
                with self.code.loop(
                    self.code.index(first * self.lanes), self.code.index(last * self.lanes), some * self.lanes
                ) as column:
                    self._columns(*(self._from(part, column.index) for part in (out, b)), a, some, rows, terms, turned, anew, chain,
                                  removed and (lambda row, term, number, at=column.index:
                                               removed(row, term, self.code.add(at, self.code.index(number * self.lanes)))))  # fmt: skip

    def _from(self, matrix: Matrix, column) -> Matrix:
        """The matrix without the columns before one."""
        return Matrix(self.code.at(matrix.base, self.code.mul(column, self.code.index(self.size))), matrix.row)

    def _columns(self, out, b, a, some: int, rows, terms, turned, anew, chain, removed) -> None:
        """A column of the product, as wide as a register tile."""
        code = self.code
        high = 1 if removed is not None else self.sums // some
        exact = all(isinstance(end, ir.Constant) for end in terms)  # then it is a multiple of GRAIN
        with code.loop(*rows, high) as row:
            if chain is None:
                self._tile(out, a, b, range(some), row.index, high, terms, exact, turned, anew, removed)
            else:
                with code.loop(*terms, chain) as part:
                    end = code.smaller_int(code.add(part.index, code.index(chain)), terms[1])
                    begins = code.icmp_signed("==", part.index, terms[0]) if anew else False
                    self._tile(out, a, b, range(some), row.index, high, (part.index, end), exact, turned, begins, removed)

    def _tile(self, out, a, b, numbers, row, high: int, terms, exact: bool, turned, anew, removed) -> None:
        """A register tile: `high` rows of a column, one chain of terms."""
        code = self.code
        zero = code.number(0.0, self.type)
        across, along = (
            (self.size, a.row) if turned else (a.row, self.size)
        )  # bytes from row to row of the product, and per term

        def rounds(start, stop, unroll: int, sums: list) -> list:
            with code.loop(start, stop, unroll, sums) as loop:
                sums = list(loop.carried)
                elements = self.place(a, loop.index, row) if turned else self.place(a, row, loop.index)
                vectors = self.place(b, loop.index)
                for step in range(unroll):
                    lanes = [self.get(vectors, number, step * b.row) for number in numbers]
                    for at in range(high):
                        place = code.at(elements, at * across + step * along)
                        element = code.splat(code.get(place, self.type.element, align=self.size), self.lanes)
                        for column, number in enumerate(numbers):
                            slot = at * len(numbers) + column
                            total = code.fma(element, lanes[column], sums[slot])
                            if removed is not None:
                                total = code.select(removed(row, loop.index, number), sums[slot], total)
                            sums[slot] = total
                loop.carry(*sums)
            return loop.result

        (first, last), sums = terms, [zero] * (high * len(numbers))
        if removed is not None:
            sums = rounds(first, last, 1, sums)
        elif exact:
            sums = rounds(first, last, UNROLL, sums)
        else:
            middle = code.add(first, code.and_(code.sub(last, first), code.index(-UNROLL)))
            sums = rounds(middle, last, 1, rounds(first, middle, UNROLL, sums))
        base = self.place(out, row)
        for slot, total in enumerate(sums):
            at, column = divmod(slot, len(numbers))
            if anew is not True:
                before = self.get(base, numbers[column], at * out.row)
                before = before if anew is False else code.select(anew, zero, before)
                total = code.fadd(before, total)
            self.put(total, base, numbers[column], at * out.row)


def sum_of_lanes(code: Code, value):
    """The sum of all lanes, by halves."""
    while is_vector(value):
        half = value.type.count // 2
        low, high = (code.shuffle(value, value, list(range(start, start + half))) for start in (0, half))
        value = code.fadd(low, high) if half > 1 else code.fadd(code.lane(low, 0), code.lane(high, 0))
    return value
