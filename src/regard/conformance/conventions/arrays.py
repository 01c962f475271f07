"""Arrays as the function takes them: NumPy, torch or jax, and how they are in memory; and back to float64 NumPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...common.dtypes import row_of

NAMES = {"numpy": "numpy.ndarray", "torch": "torch.Tensor", "jax": "jax.Array"}


def on_call(array: np.ndarray, arrays: str, memory: str = "contiguous", batch_axis: int | None = None) -> Any:
    """A new array for one call. memory: as in `Call`; batch_axis: where entries may be repeated with stride 0."""
    if memory == "expanded" and batch_axis is not None and repeats(array, batch_axis):
        one = on_call(array.take([0], batch_axis), arrays)
        if arrays == "torch":
            return one.expand(array.shape)
        return np.broadcast_to(one, array.shape) if arrays == "numpy" else _jax(array)
    if arrays == "jax":
        return _jax(array)
    strided = memory == "strided" and array.ndim > 0
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype) if strided else np.array(array, order="C")
    if strided:
        wide[..., ::2] = array
    own = _torch(wide) if arrays == "torch" else wide
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


def _torch(array: np.ndarray) -> Any:
    """A tensor with the memory of an array."""
    import torch

    row = row_of(array.dtype)
    if row and row.added:
        return torch.from_numpy(array.view(f"i{row.itemsize}")).view(row.torch)
    return torch.from_numpy(array)


def _jax(array: np.ndarray) -> Any:
    """A jax array."""
    import jax.numpy as jnp

    return jnp.array(array)


def array_kind(given: Any) -> str | None:
    """numpy, torch or jax; None for anything else. A package that was never imported has no arrays."""
    if isinstance(given, np.ndarray):
        return "numpy"
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(given, torch.Tensor):
        return "torch"
    return "jax" if jax is not None and isinstance(given, jax.Array) else None


def type_words(given: Any) -> str:
    """The type of anything, in words."""
    if given is None:
        return "None"
    kind = array_kind(given)
    return NAMES[kind] if kind else f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")


def dtype_name(array: Any) -> str:
    """float32, bfloat16, … of an array of any kind."""
    return str(array.dtype).removeprefix("torch.")


def is_float(array: Any) -> bool:
    """Whether an array holds floats."""
    return dtype_name(array).startswith(("float", "bfloat"))


def float64(array: Any) -> np.ndarray:
    """The numbers of an array of any kind in float64."""
    if array_kind(array) == "torch":
        import torch

        return array.detach().to("cpu", torch.float64).numpy().copy()
    return np.asarray(array).astype(np.float64)
