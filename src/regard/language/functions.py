"""The functions of the language under regard's names; spellings.py has those of NumPy and torch."""

from __future__ import annotations

from typing import SupportsFloat

from .expr import Const, Expr, applied, lift
from .tree.traced import recorded

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

Number = Expr | SupportsFloat  # an expression, or a number of Python, NumPy or torch


def exp(x: Number) -> Expr:
    """e to the power `x`.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.exp(rg.score)
        exp(score)
    """
    return applied("exp", x)


def exp2(x: Number) -> Expr:
    """2 to the power `x`.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.exp2(rg.score)
        exp2(score)
    """
    return applied("exp2", x)


def expm1(x: Number) -> Expr:
    """exp(x) - 1, accurate near 0.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.expm1(rg.score)
        expm1(score)
    """
    return applied("expm1", x)


def log(x: Number) -> Expr:
    """The natural logarithm.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.log(rg.score)
        log(score)
    """
    return applied("log", x)


def log2(x: Number) -> Expr:
    """The logarithm to base 2.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.log2(rg.score)
        log2(score)
    """
    return applied("log2", x)


def log1p(x: Number) -> Expr:
    """log(1 + x), accurate near 0.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.log1p(rg.score)
        log1p(score)
    """
    return applied("log1p", x)


def sqrt(x: Number) -> Expr:
    """The square root.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.sqrt(rg.score)
        sqrt(score)
    """
    return applied("sqrt", x)


def tanh(x: Number) -> Expr:
    """The hyperbolic tangent.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.tanh(rg.score)
        tanh(score)
    """
    return applied("tanh", x)


def sigmoid(x: Number) -> Expr:
    """1 / (1 + exp(-x)).

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.sigmoid(rg.score)
        sigmoid(score)
    """
    return applied("sigmoid", x)


def erf(x: Number) -> Expr:
    """The error function.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.erf(rg.score)
        erf(score)
    """
    return applied("erf", x)


def sin(x: Number) -> Expr:
    """The sine.

    Args:
        x: an expression or a number, in radians.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.sin(rg.score)
        sin(score)
    """
    return applied("sin", x)


def cos(x: Number) -> Expr:
    """The cosine.

    Args:
        x: an expression or a number, in radians.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.cos(rg.score)
        cos(score)
    """
    return applied("cos", x)


def tan(x: Number) -> Expr:
    """The tangent.

    Args:
        x: an expression or a number, in radians.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.tan(rg.score)
        tan(score)
    """
    return applied("tan", x)


def atan(x: Number) -> Expr:
    """The arc tangent.

    Args:
        x: an expression or a number.

    Returns:
        A float expression, in radians.

    Examples:
        >>> import regard as rg
        >>> rg.atan(rg.score)
        atan(score)
    """
    return applied("atan", x)


def floor(x: Number) -> Expr:
    """The largest integer not above `x`.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.floor(rg.score)
        floor(score)
    """
    return applied("floor", x)


def ceil(x: Number) -> Expr:
    """The smallest integer not below `x`.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.ceil(rg.score)
        ceil(score)
    """
    return applied("ceil", x)


def round_even(x: Number) -> Expr:
    """The nearest integer; ties go to the even one.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.round_even(rg.score)
        round_even(score)
    """
    return applied("round", x)


def trunc(x: Number) -> Expr:
    """`x` without its fraction.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.trunc(rg.score)
        trunc(score)
    """
    return applied("trunc", x)


def sign(x: Number) -> Expr:
    """The sign of `x`: -1, 0 or 1.

    Args:
        x: an expression or a number.

    Returns:
        An expression of the kind of `x`.

    Examples:
        >>> import regard as rg
        >>> rg.sign(rg.score)
        sign(score)
    """
    return applied("sign", x)


def to_float(x: Number) -> Expr:
    """An integer as a float.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.to_float(rg.key)
        to_float(key)
    """
    return applied("to_float", x)


def to_int(x: Number) -> Expr:
    """A float truncated toward zero, clamped to 32 bits; NaN gives 0.

    Args:
        x: an expression or a number.

    Returns:
        An integer expression.

    Examples:
        >>> import regard as rg
        >>> rg.to_int(rg.score)
        to_int(score)
    """
    return applied("to_int", x)


@recorded
def where(condition: Expr | bool, x: Number, y: Number) -> Expr:
    """`x` where the condition is true, else `y`.

    Args:
        condition: an expression that is a condition, such as `key <= query`.
        x: an expression or a number, or a condition.
        y: the same.

    Returns:
        A float expression, an integer one if both are integers, or a condition if both are conditions.

    Raises:
        Refused: `condition` is not a condition.

    Examples:
        >>> import regard as rg
        >>> rg.where(rg.key == 0, 0.0, rg.score)
        where(key == 0, 0.0, score)
    """
    test, yes, no = lift(condition), lift(x), lift(y)
    return test & yes | ~test & no if yes.kind == no.kind == "bool" else applied("where", test, yes, no)


def minimum(x: Number, y: Number) -> Expr:
    """The smaller of two numbers.

    Args:
        x: an expression or a number.
        y: an expression or a number.

    Returns:
        A float expression, or an integer one if both are integers.

    Examples:
        >>> import regard as rg
        >>> rg.minimum(rg.query - rg.key, 16)
        minimum(query - key, 16)
    """
    return applied("minimum", x, y)


def maximum(x: Number, y: Number) -> Expr:
    """The larger of two numbers.

    Args:
        x: an expression or a number.
        y: an expression or a number.

    Returns:
        A float expression, or an integer one if both are integers.

    Examples:
        >>> import regard as rg
        >>> rg.maximum(rg.score, -10.0)
        maximum(score, -10.0)
    """
    return applied("maximum", x, y)


def clip(x: Number, lo: Number | None = None, hi: Number | None = None) -> Expr:
    """`x`, limited to the range from `lo` to `hi`.

    Args:
        x: an expression or a number.
        lo: the lower limit; None means no limit.
        hi: the upper limit; None means no limit.

    Returns:
        A float expression, or an integer one if all arguments are integers.

    Examples:
        >>> import regard as rg
        >>> rg.clip(rg.score, -10.0, 10.0)
        minimum(maximum(score, -10.0), 10.0)
    """
    out = lift(x)
    out = out if lo is None else maximum(out, lo)
    return out if hi is None else minimum(out, hi)


def pow(x: Number, y: Number) -> Expr:
    """`x` to the power `y`.

    Args:
        x: an expression or a number.
        y: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.pow(2.0, -rg.head)
        pow(2.0, -head)
    """
    return applied("pow", x, y)


def rsqrt(x: Number) -> Expr:
    """1 / sqrt(x).

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.rsqrt(rg.query + 1)
        1 / sqrt(query + 1)
    """
    return 1 / sqrt(x)


def square(x: Number) -> Expr:
    """x · x.

    Args:
        x: an expression or a number.

    Returns:
        An expression of the kind of `x`.

    Examples:
        >>> import regard as rg
        >>> rg.square(rg.score)
        score * score
    """
    return lift(x) * x


@recorded
def relu(x: Number) -> Expr:
    """max(x, 0).

    Args:
        x: an expression or a number.

    Returns:
        An expression of the kind of `x`.

    Examples:
        >>> import regard as rg
        >>> rg.relu(rg.score)
        maximum(score, 0.0)
    """
    return maximum(x, 0.0 if lift(x).kind == "float" else 0)


def softplus(x: Number) -> Expr:
    """log(1 + exp(x)), without overflow.

    Args:
        x: an expression or a number.

    Returns:
        A float expression.

    Examples:
        >>> import regard as rg
        >>> rg.softplus(rg.score)
        maximum(score, 0.0) + log1p(exp(-abs(score)))
    """
    return maximum(x, 0.0) + log1p(exp(-abs(lift(x))))


def as_kind(x: Expr, kind: str) -> Expr:
    """x as "bool", "int" or "float", converted as tensors are: toward zero, and true if it is not 0."""
    if x.kind == kind:
        return x
    if kind == "float":
        return Const(float(x.value)) if isinstance(x, Const) else to_float(x)
    if kind == "int":
        return where(x, 1, 0) if x.kind == "bool" else to_int(x)
    return applied("ne", x, 0)
