"""How far the results of a model are from those of the same model in float64, and how far rounding alone moves them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

ALLOWED = 4  # times the error of the model's own attention


class Doubled(TorchFunctionMode):
    """Inside the mode, what a model explicitly computes in float32 (rotary angles, norms, softmax) uses float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            return args[0].double()
        wide = [torch.float64 if arg is torch.float32 else arg for arg in args]
        named = {name: torch.float64 if arg is torch.float32 else arg for name, arg in (kwargs or {}).items()}
        return function(*wide, **named)


def floats(output: Any) -> Iterator[torch.Tensor]:
    """Every tensor of floats in a model's output."""
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for part in output.values():
            yield from floats(part)
    elif isinstance(output, list | tuple):
        for part in output:
            yield from floats(part)


def perturbed(model):
    """The same model with every weight moved by one unit in its last place, to measure the effect of rounding."""
    made = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.is_floating_point():
                weight.copy_(torch.nextafter(weight, torch.randn(weight.shape, generator=generator) * torch.inf))
    return made


def doubled(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs of a model in float64."""
    return {name: part.double() if part.is_floating_point() else part for name, part in given.items()}


def difference(outputs: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The largest difference of an output, relative to its largest value."""
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))
        for a, b in zip(outputs, exact, strict=True)
        if b.numel()
    )


def worst(gradients: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """The largest difference of a gradient, relative to the largest of its parameter or a hundredth of the largest of
    all, whichever is larger.
    """
    largest = {name: float(part.abs().max()) for name, part in exact.items() if part.numel()}
    floor = max(largest.values()) / 100
    return max(
        float((gradients[name] - exact[name]).abs().max()) / max(largest[name], floor)
        for name in largest
        if name in gradients
    )
