"""Functions that build expressions, under regard's names; spellings.py has those of NumPy and torch."""

from __future__ import annotations

from .expr import Const, Expr, applied, lift

__all__ = [
    "atan",
    "ceil",
    "clip",
    "cos",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "log",
    "log1p",
    "log2",
    "maximum",
    "minimum",
    "pow",
    "relu",
    "round_even",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "to_float",
    "to_int",
    "trunc",
    "where",
]


def _unary(name: str, sentence: str):
    def build(x) -> Expr:
        return applied(name, x)

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
    """x where the condition holds, else y; of two conditions, a condition."""
    condition, x, y = map(lift, (condition, x, y))
    return condition & x | ~condition & y if x.kind == y.kind == "bool" else applied("where", condition, x, y)


def minimum(x, y) -> Expr:
    """The smaller of two numbers."""
    return applied("minimum", x, y)


def maximum(x, y) -> Expr:
    """The larger of two numbers."""
    return applied("maximum", x, y)


def clip(x, lo=None, hi=None) -> Expr:
    """x, kept between lo and hi; either may be left out."""
    out = lift(x)
    out = out if lo is None else maximum(out, lo)
    return out if hi is None else minimum(out, hi)


def pow(x, y) -> Expr:
    """x to the power y, as a float."""
    return applied("pow", x, y)


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


def as_kind(x: Expr, kind: str) -> Expr:
    """x as "bool", "int" or "float", as tensors convert: toward zero, and true where it is not 0."""
    if x.kind == kind:
        return x
    if kind == "float":
        return Const(float(x.value)) if isinstance(x, Const) else to_float(x)
    if kind == "int":
        return where(x, 1, 0) if x.kind == "bool" else to_int(x)
    return applied("ne", x, 0)
