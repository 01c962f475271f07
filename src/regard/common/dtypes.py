"""The floating-point dtypes that attention supports, one row each, with everything that depends on the dtype.

A new dtype needs a row here, its conversions in kernels (engines/jit/code/formats.py), and support by torch's kernels
on a GPU. Nothing else in this package lists them (tests/common/test_dtypes.py).
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Float:
    """A dtype; its name is the same in NumPy and torch.

    bits: of a number in memory. digits: of its significand, with the leading one, so that the relative rounding error
    is at most 2**-digits. sums: the dtype of sums and of lse, equal or wider. stored: its name in safetensors files.
    package: which package defines it for NumPy. kind: its code in DLPack.
    """

    name: str
    bits: int
    digits: int
    sums: str
    stored: str
    package: str = "numpy"
    kind: int = 2

    @property
    def itemsize(self) -> int:
        return self.bits // 8

    @property
    def roundoff(self) -> float:
        """The largest relative error of one rounding, denormals excepted."""
        return 2.0**-self.digits

    @property
    def added(self) -> bool:
        """Whether another package adds it to NumPy; arrays are then passed to and from torch as bits."""
        return self.package != "numpy"

    @functools.cached_property
    def limits(self) -> Any:
        """The largest number, the smallest, … as NumPy's finfo has them."""
        return importlib.import_module("ml_dtypes").finfo(self.numpy)

    @functools.cached_property
    def small_range(self) -> bool:
        """Whether its largest number is one that attention meets: 65504."""
        return float(self.limits.max) < 1e5

    @functools.cached_property
    def numpy(self) -> np.dtype:
        return np.dtype(getattr(importlib.import_module(self.package), self.name))

    @functools.cached_property
    def torch(self) -> Any:
        import torch

        return getattr(torch, self.name)


FLOATS = {
    row.name: row
    for row in (
        Float("float32", 32, 24, "float32", "F32"),
        Float("float64", 64, 53, "float64", "F64"),
        Float("float16", 16, 11, "float32", "F16"),
        Float("bfloat16", 16, 8, "float32", "BF16", package="ml_dtypes", kind=4),
    )
}

LISTED = f"{', '.join([*FLOATS][:-1])} or {[*FLOATS][-1]}"  # for messages


@functools.lru_cache(256)
def row_of(dtype: np.dtype) -> Float | None:
    """The row of a NumPy dtype; None if attention does not support it, the other byte order included."""
    return FLOATS.get(dtype.name) if dtype.isnative else None


@functools.lru_cache(256)
def real_of(dtype: np.dtype) -> np.dtype:
    """The dtype of sums over arrays of a dtype in the table."""
    return FLOATS[FLOATS[dtype.name].sums].numpy


@functools.cache
def torch_dtypes() -> tuple[Any, ...]:
    """All of them as dtypes of torch."""
    return tuple(row.torch for row in FLOATS.values())


def torch_real(dtype: Any) -> Any:
    """The dtype of sums over tensors of a torch dtype; float32 for dtypes that attention does not support."""
    return _torch_reals().get(dtype, FLOATS["float32"].torch)


@functools.cache
def _torch_reals() -> dict[Any, Any]:
    return {row.torch: FLOATS[row.sums].torch for row in FLOATS.values()}
