"""The fast path: a call like an earlier one reuses its checks and its plan; only the addresses of the arrays are new.

A model repeats the same calls, usually with cold CPU caches; the checks of a call, which are Python, would then take
longer than a small kernel.
"""

from __future__ import annotations

import functools
import sys
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ..common.arrays import address, as_tensor, read_array
from ..common.caching import Memo
from ..language.checks.arguments import Arguments
from ..language.expr import Expr
from ..language.problem import Problem
from . import direct
from .choice import choose

__all__ = ["attend"]


class Kind(NamedTuple):
    """A kind of call: its recipe (None if it cannot use the fast path), the bytes from the first element of each array
    to the end of its last, the shapes of out, lse and the kernel's sums, and the dtype of the sums.
    """

    recipe: Any
    extents: tuple[int, ...]
    out: tuple[int, ...]
    lse: tuple[int, ...]
    sums: tuple[int, ...]
    real: np.dtype


_kinds: Memo[Kind] = Memo(64)

# Types of arguments that may take the fast path; built once, because they are checked in every call.
RULE, NUMBER, WHOLE = (Expr, NoneType), (float, int, NoneType), (int, NoneType)


def attend(q, k, v, arguments: Arguments, engine, *, lse=False, out=None) -> tuple | None:
    """(out,) or (out, lse) of a call without sinks, dropout and gradients; None if the fast path does not apply.

    q, k, v: arrays, or tensors on the CPU. out: an array for the result, (B, H, Q, E) with any strides.
    """
    arrays = (q, k, v) if out is None else (q, k, v, out)
    layout = _layout(arrays)
    if layout is None or type(engine) is not str or engine not in ("auto", "jit"):
        return None
    mask, score, scale, query_start = arguments[:4]
    starts = batch_start, head_start = arguments[-2:]
    if type(scale) not in NUMBER or type(query_start) not in WHOLE:
        return None
    if type(batch_start) not in WHOLE or type(head_start) not in WHOLE:
        return None
    if not (isinstance(mask, RULE) and isinstance(score, RULE)):
        return None
    jit = _jit()
    rest = (layout, scale, query_start, starts, engine, jit.threads.count(), jit.host())
    kind = _kinds((mask, score), rest, lambda: _kind(q, k, v, arguments, engine, out))
    pointers = None if kind.recipe is None else _pointers(arrays, kind.extents)
    if pointers is None:
        return None
    if out is None:
        out = np.empty(kind.out, q.dtype) if type(q) is np.ndarray else q.new_empty(kind.out)
        pointers.append(_address(out))
    sums = np.empty(kind.sums, kind.real)
    jit.run(kind.recipe, tuple(pointers), sums, (arrays, out))
    if not lse:
        return (out,)
    found = sums[0].reshape(kind.lse)
    return out, found if type(q) is np.ndarray else as_tensor(found)


def _layout(arrays) -> tuple | None:
    """Shape, strides and dtype of each array; None unless all are plain arrays, or plain CPU tensors without lazy
    negation and not nested.
    """
    first = type(arrays[0])
    if first is np.ndarray:
        if any(type(array) is not np.ndarray for array in arrays):
            return None
        return tuple([(array.shape, array.strides, array.dtype) for array in arrays])
    torch = sys.modules.get("torch")
    if torch is None or torch._C._are_functorch_transforms_active():
        return None
    plain = torch.Tensor, torch.nn.Parameter
    for array in arrays:
        if (
            type(array) not in plain
            or not array.is_cpu
            or array.layout is not torch.strided
            or array.is_neg()
            or array.is_nested
        ):
            return None
    return tuple([(array.shape, array.stride(), array.dtype) for array in arrays])


@functools.cache
def _jit():
    """The compiled engine, imported by the first call; an import statement would cost a lookup in every call."""
    from . import jit

    return jit


def _pointers(arrays, extents: tuple[int, ...]) -> list[int] | None:
    """The addresses of the arrays; None unless all elements are in memory: FSDP frees the storage of tensors, and torch
    has zeros without memory.
    """
    if type(arrays[0]) is np.ndarray:
        return [address(array) for array in arrays]
    found = []
    for array, extent in zip(arrays, extents, strict=True):
        pointer = array.data_ptr()
        if not pointer or len(array.untyped_storage()) < array.storage_offset() * array.itemsize + extent:
            return None
        found.append(pointer)
    return found


def _address(array) -> int:
    return address(array) if type(array) is np.ndarray else array.data_ptr()


def _kind(q, k, v, arguments: Arguments, engine: str, out) -> Kind:
    """The checks of a call, and its recipe; the recipe is None where the checks had to copy an array."""
    jit = _jit()
    problem = Problem.of(q, k, v, **arguments._asdict(), gradients=True)
    B, H, Q, _ = problem.q.shape
    E = problem.v.shape[3]
    copied = [_address(array) for array in (q, k, v)] != [
        array.ctypes.data for array in (problem.q, problem.k, problem.v)
    ]
    known = choose(problem, engine)[0] == "jit" and 0 not in (B, H, Q) and not copied
    room = np.empty((B, H, Q, E), problem.dtype) if out is None else read_array(out, "out")
    tensors = type(q) is not np.ndarray
    recipe = jit.recipe_of(problem, room, 0, tensors=tensors) if known else None
    extents = tuple(_extent(array) for array in ((q, k, v) if out is None else (q, k, v, out)))
    kind = Kind(recipe, extents, (*problem.lead, Q, E), (*problem.lead, Q), (3, B, H, Q), problem.real)
    if recipe is not None and out is None and tensors:
        direct.remember((q, k, v, *arguments, engine), kind, jit.threads.count())
    return kind


def _extent(array) -> int:
    """The bytes from the first element of a tensor to the end of its last; NumPy arrays always have their memory."""
    if type(array) is np.ndarray or 0 in array.shape:
        return 0
    steps = zip(array.shape, array.stride(), strict=True)
    return (1 + sum((count - 1) * step for count, step in steps)) * array.itemsize
