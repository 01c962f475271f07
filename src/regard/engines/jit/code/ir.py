"""LLVM IR written as nested Python: loops and branches are `with` blocks, types have short names.

`Code` extends llvmlite's builder with the operations that kernels need. A "vector" is a register of lanes; `lanes` is
the number of elements that fit one. Nothing here depends on attention.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

I1, BYTE, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
PTR = ir.PointerType()
PIECE = 16  # bytes of the pieces of a register: exchanges within them are faster than across them


class Brain(ir.Type):
    """bfloat16, which llvmlite does not define; constants of it are not needed."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other) -> bool:
        return isinstance(other, Brain)

    def __hash__(self) -> int:
        return hash(Brain)


def vector(element, lanes: int):
    """The type of a register of lanes; one lane is the scalar itself."""
    return ir.VectorType(element, lanes) if lanes > 1 else element


def is_vector(value) -> bool:
    return isinstance(value.type, ir.VectorType)


def lane_count(value) -> int:
    """The lanes of a value; 1 for a scalar."""
    return value.type.count if is_vector(value) else 1


def element(value):
    return value.type.element if is_vector(value) else value.type


class Word(NamedTuple):
    """Two bfloat16 in memory, at an offset from an address, that are broadcast to every lane."""

    address: ir.Value
    offset: int


class Callee:
    """A function pointer with its type: LLVM pointers are opaque, but a call needs the type."""

    def __init__(self, pointer, function_type: ir.FunctionType):
        self.get_reference, self.function_type = pointer.get_reference, function_type


@functools.cache  # a kernel has the same ones thousands of times
def constant(kind: ir.Type, value, text: str) -> ir.Constant:
    """A number, in every lane of a vector, or numbers. text: of a number, because 0.0 and -0.0 are equal."""
    alike = isinstance(kind, ir.VectorType) and not isinstance(value, tuple)
    return ir.Constant(kind, [value] * kind.count if alike else value)


class Loop:
    """A running loop: its index, the loop-carried values and, after it, their last values."""

    def __init__(self, index, carried):
        self.index, self.carried, self.result = index, carried, carried
        self.following = carried

    def carry(self, *values):
        """Sets the carried values of the next iteration."""
        self.following = list(values)


class Code(ir.IRBuilder):
    """A builder for one function. One operand of an operation may be a number: it gets the type of the other one."""

    def index(self, value: int, type=I64):
        return ir.Constant(type, value)

    def like(self, value, other=I64):
        """A number as a constant of the type of `other`, which is I64 if that is a number too; a value unchanged."""
        if not isinstance(value, int | float):
            return value
        return self.number(value, I64 if isinstance(other, int) else other)

    def number(self, value: float, like):
        """A float constant of the type of `like`, in every lane."""
        return constant(like if isinstance(like, ir.Type) else like.type, value, repr(value))

    # memory -----------------------------------------------------------------------------------------------------------

    def at(self, pointer, number, size=1):
        """The address of entry `number`, each of so many bytes, after a pointer."""
        if isinstance(number, int) and isinstance(size, int):
            number, size = self.index(number * size), 1
        return self.gep(pointer, [number if size == 1 else self.mul(number, size)], source_etype=BYTE)

    def get(self, pointer, type, align: int = 1):
        """A load. The caller's arrays may be unaligned, so no alignment is assumed unless it is specified."""
        return self.load(pointer, align=align, typ=type)

    def put(self, value, pointer, align: int = 1):
        self.store(self.like(value), pointer, align=align)

    def prefetch(self, pointer):
        """Prefetches a cache line into the second-level cache; an invalid address is harmless."""
        where = [self.index(value, I32) for value in (0, 2, 1)]
        self.external("llvm.prefetch.p0", ir.VoidType(), pointer, *where)

    # lanes ------------------------------------------------------------------------------------------------------------

    def splat(self, value, lanes: int):
        """A scalar broadcast to every lane; a vector unchanged."""
        if lanes == 1 or is_vector(value):
            return value
        kind = vector(value.type, lanes)
        first = self.insert_element(ir.Constant(kind, ir.Undefined), value, self.index(0, I32))
        return self.shuffle(first, ir.Constant(kind, ir.Undefined), [0] * lanes)

    def tiled(self, value, times: int):
        """A vector with the lanes of another several times."""
        return self.shuffle(value, value, list(range(value.type.count)) * times)

    def shuffle(self, a, b, order: list[int]):
        return self.shuffle_vector(a, b, constant(ir.VectorType(I32, len(order)), tuple(order), ""))

    def lane(self, value, number: int):
        return self.extract_element(value, self.index(number, I32)) if is_vector(value) else value

    def gathered(self, scalars: list):
        """A vector from its lanes."""
        if len(scalars) == 1:
            return scalars[0]
        out = ir.Constant(vector(scalars[0].type, len(scalars)), ir.Undefined)
        for number, scalar in enumerate(scalars):
            out = self.insert_element(out, scalar, self.index(number, I32))
        return out

    def transpose(self, rows: list) -> list:
        """The transpose of lanes x lanes elements: log2(lanes) rounds of exchanging halves, quarters …"""
        rows, step = list(rows), 1
        lanes = len(rows)
        while step < lanes:
            upper = [lane - step + lanes if lane & step else lane for lane in range(lanes)]
            lower = [lane + lanes if lane & step else lane + step for lane in range(lanes)]
            for top in range(lanes):
                if not top & step:
                    a, b = rows[top], rows[top + step]
                    rows[top], rows[top + step] = self.shuffle(a, b, upper), self.shuffle(a, b, lower)
            step *= 2
        return rows

    def columns(self, places: list, element) -> list:
        """The transpose of the 16 bytes at each of some addresses: vectors with a lane for each address.

        Half of the exchanges of `transpose` are loads here: of pieces into their places in a register.
        """
        width, lanes = PIECE // (4 if element == F32 else 8), len(places)
        rows = [
            self.joined([self.get(places[at], vector(element, width)) for at in range(number, lanes, width)])
            for number in range(width)
        ]

        def half(a, b, size: int, begin: int):
            """Runs of `size` elements of a and b in turn, from the lower or upper half of each piece."""
            runs = range(begin, begin + width // 2, size)
            starts = [first + run for first in range(0, lanes, width) for run in runs]
            order = [at + place for start in starts for at in (start, lanes + start) for place in range(size)]
            return self.shuffle(a, b, order)

        def both(pair, size: int) -> list:
            return [half(pair[0], pair[1], size, begin) for begin in (0, width // 2)]

        if width == 2:
            return both(rows, 1)
        pairs = zip(both(rows[:2], 1), both(rows[2:], 1), strict=True)
        return [each for pair in pairs for each in both(pair, 2)]

    def joined(self, parts: list):
        """Vectors of the same length after one another; their number is a power of two."""
        while len(parts) > 1:
            every = list(range(2 * parts[0].type.count))
            parts = [self.shuffle(*pair, every) for pair in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def reduced(self, value, combine: Callable[[Any, Any], Any]):
        """All lanes of a vector combined, halves first; their number is a power of two."""
        lanes = value.type.count
        while lanes > 1:
            lanes //= 2
            halves = [list(range(first, first + lanes)) for first in (0, lanes)]
            value = combine(*(self.shuffle(value, value, half) for half in halves))
        return self.lane(value, 0)

    def per_lane(self, function, type, *vectors):
        """The scalar function applied lane by lane, for operations without a vector form."""
        lanes = range(max(map(lane_count, vectors)))
        return self.gathered([function(*(self.lane(v, number) for v in vectors)) for number in lanes])

    # arithmetic -------------------------------------------------------------------------------------------------------

    def intrinsic(self, name: str, *args, gives=None):
        """A call of llvm.NAME, overloaded on the type of the first argument."""
        kind = args[0].type
        gives = gives or kind
        count = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        inner = {"float": "f32", "double": "f64"}.get(str(element(args[0])), str(element(args[0])))
        suffix = f"{count}{inner}"
        if gives != kind:
            result = gives.element if isinstance(gives, ir.VectorType) else gives
            outer = {"float": "f32", "double": "f64"}.get(str(result), str(result))
            suffix = f"{count}{outer}.{suffix}"
        return self.external(f"llvm.{name}.{suffix}", gives, *args)

    def external(self, name: str, gives, *args):
        """A call of a function outside the module."""
        args = tuple(self.like(arg) for arg in args)
        known = self.module.globals.get(name)
        if known is None:
            known = ir.Function(self.module, ir.FunctionType(gives, [arg.type for arg in args]), name)
        return self.call(known, args)

    def fma(self, a, b, c):
        """a·b + c: one instruction and one rounding if the machine has it (always or never, so results are
        reproducible).
        """
        return self.intrinsic("fmuladd", a, self.like(b, a), self.like(c, a))

    def dot_pairs(self, a, b, c):
        """c + a₀·b₀ + a₁·b₁ in every lane: the 32-bit words of a and b are two bfloat16 each; a may be in memory."""
        if isinstance(a, Word):
            # LLVM would load and broadcast the word separately, which costs a register and an instruction.
            shape = ir.FunctionType(c.type, [c.type, b.type, PTR])
            text = f"vdpbf16ps {a.offset}($3){{1to{c.type.count}}}, $2, $0"
            return self.call(ir.InlineAsm(shape, text, "=v,0,v,r"), [c, b, a.address])
        pairs = vector(Brain(), 2 * c.type.count)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * c.type.count}"
        return self.external(name, c.type, c, self.bitcast(a, pairs), self.bitcast(b, pairs))

    def paired(self, low, high):
        """32-bit words of two float32 rounded to bfloat16, the first in the lower half."""
        lanes = low.type.count
        name = f"llvm.x86.avx512bf16.cvtne2ps2bf16.{32 * lanes}"
        both = self.external(name, vector(Brain(), 2 * lanes), high, low)
        both = self.bitcast(both, vector(I16, 2 * lanes))
        return self.shuffle(both, both, [place // 2 + lanes * (place % 2) for place in range(2 * lanes)])

    def brain(self, value):
        """float32 as a bfloat16 bit pattern, by the AVX512-BF16 instruction; denormals become 0."""
        count = value.type.count
        return self.bitcast(self.fptrunc(value, vector(Brain(), count)), vector(I16, count))

    def horner(self, x, coefficients: list[float]):
        """c0 + x·(c1 + x·(c2 + …)), with one rounding per step."""
        out = self.number(coefficients[-1], x)
        for coefficient in reversed(coefficients[:-1]):
            out = self.fma(out, x, coefficient)
        return out

    def larger(self, a, b):
        """max(a, b) in one instruction; b if either is NaN."""
        return self.select(self.fcmp_ordered(">", a, b), a, b)

    def abs(self, x):
        return self.intrinsic("fabs", x)

    def as_bits(self, x):
        """The bit pattern of a float, as an integer of the same width."""
        inner = I32 if element(x) == F32 else I64
        return self.bitcast(x, vector(inner, lane_count(x)))

    # control ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, start, stop, step: int = 1, carry: tuple[Any, ...] | list[Any] = ()):
        """`for index in range(start, stop, step)`, tested before the first iteration."""
        start, stop, *carry = (self.like(value) for value in (start, stop, *carry))
        before = self.block
        head, body, after = (self.append_basic_block(name) for name in ("loop", "round", "done"))
        self.branch(head)
        self.position_at_end(head)
        index = self.phi(start.type)
        carried = [self.phi(value.type) for value in carry]
        self.cbranch(self.icmp_signed("<", index, stop), body, after)
        self.position_at_end(body)
        running = Loop(index, carried)
        yield running
        index.add_incoming(start, before)
        index.add_incoming(self.add(index, ir.Constant(start.type, step)), self.block)
        for phi, first, following in zip(carried, carry, running.following, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(following, self.block)
        self.branch(head)
        self.position_at_end(after)

    @contextmanager
    def repeat(self, condition, carry: list[Any]):
        """`while condition(*carried)`: a loop with an unknown number of iterations."""
        carry = [self.like(value) for value in carry]
        before = self.block
        head, body, after = (self.append_basic_block(name) for name in ("while", "round", "done"))
        self.branch(head)
        self.position_at_end(head)
        carried = [self.phi(value.type) for value in carry]
        holds = condition(*carried)
        tested = self.block
        self.cbranch(holds, body, after)
        self.position_at_end(body)
        running = Loop(None, carried)
        yield running
        for phi, first, following in zip(carried, carry, running.following, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(following, self.block)
        self.branch(head)
        assert tested is head, "the condition of `repeat` must not branch"
        self.position_at_end(after)

    when = ir.IRBuilder.if_then  # `if condition`

    def smaller_int(self, a, b):
        return self.select(self.icmp_signed("<", a, b), a, b)

    def larger_int(self, a, b):
        return self.select(self.icmp_signed(">", a, b), a, b)


def _accept_numbers(name: str) -> None:
    """Lets one of the last two operands of an operation be a number."""
    build = getattr(ir.IRBuilder, name)

    def operation(code: Code, *operands, name: str = ""):
        *first, a, b = operands
        return build(code, *first, code.like(a, b), code.like(b, a), name=name)

    setattr(Code, name, operation)


for name in (
    "add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "and_", "or_", "xor", "shl", "lshr", "ashr",
    "fadd", "fsub", "fmul", "fdiv",
    "icmp_signed", "icmp_unsigned", "fcmp_ordered", "fcmp_unordered", "select",
):  # fmt: skip
    _accept_numbers(name)
