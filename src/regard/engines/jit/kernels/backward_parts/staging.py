"""Staging: copies rows of the caller's arrays to working memory and back, padded, transposed or interleaved in pairs.

With the bfloat16 dot-product instruction rows stay 16 bits wide; transposing then moves words of two adjacent elements,
and pairs of rows are interleaved into one row of words.
"""

from __future__ import annotations

import functools

from llvmlite import ir

from ...code.arguments import Block
from ...code.formats import LOST, Format, widen_brain
from ...code.ir import I16, I32, Code, vector
from .products import Matrix, Multiplier, sum_of_lanes


class Staging:
    """Loads and stores of the backward kernel. unit: per array, whether its depth is contiguous."""

    def __init__(self, code: Code, tools: Multiplier, form: Format, arg: Block, unit: dict[str, bool]):
        self.code, self.tools, self.form, self.arg, self.unit = code, tools, form, arg, unit
        self.lanes, self.type, self.size, self.real = tools.lanes, tools.type, tools.size, form.real

    def _step(self, name: str):
        return self.form.itemsize if self.unit[name] else self.arg[f"{name}_depth"]

    def load(
        self, name: str, source, exist, *, depth: int, into: Matrix, rows, padded: int, narrow: bool = False
    ) -> None:
        """Loads the rows that exist, (first, one past the last), row 0 being at an address; the depth is zero-padded to
        `padded` and the rows to `rows`. narrow: keep 16 bits.
        """
        code, lanes = self.code, self.lanes
        entire = depth // lanes * lanes if self.unit[name] else 0
        size = self.form.itemsize if narrow else self.size
        zero = code.number(0, vector(I16, lanes)) if narrow else code.number(0.0, self.type)

        def number(place, lanes: int):
            return code.get(place, vector(I16, lanes)) if narrow else self.form.load(code, place, lanes)

        many = code.larger_int(code.sub(exist[1], exist[0]), 0)
        with code.loop(0, rows) as row:
            to = self.tools.place(into, row.index)
            exists = code.icmp_unsigned("<", code.sub(row.index, exist[0]), many)
            with code.loop(code.select(exists, depth // lanes * lanes, 0), padded, lanes) as column:
                code.put(zero, code.at(to, column.index, size), lanes * size)
            with code.when(exists):
                at = code.at(source, row.index, self.arg[f"{name}_row"])
                for start, stop, some in ((0, entire, lanes), (entire, depth, 1)):
                    with code.loop(start, stop, some) as column:
                        value = number(code.at(at, column.index, self._step(name)), some)
                        code.put(value, code.at(to, column.index, size), some * size)

    def add_lost(self, source, exist, depth: int, into: Matrix) -> None:
        """Adds what rounding took from the rows that exist, which are contiguous, to the loaded rows."""
        code = self.code
        entire = depth // self.lanes * self.lanes
        with code.loop(*exist) as row:
            at = code.at(source, row.index, depth * LOST)
            to = self.tools.place(into, row.index)
            for start, stop, lanes in ((0, entire, self.lanes), (entire, depth, 1)):
                with code.loop(start, stop, lanes) as column:
                    place = code.at(to, column.index, self.size)
                    kind = self.type if lanes > 1 else self.real
                    lost = code.get(code.at(at, column.index, LOST), vector(I16, lanes))
                    total = code.fadd(code.get(place, kind, lanes * self.size), widen_brain(code, lost))
                    code.put(total, place, lanes * self.size)

    def store(self, name: str, target, source: Matrix, exist, depth: int, factor, *, exact: bool = False) -> None:
        """Stores the rows that exist, row 0 to an address, times a factor (in every lane; None is 1). exact: in the
        dtype of sums.
        """
        code, tools = self.code, self.tools
        step = self.size if exact and self.unit[name] else self._step(name)
        entire = depth // self.lanes * self.lanes if self.unit[name] else 0
        with code.loop(*exist) as row:
            to = code.at(target, row.index, self.arg[f"{name}_row"])
            at = tools.place(source, row.index)
            for start, stop, lanes in ((0, entire, self.lanes), (entire, depth, 1)):
                with code.loop(start, stop, lanes) as column:
                    place = code.at(at, column.index, self.size)
                    value = code.get(place, self.type if lanes > 1 else self.real, lanes * self.size)
                    if factor is not None:
                        value = code.fmul(value, factor if lanes > 1 else code.lane(factor, 0))
                    place = code.at(to, column.index, step)
                    if exact:
                        code.put(value, place)
                    else:
                        self.form.store(code, value, place)

    def transpose(self, source: Matrix, into: Matrix, rows: int, columns: int) -> None:
        """Transposes a matrix of numbers (or words), square by square."""
        code, tools, lanes = self.code, self.tools, self.lanes
        across, down = (code.loop(0, size, lanes) for size in (rows, columns))
        with across as row, down as column:
            at, to = tools.place(source, row.index, column.index), tools.place(into, column.index, row.index)
            square = [tools.get(at, 0, step * source.row) for step in range(lanes)]
            for step, value in enumerate(code.transpose(square)):
                tools.put(value, to, 0, step * into.row)

    def pair_up(self, source: Matrix, into: Matrix, first, last, columns: int) -> None:
        """Interleaves 16-bit rows 2j and 2j + 1 into row j of words, for rows first … last (even)."""
        code, half = self.code, vector(I16, self.lanes)
        wide = vector(I32, self.lanes)
        with code.loop(code.ashr(first, 1), code.ashr(last, 1)) as row:
            at, to = code.mul(row.index, 2 * source.row), self.tools.place(into, row.index)
            for number in range(columns // self.lanes):
                low, high = (
                    code.zext(
                        code.get(
                            code.at(code.at(source.base, at), step * source.row + 2 * self.lanes * number),
                            half,
                            2 * self.lanes,
                        ),
                        wide,
                    )
                    for step in range(2)
                )
                self.tools.put(code.or_(low, code.shl(high, 16)), to, number)

    def finite(self, matrix: Matrix, rows, columns: int):
        """Whether all numbers (both halves of all words) of the first rows are finite."""
        code, pairs = self.code, self.tools.pairs
        kind = vector(I16, 2 * self.lanes) if pairs else self.type
        start = code.number(0, kind)
        several = next(count for count in (4, 2, 1) if columns % (count * self.lanes) == 0)
        width = several * self.lanes * self.size

        def larger(one, other):
            return code.select(code.icmp_unsigned(">", one, other), one, other)

        with code.loop(0, rows, 1, [start] * several) as row:
            place = self.tools.place(matrix, row.index)
            with code.loop(0, columns * self.size, width, row.carried) as column:
                at, checks = code.at(place, column.index), []
                for number, check in enumerate(column.carried):
                    value = self.tools.get(at, number, type=kind)
                    if pairs:
                        checks.append(larger(code.and_(value, 0x7FFF), check))
                    else:
                        checks.append(code.fma(value, 0.0, check))  # 0, or NaN
                column.carry(*checks)
            row.carry(*column.result)
        found = functools.reduce(larger if pairs else code.fadd, row.result)
        fine = code.icmp_unsigned("<", found, 0x7F80) if pairs else code.fcmp_ordered("==", found, start)
        bits = ir.IntType(kind.count)
        return code.icmp_unsigned("==", code.bitcast(fine, bits), ir.Constant(bits, -1))

    def dot(self, a: Matrix, b: Matrix, row, columns: int):
        """Σ a · b over a row of two matrices."""
        code = self.code
        places = [self.tools.place(matrix, row) for matrix in (a, b)]
        with code.loop(0, columns, self.lanes, [code.number(0.0, self.type)]) as column:
            offset = code.mul(column.index, self.size)
            x, y = (code.get(code.at(place, offset), self.type, self.lanes * self.size) for place in places)
            column.carry(code.fma(x, y, column.carried[0]))
        return sum_of_lanes(code, column.result[0])
