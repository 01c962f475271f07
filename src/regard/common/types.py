"""The types in public signatures: arrays, what NumPy can read as one, and the names of the engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

# A NumPy array or a torch tensor: a function that takes one of them returns the same type.
ArrayT = TypeVar("ArrayT", np.ndarray, "torch.Tensor")

# Any function: a decorator returns the type that it is applied to.
Function = TypeVar("Function", bound=Callable[..., Any])


class SupportsArray(Protocol):
    """An object that `np.asarray` reads: arrays and scalars of NumPy, torch tensors, arrays of other libraries."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


# An array, a tensor, or nested lists of numbers.
ArrayLike = SupportsArray | Sequence[float] | list[Any] | tuple[Any, ...]

# What selects along one axis: an integer, a slice, positions, or booleans.
Index = SupportsIndex | slice | ArrayLike

# Every engine by name: the first four on the CPU, "auto", "sdpa", "flex" and "tiles" on a GPU.
Engine = Literal["auto", "jit", "reference", "sdpa", "flex", "tiles"]
