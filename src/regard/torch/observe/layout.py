"""`Layout`: the shape, dtype, strides and device of a tensor or an array."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.arrays import is_tensor


@dataclass(frozen=True)
class Layout:
    """The memory layout of a tensor: its shape, dtype, strides in elements, and device."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str

    @classmethod
    def of(cls, value) -> Layout | None:
        """The layout of a tensor or an array; None of anything else."""
        if isinstance(value, cls):
            return value
        if is_tensor(value):
            dtype = str(value.dtype).removeprefix("torch.")
            return cls(tuple(value.shape), dtype, tuple(value.stride()), str(value.device))
        if not hasattr(value, "strides"):
            return None
        return cls(value.shape, str(value.dtype), tuple(step // value.itemsize for step in value.strides), "cpu")

    def __str__(self) -> str:
        device = "" if self.device == "cpu" else f", {self.device}"
        return f"{self.shape} {self.dtype}, strides {self.strides}{device}"
