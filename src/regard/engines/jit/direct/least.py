"""The least number of a tensor as machine code: what is added to scores is looked at in every call.

least(tensor)   the number, or None: of another dtype, without numbers, with gaps in memory, or of so many numbers that
                torch's threads are faster. NaN is passed over.
"""

from __future__ import annotations

import math

from ....common.dtypes import FLOATS
from ..code.formats import REALS, Format
from ..code.ir import F64, I64, PTR
from ..code.target import host
from .tensors import AXES, LAYOUT, Reader

MOST = 1 << 16  # numbers
LANES = 8


class Least(Reader):
    """`least`."""

    def write(self) -> None:
        self.unless(self.icmp_signed("!=", self.args[2], 1))
        layout = self.alloca(I64, LAYOUT)
        self.clear(layout, LAYOUT)
        data = self.inttoptr(self.layout(self.given(0), layout), PTR)
        kind, count = self.word(layout, 0), 1
        for axis in range(AXES):
            exists = self.icmp_unsigned(">", self.and_(kind, 2**32 - 1), axis)
            size = self.select(exists, self.word(layout, 1 + axis), 1)
            count = self.mul(count, size)
        self.unless(self.icmp_signed("!=", count, self.get(self.extent, I64, 8)))
        self.unless(self.icmp_unsigned(">", self.sub(count, LANES), MOST - LANES))
        for row in FLOATS.values():
            dtype = row.kind | row.bits << 8 | 1 << 16
            with self.when(self.icmp_unsigned("==", self.lshr(kind, 32), dtype)):
                self.ret(self.external("PyFloat_FromDouble", PTR, self._least(row.name, data, count)))
        self.branch(self.missed)
        self.finish()

    def _least(self, name: str, data, count):
        """Of at least LANES contiguous numbers; the last ones may be read twice."""
        form = Format(name, host())
        end = self.sub(count, LANES)

        def numbers(first):
            return form.load(self, self.at(data, first, form.itemsize), LANES)

        with self.loop(0, end, LANES, carry=[numbers(end)]) as each:
            each.carry(self._less(numbers(each.index), each.carried[0]))
        (found,) = each.result
        least = self.number(math.inf, form.real)
        for lane in range(LANES):
            least = self._less(self.lane(found, lane), least)
        return least if REALS[FLOATS[name].sums] == F64 else self.fpext(least, F64)

    def _less(self, a, b):
        return self.select(self.fcmp_ordered("<", a, b), a, b)
