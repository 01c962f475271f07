"""Reads arrays of NumPy and torch in place; raises `Refused` for what NumPy cannot read, or would misread."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from .dtypes import FLOATS, row_of
from .errors import Refused, first_line, refuse


def read_array(array, where: str) -> np.ndarray:
    """The array as a NumPy array, which shares the memory of the source if possible."""
    if type(array) is np.ndarray:
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise refuse(
            where,
            "the mask of a masked array would be ignored",
            f"{type(array).__name__} {list(array.shape)}",
            "a plain array",
            "fill it with array.filled(…); np.ma.getmaskarray(array) is true where a number is missing, whereas "
            "mask= is true where a row may attend",
        )
    try:
        if is_tensor(array):
            return _of_tensor(array.detach())
        only = hasattr(array, "__dlpack__") and not hasattr(array, "__array__")  # a protocol NumPy reads on request
        found = np.from_dlpack(array) if only else np.asarray(array)
    except (
        TypeError,
        ValueError,
        RuntimeError,
        BufferError,
    ) as error:  # other devices and layouts; lists of uneven length
        raise _unreadable(where, array, first_line(error)) from error
    if found.dtype == object and found.ndim == 0:  # NumPy wraps what it does not know
        raise _unreadable(where, array, f"an object of type {type(array).__name__}")
    return found


def _unreadable(where: str, array: Any, given: str) -> Refused:
    """The refusal of what has no numbers here, and how to get there from what it is."""
    expected = "numbers in CPU memory, of a NumPy dtype"
    if traced_by_jax(array):
        given, expected = "a tracer of JAX, inside jit, grad or vmap", "an array that has numbers"
        fix = (
            "in programs of JAX call attention or attention_with_lse, and pass such arrays as q, k, v, mask=, score=, "
        )
        fix += "sinks= or query_start=, or call regard outside of them"
    elif is_tensor(array) and _is_transformed(array):
        given, expected = (
            "a tensor of torch.func, which has no numbers",
            "q, k and v as tensors, in regard.torch.attention",
        )
        fix = "of regard's functions, regard.torch.attention and attention_with_lse work inside torch.func"
    elif type(array).__name__ == "BlockMask":  # of torch's FlexAttention: blocks, and the function they are made from
        given, expected = "a BlockMask of torch", "the function that it was made from; regard finds the blocks itself"
        fix = "mask=block_mask.mask_mod"
    elif is_tensor(array) and elsewhere(array):
        given, fix = f"{array.dtype} on {array.device}", "move it first: tensor.cpu()"
    elif is_tensor(array):
        fix = "convert it first: tensor.float().cpu(), to_dense()"
    elif isinstance(array, list | tuple):
        fix = "lists must have rows of one length, with numbers only"
    else:
        fix = "pass an array of NumPy, a tensor, or an object with __array__ or __dlpack__ in CPU memory"
    return refuse(where, "the array cannot be read", given, expected, fix)


def _is_transformed(tensor) -> bool:
    """Whether a transform of torch.func wraps the tensor."""
    import torch

    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _of_tensor(tensor) -> np.ndarray:
    if not tensor.is_cpu and elsewhere(tensor) and not tensor.dtype.is_floating_point:
        tensor = tensor.cpu()  # integers and booleans determine which tiles are visited, so they are needed here
    if tensor._is_zerotensor():  # torch's zeros without memory
        tensor = tensor.new_zeros(tensor.shape)
    _check_memory(tensor)
    tensor = tensor.resolve_neg() if tensor.is_neg() else tensor
    added = _added().get(tensor.dtype)
    return tensor.numpy() if added is None else tensor.view(added[0]).numpy().view(added[1])


def _check_memory(tensor) -> None:
    """Raises an error if the storage was freed or made smaller, as FSDP does: NumPy would read other memory."""
    last = tensor.numel() - 1
    if last < 0:
        return
    if not tensor.is_contiguous():
        last = sum((count - 1) * step for count, step in zip(tensor.shape, tensor.stride(), strict=True))
    needed, held = (tensor.storage_offset() + last + 1) * tensor.itemsize, len(tensor.untyped_storage())
    if held < needed:
        raise RuntimeError(f"its storage has {held} of {needed} bytes, because it was freed or made smaller")


@functools.cache
def _added() -> dict[Any, tuple[Any, np.dtype]]:
    """For each dtype that NumPy lacks, by torch's dtype: torch's integer of the same width, and the added dtype."""
    import torch

    return {row.torch: (getattr(torch, f"int{row.bits}"), row.numpy) for row in FLOATS.values() if row.added}


def outline(array, where: str) -> np.ndarray:
    """The array as rules need it: floats on another device are not copied, and are replaced by NaN (unknown)."""
    if device_of(array) == "cpu" or not array.dtype.is_floating_point:
        return read_array(array, where)
    import torch

    if array.dtype not in _unknown:
        dtype = read_array(torch.empty(0, dtype=array.dtype), where).dtype
        _unknown[array.dtype] = np.full((), np.nan, np.float32).astype(dtype)
    return np.broadcast_to(_unknown[array.dtype], tuple(array.shape))


def stand_in(array) -> np.ndarray:
    """Zeros of the same shape and dtype that take no memory: every stride is 0.

    >>> found = stand_in(np.ones((1000, 64), np.float16))
    >>> found.shape, found.dtype, found.strides
    ((1000, 64), dtype('float16'), (0, 0))
    """
    if is_tensor(array):
        import torch

        dtype = read_array(torch.empty(0, dtype=array.dtype), "dtype").dtype
    else:
        dtype = np.asarray(array).dtype
    return np.broadcast_to(np.zeros((), dtype), tuple(np.shape(array)))


_unknown: dict[Any, np.ndarray] = {}  # by torch's dtype: one NaN


def device_of(value) -> str:
    """The device of a tensor, as torch names it; "cpu" for anything else."""
    return str(value.device) if is_tensor(value) else "cpu"


def elsewhere(value) -> bool:
    """Whether this is a tensor on a device that NumPy cannot read; "meta" tensors have no data and do not count."""
    return is_tensor(value) and not value.is_cpu and value.device.type != "meta"


def address(array: np.ndarray) -> int:
    """array.ctypes.data in a fifth of the time: NumPy's public headers define it as the first field of an array."""
    return ctypes.c_int64.from_address(id(array) + object.__basicsize__).value


def name_of_dtype(array) -> str:
    """float32, bfloat16, … of an array or a tensor."""
    return str(array.dtype).removeprefix("torch.")


def bytes_of(tensor) -> Any:
    """A copy of the bytes of a tensor as an array, in the order of its shape: a single number may have any strides."""
    import torch

    copy = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copy.reshape(-1).view(torch.uint8).numpy()


def is_float(dtype: np.dtype) -> bool:
    """Whether this is a floating-point dtype: one of NumPy's own, or another that attention supports."""
    return issubclass(dtype.type, np.floating) or row_of(dtype) is not None


def as_tensor(array: np.ndarray):
    """The array as a torch tensor that shares its memory."""
    import torch

    row = row_of(array.dtype) if array.dtype.isbuiltin == 2 else None  # 2: from another package
    if row is not None:
        return torch.from_numpy(array.view(f"i{row.itemsize}")).view(row.torch)
    return torch.from_numpy(array)


def is_tensor(value) -> bool:
    """Whether this is a torch tensor or a subclass of one; torch is not imported for this."""
    kind: Any = type(value)
    return _is_kind_of_tensor(kind)


@functools.lru_cache(1024)
def _is_kind_of_tensor(kind: type) -> bool:
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__)


def traced_by_jax(*values) -> bool:
    """Whether one of them is an array of a program of JAX, which has no numbers yet."""
    kinds: list[Any] = [type(value) for value in values]
    return any(map(_is_kind_of_tracer, kinds))


@functools.lru_cache(1024)
def _is_kind_of_tracer(kind: type) -> bool:
    return any(base.__module__.startswith("jax.") and base.__name__ == "Tracer" for base in kind.__mro__)


def like(given, found):
    """The result in the type of `given`: a NumPy array, a tensor that shares its memory, or an array of another library
    that follows the array API standard, such as JAX.
    """
    if isinstance(given, np.ndarray) or not isinstance(found, np.ndarray):
        return found
    if is_tensor(given):
        return as_tensor(found)
    namespace = getattr(given, "__array_namespace__", None)
    return found if namespace is None else namespace().asarray(found)
