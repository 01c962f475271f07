"""Functions that build expressions, under regard's names and under the spellings of NumPy and torch."""

from __future__ import annotations

import operator
from typing import Any

from .errors import refuse
from .expr import Expr, Op, lift

__all__ = [
    "atan", "ceil", "clip", "cos", "erf", "exp", "exp2", "expm1", "floor", "log", "log1p", "log2", "maximum", "minimum", "pow",
    "relu", "round_even", "rsqrt", "sigmoid", "sign", "sin", "softplus", "sqrt", "square", "tan", "tanh", "to_float", "to_int",
    "trunc", "where",
]  # fmt: skip


def _unary(name: str, sentence: str):
    def build(x) -> Expr:
        return Op(name, x)

    build.__name__, build.__doc__ = name, sentence
    return build


exp = _unary("exp", "e to the power x.")
exp2 = _unary("exp2", "2 to the power x.")
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to base 2.")
log1p = _unary("log1p", "log(1 + x), accurate near 0.")
sqrt = _unary("sqrt", "The square root.")
tanh = _unary("tanh", "The hyperbolic tangent.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
erf = _unary("erf", "The error function.")
sin = _unary("sin", "The sine, in radians.")
cos = _unary("cos", "The cosine, in radians.")
tan = _unary("tan", "The tangent, in radians.")
atan = _unary("atan", "The arc tangent, in radians.")
floor = _unary("floor", "The largest whole number not above x, as a float.")
ceil = _unary("ceil", "The smallest whole number not below x, as a float.")
round_even = _unary("round", "The nearest whole number, halves to even, as a float.")
trunc = _unary("trunc", "x without its fraction, as a float.")
sign = _unary("sign", "-1, 0 or 1.")
to_float = _unary("to_float", "An integer as a float.")
to_int = _unary("to_int", "A float truncated toward zero, as an integer of at most 32 bits; NaN gives 0.")


def where(condition, x, y) -> Expr:
    """x where the condition holds, else y."""
    return Op("where", condition, x, y)


def minimum(x, y) -> Expr:
    """The smaller of two numbers."""
    return Op("minimum", x, y)


def maximum(x, y) -> Expr:
    """The larger of two numbers."""
    return Op("maximum", x, y)


def clip(x, lo=None, hi=None) -> Expr:
    """x, kept between lo and hi; either may be left out."""
    out = lift(x)
    out = out if lo is None else maximum(out, lo)
    return out if hi is None else minimum(out, hi)


def pow(x, y) -> Expr:
    """x to the power y, as a float."""
    return Op("pow", x, y)


def rsqrt(x) -> Expr:
    """1 / sqrt(x)."""
    return 1 / sqrt(x)


def square(x) -> Expr:
    """x · x."""
    return lift(x) * x


def relu(x) -> Expr:
    """x, or 0 where x is negative."""
    return maximum(x, 0.0 if lift(x).kind == "float" else 0)


def softplus(x) -> Expr:
    """log(1 + exp(x)), without overflow."""
    return maximum(x, 0.0) + log1p(exp(-abs(lift(x))))


def _cast(x: Expr, dtype=None, *rest, **kwargs) -> Expr:
    """x.to(dtype): a device or a tensor leaves the number as it is; a dtype converts."""
    name = str(dtype if dtype is not None else kwargs.get("dtype", ""))
    if "float" in name or "double" in name or "half" in name:
        return to_float(x) if x.kind != "float" else x
    if "int" in name or "long" in name:
        return to_int(x) if x.kind == "float" else (where(x, 1, 0) if x.kind == "bool" else x)
    if "bool" in name:
        return x if x.kind == "bool" else x != 0
    return x


def _filled(value):
    def build(x, shape=(), dtype=None, **kwargs):
        if tuple(shape) != ():
            raise refuse("expression", "an array cannot be made inside a rule", given=f"shape {tuple(shape)}",
                         expected="a single number: shape ()", mend="make the array outside and read it with table(array)")  # fmt: skip
        return lift(bool(value)) if "bool" in str(dtype) else lift(float(value))

    return build


def _reflected(build):
    return lambda x, y: build(y, x)


def _torch_pow(x, y):
    return lift(x) ** y


def _clamp(x, min=None, max=None, **kwargs):
    return clip(x, kwargs.get("a_min", min), kwargs.get("a_max", max))


_ARITHMETIC = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "true_divide": operator.truediv,
    "truediv": operator.truediv, "floor_divide": operator.floordiv, "floordiv": operator.floordiv, "remainder": operator.mod,
    "mod": operator.mod, "pow": _torch_pow, "power": _torch_pow, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip

# What NumPy and torch call the same things. An alias of the language, not a new operator.
SPELLINGS: dict[str, Any] = {
    **{name: globals()[name] for name in __all__},
    **_ARITHMETIC,
    **{f"r{name}": _reflected(build) for name, build in _ARITHMETIC.items()},
    **{f"__{name}__": build for name, build in _ARITHMETIC.items()},
    **{f"__r{name}__": _reflected(build) for name, build in _ARITHMETIC.items()},
    "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv, "negative": operator.neg, "neg": operator.neg,
    "abs": lambda x: abs(lift(x)), "absolute": lambda x: abs(lift(x)), "fabs": lambda x: abs(lift(x)),
    "lt": operator.lt, "less": operator.lt, "le": operator.le, "less_equal": operator.le, "gt": operator.gt,
    "greater": operator.gt, "ge": operator.ge, "greater_equal": operator.ge, "eq": operator.eq, "equal": operator.eq,
    "ne": operator.ne, "not_equal": operator.ne,
    "logical_and": operator.and_, "bitwise_and": operator.and_, "logical_or": operator.or_, "bitwise_or": operator.or_,
    "logical_xor": operator.xor, "bitwise_xor": operator.xor, "logical_not": operator.invert, "bitwise_not": operator.invert,
    "invert": operator.invert, "clamp": _clamp, "min": minimum, "max": maximum, "fmin": minimum, "fmax": maximum,
    "round": round_even, "rint": round_even, "arctan": atan, "trunc": trunc, "fix": trunc,
}  # fmt: skip
SPELLINGS["clip"] = _clamp

# Methods that callables written for tensors use on their arguments.
METHODS: dict[str, Any] = {
    **{name: SPELLINGS[name] for name in (
        "abs", "atan", "ceil", "clamp", "clip", "cos", "eq", "erf", "exp", "exp2", "expm1", "floor", "ge", "gt", "le", "log",
        "log1p", "log2", "logical_and", "logical_not", "logical_or", "lt", "ne", "neg", "pow", "relu", "round", "rsqrt",
        "sigmoid", "sign", "sin", "sqrt", "square", "tan", "tanh", "trunc", "add", "sub", "mul", "div", "remainder",
        "floor_divide",
    )},
    "float": to_float, "double": to_float, "half": to_float,
    "int": lambda x: _cast(x, "int"), "long": lambda x: _cast(x, "int"), "bool": lambda x: _cast(x, "bool"),
    "to": _cast, "type": _cast, "astype": _cast, "new_ones": _filled(1), "new_zeros": _filled(0),
    "contiguous": lambda x: x, "clone": lambda x: x, "detach": lambda x: x,
}  # fmt: skip
