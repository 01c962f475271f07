"""The fast path: a call like an earlier one reuses its checks and its plan; only the addresses of the arrays are new.

A model repeats the same calls, usually with cold CPU caches; the checks of a call, which are Python, would then take
longer than a small kernel.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from struct import Struct
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ..common.arrays import address, as_tensor, read_array
from ..common.caching import Memo
from ..common.call_hooks import torch_if_imported
from ..common.dtypes import torch_real
from ..language.checks.arguments import Arguments
from ..language.expr import Expr
from ..language.problem import Problem
from . import array_rules, direct
from .choice import choose
from .selected_keys import selection


class CachedCall(NamedTuple):
    """What is kept of calls of one kind: their recipe (None if they cannot use the fast path), the bytes from the first
    element of each array to the end of its last, the shapes of out as allocated, of lse and of the kernel's sums, and
    the dtype of the sums.

    read: whether mask and score are arrays. tables: where their addresses are in the argument block. latest: of a mask
    that is an array, the contents and recipes of the latest call; empty if the recipe holds for any.
    arguments: of the call, without arrays that are mask or score; None if its rules read arrays, which would be kept
    alive. even: gradients of such calls may take the fast path: they have arguments, and q, k and v the same leading
    axes. threads: that its recipe is for. narrow: 16 bits. rows_first: out is (B, Q, H, E). backward: the recipes of
    its backward pass, by the layout of the tensors.
    """

    recipe: Any
    read: tuple[bool, bool]
    tables: tuple[int, ...]
    latest: list[tuple[np.ndarray, Any, dict]]
    extents: tuple[int, ...]
    out: tuple[int, ...]
    lse: tuple[int, ...]
    sums: tuple[int, ...]
    real: np.dtype
    arguments: Arguments | None
    engine: str
    even: bool
    threads: int
    narrow: bool
    rows_first: bool
    backward: dict[bytes, Any]

    def problem(self, q, k, v, *given) -> Problem:
        """The checked call. given: the arrays that are mask or score."""
        assert self.arguments is not None
        arguments = self.arguments._asdict() | dict(zip(self.arrays(("mask", "score")), given, strict=True))
        return Problem.of(q, k, v, **arguments, gradients=True)

    def arrays(self, rules: tuple) -> list:
        """Those of mask and score that are arrays, of (mask, score) or their names."""
        return [rule for rule, array in zip(rules, self.read, strict=True) if array]

    def swapped(self, tensors) -> list:
        """The tensors; with heads and rows swapped if the output has its rows first."""
        return [tensor.swapaxes(1, 2) for tensor in tensors] if self.rows_first else list(tensors)


class Autograd(NamedTuple):
    """How calls are differentiated. checked: (problem, q, k, v, sinks, engine) -> (out, lse), for any call. again:
    (kind, q, k, v, *given) -> out, for a call of a known kind; given: mask or score that are tensors.
    """

    checked: Callable[..., tuple[Any, Any]]
    again: Callable[..., Any]


_kinds: Memo[CachedCall] = Memo(64)

# Built once, because they are used in every call: types of arguments that may take the fast path.
ADDRESSES = Struct("9q")  # at the beginning of what `direct.layout` returns
ROWS_FIRST = {engine: f"{engine}, rows first" for engine in ("auto", "jit")}  # the last word of such a direct call
RULE, NUMBER, WHOLE = (Expr, NoneType), (float, int, NoneType), (int, NoneType)


def attend(q, k, v, arguments: Arguments, engine, *, lse=False, rows_first=False, autograd=None) -> tuple | None:
    """(out,) or (out, lse) of a call without sinks, dropout and gradients; None if the fast path does not apply.

    q, k, v: arrays, or tensors on the CPU. rows_first: out is (B, Q, H, E). autograd: for later calls of the same kind
    that need gradients.
    """
    kind, pointers = known(q, k, v, arguments, engine, rows_first=rows_first, autograd=autograd)
    if kind is None:
        return None
    out = np.empty(kind.out, q.dtype) if type(q) is np.ndarray else q.new_empty(kind.out)
    sums, tables = np.empty(kind.sums, kind.real), zip(kind.tables, pointers[3:])
    addresses, held = (*pointers[:3], _address(out)), (q, k, v, arguments, out)
    _jit().run(kind.recipe, addresses, address(sums), rest=tables, held=held)
    if not lse:
        return (out,)
    found = sums[0].reshape(kind.lse)
    return out, found if type(q) is np.ndarray else as_tensor(found)


def known(q, k, v, arguments: Arguments, engine, *, rows_first=False, autograd=None) -> tuple:
    """(kind, addresses of the arrays), or (None, None) if the fast path does not apply."""
    nothing = None, None
    mask, score, scale, query_start = arguments[:4]
    given = tuple([rule for rule in (mask, score) if not isinstance(rule, RULE)])
    arrays = q, k, v, *given
    layout = _layout(arrays)
    if layout is None or type(engine) is not str or engine not in ("auto", "jit"):
        return nothing
    starts = batch_start, head_start = arguments[-2:]
    if type(scale) not in NUMBER or type(query_start) not in WHOLE:
        return nothing
    if type(batch_start) not in WHOLE or type(head_start) not in WHOLE:
        return nothing
    jit = _jit()
    rules: tuple = (mask, score)
    read: tuple[Any, Any] = (None, None)
    if given:
        rules = tuple([rule if isinstance(rule, RULE) else None for rule in (mask, score)])
        read = None if isinstance(mask, RULE) else mask, None if isinstance(score, RULE) else score
        if q.ndim < 2 or k.ndim < 2 or v.ndim < 2:
            return nothing
        if not array_rules.usable(*read, q.shape[-2], small=array_rules.is_small(q, k, v)):
            return nothing
    marks = tuple([array is not None for array in read])
    rest = (layout, scale, query_start, starts, engine, jit.threads.count(), jit.host(), marks, rows_first)
    form = {"rows_first": rows_first, "autograd": autograd, "read": read}
    kind = _kinds(rules, rest, lambda: _kind(q, k, v, arguments, engine, **form))
    pointers = None if kind.recipe is None else _pointers(arrays, kind.extents)
    if pointers is None:
        return nothing
    if kind.latest:
        kind = _of_contents(kind, (q, k, v), arguments, read, rows_first)
    return kind, pointers


def _of_contents(kind: CachedCall, qkv: tuple, arguments: Arguments, read: tuple, rows_first: bool) -> CachedCall:
    """The kind with the recipe for a mask that is an array: the latest one if the mask is equal to that of then."""
    kept, recipe, backward = kind.latest[0]
    if not array_rules.equal(read[0], kept):
        problem = Problem.of(*qkv, **arguments._asdict(), gradients=True)
        recipe, places = _recipe(problem, read, rows_first, type(qkv[0]) is not np.ndarray)
        assert places == kind.tables
        kind.latest[0] = array_rules.contents(read[0]), recipe, (backward := {})
    return kind._replace(recipe=recipe, backward=backward)


# ---- calls that need gradients ---------------------------------------------------------------------------------------

LAYOUTS = 8  # for which a kind keeps recipes of its backward pass


def keep(kind: CachedCall, q, k, v, *given) -> tuple:
    """(out, sums) or, in 16 bits, (out, sums, lost): tensors, as `Saved` describes them."""
    found = direct.keep(kind, q, k, v, *_rules(kind, given))
    if found is not None:
        return found
    out, sums = q.new_empty(kind.out), q.new_empty(kind.sums, dtype=torch_real(q.dtype))
    kept, lost = [out, sums], 0
    if q.itemsize == 2:
        kept.append(q.new_empty(kind.out, dtype=sys.modules["torch"].int16))
        lost = kept[2].data_ptr()
    addresses = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
    tables = zip(kind.tables, [each.data_ptr() for each in given])
    _jit().run(kind.recipe, addresses, sums.data_ptr(), lost, tables, (q, k, v, given, kept))
    return tuple(kept)


def pull_back(kind: CachedCall, given: tuple, *tensors) -> list | None:
    """The gradients of q, k and v from (q, k, v, *kept, dout), in memory with rows first if the output is; None unless
    `learn` has seen tensors like these.
    """
    read, jit = (*tensors[:5], *tensors[-2:], *_rules(kind, given)), _jit()
    found = direct.pull_back(kind, *read)
    if found is not None:
        return kind.swapped(found)
    words = direct.layout(*read)
    if words is None or jit.threads.count() != kind.threads:
        return None
    recipe, places = kind.backward.get(words[ADDRESSES.size :], (None, ()))
    if recipe is None:
        return None
    q, k, v, out, sums, lost, dout = ADDRESSES.unpack_from(words)[:7]
    new = [tensor.new_empty(tensor.shape) for tensor in kind.swapped(tensors[:3])]
    step = tensors[4].nbytes // 3
    gradients = [each.data_ptr() for each in new]
    rest = sums + step, sums + 2 * step, lost if len(tensors) == 7 else 0
    workspace = jit.Workspace.of(recipe)
    for place, each in zip(places, given, strict=True):
        workspace.block[place] = each.data_ptr()
    recipe.run(workspace, (q, k, v, out, dout, *gradients, *rest), (tensors, given, new))
    return kind.swapped(new)


def learn(kind: CachedCall, problem: Problem, given: tuple, *tensors) -> None:
    """Keeps the recipe of a backward pass that was checked, if it read the tensors (q, k, v, *kept, dout) in place."""
    (*_, out, sums), dout = tensors[:5], tensors[-1]
    words = direct.layout(*tensors[:5], *tensors[-2:], *_rules(kind, given))
    if words is None or not sums.is_contiguous() or len(kind.backward) == LAYOUTS:
        return
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    out, dout = (read_array(each, "attention").reshape(B, H, Q, E) for each in kind.swapped((out, dout)))
    read = problem.q, problem.k, problem.v, out, dout
    where = ADDRESSES.unpack_from(words)
    if [address(each) for each in read] == [*where[:4], where[6]]:
        shaped = kind.swapped([np.empty(each.shape, problem.dtype) for each in kind.swapped(read[:3])])
        arrays = dict(zip(("q", "k", "v", "out", "dout", "dq", "dk", "dv"), (*read, *shaped), strict=True))
        small = bool(given) and array_rules.is_small(*tensors[:3])
        recipe = _jit().backward_recipe(problem, arrays, [], tensors=True, any_contents=small)
        bare, tables = recipe.bare()
        places = array_rules.places(tables, given)
        if places is not None:
            kind.backward[words[ADDRESSES.size :]] = bare, places
            if not given or small:
                direct.remember_backward(kind, words[ADDRESSES.size :], bare, places, tensors)


def _rules(kind: CachedCall, given: tuple) -> tuple:
    """Mask and score of a call: each its array, or None for a rule."""
    arrays = iter(given)
    return tuple([next(arrays) if array else None for array in kind.read])


# ---- layouts ---------------------------------------------------------------------------------------------------------


def _layout(arrays) -> tuple | None:
    """Shape, strides and dtype of each array; None unless all are plain arrays, or plain CPU tensors without lazy
    negation and not nested.
    """
    first = type(arrays[0])
    if first is np.ndarray:
        if any(type(array) is not np.ndarray for array in arrays):
            return None
        return tuple([(array.shape, array.strides, array.dtype) for array in arrays])
    torch = torch_if_imported()
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


def _recipe(
    problem: Problem, read: tuple, rows_first: bool, tensors: bool, small: bool = False
) -> tuple[Any, tuple[int, ...] | None]:
    """The recipe of a problem, and the places of the arrays that its mask and score are; None if they were copied.
    small: it holds whatever they contain.
    """
    B, H, Q, E = (problem.dims[name] for name in "BHQE")
    room = np.empty((B, Q, H, E) if rows_first else (B, H, Q, E), problem.dtype)
    room = room.swapaxes(1, 2) if rows_first else room
    recipe = _jit().recipe_of(problem, room, 0, tensors=tensors, any_contents=small)
    given = tuple([array for array in read if array is not None])
    if not given:
        return recipe, ()
    bare, tables = recipe.bare()
    return bare, array_rules.places(tables, given)


def _kind(q, k, v, arguments: Arguments, engine: str, *, rows_first, autograd, read=(None, None)) -> CachedCall:
    """The checks of a call, and its recipe; the recipe is None where the checks had to copy an array."""
    jit = _jit()
    problem = Problem.of(q, k, v, **arguments._asdict(), gradients=True)
    B, H, Q, _ = problem.q.shape
    E = problem.v.shape[3]
    copied = [_address(array) for array in (q, k, v)] != [
        array.ctypes.data for array in (problem.q, problem.k, problem.v)
    ]
    usable = choose(problem, engine)[0] == "jit" and 0 not in (B, H, Q) and not copied and selection(problem) is None
    tensors = type(q) is not np.ndarray
    marks = read[0] is not None, read[1] is not None
    small = any(marks) and array_rules.is_small(q, k, v)
    recipe, places = _recipe(problem, read, rows_first, tensors, small) if usable else (None, ())
    arrays = q, k, v, *[array for array in read if array is not None]
    reads = any(rule.tables for rule in (problem.mask, problem.score) if rule is not None)
    absent = {name: None for name, array in zip(("mask", "score"), marks, strict=True) if array}
    kind = CachedCall(
        None if places is None else recipe,
        read=marks,
        tables=places or (),
        latest=[(array_rules.contents(read[0]), recipe, {})] if marks[0] and recipe and not small else [],
        extents=tuple(map(_extent, arrays)),
        out=(B, Q, H, E) if rows_first else (*problem.lead, Q, E),
        lse=(*problem.lead, Q),
        sums=(3, B, H, Q),
        real=problem.real,
        arguments=None if reads and not places else arguments._replace(**absent),
        engine=engine,
        even=(not reads or bool(places)) and q.shape[:-3] == k.shape[:-3] == v.shape[:-3] and q.ndim > 2,
        threads=jit.threads.count(),
        narrow=problem.dtype.itemsize == 2,
        rows_first=rows_first,
        backward={},
    )
    # Where enough numbers of a score may be −infinity, its plan depends on them; callers with rows first have looked.
    direct_score = marks == (False, True) and (rows_first or array_rules.few(Q))
    if kind.recipe is not None and (not places or small or direct_score):
        form = ROWS_FIRST[engine] if rows_first else engine
        direct.remember((q, k, v, *arguments, form), kind, autograd and autograd.again)
    return kind


def _extent(array) -> int:
    """The bytes from the first element of a tensor to the end of its last; NumPy arrays always have their memory."""
    if type(array) is np.ndarray or 0 in array.shape:
        return 0
    steps = zip(array.shape, array.stride(), strict=True)
    return (1 + sum((count - 1) * step for count, step in steps)) * array.itemsize
