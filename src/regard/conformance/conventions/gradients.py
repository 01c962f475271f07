"""Gradients of the function that is judged, by torch's autograd or jax.vjp, in canonical form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...laws.arguments import summed_over_shape
from ...laws.call import Call
from .fields import Adapter
from .layouts import fitting, float64, on_call, pack, unpack
from .read import Result, Unreadable, entries, lse_shape, read
from .translate import Absent, Prepared

DIFFERENTIATED = ("q", "k", "v", "bias", "sinks")


def gradients(function: Callable[..., Any], prepared: Prepared, call: Call) -> tuple[Result, dict[str, np.ndarray]]:
    """The result of a call with dout or dlse, and the gradients by role, in float64 and in the shapes of the call.

    Raises:
        Absent: if the adapter declares no gradients.
        Unreadable: if the result is not what the adapter says, or has no gradient.
    """
    adapter = prepared.adapter
    if adapter.gradients == "none":
        raise Absent("gradients", "the adapter declares no gradients")
    inputs = {role: prepared.given[role] for role in DIFFERENTIATED if role in prepared.given}
    run = _torch if adapter.gradients == "torch" else _jax
    result, found = run(function, prepared, inputs, call)
    return result, {role: _canonical(found[role], role, call, adapter) for role in inputs}


def _outward(call: Call, adapter: Adapter) -> dict[str, np.ndarray]:
    """The given gradients of the output and lse as the function has their axes."""
    found: dict[str, np.ndarray] = {}
    if call.dout is not None:
        found["out"] = pack(call.dout, adapter.layout)
    if call.dlse is not None:
        axes = adapter.lse_layout
        dlse = np.asarray(call.dlse)
        dlse = dlse.swapaxes(0, 1) if axes == "HT" else dlse.swapaxes(1, 2) if axes in ("BQH", "BQH1") else dlse
        # in base 2, lse is the natural one over ln 2; so is its gradient the natural one times ln 2
        found["lse"] = dlse.reshape(lse_shape(adapter, call.dims)) * (np.log(2) if adapter.lse == "base-2" else 1)
    return found


def _torch(
    function: Callable[..., Any], prepared: Prepared, inputs: dict[str, Any], call: Call
) -> tuple[Result, dict[str, Any]]:
    """By torch's autograd. An input that the result does not depend on has gradient 0."""
    import torch

    adapter, returned = prepared.adapter, prepared.call(function)
    result = read(returned, call, adapter)
    found = entries(returned, adapter)
    outputs, outward = [], []
    for role, array in _outward(call, adapter).items():
        if role not in found:
            raise Absent(f"return_{role}", f"the function does not return {role}")
        if not found[role].requires_grad:
            raise Unreadable(
                f"the {'output' if role == 'out' else role} does not require gradients, although q, k and v do"
            )
        outputs.append(found[role])
        outward.append(on_call(array, "torch").to(found[role].dtype))
    got = torch.autograd.grad(outputs, list(inputs.values()), outward, allow_unused=True)
    return result, {
        role: torch.zeros_like(array) if each is None else each for (role, array), each in zip(inputs.items(), got)
    }


def _jax(
    function: Callable[..., Any], prepared: Prepared, inputs: dict[str, Any], call: Call
) -> tuple[Result, dict[str, Any]]:
    """By jax.vjp."""
    import jax

    adapter = prepared.adapter
    outward = _outward(call, adapter)

    def run(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        found = entries(prepared.call(function, arrays), adapter)
        if missing := [role for role in outward if role not in found]:
            raise Absent(f"return_{missing[0]}", f"the function does not return {missing[0]}")
        return {role: found[role] for role in outward}, found

    outputs, pull, found = jax.vjp(run, inputs, has_aux=True)
    result = read(_as_returned(found, adapter), call, adapter)
    given = {role: on_call(array, "jax").astype(outputs[role].dtype) for role, array in outward.items()}
    return result, pull(given)[0]


def _as_returned(found: dict[str, Any], adapter: Adapter) -> Any:
    """Arrays by role in the structure that the function returns."""
    returns = adapter.returns
    if isinstance(returns, str):
        return found[returns]
    if isinstance(returns, tuple):
        return tuple(found[role] if role is not None else None for role in returns)
    return {key: found[role] for role, key in returns.items()}


def _canonical(gradient: Any, role: str, call: Call, adapter: Adapter) -> np.ndarray:
    """The gradient of one input in the shape that the call gives it; float64."""
    numbers = float64(gradient)
    if role == "sinks":
        return numbers
    if role == "bias":
        return _of_bias(numbers, call, adapter)
    shape = {"q": call.q, "k": call.k, "v": call.v}[role].shape
    lengths = None
    if adapter.layout == "THD" and role != "q" and call.lengths is not None:
        lengths = [int(n) for n in call.lengths]
    return unpack(numbers, adapter.layout, shape, lengths)


def _of_bias(numbers: np.ndarray, call: Call, adapter: Adapter) -> np.ndarray:
    """The gradient of the bias, summed over axes along which the bias of the call was repeated."""
    assert call.bias is not None
    layout = "HSD" if adapter.layout == "THD" else adapter.layout
    together = call.mask is not None and adapter.parameters.get("mask") == adapter.parameters.get("bias")
    shape = np.broadcast_shapes(call.bias.shape, call.mask.shape if together and call.mask is not None else ())
    axes = fitting(shape, adapter.mask_shapes, layout) or ""
    numbers = numbers.reshape(tuple(call.dims[axis] if axis in axes else 1 for axis in "BHQK"))
    return summed_over_shape(numbers, call.bias.shape)
