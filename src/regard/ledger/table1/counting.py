"""Counts of a layer that runs: operations of its products, and the longest chain of them that wait for each other."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["PRODUCTS", "Counter", "chain", "operations"]

aten = torch.ops.aten
# Multiply-adds of a product, from its arguments and its result. In the cost of models a batched product that sums over
# one number counts nothing; here it counts, so that a layer of width 1 keeps its formula.
PRODUCTS = {
    aten.mm.default: lambda out, a, b: math.prod(a.shape) * b.shape[-1],
    aten.bmm.default: lambda out, a, b: math.prod(a.shape) * b.shape[-1],
    aten.convolution.default: lambda out, x, weight, *rest: math.prod(out.shape) * math.prod(weight.shape[1:]),
}
# The same products in the graph of autograd.
NODES = {"MmBackward0", "BmmBackward0", "ConvolutionBackward0"}


class Counter(TorchDispatchMode):
    """Counts the products that run inside, and their operations: two for each multiply-add."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0
        self.operations = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operator(*args, **(kwargs or {}))
        if operator in PRODUCTS:
            self.products += 1
            self.operations += 2 * PRODUCTS[operator](out, *args)
        return out


def operations(layer: nn.Module, x: Tensor) -> int:
    """Operations of all products of a layer on an input, which may be on the meta device.

    >>> from regard.ledger.table1.layers import SelfAttention
    >>> operations(SelfAttention(), torch.ones(10, 4)) == 4 * 10**2 * 4
    True
    """
    with torch.no_grad(), Counter() as counter:
        layer(x)
    return counter.operations


def chain(out: Tensor) -> int:
    """The most products on any path through the graph of autograd behind a tensor: each waits for the one before it.

    >>> x = torch.ones(2, 2, requires_grad=True)
    >>> chain(x @ x + x @ x), chain(x @ x @ x)
    (1, 2)
    """
    longest: dict[Any, int] = {}
    waiting = [out.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None] if node is not None else []
        missing = [each for each in before if each not in longest]
        if missing:
            waiting.extend(missing)
            continue
        waiting.pop()
        if node is not None:
            longest[node] = (node.name() in NODES) + max((longest[each] for each in before), default=0)
    return longest.get(out.grad_fn, 0)
