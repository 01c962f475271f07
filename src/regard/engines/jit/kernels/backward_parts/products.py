"""The matrix product on working memory of which the backward pass has five: broadcast elements times vectors of lanes.

    out[row][lane]  (+)=  Σ_term  a(row, term) · b[term][lane]

`a` may be transposed. Sums are computed in chains that are then added, which has smaller rounding errors than one long
chain; chains begin at fixed terms, so results do not depend on how the work is divided. With the bfloat16 dot-product
instruction an element is a word of two terms, and so are the lanes of b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...code.formats import Format
from ...code.ir import I16, I32, Code, is_vector, vector
from ...code.target import Target

CHAIN = 32  # terms of a sum that are added one after the other
GRAIN = 16  # rows, columns and terms are multiples of this, so that every register tile is complete
UNROLL = 4  # terms per round of the innermost loop

Span = tuple[Any, Any]  # the first, and one past the last


@dataclass(frozen=True)
class Matrix:
    """A matrix in working memory: the address of its first row, and bytes from row to row."""

    base: Any
    row: int


class Multiplier:
    """The matrix product. type: of a vector of sums. operand: of a vector of factors, numbers or words."""

    def __init__(self, code: Code, target: Target, form: Format):
        self.code, self.size, self.pairs = code, form.size, form.pairs
        self.lanes = target.lanes(form.size)
        self.type = vector(form.real, self.lanes)
        self.operand = vector(I32, self.lanes) if form.pairs else self.type
        self.widest = target.tile.query_vectors
        # As many accumulators as hide the latency of a multiply-add: rows · vectors.
        self.sums = 16 if target.tile.vector == 64 else 8

    def place(self, matrix: Matrix, row, column=None):
        """The address of a number or a word."""
        code = self.code
        offset = code.mul(row, matrix.row)
        return code.at(matrix.base, offset if column is None else code.add(offset, code.mul(column, self.size)))

    def get(self, place, number: int, offset: int = 0, type=None):
        """Vector `number` after an address; of sums, unless a type is given."""
        at = self.code.at(place, offset + number * self.lanes * self.size)
        return self.code.get(at, type or self.type, align=self.lanes * self.size)

    def put(self, value, place, number: int, offset: int = 0) -> None:
        self.code.put(
            value, self.code.at(place, offset + number * self.lanes * self.size), align=self.lanes * self.size
        )

    def __call__(
        self,
        out: Matrix,
        a: Matrix,
        b: Matrix,
        width: int,
        rows: Span,
        terms: Span,
        *,
        transposed: bool = False,
        overwrite: bool = False,
        chain: int | None = CHAIN,
        marked: str = "",
    ) -> None:
        """Computes rows (first, last) and `width` columns of out, over terms (first, last).

        transposed: a is stored as [term][row]. overwrite: do not add to out. chain: terms per chain; None is a single
        chain. marked: "a" or "b" is -0 where a product must be omitted, because the other factor may be NaN; slower,
        and bit-identical otherwise.
        """
        code, vectors = self.code, width // self.lanes
        entire = vectors // self.widest * self.widest
        for first, last, some in ((0, entire, self.widest), (entire, vectors, 2 if vectors - entire == 2 else 1)):
            if first == last:
                continue
            high = 1 if marked else self.sums // some
            with code.loop(first * self.lanes, last * self.lanes, some * self.lanes) as column:
                out_at, b_at = (Matrix(code.at(part.base, column.index, self.size), part.row) for part in (out, b))
                with code.loop(*rows, high) as row:
                    shape = {"row": row.index, "high": high, "some": some}
                    tile = partial(self._tile, out_at, a, b_at, **shape, transposed=transposed, marked=marked)
                    if chain is None:
                        tile(terms=terms, overwrite=overwrite)
                    else:
                        with code.loop(*terms, chain) as part:
                            end = code.smaller_int(code.add(part.index, chain), terms[1])
                            begins = code.icmp_signed("==", part.index, terms[0]) if overwrite else False
                            tile(terms=(part.index, end), overwrite=begins)

    def _tile(
        self,
        out: Matrix,
        a: Matrix,
        b: Matrix,
        *,
        row,
        high: int,
        some: int,
        terms: Span,
        transposed: bool,
        overwrite,
        marked: str,
    ) -> None:
        """A register tile: `high` rows of `some` vectors, one chain of terms."""
        code = self.code
        zero = code.number(0.0, self.type)
        # Bytes from row to row of the product, and per term.
        across, along = (self.size, a.row) if transposed else (a.row, self.size)
        with code.loop(*terms, UNROLL, [zero] * (high * some)) as loop:
            sums = list(loop.carried)
            elements = self.place(a, loop.index, row) if transposed else self.place(a, row, loop.index)
            vectors = self.place(b, loop.index)
            for step in range(UNROLL):
                lanes = [self.get(vectors, number, step * b.row, self.operand) for number in range(some)]
                for at in range(high):
                    place = code.at(elements, at * across + step * along)
                    element = code.splat(code.get(place, self.operand.element, align=self.size), self.lanes)
                    for number in range(some):
                        slot = at * some + number
                        sums[slot] = self._product(element, lanes[number], sums[slot], marked)
            loop.carry(*sums)
        base = self.place(out, row)
        for slot, total in enumerate(loop.result):
            at, number = divmod(slot, some)
            if overwrite is not True:
                before = self.get(base, number, at * out.row)
                before = before if overwrite is False else code.select(overwrite, zero, before)
                total = code.fadd(before, total)
            self.put(total, base, number, at * out.row)

    def _product(self, a, b, total, marked: str):
        """total + a · b."""
        code = self.code
        if marked:
            bits = vector(I16, 2 * self.lanes) if self.pairs else code.as_bits(a).type
            mark, other = (code.bitcast(part, bits) for part in ((a, b) if marked == "a" else (b, a)))
            removed = code.icmp_unsigned("==", mark, -(2 ** (bits.element.width - 1)))
            other = code.bitcast(code.select(removed, 0, other), self.operand)
            a, b = (a, other) if marked == "a" else (other, b)
        return code.dot_pairs(a, b, total) if self.pairs else code.fma(a, b, total)


def sum_of_lanes(code: Code, value):
    """The sum of all lanes, by halves."""
    return fold_lanes(code, value, code.fadd)


def fold_lanes(code: Code, value, combine: Callable):
    """All lanes combined, by halves."""
    while is_vector(value):
        half = value.type.count // 2
        low, high = (code.shuffle(value, value, list(range(start, start + half))) for start in (0, half))
        value = combine(low, high) if half > 1 else combine(code.lane(low, 0), code.lane(high, 0))
    return value
