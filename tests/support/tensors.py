"""Tensors, and the law on them: what the tests of graphics cards share."""

from functools import partial

import numpy as np
import torch

from regard.common.arrays import as_tensor
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.support import engines


def tensors(case):
    """The arguments of a case with q, k, v and sinks as tensors."""
    named = {
        name: value for name, value in case.kwargs.items() if name in ("q", "k", "v", "sinks") and value is not None
    }
    return case.kwargs | {name: as_tensor(np.array(value)) for name, value in named.items()}


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


qkv = partial(engines.qkv, H=4, G=2, Q=150, K=150, dtype=torch.float32, draw=normal)


def unusual(module):
    """The module with no parameter at a special value."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return module


def compiled(function, **options):
    """A function that torch compiles, as one graph unless options say otherwise, without what it compiled before."""
    torch._dynamo.reset()
    return torch.compile(function, **{"fullgraph": True, "backend": "aot_eager"} | options)


def law(q, k, v, **asked):
    return reference.forward(Problem.of(q, k, v, gradients=True, **asked))


class Wrapped(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)
