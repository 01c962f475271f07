"""The layout of a call's tensors: where batch and heads are, and how to slice out one batch entry."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...common.arrays import is_tensor, read_array
from ...common.module_settings import number_of_heads


def numbers(value: Any) -> np.ndarray:
    """A tensor or array in CPU memory as NumPy; a view if it is there already."""
    return read_array(value.detach().cpu() if is_tensor(value) else value, "recording")


@dataclass(frozen=True)
class Layout:
    """A call whose tensors are (B, H, rows, depth), or (B·H, rows, depth) as for `torch.bmm`.

    entry: the recorded batch entry · windows: how many entries of the call's batch belong to one entry of the model's
    batch; their rows are concatenated.
    """

    batch: int
    heads: int
    entry: int
    windows: int = 1

    @classmethod
    def of(cls, sizes: tuple[int, ...], module: Any, batch: int | None, entry: int) -> Layout:
        """sizes: the shape of q · module: the layer, which may declare its heads · batch: of the model, if known."""
        lead = sizes[:-2]
        own, heads = lead[0] if lead else 1, math.prod(lead[1:])
        if len(lead) == 1:
            known, whole = number_of_heads(module), own
            heads = known if known and whole % known == 0 else whole // batch if batch and whole % batch == 0 else whole
            own = whole // heads
        return cls(own, heads, entry, own // batch if batch and own % batch == 0 else 1)

    def cut(self, value: Any, depth: int = 2) -> np.ndarray:
        """(heads, rows, depth) of the batch entry, as a view; also for keys and values, which may have fewer heads."""
        array = numbers(value)
        lead, inner = array.shape[:-depth], array.shape[-depth:]
        if len(lead) == 1:
            array = array.reshape(self.batch, -1, *inner) if lead[0] % self.batch == 0 else array[None]
        elif not lead:
            array = array[None, None]
        if self.windows > 1 and len(array) > 1:
            found = array[self.first : self.first + self.windows]
            found = np.moveaxis(found.reshape(self.windows, -1, *inner), 0, 1)
            return found.reshape(len(found), -1, *inner[1:])
        return array[min(self.entry, len(array) - 1)].reshape(-1, *inner)

    def rows(self, value: torch.Tensor, count: int) -> np.ndarray | None:
        """The rows of the batch entry in hidden states, (count, d), as a view if possible; None of other tensors."""
        each = count // self.windows
        if value.ndim == 3 and tuple(value.shape[:2]) == (self.batch, each):
            return numbers(value[self.first : self.first + self.windows]).reshape(count, -1)
        if value.ndim == 3 and tuple(value.shape[:2]) == (count, self.batch) and self.windows == 1:
            return numbers(value[:, self.entry])
        return numbers(value) if value.ndim == 2 and len(value) == count and self.batch == 1 else None

    def rows_of_product(self, value: torch.Tensor, count: int) -> np.ndarray | None:
        """The same of the operand or result of a matrix product, in which batch and rows may be one axis."""
        if value.ndim == 2 and self.batch > 1 and len(value) == self.batch * (count // self.windows):
            value = value.reshape(self.batch, -1, value.shape[-1])
        return self.rows(value, count)

    @property
    def first(self) -> int:
        """The first window of the entry."""
        return self.entry * self.windows

    def beside(self, operand: torch.Tensor, sizes: tuple[int, ...]) -> np.ndarray:
        """An operand broadcast to these sizes, as (H, Q, K) of the batch entry; broadcast axes have stride 0."""
        return self.cut(operand.detach().expand(sizes))


def weights_of(module: torch.nn.Module) -> Iterator[tuple[str, str, np.ndarray]]:
    """(name, dtype, array) of every weight and persistent buffer; dtypes that NumPy lacks are given as bytes."""
    for name, tensor in module.state_dict().items():
        held = tensor.detach().cpu().contiguous()
        try:
            numbers = held.numpy()
        except TypeError:
            numbers = held.reshape(-1).view(torch.uint8).numpy()
        yield name, str(held.dtype).removeprefix("torch."), numbers
