"""Layouts and kinds of arrays: how the function takes them, and back to (B, H, S, D)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common.arrays import as_tensor
from ...common.call_hooks import torch_if_imported
from .fields import Adapter

Array = np.ndarray
Lengths = Array | None  # how many rows of each batch entry exist; None for all

ORDER = {"BHSD": (0, 1, 2, 3), "BSHD": (0, 2, 1, 3), "SBHD": (2, 0, 1, 3)}
# The axes that a layout has not; the call must have size 1 there.
MISSING = {"HSD": "B", "SD": "BH"}


def batch_axis(layout: str) -> int | None:
    """The axis of batch entries; None if the layout has none."""
    return ORDER[layout].index(0) if layout in ORDER else 0 if layout == "BSD" else None


def pack(array: Array, layout: str, lengths: Lengths = None) -> Array:
    """An array (B, H, S, D) in a layout, contiguous."""
    if layout in ORDER:
        packed = array.transpose(ORDER[layout])
    elif layout == "BSD":
        B, H, S, D = array.shape
        packed = array.transpose(0, 2, 1, 3).reshape(B, S, H * D)
    elif layout == "THD":
        rows = [array.shape[2]] * len(array) if lengths is None else lengths
        entries = [entry[:, :n].swapaxes(0, 1) for entry, n in zip(array, rows)]
        packed = np.concatenate(entries) if entries else np.zeros((0, array.shape[1], array.shape[3]), array.dtype)
    else:
        packed = array[0] if layout == "HSD" else array[0, 0]
    return np.ascontiguousarray(packed)


def packed_shape(layout: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape in a layout of an array (B, H, S, D)."""
    return pack(np.broadcast_to(False, shape), layout).shape  # one byte for each element, for a moment


def unpack(array: Array, layout: str, shape: Sequence[int], lengths: Lengths = None) -> Array:
    """An array of `packed_shape` as (B, H, S, D). Rows that do not exist are 0."""
    B, H, S, D = shape
    if layout in ORDER:
        return array.transpose(np.argsort(ORDER[layout]))
    if layout == "BSD":
        return array.reshape(B, S, H, D).transpose(0, 2, 1, 3)
    if layout == "THD":
        found = np.zeros((B, H, S, D), array.dtype)
        ends = np.cumsum([S] * B if lengths is None else lengths)
        for entry, rows in zip(found, np.split(array, ends[:-1])):
            entry[:, : len(rows)] = rows.swapaxes(0, 1)
        return found
    return array.reshape(B, H, S, D)


def shown(layout: str, shape: Sequence[int], last: str = "D") -> str:
    """What the axes of a layout are: `BSHD with B=2, S=5, H=3, D=4`. last: the name of the depth."""
    B, H, S, D = shape
    sizes = {"T": f"T={B * S}", "B": f"B={B}", "S": f"S={S}", "H": f"H={H}", "D": f"{last}={D}"}
    if layout == "BSD":
        sizes["D"] = f"H·{last}={H * D}"
    return f"{layout} with {', '.join(sizes[axis] for axis in layout)}"


def reduced(axes: str, layout: str) -> str:
    """Axes such as BHQK without those that the layout has not."""
    for missing in MISSING.get(layout, ""):
        axes = axes.replace(missing, "", 1)
    return axes.lstrip("1") if layout in MISSING else axes


def resized(shape: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The canonical shape of a mask that is passed in one of the shapes of `CHOICES["mask_shapes"]`.

    >>> sizes = {"B": 2, "H": 4, "Q": 5, "K": 7}
    >>> resized("BK", sizes), resized("1HQK", sizes)
    ((2, 1, 1, 7), (1, 4, 5, 7))
    """
    return tuple(sizes[axis] if axis in shape else 1 for axis in "BHQK")


def fitting(shape: Sequence[int], adapter: Adapter) -> str | None:
    """The accepted axes in which a mask (B or 1, H or 1, Q or 1, K) is passed: its own if accepted, else the first that
    can hold it; None if none can. Packed rows of several entries have no common mask."""
    own = "".join(axis if size > 1 or axis == "K" else "1" for axis, size in zip("BHQK", shape))
    layout = "HSD" if adapter.packed else adapter.layout
    listed = list(dict.fromkeys(reduced(axes, layout) for axes in adapter.mask_shapes))
    can = [axes for axes in listed if all(size == 1 or axis in axes for axis, size in zip("BHQK", shape))]
    return own if own in can else next(iter(can), None)


def merged(array: Array, axes: str, sizes: dict[str, int]) -> Array:
    """A mask (B or 1, H or 1, Q or 1, K) with these axes, each of its full size except those written 1."""
    full = np.broadcast_to(array, resized(axes, sizes))
    return np.ascontiguousarray(full.reshape(tuple(1 if axis == "1" else sizes[axis] for axis in axes)))


NAMES = {"numpy": "numpy.ndarray", "torch": "torch.Tensor", "jax": "jax.Array"}


def on_call(array: np.ndarray, arrays: str, memory: str = "contiguous", batch_axis: int | None = None) -> Any:
    """A new array for one call. memory: as in `Call`; batch_axis: where entries may be repeated with stride 0."""
    if arrays == "jax":
        import jax.numpy as jnp

        return jnp.array(array)
    if memory == "expanded" and repeats(array, batch_axis):
        one = on_call(array.take([0], batch_axis), arrays)
        return one.expand(array.shape) if arrays == "torch" else np.broadcast_to(one, array.shape)
    strided = memory == "strided" and array.ndim > 0
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype) if strided else np.array(array, order="C")
    if strided:
        wide[..., ::2] = array
    own = as_tensor(wide) if arrays == "torch" else wide
    own = own[..., ::2] if strided else own
    if memory == "readonly" and arrays == "numpy":
        own.flags.writeable = False
    return own


def repeats(array: np.ndarray, axis: int | None) -> bool:
    """Whether all entries along an axis hold the same bytes; without an axis they do not."""
    if axis is None:
        return False
    entries = [np.ascontiguousarray(entry).tobytes() for entry in np.moveaxis(array, axis, 0)]
    return len(entries) > 0 and len(set(entries)) == 1


def array_kind(given: Any) -> str | None:
    """numpy, torch or jax; None for anything else. A package that was never imported has no arrays."""
    if isinstance(given, np.ndarray):
        return "numpy"
    torch, jax = torch_if_imported(), sys.modules.get("jax")
    if torch is not None and isinstance(given, torch.Tensor):
        return "torch"
    return "jax" if isinstance(given, getattr(jax, "Array", ())) else None  # absent while jax is being imported


def type_words(given: Any) -> str:
    """The type of anything, in words."""
    if given is None:
        return "None"
    kind = array_kind(given)
    return NAMES[kind] if kind else f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")


def float64(array: Any) -> np.ndarray:
    """The numbers of an array of any kind in float64."""
    if array_kind(array) == "torch":
        import torch

        return array.detach().to("cpu", torch.float64).numpy().copy()
    return np.asarray(array).astype(np.float64)
