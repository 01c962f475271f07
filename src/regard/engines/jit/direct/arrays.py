"""Direct calls of NumPy's arrays as machine code. An array is read as C extensions read it: its structure is public."""

from __future__ import annotations

from llvmlite import ir

from ..code.ir import I32, I64, PTR
from .forward import Attend, Describe
from .tensors import AXES, Reader

DATA, NUMBER_OF_AXES, SHAPE, STRIDES, DTYPE = 16, 24, 32, 40, 56  # in a PyArrayObject
BYTE_ORDER, NUMBER = 26, 28  # in a PyArray_Descr: a character, and the number of the dtype


class Arrays(Reader):
    """Arrays in the place of tensors. In layouts, strides are in bytes."""

    def layout(self, array, into):
        """The address of the first element; writes the layout."""
        self.unless(self.not_(self.is_tensor(array)))
        axes = self.zext(self.get(self.at(array, NUMBER_OF_AXES), I32, 4), I64)
        self.unless(self.icmp_unsigned(">", axes, AXES))
        dtype = self._dtype(array)
        order = self.zext(self.get(self.at(dtype, BYTE_ORDER), ir.IntType(8), 1), I64)
        number = self.zext(self.get(self.at(dtype, NUMBER), I32, 4), I64)
        kind = self.or_(self.shl(number, 40), self.shl(order, 32))
        self.put(self.or_(kind, axes), into, 8)
        shape, strides = (self.get(self.at(array, place), PTR, 8) for place in (SHAPE, STRIDES))
        with self.loop(0, axes) as each:
            place = self.at(into, self.add(each.index, 1), 8)
            self.put(self.word(shape, each.index), place, 8)
            self.put(self.word(strides, each.index), self.at(place, 8 * AXES), 8)
        return self.get(self.at(array, DATA), I64, 8)

    def _dtype(self, array):
        return self.get(self.at(array, DTYPE), PTR, 8)


class DescribeArrays(Arrays, Describe):
    """`describe_arrays`."""


class AttendArrays(Arrays, Attend):
    """`attend_arrays`."""

    def gradients_wanted(self):
        return ir.Constant(ir.IntType(1), 0)

    def made(self, shape, drop: list, dtype=None):
        """A new array of a shape, in the dtype of q; if that raises, the call does."""
        assert dtype is None
        self.put(shape, self.arguments, 8)
        self.put(self._dtype(self.given(self.first)), self.at(self.arguments, 8), 8)
        return self.called(shape, 2, ir.Constant(PTR, None), drop)

    def address_of(self, array, drop: list):
        """The address of a new array's first element."""
        return self.get(self.at(array, DATA), I64, 8)
