"""Counterexample: the smallest call that fails as a given one does, found in a fixed order, so that equal failures give
equal ones; and a short Python script without regard that shows its wrong result, ready for an issue tracker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..common.dtypes import FLOATS
from ..laws.call import AXES, Call
from ..laws.expected import expected, expected_gradients
from .conventions.fields import Adapter
from .conventions.layouts import batch_axis, pack, reduced, repeats
from .conventions.parameters import Parameter
from .conventions.read import bias_sums, outward_gradients, pack_lse
from .conventions.translate import prepare

Fails = Callable[[Call], bool]
CALLS, SECONDS = 400, 6.0  # at most, for one counterexample


def shrunk(call: Call, fails: Fails, *, numbers: bool = True) -> Call:
    """The smallest call that was found to fail in the same way: fewer arguments, entries, heads, rows, keys and depth,
    then, if `numbers`, numbers that can be checked by hand.
    """
    until, left = time.monotonic() + SECONDS, iter(range(CALLS))

    def still(candidate: Call) -> bool:
        return time.monotonic() < until and next(left, None) is not None and fails(candidate)

    for step in (_without_arguments, _smaller, _simpler_masks):
        changed = True
        while changed:
            changed = False
            for candidate in step(call):
                if still(candidate):
                    call, changed = candidate, True
                    break
    return _with_simpler_numbers(call, still) if numbers else call


def _with_simpler_numbers(call: Call, still: Fails) -> Call:
    """The call with simpler numbers, array by array."""
    for name in ("v", "k", "q", "bias", "sinks", "dout", "dlse"):
        array = getattr(call, name)
        if array is None:
            continue
        for simpler in _simpler_numbers(array):
            if not _same(simpler, array) and still(call.changed(**{name: simpler})):
                call = call.changed(**{name: simpler})
                break
    return call


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one.astype(np.float64), other.astype(np.float64), equal_nan=True)


def _without_arguments(call: Call) -> Iterator[Call]:
    for name in ("softcap", "bias", "sinks", "window", "lengths", "mask", "scale", "dropout", "dlse"):
        if getattr(call, name) is not None:
            yield call.changed(**{name: None})
    if call.causal:
        yield call.changed(causal=False)
    if call.memory != "contiguous":
        yield call.changed(memory="contiguous")


def _smaller(call: Call) -> Iterator[Call]:
    sizes = call.dims
    yield from _cuts(call, "BG")
    for count in _counts(sizes["H"] // max(sizes["G"], 1)):  # of the heads that share a key head
        yield cut(call, "H", sharing(call, (slice(None), slice(count))))
    yield from _cuts(call, "QK")
    for one, other in ("QK", "DE"):
        for count in _counts(sizes[one]) if sizes[one] == sizes[other] else ():
            yield cut(cut(call, one, slice(0, count)), other, slice(0, count))
    for axis in "DE":
        for count in _counts(sizes[axis]):
            yield cut(call, axis, slice(0, count))


def _cuts(call: Call, axes: str) -> Iterator[Call]:
    """The call with fewer entries along one of these axes."""
    for axis in axes:
        size = call.dims[axis]
        for count in _counts(size):
            for start in dict.fromkeys((0, size - count, (size - count) // 2)):  # the first, the last, the middle
                yield cut(call, axis, slice(start, start + count))


def _counts(size: int) -> Iterator[int]:
    """Smaller sizes, the smallest first."""
    for count in dict.fromkeys((1, 2, 3, size // 4, size // 2, size - 1)):
        if 0 < count < size:
            yield count


ARRAYS = {
    **{name: AXES[name] for name in "qkv"},
    "mask": "BHQK",
    "bias": "BHQK",
    "lengths": "B",
    "sinks": "H",
    "dout": AXES["out"],
    "dlse": AXES["lse"],
}


def cut(call: Call, axis: str, part: slice | np.ndarray) -> Call:
    """The call with a part of one axis. A head axis is cut by key heads, with the query heads that share them."""
    if axis == "G":
        call = cut(call, "H", sharing(call, part))
    changes = {}
    for name, axes in ARRAYS.items():
        array, at = getattr(call, name), axes.find(axis)
        if array is not None and at >= 0 and array.shape[at] > 1:
            changes[name] = array[(slice(None),) * at + (part,)]
    if axis == "K" and isinstance(part, slice) and call.lengths is not None:
        changes["lengths"] = np.minimum(call.lengths, part.stop - part.start)
    return call.changed(**changes)


def sharing(call: Call, part: Any) -> np.ndarray:
    """The query heads that share some key heads. part: an index into (key heads, query heads of each)"""
    return np.arange(call.dims["H"]).reshape(call.dims["G"], -1)[part].ravel()


def _simpler_masks(call: Call) -> Iterator[Call]:
    for name, plain in (("mask", True), ("bias", 0.0)):
        array = getattr(call, name)
        if array is None:
            continue
        for place in np.argwhere(array != plain):
            simpler = array.copy()
            simpler[tuple(place)] = plain
            yield call.changed(**{name: simpler})


def _simpler_numbers(array: np.ndarray) -> list[np.ndarray]:
    """Simpler numbers for an array, the simplest first: 0, 1, one-hot, few digits. NaN and infinities stay."""
    wide = array.astype(np.float64)
    simpler: list[np.ndarray] = [np.zeros(array.shape), np.ones(array.shape)]
    if array.ndim >= 2:
        rows, columns = array.shape[-2:]
        simpler += [np.eye(rows, columns), np.arange(1.0, rows + 1)[:, None]]
    simpler.append(np.arange(float(array.size)).reshape(array.shape))
    with np.errstate(all="ignore"):
        simpler += [np.sign(wide), np.round(wide), np.round(wide, 1), np.round(wide, 2)]
        return [np.where(np.isfinite(wide), numbers, wide).astype(array.dtype) for numbers in simpler]


BEHAVIOR = ("inputs", "twice", "dtype")  # what a script can show besides a wrong number


def script(
    call: Call, adapter: Adapter, parameters: Sequence[Parameter], target: str, what: str, says: Sequence[str]
) -> str:
    """The script. target: `module:function` or `FILE.py:function` · what: the result that is wrong, "out", "lse",
    "weights" or "gradient of q"; or one of `BEHAVIOR` · says: the first lines, as comments
    """
    prepared = prepare(call.changed(dout=None, dlse=None), replace(adapter, arrays="numpy"), parameters)
    names: dict[int, str] = {}
    lines = [f"# {each}" for each in says]
    lines += [*_libraries(call, adapter, what), *_imported(target), ""]
    for role, array in prepared.given.items():
        if id(array) not in names:  # one array may be both the mask and the bias
            names[id(array)] = role
            lines.append(f"{role} = {_literal(array, adapter.arrays)}")
            lines += _in_memory(role, array, call.memory, adapter)
    arguments = [_argument(value, names, adapter.arrays) for value in prepared.args]
    arguments += [f"{name}={_argument(value, names, adapter.arrays)}" for name, value in prepared.kwargs.items()]
    called = f"{_name(target)}({', '.join(arguments)})"
    if what in BEHAVIOR:
        lines += _behavior(what, called, list(names.values()), adapter)
        return "\n".join(lines) + "\n"
    wanted, atol = _wanted(call, adapter, what)
    if what.startswith("gradient of "):
        got = f"gradient_{what[12:]}"
        lines += _gradient(call, adapter, what[12:], called, got)
    else:
        got = _part(adapter.returns, what)
        lines.append(f"result = {called}")
    if call.dtype != np.float64:
        wanted = np.vectorize(lambda number: float(f"{number:.10g}"), otypes=[np.float64])(wanted)
    lines.append(f"expected = np.array({_numbers(wanted)})  # {_words(what)}")
    as_float64 = {"torch": "{}.detach().double().numpy()"}.get(adapter.arrays, "np.asarray({}, np.float64)").format(got)
    shown = f"{atol:.1e}" if atol else "0"
    lines.append(f"np.testing.assert_allclose({as_float64}, expected, rtol=0, atol={shown})")
    return "\n".join(lines) + "\n"


def _behavior(what: str, called: str, arrays: Sequence[str], adapter: Adapter) -> list[str]:
    """The lines that show that inputs change, that two calls differ, or that the dtype is another one."""
    if what == "inputs":
        copy = "{0}.clone()" if adapter.arrays == "torch" else "np.array({0})"
        before = ", ".join(copy.format(role) for role in arrays)
        return [
            f"before = [{before}]",
            called,
            f"for copy, after in zip(before, [{', '.join(arrays)}]):",
            "    np.testing.assert_array_equal(np.asarray(after), np.asarray(copy))",
        ]
    part = _part(adapter.returns, "out")
    read = "{}.detach().double().numpy().copy()" if adapter.arrays == "torch" else "np.array({}, np.float64)"
    if what == "twice":
        lines = [f"result = {called}", f"first = {read.format(part)}", f"result = {called}"]
        return [*lines, f"np.testing.assert_array_equal({read.format(part)}, first)"]
    return [f"result = {called}", f"assert {part}.dtype == {arrays[0]}.dtype, {part}.dtype"]


def _in_memory(role: str, array: np.ndarray, memory: str, adapter: Adapter) -> list[str]:
    """The line that gives an array another layout in memory."""
    axis, torch = batch_axis(adapter.layout), adapter.arrays == "torch"
    if adapter.arrays == "jax":
        return []
    if memory == "strided":
        wide = f"np.stack([{role}, np.zeros_like({role})], -1).reshape(*{role}.shape[:-1], -1)"
        wide = f"torch.stack([{role}, torch.zeros_like({role})], -1).flatten(-2)" if torch else wide
        return [f"{role} = {wide}[..., ::2]  # every second element of a wider array"]
    if memory == "expanded" and role in ("q", "k", "v") and repeats(array, axis):
        one = f"np.broadcast_to({role}.take([0], {axis}), {role}.shape)"
        one = f"{role}.narrow({axis}, 0, 1).expand({role}.shape)" if torch else one
        return [f"{role} = {one}  # one entry, with stride 0"]
    return [f"{role}.flags.writeable = False"] if memory == "readonly" and not torch else []


def _libraries(call: Call, adapter: Adapter, what: str) -> list[str]:
    lines = ["import numpy as np"]
    if adapter.arrays == "numpy" and FLOATS[call.dtype.name].added:
        lines.append(f"import {FLOATS[call.dtype.name].package}")
    if adapter.arrays == "torch":
        lines.append("import torch")
    if adapter.arrays == "jax":
        lines += [*(["import jax"] if what.startswith("gradient") else []), "import jax.numpy as jnp"]
    return lines


def _gradient(call: Call, adapter: Adapter, role: str, called: str, got: str) -> list[str]:
    """The lines that compute the gradient of one argument."""
    outward = outward_gradients(call, adapter)
    arrays = [_literal(array, adapter.arrays) for array in outward.values()]
    parts = [_part(adapter.returns, name) for name in outward]
    if adapter.arrays == "jax":
        picked = ", ".join(part.replace("result", called) for part in parts)
        both = f"({picked})" if len(parts) > 1 else picked
        given = f"({', '.join(arrays)})" if len(arrays) > 1 else arrays[0]
        lines = [f"{got} = jax.vjp(lambda {role}: {both}, {role})[1]({given})[0]"]
    else:
        total = " + ".join(f"({part} * {array}).sum()" for part, array in zip(parts, arrays))
        lines = [f"{role}.requires_grad_()", f"result = {called}", f"({total}).backward()", f"{got} = {role}.grad"]
    if role == "bias":
        shape, over = bias_sums(call, adapter)
        lines += [f"{got} = {got}.reshape({shape}).sum({over}, keepdims=True)"] if over else []
    return lines


def _wanted(call: Call, adapter: Adapter, what: str) -> tuple[np.ndarray, float]:
    """The expected numbers in the layout of the function, and the largest bound among them."""
    if what.startswith("gradient of "):
        arrays, bounds = expected_gradients(call, adapter)
        array, bound = arrays[what[12:]], bounds[what[12:]]
    else:
        right = expected(call, adapter)
        array, bound = getattr(right, what), getattr(right.bounds, what)
    finite = np.broadcast_to(bound, array.shape)[np.isfinite(array)]
    atol = float(np.max(finite, initial=0.0, where=np.isfinite(finite)))
    return _in_layout(array, what, call, adapter), atol


def _in_layout(array: np.ndarray, what: str, call: Call, adapter: Adapter) -> np.ndarray:
    """A result, or the gradient of an argument, as the function has it."""
    if what in ("out", "gradient of q"):
        return pack(array, adapter.layout)
    if what in ("gradient of k", "gradient of v"):
        return pack(array, adapter.layout, call.lengths)
    if what == "lse":
        return pack_lse(array / np.log(2) if adapter.lse == "base-2" else array, adapter, call.dims)
    if what == "weights":
        return array.reshape([call.dims[axis] for axis in reduced("BHQK", adapter.layout)])
    return array


def _words(what: str) -> str:
    known = {
        "out": "the weighted mean of v",
        "lse": "the logarithm of the sum of exp(score)",
        "weights": "the softmax of the scores",
    }
    return f"{known.get(what, f'the {what}')}, computed in float64"


def _part(returns: str | Sequence[str | None] | Mapping[str, str], what: str) -> str:
    """The expression that reads one result."""
    if isinstance(returns, str):
        return "result"
    if isinstance(returns, Mapping):
        return f"(result[{returns[what]!r}] if isinstance(result, dict) else result.{returns[what]})"
    return f"result[{list(returns).index(what)}]"


def _name(target: str) -> str:
    """What a script calls: the last part of the name if no import reaches the function."""
    module, _, name = target.rpartition(":")
    last = name.rpartition(".")[2]
    return name if module else last if last.isidentifier() else "function"


def _imported(target: str) -> list[str]:
    """The lines that import the function."""
    module, _, name = target.rpartition(":")
    first = name.split(".")[0]
    if not module:
        return [f"# {_name(target)} is the function that was tested, {target}: no import reaches it"]
    if module.endswith(".py"):
        path = module.replace("\\", "/")
        folder, _, file = path.rpartition("/")
        note = f"  # run this in the folder of {file}" if folder else ""
        return [f"from {file.removesuffix('.py')} import {first}{note}"]
    return [f"from {module} import {first}"]


def _argument(value: Any, names: Mapping[int, str], arrays: str) -> str:
    if id(value) in names:
        return names[id(value)]
    return _literal(value, arrays) if isinstance(value, np.ndarray) else repr(value)


def _literal(array: np.ndarray, arrays: str) -> str:
    """An array as source code that makes it in the type that the function takes."""
    kind = array.dtype.name
    library, make, dtype = {
        "numpy": ("np", "array", _dtype(kind)),
        "torch": ("torch", "tensor", f"dtype=torch.{kind}"),
        "jax": ("jnp", "array", f"jnp.{'bool_' if kind == 'bool' else kind}"),
    }[arrays]
    if array.size == 0:
        return f"{library}.zeros({tuple(int(size) for size in array.shape)}, {dtype})"
    numbers = _numbers(array)
    return f"{library}.{make}({numbers.replace('np.', 'torch.') if arrays == 'torch' else numbers}, {dtype})"


def _dtype(kind: str) -> str:
    row = FLOATS.get(kind)
    return kind if kind == "bool" else f"{row.package}.{kind}" if row and row.added else f"np.{kind}"


def _numbers(array: np.ndarray) -> str:
    """Nested lists. Floats have as many digits as their dtype needs."""
    if array.dtype.kind in "bui":
        return repr(array.tolist())
    return _nested(array.astype(np.float32) if array.dtype.itemsize < 4 else array)


def _nested(array: np.ndarray) -> str:
    if array.ndim:
        return f"[{', '.join(map(_nested, array))}]"
    value = array[()]
    if np.isnan(value):
        return "np.nan"
    if np.isinf(value):
        return "np.inf" if value > 0 else "-np.inf"
    return str(value).removesuffix(".0")
