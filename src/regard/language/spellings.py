"""The names of NumPy and torch for the functions of the language, so that rules written for them work unchanged."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.arrays import is_tensor
from ..common.errors import refuse
from . import functions
from .callables import Captured
from .expr import Const, Expr, Read, applied, lift, table
from .functions import (
    as_kind,
    atan,
    clip,
    erf,
    exp,
    expm1,
    log1p,
    maximum,
    minimum,
    relu,
    round_even,
    sigmoid,
    sign,
    softplus,
    sqrt,
    tanh,
    trunc,
    where,
)
from .tree.syntax import METHODS, SPELLINGS, Syntax
from .tree.traced import read_captured, tracing
from .tree.vectors import elements_of, elementwise, operand, unsqueezed, vector


def _kind_of(target) -> str | None:
    """The kind of a dtype of Python, NumPy or torch; None for devices and flags, which do not change the number."""
    if isinstance(target, Expr):
        return target.kind
    name = str(target if isinstance(target, type) else getattr(target, "dtype", target))
    if any(narrow in name for narrow in ("int8", "int16", "uint")):
        raise refuse(
            "expression",
            "integers of fewer than 32 bits would overflow",
            repr(target),
            "int32 or int64",
            "omit the conversion, or write x % 256 for wrapping",
        )
    for kind, signs in (("float", ("float", "double", "half")), ("int", ("int", "long")), ("bool", ("bool",))):
        if any(sign in name for sign in signs):
            return kind
    if target is None or isinstance(target, bool) or name.split(":")[0] in ("cpu", "cuda", "mps", "xpu", "meta"):
        return None
    raise refuse(
        "expression",
        "not a dtype",
        repr(target),
        "a dtype of NumPy or torch, or a device",
        "name the dtype: np.float32, torch.int64 …",
    )


def _cast(x: Expr, *targets, **named) -> Expr:
    """x.to(…), x.astype(…): every argument that is a dtype converts."""
    for target in (*targets, *named.values()):
        x = as_kind(x, _kind_of(target) or x.kind)
    return x


def _made(value):
    """new_ones, zeros_like …: one number of the given dtype, by default that of x."""

    def build(x, shape=(), dtype=None, **layout) -> Expr:
        if shape not in ((), []):
            raise refuse(
                "expression",
                "an array cannot be created inside a rule",
                f"shape {shape}",
                "a single number: shape ()",
                "create the array outside and read it with table(array)",
            )
        kind = _kind_of(dtype) or x.kind
        return lift({"bool": bool, "int": int, "float": float}[kind](value))

    return build


def _getitem(array, index):
    return read_captured(array, index) if tracing(array) else Captured(table(array))[index]


def _divide(x, y, rounding_mode=None) -> Expr:
    if rounding_mode not in ROUNDED:
        given = f"rounding_mode={rounding_mode!r}"
        raise refuse(
            "expression", "no such rounding", given, "None, 'floor' or 'trunc'", "round the quotient: floor(x / y)"
        )
    return _lifted(ROUNDED[rounding_mode])(x, y)


def _truncated(x: Expr, y: Expr) -> Expr:
    """The quotient toward zero."""
    whole = abs(x) // abs(y)
    return where((x < 0) == (y < 0), whole, -whole)


ROUNDED = {None: operator.truediv, "floor": operator.floordiv, "trunc": _truncated}


def _clamp(x, min=None, max=None, **named) -> Expr:
    return clip(x, named.pop("a_min", min), named.pop("a_max", max), **named)


def _masked_fill(x, mask, value) -> Expr:
    return where(mask, value, x)


def _nan_to_num(x, nan=0.0, posinf=None, neginf=None, copy=True) -> Expr:
    most = np.finfo(np.float32).max.item()
    x = where(x == x, x, 0.0 if nan is None else nan)
    x = where(x == math.inf, most if posinf is None else posinf, x)
    return where(x == -math.inf, -most if neginf is None else neginf, x)


def _isin(x, values, **named) -> Any:
    return SPELLINGS["any"](unsqueezed(x, -1) == operand(values), -1)


def _leaky_relu(x, negative_slope=0.01, inplace=False) -> Expr:
    return where(x > 0, x, negative_slope * x)


def _elu(x, alpha=1.0, inplace=False) -> Expr:
    return where(x > 0, x, alpha * expm1(x))


def _hardtanh(x, min_val=-1.0, max_val=1.0, inplace=False) -> Expr:
    return clip(x, min_val, max_val)


def _logaddexp(x, y) -> Expr:
    return maximum(x, y) + log1p(exp(-abs(x - y)))


def _relu(x, inplace=False) -> Expr:
    return relu(x)  # expressions are immutable, so inplace has no effect


def _scaled(build):
    """add and sub as in torch: the second argument is multiplied by alpha."""
    operate = _lifted(build)
    return lambda x, y, alpha=1: operate(x, y if alpha == 1 else alpha * lift(y))


def _fmod(x, y) -> Expr:
    x = lift(x)
    return sign(x) * (abs(x) % abs(lift(y)))


def _isnan(x) -> Expr:
    return applied("ne", x, x) if lift(x).kind == "float" else lift(False)


def _isfinite(x) -> Expr:
    return abs(lift(x)) < math.inf if lift(x).kind == "float" else lift(True)


def _isinf(x) -> Expr:
    return abs(lift(x)) == math.inf if lift(x).kind == "float" else lift(False)


def _gelu(x, approximate="none") -> Expr:
    if approximate not in ("none", "tanh"):
        raise refuse(
            "expression",
            "no such gelu",
            f"approximate={approximate!r}",
            "'none' or 'tanh'",
            "omit it for the exact gelu",
        )
    x = lift(x)
    if approximate == "tanh":
        return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def _silu(x, inplace=False) -> Expr:
    return lift(x) * sigmoid(x)


def _softplus(x, beta=1, threshold=None) -> Expr:
    """torch's threshold selects x where both results are the same number."""
    return softplus(x) if beta == 1 else softplus(beta * lift(x)) / beta


def _item(x):
    """The value of a constant, or of an array that is read at constant indices."""
    if isinstance(x, Const):
        return x.value
    if isinstance(x, Read) and all(isinstance(part, Const) for part in x.index):
        ends = zip(x.index, x.table.array.shape, strict=True)
        held = x.table.source if is_tensor(x.table.source) else x.table.array
        return held[tuple(min(max(part.value, 0), size - 1) for part, size in ends if isinstance(part, Const))].item()
    return float(x)  # raises Refused


def _lifted(build):
    """An operator on two arguments: expressions, scalars of NumPy or torch, and beside a vector an array."""

    def operate(x, y):
        return build(lift(operand(x)), lift(operand(y)))

    return operate


def _power(x, y) -> Expr:
    return lift(x) ** (y.item() if hasattr(y, "dtype") and not isinstance(y, Syntax) else y)


_INFIX: dict[str, Any] = {
    **{name: _lifted(build) for name, build in {
        "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
        "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    }.items()},
    "add": _scaled(operator.add), "sub": _scaled(operator.sub), "truediv": _divide, "div": _divide, "pow": _power,
    "lshift": _lifted(operator.lshift), "rshift": _lifted(operator.rshift),
}  # fmt: skip
_OPERATORS = _INFIX | {name: _lifted(getattr(operator, name)) for name in ("lt", "le", "gt", "ge", "eq", "ne")}

# The names of NumPy and torch for operators, by those of `operator`.
_NAMED = {
    "subtract": "sub",
    "multiply": "mul",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_or": "or",
    "bitwise_or": "or",
    "logical_xor": "xor",
    "bitwise_xor": "xor",
    "left_shift": "lshift",
    "right_shift": "rshift",
    "bitwise_left_shift": "lshift",
    "bitwise_right_shift": "rshift",
    "divide": "div",
    "true_divide": "div",
    "power": "pow",
}

# Other names for the language's own functions.
SPELLINGS.update(
    {
        **{name: getattr(functions, name) for name in functions.__all__},
        **_OPERATORS,
        **{name: _OPERATORS[own] for name, own in _NAMED.items()},
        **{f"__{name}__": build for name, build in _OPERATORS.items()},
        **{f"__r{name}__": lambda x, y, build=build: build(y, x) for name, build in _INFIX.items()},
        "negative": operator.neg,
        "neg": operator.neg,
        "rsub": lambda x, y: lift(y) - x,
        "abs": abs,
        "absolute": abs,
        "fabs": abs,
        "logical_not": operator.invert,
        "bitwise_not": operator.invert,
        "invert": operator.invert,
        "clamp": _clamp,
        "clip": _clamp,
        "clamp_min": lambda x, min: clip(x, min, None),
        "clamp_max": lambda x, max: clip(x, None, max),
        "masked_fill": _masked_fill,
        "nan_to_num": _nan_to_num,
        "isin": _isin,
        "reciprocal": lambda x: 1 / x,
        "log_sigmoid": lambda x: -softplus(-x),
        "logsigmoid": lambda x: -softplus(-x),
        "leaky_relu": _leaky_relu,
        "elu": _elu,
        "hardtanh": _hardtanh,
        "relu6": lambda x, inplace=False: clip(x, 0, 6),
        "softsign": lambda x: x / (1 + abs(x)),
        "lerp": lambda x, y, weight: x + weight * (y - x),
        "hypot": lambda x, y: sqrt(x * x + y * y),
        "logaddexp": _logaddexp,
        "unsqueeze": unsqueezed,
        "fmod": _fmod,
        "isnan": _isnan,
        "isfinite": _isfinite,
        "isinf": _isinf,
        "gelu": _gelu,
        "silu": _silu,
        "softplus": _softplus,
        "round": round_even,
        "rint": round_even,
        "arctan": atan,
        "fix": trunc,
        "relu": _relu,
        "ones_like": lambda x, **named: _made(1)(x, **named),
        "zeros_like": lambda x, **named: _made(0)(x, **named),
        "full_like": lambda x, value, **named: _made(value)(x, **named),
        "__getitem__": _getitem,  # of tensors; NumPy has no such protocol
    }
)

# Methods that callables for tensors use on their arguments.
METHODS.update(
    {
        **{
            name: SPELLINGS[name]
            for name in (
                "abs",
                "add",
                "atan",
                "ceil",
                "clamp",
                "clamp_max",
                "clamp_min",
                "clip",
                "cos",
                "div",
                "eq",
                "erf",
                "exp",
                "exp2",
                "expm1",
                "floor",
                "floor_divide",
                "fmod",
                "ge",
                "gt",
                "isfinite",
                "isinf",
                "isnan",
                "le",
                "log",
                "log1p",
                "log2",
                "logical_and",
                "logical_not",
                "logical_or",
                "logical_xor",
                "lt",
                "masked_fill",
                "maximum",
                "minimum",
                "mul",
                "nan_to_num",
                "ne",
                "neg",
                "pow",
                "reciprocal",
                "relu",
                "remainder",
                "round",
                "rsqrt",
                "sigmoid",
                "sign",
                "sin",
                "sqrt",
                "square",
                "sub",
                "tan",
                "tanh",
                "trunc",
                "unsqueeze",
            )
        },
        **{
            name: lambda x, kind=kind: as_kind(x, kind)
            for name, kind in {
                "float": "float",
                "double": "float",
                "half": "float",
                "int": "int",
                "long": "int",
                "bool": "bool",
            }.items()
        },
        "to": _cast,
        "type": _cast,
        "type_as": _cast,
        "astype": _cast,
        "new_ones": _made(1),
        "new_zeros": _made(0),
        "new_full": lambda x, shape, value, **named: _made(value)(x, shape, **named),
        "where": lambda x, condition, other: where(condition, x, other),
        "item": _item,
        "contiguous": lambda x: x,
        "clone": lambda x: x,
        "detach": lambda x: x,
    }
)


# ---- one number of a vector: sums, extremes, norms, products of two rows ---------------------------------------------


def _axes(x, axis, name: str) -> list[int]:
    """The axes of a vector, counted from 0."""
    count = elements_of(x).ndim
    if not count:
        raise refuse(
            "expression",
            f"{name} needs several numbers",
            f"{name} of `{x}`, which is one number for each pair of positions",
            "a vector, such as a row of a table",
            "what is summed over keys is the result of the call; tables can be summed before",
        )
    given = range(count) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    if any(type(each) is not int or not -count <= each < count for each in given):
        raise refuse(
            "expression",
            f"{name} has no such axis",
            f"axis {axis!r} of a vector with {count} axes",
            "an axis of the vector; batch, heads, rows and keys are none of its axes",
            "count from the end: -1 is the last axis",
        )
    return sorted({each % count for each in given})


def _reduction(name: str, combine: Callable[[Any, Any], Any], kinds: dict[str, str]):
    """The function with this name: x.sum(-1), torch.sum(x, dim=-1), np.sum(x, axis=-1). kinds: what elements of a kind
    are converted to before.
    """

    def reduce(x, dim=None, keepdim=False, *, axis=None, keepdims=False) -> Any:
        elements, axes = elements_of(x), _axes(x, dim if axis is None else axis, name)

        def convert(part):
            return as_kind(part, kinds.get(part.kind, part.kind)) if hasattr(part, "kind") else part

        for each in reversed(axes):
            parts = [elementwise(convert, part) for part in np.moveaxis(elements, each, 0)]
            elements = elements_of(functools.reduce(functools.partial(elementwise, combine), parts))
        return vector(np.expand_dims(elements, tuple(axes)) if keepdim or keepdims else elements)

    return reduce


_NUMBERS = {"bool": "int"}
_CONDITIONS = {"int": "bool", "float": "bool"}
_sum = _reduction("sum", operator.add, _NUMBERS)
_amax, _amin = _reduction("amax", maximum, _NUMBERS), _reduction("amin", minimum, _NUMBERS)


def _mean(x, dim=None, keepdim=False, *, axis=None, keepdims=False) -> Any:
    axes = _axes(x, dim if axis is None else axis, "mean")
    return _sum(x, axes, keepdim or keepdims) / math.prod(elements_of(x).shape[each] for each in axes)


def _extreme(name: str, of_two: Callable, of_elements: Callable):
    """max and min: of two arguments, or of all elements. Along an axis torch returns places too, and NumPy does not."""

    def extreme(x, *args, **named) -> Any:
        if args and not isinstance(args[0], int):
            return of_two(x, *args, **named)
        if args or named:
            raise refuse(
                "expression",
                f"{name} along an axis is not the same in NumPy and torch",
                f"{name} with {', '.join(map(repr, args)) or ', '.join(named)}",
                "one number, or the function that both have",
                f"write a{name}: x.a{name}(-1)",
            )
        return of_elements(x)

    return extreme


def _norm(x, p=None, dim=None, keepdim=False, *, ord=None, axis=None, keepdims=False, out=None, dtype=None) -> Any:
    power = p if ord is None else ord
    along = {"axis": dim if axis is None else axis, "keepdims": keepdim or keepdims}
    if power in (None, 2, "fro"):
        return sqrt(_sum(x * x, **along))
    if power in (1, math.inf):
        return (_sum if power == 1 else _amax)(abs(x), **along)
    raise refuse("expression", "no such norm", f"order {power!r}", "1, 2 or inf", "write out what it computes")


def _product(x, y) -> Any:
    """The product of two rows, or of matrices, as `@` has it."""
    rows, columns = elements_of(x), elements_of(y)
    if rows.ndim == columns.ndim == 1 and rows.shape == columns.shape:
        return _sum(vector(rows) * vector(columns))
    if not rows.ndim or not columns.ndim or rows.shape[-1] != columns.shape[max(columns.ndim - 2, 0)]:
        raise refuse(
            "expression",
            "vectors do not fit",
            f"a product of shapes {list(rows.shape)} and {list(columns.shape)}",
            "(n,) with (n,), or matrices as for @",
            "multiply numbers with *",
        )
    found = np.matmul(rows, columns)
    return vector(found if isinstance(found, np.ndarray) else elements_of(found))


def _product_of_rows(x, y, dim=-1) -> Any:
    return _sum(x * y, dim)


def _unbind(x, dim=0) -> tuple:
    return tuple(
        elementwise(lambda part: part, part) for part in np.moveaxis(elements_of(x), _axes(x, dim, "unbind")[0], 0)
    )


_REDUCTIONS: dict[str, Callable] = {
    "sum": _sum,
    "mean": _mean,
    "prod": _reduction("prod", operator.mul, _NUMBERS),
    "amax": _amax,
    "amin": _amin,
    "max": _extreme("max", maximum, _amax),
    "min": _extreme("min", minimum, _amin),
    "any": _reduction("any", operator.or_, _CONDITIONS),
    "all": _reduction("all", operator.and_, _CONDITIONS),
    "norm": _norm,
    "dot": _product,
    "matmul": _product,
    "unbind": _unbind,
}
METHODS.update(_REDUCTIONS)
SPELLINGS.update(
    _REDUCTIONS
    | {
        "inner": _product,
        "vdot": _product,
        "vecdot": _product_of_rows,
        "linalg_norm": _norm,
        "linalg_vector_norm": _norm,
        "vector_norm": _norm,
        "linalg_vecdot": _product_of_rows,
        "__matmul__": _product,
        "__rmatmul__": lambda x, y: _product(y, x),
    }
)
