"""Gradients of the function that is judged, by torch's autograd or jax.vjp, in canonical form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...laws.call import Answer, Call
from .fields import Adapter
from .layouts import fitting, float64, on_call, pack, unpack
from .read import Unreadable, entries, pack_lse, read_entries
from .translate import Absent, Prepared

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
