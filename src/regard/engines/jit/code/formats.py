"""Number formats in memory and in registers: 16-bit formats are widened when loaded and rounded when stored.

bfloat16 is the upper half of a float32. float16 is converted by instructions if the machine has them, and by integer
arithmetic otherwise. Widening is exact; rounding is to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from ....common.dtypes import FLOATS, Float
from .ir import F32, F64, I16, I32, Code, lane_count, vector
from .target import Target

LOST = 2  # bytes of what rounding took from a number
REALS = {"float32": F32, "float64": F64}  # the types that kernels compute in


def stored(name: str):
    """The type of a number in memory: formats that are widened are stored as integers."""
    return REALS[name] if name in REALS else ir.IntType(FLOATS[name].bits)


@dataclass(frozen=True)
class Format:
    """A dtype by name, on a target: how it is stored, and the type that a kernel computes in (`real`)."""

    name: str
    target: Target

    @property
    def row(self) -> Float:
        return FLOATS[self.name]

    @property
    def itemsize(self) -> int:
        return self.row.itemsize

    @property
    def real(self):
        return REALS[self.row.sums]

    @property
    def size(self) -> int:
        """Bytes of a number in the type that kernels compute in."""
        return FLOATS[self.row.sums].itemsize

    @property
    def wide(self) -> bool:
        """Whether numbers are stored in the type that kernels compute in."""
        return self.name == self.row.sums

    @property
    def pairs(self) -> bool:
        """Whether products use the dot-product instruction on pairs of stored bfloat16."""
        return self.name == "bfloat16" and self.target.tile.pairs

    def load(self, code: Code, place, lanes: int = 1):
        """Contiguous numbers, widened."""
        if self.wide:
            return code.get(place, vector(self.real, lanes))
        return self.widened(code, code.get(place, vector(stored(self.name), lanes)))

    def store(self, code: Code, value, place) -> None:
        """Stores contiguous numbers, rounded."""
        code.put(value if self.wide else self.rounded(code, value), place)

    def lost(self, code: Code, value, bits):
        """What rounding float32 to these bits took from it, as the upper half of a float32; `widen_brain` reads it."""
        lost = code.as_bits(code.fsub(value, self.widened(code, bits)))
        return code.trunc(code.lshr(lost, 16), bits.type)

    def widened(self, code: Code, bits):
        if self.converts:
            lanes = lane_count(bits)
            return code.fpext(code.bitcast(bits, vector(ir.HalfType(), lanes)), vector(F32, lanes))
        return NARROW[self.name].widen(code, bits)

    def rounded(self, code: Code, value):
        """float32 rounded to the bit pattern of this format."""
        if self.converts:
            lanes = lane_count(value)
            return code.bitcast(code.fptrunc(value, vector(ir.HalfType(), lanes)), vector(I16, lanes))
        return NARROW[self.name].round(code, value)

    @property
    def converts(self) -> bool:
        """Whether the target has conversion instructions for it (float16 only)."""
        return self.name == "float16" and self.target.halves


class Narrow(NamedTuple):
    """Conversion of a format by integer arithmetic, on any machine: widen(code, bits) is exact, round(code, value) is
    to nearest, ties to even.
    """

    widen: Callable[[Code, Any], Any]
    round: Callable[[Code, Any], Any]


def widen_brain(code: Code, bits):
    """A bfloat16 bit pattern as float32."""
    lanes = lane_count(bits)
    high = code.shl(code.zext(bits, vector(I32, lanes)), 16)
    return code.bitcast(high, vector(F32, lanes))


def round_brain(code: Code, value):
    """float32 as a bfloat16 bit pattern, its upper 16 bits; NaN stays NaN."""
    bits = code.as_bits(value)
    odd = code.and_(code.lshr(bits, 16), 1)
    nearest = code.add(bits, code.add(odd, 0x7FFF))
    quiet = code.or_(bits, 0x400000)
    found = code.select(code.fcmp_unordered("uno", value, value), quiet, nearest)
    lanes = lane_count(value)
    return code.trunc(code.lshr(found, 16), vector(I16, lanes))


def widen_half(code: Code, bits):
    """A float16 bit pattern as float32, exactly, without a conversion instruction."""
    wide = code.zext(bits, vector(I32, lane_count(bits)))
    magnitude = code.shl(code.and_(wide, 0x7FFF), 13)
    real = vector(F32, lane_count(bits))
    # After the shift the exponent is 112 too small; the product corrects that, denormals included.
    finite = code.fmul(code.bitcast(magnitude, real), 2.0**112)
    endless = code.bitcast(code.or_(magnitude, 0x7F800000), real)
    value = code.select(code.icmp_signed(">=", magnitude, 0x7C00 << 13), endless, finite)
    sign = code.shl(code.and_(wide, 0x8000), 16)
    return code.bitcast(code.or_(code.as_bits(value), sign), real)


def round_half(code: Code, value):
    """float32 as a float16 bit pattern, without a conversion instruction."""
    bits = code.as_bits(value)
    magnitude = code.and_(bits, 0x7FFFFFFF)
    odd = code.and_(code.lshr(magnitude, 13), 1)
    # The exponent is reduced by 112; a carry out of the mantissa increments the exponent, up to infinity.
    normal = code.lshr(code.add(magnitude, code.add(odd, 0xFFF - (112 << 23))), 13)
    # Below 2**-14, adding 1/2 makes the addition round at the last bit of float16.
    small = code.sub(code.as_bits(code.fadd(code.bitcast(magnitude, value.type), 0.5)), 0x3F000000)
    found = code.select(code.icmp_signed("<", magnitude, 0x38800000), small, normal)
    found = code.select(code.icmp_signed(">=", magnitude, 0x477FF000), 0x7C00, found)
    found = code.select(code.icmp_signed(">", magnitude, 0x7F800000), 0x7E00, found)
    found = code.or_(found, code.lshr(code.and_(bits, -(2**31)), 16))
    return code.trunc(found, vector(I16, lane_count(value)))


NARROW = {"float16": Narrow(widen_half, round_half), "bfloat16": Narrow(widen_brain, round_brain)}
