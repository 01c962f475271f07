"""Public names: types of arguments, the module that public classes report, and names that a package lacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeVar

import numpy as np

from .errors import nearest


def belong(package: str) -> None:
    """Sets the module of every loaded class in the `__all__` of a package of regard to the package."""
    names = vars(sys.modules[package])
    for name in names["__all__"]:
        if name in names:
            belongs(names[name], package)


def belongs(value, package: str):
    """The value; if it is a class of regard, its module is set to the package."""
    if isinstance(value, type) and value.__module__.startswith(f"{package}."):
        value.__module__ = package
    return value


def no_attribute(module: str, name: str) -> AttributeError:
    """The AttributeError of Python for a name that a package lacks, with the module of this name, which is not imported
    yet, or the closest public name.

    >>> print(no_attribute("regard", "causl"))
    module 'regard' has no attribute 'causl'; did you mean 'causal'?
    >>> print(no_attribute("regard", "torch"))
    module 'regard' has no attribute 'torch'; it is a module of its own: import regard.torch
    """
    public = name[:1] != "_"
    close = nearest(name, vars(sys.modules[module])["__all__"]) if public else None
    hint = f"; did you mean {close!r}?" if close else ""
    if public and name.isidentifier() and find_spec(f"{module}.{name}"):
        hint = f"; it is a module of its own: import {module}.{name}"
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[module])


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
