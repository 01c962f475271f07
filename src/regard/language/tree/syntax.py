"""Python's syntax on expressions: operators build a larger expression; a conversion to one number raises `Refused`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...common.call_hooks import torch_if_imported
from ...common.errors import did_you_mean, page, refuse

# The functions of the language by their names in NumPy and torch, and methods of arrays; `spellings` fills them in.
SPELLINGS: dict[str, Callable] = {}
METHODS: dict[str, Callable] = {}
LISTED = page("The language of masks and scores")


def prefix(name: str) -> Callable[[Syntax], Any]:
    return lambda self: self.apply(name, self)


def infix(name: str) -> Callable[[Syntax, Any], Any]:
    return lambda self, other: self.apply(name, self, other)


def reflected(name: str) -> Callable[[Syntax, Any], Any]:
    return lambda self, other: self.apply(name, other, self)


class Syntax:
    """The operators, protocols and methods of an expression; a subclass implements `apply` for every operator."""

    __slots__ = ()
    kind: str
    device = "cpu"  # rules for tensors move other tensors to the device of a position

    def apply(self, name: str, *args) -> Any:
        raise NotImplementedError

    __neg__, __abs__, __invert__ = prefix("neg"), prefix("abs"), prefix("not")
    __add__, __radd__ = infix("add"), reflected("add")
    __sub__, __rsub__ = infix("sub"), reflected("sub")
    __mul__, __rmul__ = infix("mul"), reflected("mul")
    __truediv__, __rtruediv__ = infix("div"), reflected("div")
    __floordiv__, __rfloordiv__ = infix("floordiv"), reflected("floordiv")
    __mod__, __rmod__ = infix("mod"), reflected("mod")
    __and__, __rand__ = infix("and"), reflected("and")
    __or__, __ror__ = infix("or"), reflected("or")
    __xor__, __rxor__ = infix("xor"), reflected("xor")
    __lshift__, __rlshift__ = infix("lshift"), reflected("lshift")
    __rshift__, __rrshift__ = infix("rshift"), reflected("rshift")
    __lt__, __le__, __gt__, __ge__ = infix("lt"), infix("le"), infix("gt"), infix("ge")
    __eq__, __ne__ = infix("eq"), infix("ne")
    __rpow__ = reflected("pow")

    def __pow__(self, exponent):
        """x**n by multiplication for small integers n, so that (-2)**3 is exact; pow otherwise."""
        if isinstance(exponent, int) and not isinstance(exponent, bool) and 1 <= exponent <= 8:
            return functools.reduce(infix("mul"), [self] * exponent)
        return self.apply("pow", self, exponent)

    def __matmul__(self, other):
        return SPELLINGS["matmul"](self, other)

    def __rmatmul__(self, other):
        return SPELLINGS["matmul"](other, self)

    def __pos__(self):
        return self

    def __bool__(self):
        raise refuse(
            "expression",
            "a rule over positions has no truth value",
            f"`if`, `and`, `or`, `not` or a chained comparison on `{self}`",
            "the operators that build expressions",
            "use & | ~ with parentheses around comparisons, and where(condition, a, b) instead of if",
        )

    def __iter__(self):
        raise TypeError(f"an expression is one number per position and cannot be iterated: {self}")

    def __index__(self):
        raise refuse(
            "expression",
            "an array cannot be indexed by an expression directly",
            f"array[{self}]",
            "an array that regard can read inside the kernel",
            "wrap it: table(array)[…]",
        )

    def __float__(self):
        raise refuse(
            "expression",
            "a rule over positions is not one number",
            f"a function of one number, called on `{self}`",
            "a function that builds expressions",
            "use regard.tanh, regard.exp, regard.to_int … (NumPy's and torch's functions work too)",
        )

    __int__ = __float__

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return spelled(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", args, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return spelled(function.__name__, args, kwargs)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if type(function).__name__.startswith("OpOverload") and not str(function).startswith("aten."):
            raise refuse(
                "expression",
                f"the operator {function} cannot be read",
                f"{function}({', '.join(map(str, args))})",
                "functions of the language; torch does not know what a custom operator computes",
                f"write out what it computes: {LISTED} lists the functions",
            )
        return spelled(function.__name__.split(".")[0], args, kwargs or {})

    @property
    def dtype(self) -> Any:
        """The dtype of a tensor of such numbers, or of an array where torch is not imported: for x.to(score.dtype)."""
        name = {"bool": "bool", "int": "int64", "float": "float32"}[self.kind]
        torch = torch_if_imported()
        return np.dtype(name) if torch is None else getattr(torch, name)

    def __getattr__(self, name):
        if name in METHODS:
            return functools.partial(METHODS[name], self)
        raise AttributeError(f"expressions have no {name!r}", name=name, obj=self)


def spelled(name: str, args, kwargs):
    """A call of a function of NumPy or torch, such as np.tanh(score) or torch.where(a, b, c), as an expression."""
    if name not in SPELLINGS:
        known = [spelling for spelling in SPELLINGS if not spelling.startswith("_")]
        raise refuse(
            "expression",
            f"{name} cannot be used in an expression",
            f"{name}({', '.join(map(str, args))})",
            "a function of the language",
            did_you_mean(name, known, LISTED),
        )
    return SPELLINGS[name](*args, **kwargs)
