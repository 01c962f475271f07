"""The table of operators: one row defines everything about an operator except its code in each engine.

A row has the kinds of the arguments and the result, the value (NumPy), the bounds over a tile (intervals), the partial
derivatives (expressions, built through the namespace `f`), the text, and the cost in floating-point operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from . import intervals as i

# Precedence as in Python: a comparison binds weakest, so it needs parentheses inside `&`.
COMPARE, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, CALL = range(9)


class Operator(NamedTuple):
    name: str
    takes: str  # one character per argument: n number, i integer, b bool, x either
    gives: str  # "bool", "int", "float", or "promote" (int where every argument is one, else float)
    value: Callable
    bounds: Callable
    derivative: Callable | None  # (f, out, *arguments) -> one partial per argument; None: not differentiable, or flat
    text: str  # the symbol of an infix or prefix operator, or the name of a function
    precedence: int
    cost: int


def floor_divide(x, y):
    """floor(x / y), where the quotient of floats is rounded first, as in compiled code: 1.0 // 0.1 is 10. An integer
    divided by 0 is 0.
    """
    whole = x.dtype.kind == y.dtype.kind == "i"
    return np.floor_divide(x, y) if whole else np.floor(np.true_divide(x, y))


def truncate(x):
    """Toward zero into 32 bits; NaN gives 0."""
    return np.clip(np.nan_to_num(np.trunc(x), nan=0.0), -(2.0**31), 2.0**31 - 1).astype(np.int64)


def truncate_bounds(x):
    whole = i.exactly(lambda v: np.clip(np.trunc(v), -(2.0**31), 2.0**31 - 1))(x)
    opened = np.asarray(x.nan)
    return i.Interval(
        np.where(opened, np.minimum(whole.lo, 0), whole.lo),
        np.where(opened, np.maximum(whole.hi, 0), whole.hi),
    )


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def power(x, y):
    return np.power(np.asarray(x, np.float64), y)


def half_at_ties(f, x, y):
    """The derivative of min(x, y) with respect to x: 1 where x is smaller, ½ where both are equal."""
    return f.where(x <= y, f.where(x == y, 0.5, 1.0), 0.0)


erf = np.vectorize(math.erf, otypes=[np.float64])
LOG2 = math.log(2)

_ROWS = [
    # arithmetic
    Operator("add", "nn", "promote", np.add, i.add, lambda f, o, x, y: (1, 1), "+", SUM, 1),
    Operator("sub", "nn", "promote", np.subtract, i.sub, lambda f, o, x, y: (1, -1), "-", SUM, 1),
    Operator("mul", "nn", "promote", np.multiply, i.mul, lambda f, o, x, y: (y, x), "*", PRODUCT, 1),
    Operator("div", "nn", "float", np.true_divide, i.div, lambda f, o, x, y: (1 / y, -o / y), "/", PRODUCT, 4),
    Operator("floordiv", "nn", "promote", floor_divide, i.floordiv, None, "//", PRODUCT, 6),
    Operator("mod", "nn", "promote", np.mod, i.mod, lambda f, o, x, y: (1, -f.floor(x / y)), "%", PRODUCT, 8),
    Operator("neg", "n", "promote", np.negative, i.neg, lambda f, o, x: (-1,), "-", UNARY, 1),
    Operator("abs", "n", "promote", np.abs, i.absolute, lambda f, o, x: (f.sign(x),), "abs", CALL, 1),
    Operator("minimum", "nn", "promote", np.minimum, i.minimum,
             lambda f, o, x, y: (half_at_ties(f, x, y), half_at_ties(f, y, x)), "minimum", CALL, 1),
    Operator("maximum", "nn", "promote", np.maximum, i.maximum,
             lambda f, o, x, y: (half_at_ties(f, y, x), half_at_ties(f, x, y)), "maximum", CALL, 1),
    Operator("where", "bnn", "promote", np.where, i.where,
             lambda f, o, c, x, y: (0, f.where(c, 1.0, 0.0), f.where(c, 0.0, 1.0)), "where", CALL, 1),
    # comparisons
    Operator("lt", "nn", "bool", np.less, i.comparison("lt"), None, "<", COMPARE, 1),
    Operator("le", "nn", "bool", np.less_equal, i.comparison("le"), None, "<=", COMPARE, 1),
    Operator("gt", "nn", "bool", np.greater, i.comparison("gt"), None, ">", COMPARE, 1),
    Operator("ge", "nn", "bool", np.greater_equal, i.comparison("ge"), None, ">=", COMPARE, 1),
    Operator("eq", "xx", "bool", np.equal, i.comparison("eq"), None, "==", COMPARE, 1),
    Operator("ne", "xx", "bool", np.not_equal, i.comparison("ne"), None, "!=", COMPARE, 1),
    # logic
    Operator("and", "bb", "bool", np.logical_and, i.logical_and, None, "&", AND, 1),
    Operator("or", "bb", "bool", np.logical_or, i.logical_or, None, "|", OR, 1),
    Operator("xor", "bb", "bool", np.logical_xor, i.logical_xor, None, "^", XOR, 1),
    Operator("not", "b", "bool", np.logical_not, i.logical_not, None, "~", UNARY, 1),
    # bits of integers
    Operator("bitand", "ii", "int", np.bitwise_and, i.bitand, None, "&", AND, 1),
    Operator("bitor", "ii", "int", np.bitwise_or, i.bitor, None, "|", OR, 1),
    Operator("bitxor", "ii", "int", np.bitwise_xor, i.bitxor, None, "^", XOR, 1),
    Operator("lshift", "ii", "int", np.left_shift, i.lshift, None, "<<", SHIFT, 1),
    Operator("rshift", "ii", "int", np.right_shift, i.rshift, None, ">>", SHIFT, 1),
    # conversions
    Operator("to_float", "n", "float", lambda x: np.asarray(x, np.float64), lambda x: x,
             lambda f, o, x: (1,), "to_float", CALL, 1),
    Operator("to_int", "n", "int", truncate, truncate_bounds, None, "to_int", CALL, 1),
    Operator("floor", "n", "float", np.floor, i.exactly(np.floor), None, "floor", CALL, 1),
    Operator("ceil", "n", "float", np.ceil, i.exactly(np.ceil), None, "ceil", CALL, 1),
    Operator("round", "n", "float", np.rint, i.exactly(np.rint), None, "round_even", CALL, 1),
    Operator("trunc", "n", "float", np.trunc, i.exactly(np.trunc), None, "trunc", CALL, 1),
    Operator("sign", "n", "promote", np.sign, i.exactly(np.sign), None, "sign", CALL, 1),
    # functions
    Operator("exp", "n", "float", np.exp, i.rising(np.exp), lambda f, o, x: (o,), "exp", CALL, 8),
    Operator("exp2", "n", "float", np.exp2, i.rising(np.exp2), lambda f, o, x: (LOG2 * o,), "exp2", CALL, 8),
    Operator("expm1", "n", "float", np.expm1, i.rising(np.expm1), lambda f, o, x: (o + 1,), "expm1", CALL, 10),
    Operator("log", "n", "float", np.log, i.rising(np.log, (0, np.inf)), lambda f, o, x: (1 / x,), "log", CALL, 10),
    Operator("log2", "n", "float", np.log2, i.rising(np.log2, (0, np.inf)),
             lambda f, o, x: (1 / (LOG2 * x),), "log2", CALL, 10),
    Operator("log1p", "n", "float", np.log1p, i.rising(np.log1p, (-1, np.inf)),
             lambda f, o, x: (1 / (1 + x),), "log1p", CALL, 12),
    Operator("sqrt", "n", "float", np.sqrt, i.rising(np.sqrt, (0, np.inf)),
             lambda f, o, x: (0.5 / o,), "sqrt", CALL, 4),
    Operator("tanh", "n", "float", np.tanh, i.rising(np.tanh), lambda f, o, x: ((1 - o) * (1 + o),), "tanh", CALL, 14),
    Operator("sigmoid", "n", "float", sigmoid, i.rising(sigmoid),
             lambda f, o, x: (o * (1 - o),), "sigmoid", CALL, 12),
    Operator("erf", "n", "float", erf, i.rising(erf),
             lambda f, o, x: (2 / math.sqrt(math.pi) * f.exp(-x * x),), "erf", CALL, 20),
    Operator("atan", "n", "float", np.arctan, i.rising(np.arctan),
             lambda f, o, x: (1 / (1 + x * x),), "atan", CALL, 20),
    Operator("sin", "n", "float", np.sin, i.within(-1.0, 1.0), lambda f, o, x: (f.cos(x),), "sin", CALL, 20),
    Operator("cos", "n", "float", np.cos, i.within(-1.0, 1.0), lambda f, o, x: (-f.sin(x),), "cos", CALL, 20),
    Operator("tan", "n", "float", np.tan, i.anything, lambda f, o, x: (1 + o * o,), "tan", CALL, 25),
    Operator("pow", "nn", "float", power, i.anything,
             lambda f, o, x, y: (y * f.pow(x, y - 1), o * f.log(x)), "pow", CALL, 30),
]  # fmt: skip

OPERATORS = {row.name: row for row in _ROWS}
MIRRORED = {
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "eq": "eq",
    "ne": "ne",
}  # the same comparison with its arguments exchanged
SHIFTS = {"lshift": "mul", "rshift": "floordiv"}  # by a constant n they are this, with 2**n
OF_BITS = {"and": "bitand", "or": "bitor", "xor": "bitxor"}  # what Python's signs for both mean between integers
