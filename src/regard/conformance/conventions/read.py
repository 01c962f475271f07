"""How the result of the judged function is read: the output, lse and weights in canonical form, gradients by torch's
autograd or jax.vjp, and the structure of results that cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...common.arrays import name_of_dtype
from ...common.errors import first_line
from ...laws.call import Answer, Call
from .fields import Adapter
from .layouts import (
    NAMES,
    array_kind,
    fitting,
    float64,
    on_call,
    pack,
    packed_shape,
    reduced,
    shown,
    type_words,
    unpack,
)
from .translate import Absent, Prepared


class Unreadable(Exception):
    """The result is not what the adapter says. Its text says what came, and what was expected. returned: what came, as
    `structure` describes it."""

    returned: Any = None


def read(result: Any, call: Call, adapter: Adapter) -> Answer:
    """The answer of a function that returned a result.

    Raises:
        Unreadable: if it is not what the adapter says: another structure, type or shape.
    """
    try:
        return read_entries(entries(result, adapter), call, adapter)
    except Unreadable as error:
        error.returned = structure(result)
        raise


def read_entries(found: Mapping[str, Any], call: Call, adapter: Adapter) -> Answer:
    """The same of the arrays by role."""
    sizes, layout = call.dims, adapter.layout
    B, H, Q, K, E = (sizes[name] for name in "BHQKE")
    out = lse = weights = None
    if "out" in found:
        shape = packed_shape(layout, (B, H, Q, E))
        array = _numbers(found["out"], "output", adapter, shape, shown(layout, (B, H, Q, E), "E"))
        out = unpack(array, layout, (B, H, Q, E))
    if "lse" in found:
        axes = reduced(adapter.lse_layout, layout)
        array = _numbers(found["lse"], "lse", adapter, lse_shape(adapter, sizes), f"lse_layout {axes}: H={H}, Q={Q}")
        order = LSE_ORDER.get(adapter.lse_layout, (0, 1, 2))  # each exchanges two axes, and so is its own inverse
        lse = array.reshape([(B, H, Q)[axis] for axis in order]).transpose(order)
        lse = lse * math.log(2) if adapter.lse == "base-2" else lse
    if "weights" in found:
        axes = reduced("BHQK", layout)
        shape = tuple(sizes[axis] for axis in axes)
        array = _numbers(found["weights"], "weights", adapter, shape, f"{axes}: H={H}, Q={Q}, K={K}")
        weights = array.reshape(B, H, Q, K)
    dtype = name_of_dtype(found["out"]) if "out" in found else ""
    return Answer(status="ok", out=out, lse=lse, weights=weights, dtype=dtype)


def entries(result: Any, adapter: Adapter) -> dict[str, Any]:
    """The arrays by role: "out", "lse", "weights", as the function returned them."""
    returns = adapter.returns
    if isinstance(returns, str):
        if isinstance(result, (tuple, list, Mapping)):
            raise Unreadable(f"a {type_words(result)} of {len(result)} was returned; an array was expected")
        return {returns: result}
    if isinstance(returns, Mapping):
        return {role: _field(result, key) for role, key in returns.items()}
    return _sequence(result, returns)


def _field(result: Any, key: str) -> Any:
    """An entry of a mapping, or an attribute."""
    if isinstance(result, Mapping):
        if key not in result:
            listed = ", ".join(map(repr, result)) or "none"
            raise Unreadable(f"a mapping with keys {listed} was returned; key {key!r} was expected")
        return result[key]
    if not hasattr(result, key):
        raise Unreadable(f"{type_words(result)} was returned; an object with {key!r} was expected")
    return getattr(result, key)


def _sequence(result: Any, returns: Sequence[str | None]) -> dict[str, Any]:
    """The entries of a tuple or list."""
    if not isinstance(result, (tuple, list)):
        raise Unreadable(f"{type_words(result)} was returned; a tuple of {len(returns)} was expected")
    if len(result) != len(returns):
        raise Unreadable(f"a tuple of {len(result)} was returned; one of {len(returns)} was expected")
    return {role: each for role, each in zip(returns, result) if role is not None}


def _numbers(array: Any, what: str, adapter: Adapter, expected: tuple[int, ...], why: str) -> np.ndarray:
    """The numbers in float64 of an array of the declared kind and the expected shape."""
    if array_kind(array) != adapter.arrays:
        raise Unreadable(f"the {what} is {type_words(array)}; {NAMES[adapter.arrays]} was expected")
    if "float" not in name_of_dtype(array):
        raise Unreadable(f"the {what} has dtype {name_of_dtype(array)}; floats were expected")
    if tuple(array.shape) != expected:
        raise Unreadable(f"the {what} has shape {tuple(array.shape)}; {expected} was expected ({why})")
    try:
        return float64(array)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:  # no numbers: meta, sparse, nested
        raise Unreadable(f"the {what} cannot be read: {first_line(error)}") from error


def lse_shape(adapter: Adapter, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of lse as the function returns it."""
    axes = adapter.lse_layout
    B, Q = sizes["B"], sizes["Q"]
    if adapter.layout == "THD" and axes in ("BQH", "BQH1"):  # rows of all entries in one axis, as in the output
        return (B * Q, sizes["H"]) + (1,) * axes.endswith("1")
    lengths = {**sizes, "T": B * Q, "1": 1}
    return tuple(lengths[axis] for axis in reduced(axes, adapter.layout))


# The order of the axes (B, H, Q) in lse, where it is another one.
LSE_ORDER = {"HT": (1, 0, 2), "BQH": (0, 2, 1), "BQH1": (0, 2, 1)}


def pack_lse(lse: np.ndarray, adapter: Adapter, sizes: Mapping[str, int]) -> np.ndarray:
    """lse, or a gradient of it, (B, H, Q), with the axes of the function."""
    return lse.transpose(LSE_ORDER.get(adapter.lse_layout, (0, 1, 2))).reshape(lse_shape(adapter, sizes))


MOST = 16  # entries of a container that are described


def structure(result: Any, depth: int = 2) -> dict[str, Any]:
    """{"is": "array", "arrays", "dtype", "shape"}, {"is": "sequence", "entries": […]}, {"is": "mapping", "entries":
    {key: …}} for mappings with names as keys and objects with attributes, or {"is": its type}."""
    kind = array_kind(result)
    if kind:
        shape = [int(size) for size in result.shape]
        return {"is": "array", "arrays": kind, "dtype": name_of_dtype(result), "shape": shape}
    if depth and isinstance(result, (tuple, list)) and len(result) <= MOST:
        return {"is": "sequence", "entries": [structure(each, depth - 1) for each in result]}
    entries: dict[str, Any] = {}
    if isinstance(result, Mapping):
        entries = {key: value for key, value in result.items() if isinstance(key, str)}
    elif is_dataclass(result) and not isinstance(result, type):
        entries = {each.name: getattr(result, each.name) for each in fields(result)}
    elif hasattr(result, "__dict__") and not isinstance(result, type):
        entries = {name: value for name, value in vars(result).items() if array_kind(value)}
    if depth and entries:
        listed = list(entries.items())[:MOST]
        return {"is": "mapping", "entries": {key: structure(value, depth - 1) for key, value in listed}}
    return {"is": type_words(result)}


DIFFERENTIATED = ("q", "k", "v", "bias", "sinks")


def with_gradients(function: Callable[..., Any], prepared: Prepared, call: Call, adapter: Adapter) -> Answer:
    """The answer to a call with dout: its gradients are in float64 and in the shapes of the call.

    Raises:
        Absent: if the adapter declares no gradients.
        Unreadable: if the result is not what the adapter says, or has no gradient.
    """
    if adapter.gradients == "none":
        raise Absent("gradients", "the adapter declares no gradients")
    inputs = {role: prepared.given[role] for role in DIFFERENTIATED if role in prepared.given}
    run = _torch if adapter.gradients == "torch" else _jax
    answer, found = run(partial(prepared.call, function), inputs, call, adapter)
    return replace(answer, gradients={role: _canonical(found[role], role, call, adapter) for role in inputs})


def outward_gradients(call: Call, adapter: Adapter) -> dict[str, np.ndarray]:
    """The given gradients of the output and lse as the function has their axes."""
    assert call.dout is not None
    found = {"out": pack(call.dout, adapter.layout)}
    if call.dlse is not None:
        # in base 2, lse is the natural one over ln 2; so is its gradient the natural one times ln 2
        ratio = np.log(2) if adapter.lse == "base-2" else 1
        found["lse"] = pack_lse(call.dlse, adapter, call.dims) * np.asarray(ratio, call.dlse.dtype)
    return found


def _torch(
    function: Callable[..., Any], inputs: dict[str, Any], call: Call, adapter: Adapter
) -> tuple[Answer, dict[str, Any]]:
    """By torch's autograd. An input that the result does not depend on has gradient 0."""
    import torch

    for array in inputs.values():
        array.requires_grad_()
    found = entries(function(), adapter)
    answer = read_entries(found, call, adapter)
    outward = outward_gradients(call, adapter)
    outputs = {role: _returned(role, found) for role in outward}
    for role, output in outputs.items():
        if not output.requires_grad:
            what = "output" if role == "out" else role
            raise Unreadable(f"the {what} does not require gradients, although q, k and v do")
    given = [on_call(array, "torch").to(outputs[role].dtype) for role, array in outward.items()]
    got = torch.autograd.grad(list(outputs.values()), list(inputs.values()), given, materialize_grads=True)
    return answer, dict(zip(inputs, got))


def _jax(
    function: Callable[..., Any], inputs: dict[str, Any], call: Call, adapter: Adapter
) -> tuple[Answer, dict[str, Any]]:
    """By jax.vjp."""
    import jax

    outward = outward_gradients(call, adapter)

    def run(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        found = entries(function(arrays), adapter)
        return {role: _returned(role, found) for role in outward}, found

    outputs, pull, found = jax.vjp(run, inputs, has_aux=True)
    given = {role: on_call(array, "jax").astype(outputs[role].dtype) for role, array in outward.items()}
    return read_entries(found, call, adapter), pull(given)[0]


def _returned(role: str, found: dict[str, Any]) -> Any:
    if role not in found:
        raise Absent(f"return_{role}", f"the function does not return {role}")
    return found[role]


def _canonical(gradient: Any, role: str, call: Call, adapter: Adapter) -> np.ndarray:
    """The gradient of one input in the shape that the call gives it; float64."""
    numbers = float64(gradient)
    if role == "sinks":
        return numbers
    if role == "bias":
        shape, over = bias_sums(call, adapter)
        return numbers.reshape(shape).sum(over, keepdims=True)
    return unpack(numbers, adapter.layout, getattr(call, role).shape, None if role == "q" else call.lengths)


def bias_sums(call: Call, adapter: Adapter) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the shape (B, H, Q, K) of the bias that the function takes, the axes along which the call's is repeated)."""
    assert call.bias is not None
    together = call.mask is not None and adapter.parameters.get("mask") == adapter.parameters.get("bias")
    shape = np.broadcast_shapes(call.bias.shape, call.mask.shape if together and call.mask is not None else ())
    axes = fitting(shape, adapter) or ""
    full = tuple(call.dims[axis] if axis in axes else 1 for axis in "BHQK")
    return full, tuple(axis for axis in range(4) if call.bias.shape[axis] == 1 and full[axis] != 1)
