"""The functions of the language under regard's names; spellings.py has those of NumPy and torch."""

from __future__ import annotations

from .elementwise import (
    Number,
    atan,
    ceil,
    cos,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    log,
    log1p,
    log2,
    round_even,
    sigmoid,
    sign,
    sin,
    sqrt,
    tan,
    tanh,
    to_float,
    to_int,
    trunc,
)
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
