"""Which architectures of transformers run on regard: each, tiny and random, beside its own attention code."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Doubled"]


class Doubled(TorchFunctionMode):
    """Inside, what a model does in float32 on purpose (rotary angles, norms, the softmax) is done in float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            return args[0].double()
        wide = [torch.float64 if arg is torch.float32 else arg for arg in args]
        named = {name: torch.float64 if arg is torch.float32 else arg for name, arg in (kwargs or {}).items()}
        return function(*wide, **named)
