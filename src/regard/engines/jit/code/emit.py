"""Expressions as LLVM IR: one entry per operator, the values of leaves, and where each part is computed.

A value is uniform (a scalar) unless something it depends on differs between lanes. Lanes are query rows, so parts that
depend on batch, head and query alone are computed once per tile, parts that depend on the key but not the query once
per key, and only the rest for every pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from llvmlite import ir

from ....common.dtypes import FLOATS
from ....language.expr import Const, Expr, Op, Read, Table, Var, walk
from ....language.expr import score as the_score
from . import formats, special
from .arguments import Block
from .ir import BYTE, F32, F64, I1, I32, I64, Code, element, is_vector, lane_count, vector

TABLE_TYPES = {
    "bool": BYTE,
    "int8": BYTE,
    "uint8": BYTE,
    "int16": ir.IntType(16),
    "uint16": ir.IntType(16),
    "int32": I32,
    "uint32": I32,
    "int64": I64,
    **{name: formats.stored(name) for name in FLOATS},
}


def signature(*roots: Expr | None) -> tuple[tuple, list[Const], list[Table]]:
    """(shape of the expressions, their constants, their tables): expressions of equal shape share a kernel.

    Constants and tables are numbered in the order of `walk`; the shape refers to them by number and type.
    """
    constants: list[Const] = []
    tables: list[Table] = []
    place: dict[int, int] = {}
    shape: list[tuple] = []
    for node in walk(*(root for root in roots if root is not None)):
        place[id(node)] = len(shape)
        parts = tuple(place[id(child)] for child in node.children)
        if isinstance(node, Const):
            shape.append(("const", node.kind, _invertible(node)))
            constants.append(node)
        elif isinstance(node, Var):
            shape.append(("var", node.name))
        elif isinstance(node, Read):
            if not any(node.table is known for known in tables):
                tables.append(node.table)
            number = next(i for i, known in enumerate(tables) if known is node.table)
            shape.append(("read", number, str(node.table.array.dtype), parts))
        elif isinstance(node, Op):
            shape.append(("op", node.name, parts))
    ends = tuple(None if root is None else place[id(root)] for root in roots)
    return (tuple(shape), ends), constants, tables


def _invertible(node: Expr) -> bool:
    """True for a number whose inverse is a normal float, so that a division by it may become a multiplication."""
    return isinstance(node, Const) and node.kind != "bool" and 1e-30 < abs(node.value) < 1e30


@dataclass
class Emitter:
    """One expression root, emitted in stages into one kernel.

    real: the float type. deciding: nodes computed in float64 whatever `real` is (see `analysis.deciding`). values: the
    values computed so far, by node; `scope` adds variables and starts an inner scope.
    """

    code: Code
    real: Any
    arguments: Block
    deciding: frozenset[int] = frozenset()
    values: dict[int, Any] = field(default_factory=dict)

    @property
    def whole(self):
        """The integer type, 32 bits where bounds show that it suffices."""
        return self.arguments.whole

    def scope(self, **variables) -> Emitter:
        """An inner scope: it can use the values computed so far; the values that it computes are local to it."""
        inner = replace(self, values=dict(self.values))
        for name, value in variables.items():
            inner.values[id(Var(name))] = value
        return inner

    def prepare(self, root: Expr) -> None:
        """Emits every part of the expression whose leaves have values."""
        for node in walk(root):
            known = all(id(child) in self.values for child in node.children)
            if id(node) not in self.values and known and not isinstance(node, Var):
                self.values[id(node)] = self._emit(node)

    def value(self, root: Expr):
        self.prepare(root)
        return self.values[id(root)]

    def _emit(self, node: Expr):
        if isinstance(node, Const):
            if node.kind == "bool":
                return ir.Constant(I1, int(node.value))
            kind = self._real(node) if node.kind == "float" else self.whole
            return self.arguments.constants[self.arguments.numbers[id(node)], kind]
        if isinstance(node, Read):
            return self._read(node, [self.values[id(part)] for part in node.index])
        assert isinstance(node, Op)
        return self._apply(node, [self.values[id(arg)] for arg in node.args])

    def _apply(self, node: Op, args: list):
        code = self.code
        count = max(map(lane_count, args), default=1)
        kinds = [arg.kind for arg in node.args]
        floats = node.kind == "float" or (node.kind == "bool" and "float" in kinds)
        real = self._real(node)
        if node.kind == "bool" and any(element(value) == F64 for value in args):
            real = F64
        converted = []
        for value, kind, number in zip(args, kinds, range(len(args)), strict=True):
            condition = node.name == "where" and number == 0
            if kind == "bool" and not condition and node.name not in LOGIC:
                value, kind = (
                    code.zext(value, vector(self.whole, lane_count(value))),
                    "int",
                )
            if kind == "int" and floats:
                value = code.sitofp(value, vector(real, lane_count(value)))
            elif kind == "float" and floats and element(value) != real:
                convert = code.fpext if real == F64 else code.fptrunc
                value = convert(value, vector(real, lane_count(value)))
            converted.append(value)
        by_constant = node.name == "div" and real == F32 and is_vector(args[0]) and _invertible(node.args[1])
        if by_constant and any(part is the_score for part in walk(node.args[0])):
            inverse = code.fdiv(ir.Constant(F32, 1.0), converted[1])  # loop-invariant
            return code.fmul(converted[0], code.splat(inverse, count))
        return EMIT[node.name](self, *(code.splat(value, count) for value in converted))

    def row(self, node: Read) -> tuple[Any, Any, Any, Any]:
        """The address of a table, the byte offset of the row that is read, and size and stride of the last axis."""
        pointer, sizes, strides = self._table(node)
        values = [self.values[id(part)] for part in node.index[:-1]]
        return pointer, self._offset(values, sizes, strides), sizes[-1], strides[-1]

    def converted(self, node: Read, found):
        """Elements of a table, as they are in memory, in the type of the expression."""
        return self._converted(found, node.table.array.dtype, self._real(node))

    def _table(self, node: Read) -> tuple[Any, list, list]:
        return self.arguments.tables[self.arguments.table(node.table)]

    def _read(self, node: Read, index: list):
        code, dtype = self.code, node.table.array.dtype
        stored = TABLE_TYPES[str(dtype)]
        pointer, sizes, strides = self._table(node)
        offset = self._offset(index, sizes, strides)
        found = code.per_lane(lambda place: code.get(code.at(pointer, place), stored), stored, offset)
        return self._converted(found, dtype, self._real(node))

    def _offset(self, index: list, sizes: list, strides: list):
        """The byte offset of an index of the first axes, which is clamped."""
        code = self.code
        count = max(map(lane_count, index), default=1)
        offset: Any = ir.Constant(I64, 0)
        for value, size, stride in zip(index, sizes, strides, strict=False):
            narrow = element(value)
            # Clamped in the width of the index, so that no index can be outside the table.
            top = code.sub(size, ir.Constant(I64, 1))
            if narrow != I64:
                top = code.smaller_int(top, ir.Constant(I64, 2**31 - 1))
                top = code.trunc(top, narrow)
            lanes = lane_count(value)
            top = code.splat(top, lanes)
            value = code.smaller_int(code.larger_int(value, 0), top)
            wide = code.sext(value, vector(I64, lanes)) if narrow != I64 else value
            part = code.mul(wide, code.splat(stride, lanes))
            offset = code.add(code.splat(offset, count), code.splat(part, count))
        return offset

    def _real(self, node: Expr):
        return F64 if id(node) in self.deciding else self.real

    def _converted(self, found, dtype: np.dtype, real):
        code = self.code
        if dtype.kind == "b":
            return code.icmp_unsigned("!=", found, 0)
        if dtype.kind in "iu":
            target = vector(self.whole, lane_count(found))
            width, wanted = dtype.itemsize * 8, self.whole.width
            if width == wanted:
                return found
            if width > wanted:  # bounds of the table show that its values fit
                return code.trunc(found, target)
            return code.sext(found, target) if dtype.kind == "i" else code.zext(found, target)
        if dtype.name in formats.NARROW:
            found = formats.NARROW[dtype.name].widen(code, found)
        target = vector(real, lane_count(found))
        if found.type == target:
            return found
        return code.fpext(found, target) if real == F64 else code.fptrunc(found, target)


LOGIC = ("and", "or", "xor", "not")


def _is_float(value) -> bool:
    return element(value) in (F32, F64)


def _either(floats: str, ints: str):
    """An operator with a float and an integer instruction."""

    def emit(e: Emitter, *args):
        return getattr(e.code, floats if _is_float(args[0]) else ints)(*args)

    return emit


def _compare(sign: str):
    def emit(e: Emitter, a, b):
        if _is_float(a):
            return e.code.fcmp_unordered(sign, a, b) if sign == "!=" else e.code.fcmp_ordered(sign, a, b)
        return (e.code.icmp_unsigned if sign in ("==", "!=") else e.code.icmp_signed)(sign, a, b)

    return emit


def _extreme(name: str, sign: str):
    """minimum or maximum; NaN if either argument is NaN."""

    def emit(e: Emitter, a, b):
        if _is_float(a):
            return e.code.intrinsic(name, a, b)
        return e.code.select(e.code.icmp_signed(sign, a, b), a, b)

    return emit


def _function(name: str):
    """A function of one float: the polynomial of special.py for float32, the C library otherwise."""

    def emit(e: Emitter, x):
        ours = getattr(special, name, None)
        return ours(e.code, x) if ours is not None and element(x) == F32 else special.library(e.code, name, x)

    return emit


def _sigmoid(e: Emitter, x):
    if element(x) == F32:
        return special.sigmoid(e.code, x)
    return e.code.fdiv(1.0, e.code.fadd(1.0, special.library(e.code, "exp", e.code.fneg(x))))


def _rounding(intrinsic: str):
    def emit(e: Emitter, x):
        return e.code.intrinsic(intrinsic, x)

    return emit


def _neg(e: Emitter, x):
    return e.code.fneg(x) if _is_float(x) else e.code.neg(x)


def _abs(e: Emitter, x):
    if _is_float(x):
        return e.code.intrinsic("fabs", x)
    return e.code.select(e.code.icmp_signed("<", x, 0), e.code.neg(x), x)


def _sign(e: Emitter, x):
    code, zero = e.code, e.code.number(0, x)
    if _is_float(x):
        signed = code.select(code.fcmp_ordered(">", x, zero), code.number(1.0, x), code.number(-1.0, x))
        # Zero and NaN pass.
        return code.select(code.fcmp_ordered("!=", x, zero), signed, x)
    positive = code.select(code.icmp_signed(">", x, zero), 1, zero)
    return code.select(code.icmp_signed("<", x, zero), -1, positive)


def _where(e: Emitter, condition, x, y):
    return e.code.select(condition, x, y)


def _whole_quotient(e: Emitter, x, y):
    """Floor division and remainder of integers; both are 0 for a zero divisor.

    Vector units have no integer division. 32-bit integers are divided in float64, whose quotient never rounds across an
    integer; wider ones are divided lane by lane.
    """
    code = e.code
    nought = code.icmp_signed("==", y, 0)
    safe = code.select(nought, 1, y)
    if element(x) == I32 and is_vector(x):
        wide = vector(F64, x.type.count)
        quotient = code.fptosi(
            code.intrinsic("floor", code.fdiv(code.sitofp(x, wide), code.sitofp(safe, wide))), x.type
        )
    else:
        # The one quotient that overflows, least / -1, is computed as least / 1: bounds exclude such values.
        least = code.icmp_signed("==", x, -(2 ** (element(x).width - 1)))
        minus = code.icmp_signed("==", safe, -1)
        safe = code.select(code.and_(least, minus), 1, safe)
        toward_zero = code.sdiv(x, safe)
        rest = code.sub(x, code.mul(toward_zero, safe))
        crosses = code.and_(
            code.icmp_signed("!=", rest, 0),
            code.icmp_signed("<", code.xor(rest, safe), 0),
        )
        quotient = code.sub(toward_zero, code.select(crosses, code.number(1, x), code.number(0, x)))
    return code.select(nought, 0, quotient), code.select(nought, 0, code.sub(x, code.mul(quotient, safe)))


def _floordiv(e: Emitter, x, y):
    if _is_float(x):
        return e.code.intrinsic("floor", e.code.fdiv(x, y))
    return _whole_quotient(e, x, y)[0]


def _mod(e: Emitter, x, y):
    """The remainder with the sign of the divisor, as in Python and NumPy."""
    if not _is_float(x):
        return _whole_quotient(e, x, y)[1]
    code = e.code
    rest = special.library(code, "fmod", x, y)
    signs_differ = code.xor(code.fcmp_ordered("<", rest, 0.0), code.fcmp_ordered("<", y, 0.0))
    return code.select(code.and_(code.fcmp_unordered("!=", rest, 0.0), signs_differ), code.fadd(rest, y), rest)


def _shift(name: str):
    """x << n or x >> n. Where no bit is left (n of 64 and more, or below 0), 0, or the sign for >>."""

    def emit(e: Emitter, x, bits):
        code, width = e.code, element(x).width
        inside = code.icmp_unsigned("<", bits, width)
        if name == "rshift":
            return code.ashr(x, code.select(inside, bits, width - 1))
        return code.select(inside, code.shl(x, code.select(inside, bits, 0)), 0)

    return emit


def _to_int(e: Emitter, x):
    if not _is_float(x):
        return x
    narrow = e.code.intrinsic("fptosi.sat", x, gives=vector(I32, lane_count(x)))
    return narrow if e.whole == I32 else e.code.sext(narrow, vector(I64, lane_count(x)))


EMIT: dict[str, Callable] = {
    "add": _either("fadd", "add"),
    "sub": _either("fsub", "sub"),
    "mul": _either("fmul", "mul"),
    "div": lambda e, x, y: e.code.fdiv(x, y),
    "floordiv": _floordiv,
    "mod": _mod,
    "neg": _neg,
    "abs": _abs,
    "minimum": _extreme("minimum", "<"),
    "maximum": _extreme("maximum", ">"),
    "where": _where,
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "and": lambda e, x, y: e.code.and_(x, y),
    "or": lambda e, x, y: e.code.or_(x, y),
    "xor": lambda e, x, y: e.code.xor(x, y),
    "not": lambda e, x: e.code.not_(x),
    "bitand": lambda e, x, y: e.code.and_(x, y),
    "bitor": lambda e, x, y: e.code.or_(x, y),
    "bitxor": lambda e, x, y: e.code.xor(x, y),
    "lshift": _shift("lshift"),
    "rshift": _shift("rshift"),
    "to_float": lambda e, x: x,
    "to_int": _to_int,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("roundeven"),
    "trunc": _rounding("trunc"),
    "sign": _sign,
    "sqrt": _rounding("sqrt"),
    **{
        name: _function(name)
        for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "atan", "sin", "cos", "tan")
    },
    "sigmoid": _sigmoid,
    "pow": lambda e, x, y: special.library(e.code, "pow", x, y),
}
