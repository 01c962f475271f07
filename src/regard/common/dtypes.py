"""Dtypes: the floating-point numbers that attention takes, one row each, and all that follows from which one it is.

A new dtype is a row here, how kernels widen and round it (engines/jit/code/formats.py), and what torch's kernels do
with it on a GPU. Nothing else in this package lists them (tests/common/test_dtypes.py).
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FLOATS", "LISTED", "Float", "real_of", "row_of", "torch_dtypes", "torch_real"]


@dataclass(frozen=True)
class Float:
    """A dtype by name, which is the same for NumPy and torch.

    bits: of a number in memory. digits: of its significand, the leading one included, so that rounding errs by at most
    2**-digits of a number. sums: the dtype of sums and of lse; it is wider or the same. stored: its name in safetensors
    files. package: where NumPy finds it.
    """

    name: str
    bits: int
    digits: int
    sums: str
    stored: str
    package: str = "numpy"

    @property
    def itemsize(self) -> int:
        return self.bits // 8

    @property
    def roundoff(self) -> float:
        """The largest relative error of rounding once, but for denormals."""
        return 2.0**-self.digits

    @property
    def added(self) -> bool:
        """Whether NumPy has it from another package; arrays then go from and to torch as bits."""
        return self.package != "numpy"

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
        Float("bfloat16", 16, 8, "float32", "BF16", package="ml_dtypes"),
    )
}

LISTED = f"{', '.join([*FLOATS][:-1])} or {[*FLOATS][-1]}"  # as refusals say it


@functools.lru_cache(256)
def row_of(dtype: np.dtype) -> Float | None:
    """The row of a NumPy dtype; None for what attention does not take, the other byte order among it."""
    return FLOATS.get(dtype.name) if dtype.isnative else None


@functools.lru_cache(256)
def real_of(dtype: np.dtype) -> np.dtype:
    """What sums are made in for arrays of a dtype in the table."""
    return FLOATS[FLOATS[dtype.name].sums].numpy


@functools.cache
def torch_dtypes() -> tuple[Any, ...]:
    """torch's names of all of them."""
    return tuple(row.torch for row in FLOATS.values())


def torch_real(dtype: Any) -> Any:
    """What sums are made in for tensors of a torch dtype; float32 for those that attention does not take."""
    return _torch_reals().get(dtype, FLOATS["float32"].torch)


@functools.cache
def _torch_reals() -> dict[Any, Any]:
    return {row.torch: FLOATS[row.sums].torch for row in FLOATS.values()}
