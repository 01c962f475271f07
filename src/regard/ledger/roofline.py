"""Roofline: the least time that a machine needs for the products of a pass.

Each product takes at least max(operations / peak, bytes / bandwidth). Weights count as memory traffic if all of them
exceed the largest cache, other arrays if they do so alone; elementwise work, and waiting, are not in the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from torch import nn

from ..common.text.units import unit
from .counting.lines import attention_work
from .counting.modules import is_experts
from .counting.operations import Product
from .counting.passes import Pass
from .machine import Machine
from .result import Time


def bound(machine: Machine, model: nn.Module, found: Pass, phase: str, dtype: str) -> Time:
    """The bound of a pass, and how much of it is due to operations and to memory."""
    weights = sum(each.numel() * each.element_size() for each in {id(w): w for w in model.parameters()}.values())
    in_memory = weights > machine.cache
    total = compute = 0.0
    for flops, weight, rest in (*_products(model, found), *_attention(found, phase)):
        moved = (weight if in_memory else 0) + (rest if rest > machine.cache else 0)
        seconds = machine.bound(flops, moved, dtype, footprint=inf if moved else 0)
        total += seconds
        compute += seconds if flops / machine.rate(dtype) >= seconds else 0.0
    rates = f"{unit(machine.rate(dtype), 'FLOP/s')} in {dtype}, {unit(machine.bandwidth, 'B/s')}"
    return Time(f"{machine.name} ({machine.where}: {rates})", total, compute, total - compute)


def _products(model: nn.Module, found: Pass) -> Iterator[tuple[int, int, int]]:
    """(operations, bytes of weights, other bytes) of each product; of experts, those that one token meets are read."""
    for product in (*found.forward, *found.backward):
        yield product.flops, weights_read(model, found, product), product.read - product.weight_bytes + product.written


def weights_read(model: nn.Module, found: Pass, product: Product) -> int:
    """Bytes of weights that a product reads at least."""
    owner = product.weight.rpartition(".")[0]
    experts = owner in found.chosen and is_experts(model.get_submodule(owner))
    return product.weight_bytes * (found.chosen[owner] if experts else 1)


def _attention(found: Pass, phase: str) -> Iterable[tuple[int, int, int]]:
    """The same of each attention call, forward and backward."""
    for _, call in found.attention:
        forward, _, done = attention_work(call)
        yield forward, 0, call.moved
        if phase == "train":
            yield done, 0, 2 * call.moved
