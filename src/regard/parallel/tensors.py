"""Sums over ranks as nodes of torch's autograd, which every rank adds in the order of the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..common.errors import refuse
from .exchange import Transport, linear, swap_arrays


class Ranks:
    """The ranks that divide the heads of layers. Copies of a layer share it; it cannot be saved."""

    def __init__(self, transport: Transport):
        self.transport = transport
        self.everyone = tuple(range(transport.ranks))

    def total(self, step: str, part: torch.Tensor, among: Sequence[int]) -> torch.Tensor:
        """The sum of the parts of some ranks, in the order of the ranks: ((part₀ + part₁) + part₂) + …

        Every rank has the same bits. Numbers of 16 bits are added in float32, and rounded once. step: what is added, in
        words. among: the ranks whose parts are added, this one included; all ranks have to call it.
        """
        sent = bytes_of(part)
        arrays = [[sent] if rank in among else [] for rank in self.everyone]
        found = swap_arrays(self.transport, step, arrays, arrays)()
        parts = (torch.from_numpy(found[rank][0]).view(part.dtype).reshape(part.shape) for rank in sorted(among))
        exact = torch.promote_types(part.dtype, torch.float32)
        total = next(parts).to(exact)
        for other in parts:
            total = total + other
        return total.to(part)

    def __deepcopy__(self, memo: dict) -> Ranks:
        return self

    def __reduce__(self):
        raise refuse(
            "HeadParallel",
            "a layer whose heads are divided over ranks cannot be saved as an object",
            "pickle or torch.save of the layer",
            "its state_dict(), which has the heads of this rank",
            "save layer.state_dict() on each rank, or the whole layer before it is divided",
        )


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor, whose strides are those of its shape: a single number may have any."""
    copy = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copy.reshape(-1).view(torch.uint8).numpy()


def summed(part: torch.Tensor, ranks: Ranks, step: str) -> torch.Tensor:
    """The sum of the parts of all ranks, the same on each. Its gradient, the same on each, is that of every part."""
    return linear(part, lambda each: ranks.total(step, each, ranks.everyone), lambda gradient: gradient)


def entered(whole: torch.Tensor, ranks: Ranks, step: str, among: Sequence[int] | None = None) -> torch.Tensor:
    """A tensor that is the same on some ranks (None: on all), where each computes a part of what depends on it.

    Its gradient is the sum of those that these ranks compute. Every rank has to call it, and its backward pass.
    """
    some = ranks.everyone if among is None else among
    return linear(
        whole,
        lambda each: each.view_as(each),
        lambda gradient: ranks.total(f"gradient of {step}", gradient, some),
    )
