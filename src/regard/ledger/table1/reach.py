"""Path length: how many layers carry a signal from the first position to the last, by derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

__all__ = ["path_length", "reached"]


def path_length(layers: Iterable[Callable[[Tensor], Tensor]], x: Tensor) -> int:
    """The fewest layers after which the last position of the output depends on the first of the input x (n, d).

    ∂out[n−1] / ∂x[0] ≠ 0. By the chain rule it is followed from layer to layer: the positions of a layer's output with
    a derivative other than zero, in the direction of those that were reached before. The direction is drawn anew for
    each layer, since a product of hundreds of derivatives would be rounded to zero.
    """
    seen = torch.zeros(len(x), dtype=torch.bool)
    seen[0] = True
    count = 0
    for layer in layers:
        if seen[-1]:
            break
        x, seen = reached(layer, x, seen)
        count += 1
    assert seen[-1], f"{count} layers do not carry a signal through {len(x)} positions"
    return count


def reached(layer: Callable[[Tensor], Tensor], x: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """The layer's output, and its positions that depend on the seen positions of x."""
    generator = torch.Generator().manual_seed(len(x))
    direction = torch.randn(x.shape, generator=generator, dtype=x.dtype) * seen[:, None]
    with torch.no_grad():
        out, derivative = torch.func.jvp(layer, (x,), (direction,))
    return out.detach(), (derivative != 0).any(-1)
