"""Counterexample: a short Python script without regard that shows one wrong result, ready for an issue tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..common.dtypes import FLOATS
from ..laws.call import Call
from ..laws.expected import expected, expected_gradients
from .conventions.fields import Adapter
from .conventions.gradients import bias_sums, outward_gradients
from .conventions.layouts import batch_axis, pack, reduced, repeats
from .conventions.read import pack_lse
from .conventions.translate import prepare
from .conventions.validation import Parameter

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
