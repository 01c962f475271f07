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
from .ir import F32, F64, I16, I32, Code, is_vector, vector
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
        return code.trunc(code.lshr(lost, code.whole(16, lost)), bits.type)

    def widened(self, code: Code, bits):
        if self.converts:
            lanes = bits.type.count if is_vector(bits) else 1
            return code.fpext(code.bitcast(bits, vector(ir.HalfType(), lanes)), vector(F32, lanes))
        return NARROW[self.name].widen(code, bits)

    def rounded(self, code: Code, value):
        """float32 rounded to the bit pattern of this format."""
        if self.converts:
            lanes = value.type.count if is_vector(value) else 1
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
    lanes = bits.type.count if is_vector(bits) else 1
    high = code.shl(code.zext(bits, vector(I32, lanes)), code.whole(16, vector(I32, lanes)))
    return code.bitcast(high, vector(F32, lanes))


def round_brain(code: Code, value):
    """float32 as a bfloat16 bit pattern, its upper 16 bits; NaN stays NaN."""
    bits = code.as_bits(value)
    one = code.whole(1, bits)
    odd = code.and_(code.lshr(bits, code.whole(16, bits)), one)
    nearest = code.add(bits, code.add(odd, code.whole(0x7FFF, bits)))
    quiet = code.or_(bits, code.whole(0x400000, bits))
    found = code.select(code.fcmp_unordered("uno", value, value), quiet, nearest)
    lanes = value.type.count if is_vector(value) else 1
    return code.trunc(code.lshr(found, code.whole(16, bits)), vector(I16, lanes))


def widen_half(code: Code, bits):
    """A float16 bit pattern as float32, exactly, without a conversion instruction."""
    wide = code.zext(bits, vector(I32, bits.type.count) if is_vector(bits) else I32)
    magnitude = code.shl(code.and_(wide, code.whole(0x7FFF, wide)), code.whole(13, wide))
    real = vector(F32, bits.type.count) if is_vector(bits) else F32
    # After the shift the exponent is 112 too small; the product corrects that, denormals included.
    finite = code.fmul(code.bitcast(magnitude, real), code.number(2.0**112, real))
    endless = code.bitcast(code.or_(magnitude, code.whole(0x7F800000, wide)), real)
    value = code.select(code.icmp_signed(">=", magnitude, code.whole(0x7C00 << 13, wide)), endless, finite)
    sign = code.shl(code.and_(wide, code.whole(0x8000, wide)), code.whole(16, wide))
    return code.bitcast(code.or_(code.as_bits(value), sign), real)


def round_half(code: Code, value):
    """float32 as a float16 bit pattern, without a conversion instruction."""
    bits = code.as_bits(value)

    def whole(number: int):
        return code.whole(number, bits)

    magnitude = code.and_(bits, whole(0x7FFFFFFF))
    odd = code.and_(code.lshr(magnitude, whole(13)), whole(1))
    # The exponent is reduced by 112; a carry out of the mantissa increments the exponent, up to infinity.
    normal = code.lshr(code.add(magnitude, code.add(odd, whole(0xFFF - (112 << 23)))), whole(13))
    # Below 2**-14, adding 1/2 makes the addition round at the last bit of float16.
    small = code.sub(
        code.as_bits(code.fadd(code.bitcast(magnitude, value.type), code.number(0.5, value))), whole(0x3F000000)
    )
    found = code.select(code.icmp_signed("<", magnitude, whole(0x38800000)), small, normal)
    found = code.select(code.icmp_signed(">=", magnitude, whole(0x477FF000)), whole(0x7C00), found)
    found = code.select(code.icmp_signed(">", magnitude, whole(0x7F800000)), whole(0x7E00), found)
    found = code.or_(found, code.lshr(code.and_(bits, whole(-(2**31))), whole(16)))
    return code.trunc(found, vector(I16, value.type.count) if is_vector(value) else I16)


NARROW = {"float16": Narrow(widen_half, round_half), "bfloat16": Narrow(widen_brain, round_brain)}
