"""Rules inside a program that torch records: only their text, and the tensors of the program that they read.

Such tensors have no numbers yet, or other ones when the program runs. The program calls one operator with the text,
which builds the rule (`language.rule_text`). torch.compile traces everything here, so it is strings and tuples only.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...common.arrays import is_tensor
from ...common.call_hooks import compiling, intercepted, torch_if_imported
from ...common.public import Function
from ...common.text.keywords import known_keywords
from ..operators import CALL, OPERATORS
from .interning import known
from .syntax import Syntax
from .tables import Array
from .writing import operand, pieces

TEXTS = {row.name: row.text for row in OPERATORS.values()}
TRUTH = "regard: a rule over positions has no truth value. Use & | ~ instead of and, or, not, and where instead of if."
INFIX = tuple(row.name for row in OPERATORS.values() if row.precedence != CALL)


def tracing(*values) -> bool:
    """Whether a rule of these values belongs to a program that torch records."""
    if compiling():
        trace_more_operators()
        return True
    return any(
        isinstance(each, Traced) or (is_tensor(each) and intercepted(each)) or is_symbolic(each) for each in values
    )


def trace_more_operators() -> None:
    """torch.compile traces most operators of objects, but neither `~x` nor `x @ y` (torch 2.13): its table of built-in
    functions gets these two, for objects that have them.
    """
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    def traced(method: str, reflected_method: str = ""):
        def call(self, tx, *args):
            for owner, others, name in ((args[0], args[1:], method), (args[-1], args[:1], reflected_method)):
                if name and isinstance(owner, UserDefinedObjectVariable):
                    return owner.call_method(tx, name, list(others), {})
            return None

        return call

    if not hasattr(BuiltinVariable, "call_invert"):
        BuiltinVariable.call_invert = traced("__invert__")
    if not hasattr(BuiltinVariable, "call_matmul"):
        BuiltinVariable.call_matmul = traced("__matmul__", "__rmatmul__")


trace_more_operators._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile calls it while it traces


def is_symbolic(value) -> bool:
    """Whether it is a size that a program of torch.export leaves open."""
    torch = torch_if_imported()
    return torch is not None and isinstance(value, torch.SymInt | torch.SymFloat)


class Traced(Syntax):
    """A rule as text. parts: strings, and the tensors between them. sizes: of the axes of a vector, where it is known;
    of: the dtype of an element of a tensor, or of a variable.
    """

    kind = "rule"

    def __init__(self, *parts, sizes: tuple[int, ...] = (), of: Any = None):
        self.parts, self.sizes, self.of = parts, sizes, of

    def apply(self, name: str, *args) -> Traced:
        return operated(name, *args)

    __hash__ = object.__hash__

    def __pow__(self, exponent):
        return Traced("(", *text(self), " ** ", *text(exponent), ")")

    def __matmul__(self, other):
        return called("called_matmul", self, other)

    def __rmatmul__(self, other):
        return called("called_matmul", other, self)

    def __getitem__(self, index):
        return read(self.parts, index, self.sizes, self.of)

    def __iter__(self):
        if not self.sizes:
            return super().__iter__()
        return iter([self[number] for number in range(self.sizes[0])])

    def __bool__(self):
        if compiling():  # which cannot trace how an error is worded
            torch_if_imported()._dynamo.graph_break(msg=TRUTH)
        return super().__bool__()

    def __str__(self):
        return "".join(part if isinstance(part, str) else "tensor" for part in self.parts)

    @property
    def dtype(self):
        return self if self.of is None else self.of

    def __getattr__(self, name: str):
        return functools.partial(called, f"method_{name}", self)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return spelled(function, args, kwargs or {})


class _TensorOf(Syntax):
    """`TENSOR_OF == size` is the tensor that Dynamo compares instead of a size (`sizes.py`), and any other number."""

    __hash__ = object.__hash__

    def __eq__(self, number):
        return number


TENSOR_OF = _TensorOf()


def operated(name: str, *args) -> Traced:
    """An operator of the language on rules, tensors and numbers."""
    if name not in INFIX:
        return called(TEXTS[name], *args)
    if len(args) == 1:
        return Traced("(", TEXTS[name], *text(args[0]), ")")
    return Traced("(", *text(args[0]), f" {TEXTS[name]} ", *text(args[1]), ")")


def called(name: str, *args, **named) -> Traced:
    """A function on rules, tensors, numbers and lists of these."""
    parts = _listed(args)
    for keyword, arg in named.items():
        parts = (*parts, f"{keyword}=", *text(arg), ", ")
    return Traced(f"{name}(", *parts, ")")


def spelled(function, args, kwargs) -> Traced:
    """A function of torch on rules."""
    name = function.__name__
    if name == "__getitem__" or name == "getitem":
        return read_captured(*args)
    return called(f"called_{name}", *args, **kwargs)


def read_captured(array, index) -> Traced:
    """A read of an array as a callable for torch reads it."""
    of = array.dtype if isinstance(array, torch_if_imported().Tensor) else None
    return read(("captured(", array, ")"), index, tuple(array.shape), of)


def read(table: tuple, index, sizes: tuple[int, ...] = (), of: Any = None) -> Traced:
    """A read of a table, which is given as text, with these sizes and this dtype."""
    index = index if isinstance(index, tuple) else (index,)
    numbers = [part is not None and part is not Ellipsis and not isinstance(part, slice) for part in index]
    rest = sizes[len(index) :] if all(numbers) else ()
    return Traced(*table, "[", *_listed(index)[:-1], "]", sizes=rest, of=of)


def recorded(function: Function) -> Function:
    """Decorates a function that builds rules: if a program records it, the call is made when the program runs."""
    name, plain = function.__name__, known_keywords(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        traced = tracing(*args, *kwargs.values())
        return called(name, *args, **kwargs) if traced else plain(*args, **kwargs)

    return call  # type: ignore[return-value] # it takes what `function` takes


def text(value: Any) -> tuple:
    """A value as text: strings, and the tensors between them."""
    torch = torch_if_imported()
    if isinstance(value, Traced):
        return value.parts
    if isinstance(value, Syntax):  # an expression that was built before
        return tuple([part if isinstance(part, str) else value.operands[part] for part in _pieces(value.digest)])
    if isinstance(value, Array):
        source = value.source if isinstance(value.source, torch.Tensor) else torch.as_tensor(value.source)
        return ("table(", source, f", {value.name!r})")
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, np.ndarray):
        return (torch.as_tensor(value),)
    if not compiling() and is_symbolic(value):
        value = torch.scalar_tensor(value, dtype=torch.int64 if isinstance(value, torch.SymInt) else torch.float64)
        return ("number(", value, ")")
    if compiling() and isinstance(value, int | float):
        # Of a size, whose value the program leaves open; the rule compares, not the number.
        value = TENSOR_OF == value  # noqa: SIM300
        if isinstance(value, torch.Tensor):
            return ("number(", value, ")")
    if isinstance(value, tuple | list):
        parts = _listed(value)
        return ("(", *parts, ")") if isinstance(value, tuple) else ("[", *parts, "]")
    if isinstance(value, torch.dtype):
        return (f"'{value}'",)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return (f"float('{value}')",)
    return (f"{value!r}",)


def _listed(values: Any) -> tuple:
    """Values as text, each with a comma after it."""
    parts: tuple = ()
    for each in values:
        parts = (*parts, *text(each), ", ")
    return parts


def _pieces(digest: str) -> tuple[str | int, ...]:
    """The text of an expression, and the numbers of its operands between; the expression gets these."""
    rule = known(digest)
    object.__setattr__(rule, "operands", tuple(map(operand, rule.tables)))
    return pieces(rule, inside=True)


_pieces._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile calls it while it traces
