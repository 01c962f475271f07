"""Rows of the caller's arrays in working memory and back: any strides, any dtype, padded with zeros, transposed where asked."""

from __future__ import annotations

from llvmlite import ir

from .arguments import Block
from .formats import Format
from .ir import Code
from .multiply import GRAIN, Matrix, Multiplier, sum_of_lanes

__all__ = ["Staging"]


class Staging:
    """unit: per array whether its depth is contiguous."""

    def __init__(self, code: Code, tools: Multiplier, form: Format, arg: Block, unit: dict[str, bool]):
        self.code, self.tools, self.form, self.arg, self.unit = code, tools, form, arg, unit
        self.lanes, self.type, self.size, self.real = tools.lanes, tools.type, tools.size, form.real

    def _step(self, name: str):
        return self.code.index(self.form.itemsize) if self.unit[name] else self.arg[f"{name}_depth"]

    def load(self, name: str, source, count, depth: int, into: Matrix, rows: int) -> None:
        """`count` rows from an address; zeros fill the depth up to GRAIN, and the rows up to `rows`."""
        code, tools = self.code, self.tools
        entire = depth // self.lanes * self.lanes if self.unit[name] else 0
        padded = -(-depth // GRAIN) * GRAIN
        with code.loop(code.index(0), count) as row:
            at = code.at(source, code.mul(row.index, self.arg[f"{name}_row"]))
            to = tools.place(into, row.index)
            if depth < padded:
                for number in range(depth // self.lanes, padded // self.lanes):
                    tools.put(code.number(0.0, self.type), to, number)
            with code.loop(code.index(0), code.index(entire), self.lanes) as column:
                value = self.form.load(code, code.at(at, code.mul(column.index, code.index(self.form.itemsize))), self.lanes)
                code.put(value, code.at(to, code.mul(column.index, code.index(self.size))), self.lanes * self.size)
            with code.loop(code.index(entire), code.index(depth)) as column:
                value = self.form.load(code, code.at(at, code.mul(column.index, self._step(name))))
                code.put(value, code.at(to, code.mul(column.index, code.index(self.size))), self.size)
        self._clear(into, count, code.index(rows), padded)

    def store(self, name: str, target, source: Matrix, count, depth: int, factor) -> None:
        """`count` rows to an address, times a factor (in every lane; None is 1)."""
        code, tools = self.code, self.tools
        entire = depth // self.lanes * self.lanes if self.unit[name] else 0
        with code.loop(code.index(0), count) as row:
            to = code.at(target, code.mul(row.index, self.arg[f"{name}_row"]))
            at = tools.place(source, row.index)
            for start, stop, lanes in ((0, entire, self.lanes), (entire, depth, 1)):
                with code.loop(code.index(start), code.index(stop), lanes) as column:
                    place = code.at(at, code.mul(column.index, code.index(self.size)))
                    value = code.get(place, self.type if lanes > 1 else self.real, lanes * self.size)
                    if factor is not None:
                        value = code.fmul(value, factor if lanes > 1 else code.lane(factor, 0))
                    self.form.store(code, value, code.at(to, code.mul(column.index, self._step(name))))

    def clear(self, matrix: Matrix, rows: int, columns: int) -> None:
        self._clear(matrix, self.code.index(0), self.code.index(rows), columns)

    def _clear(self, matrix: Matrix, first, last, columns: int) -> None:
        with self.code.loop(first, last) as row:
            place = self.tools.place(matrix, row.index)
            with self.code.loop(self.code.index(0), self.code.index(columns), self.lanes) as column:
                at = self.code.at(place, self.code.mul(column.index, self.code.index(self.size)))
                self.code.put(self.code.number(0.0, self.type), at, self.lanes * self.size)

    def transpose(self, source: Matrix, into: Matrix, rows: int, columns: int):
        """Rows become columns, square by square; -> whether all numbers are finite."""
        code, tools, lanes = self.code, self.tools, self.lanes
        zero = code.number(0.0, self.type)
        with code.loop(code.index(0), code.index(rows), lanes, [zero]) as row:
            with code.loop(code.index(0), code.index(columns), lanes, [row.carried[0]]) as column:
                at, to = tools.place(source, row.index, column.index), tools.place(into, column.index, row.index)
                square = [tools.get(at, 0, step * source.row) for step in range(lanes)]
                check = column.carried[0]
                for value in square:
                    check = code.fma(value, zero, check)  # 0, or NaN once a number is not finite
                for step, value in enumerate(code.transpose(square) if lanes > 1 else square):
                    tools.put(value, to, 0, step * into.row)
                column.carry(check)
            row.carry(column.result[0])
        return self._all_zero(row.result[0])

    def finite(self, matrix: Matrix, rows: int, columns: int):
        """Whether all numbers are finite."""
        code, zero = self.code, self.code.number(0.0, self.type)
        with code.loop(code.index(0), code.index(rows), 1, [zero]) as row:
            place = self.tools.place(matrix, row.index)
            with code.loop(code.index(0), code.index(columns), self.lanes, [row.carried[0]]) as column:
                value = code.get(
                    code.at(place, code.mul(column.index, code.index(self.size))), self.type, self.lanes * self.size
                )
                column.carry(code.fma(value, zero, column.carried[0]))
            row.carry(column.result[0])
        return self._all_zero(row.result[0])

    def _all_zero(self, check):
        code, bits = self.code, ir.IntType(self.lanes)
        same = code.bitcast(code.fcmp_ordered("==", check, code.number(0.0, check)), bits)
        return code.icmp_unsigned("==", same, ir.Constant(bits, -1))

    def dot(self, a: Matrix, b: Matrix, row, columns: int):
        """Σ a · b over a row of two matrices."""
        code = self.code
        places = [self.tools.place(matrix, row) for matrix in (a, b)]
        with code.loop(code.index(0), code.index(columns), self.lanes, [code.number(0.0, self.type)]) as column:
            offset = code.mul(column.index, code.index(self.size))
            x, y = (code.get(code.at(place, offset), self.type, self.lanes * self.size) for place in places)
            column.carry(code.fma(x, y, column.carried[0]))
        return sum_of_lanes(code, column.result[0])
