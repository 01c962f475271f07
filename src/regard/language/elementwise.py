"""Elementwise functions of one argument that are rows in the table of operators."""

from __future__ import annotations

from typing import SupportsFloat

from .expr import Expr, applied

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
