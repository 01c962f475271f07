"""Layers with some heads of a whole one: inputs are the same on every rank, outputs are summed over the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import linear

from ...common.errors import refuse
from ...torch.layers import Attention, DifferentialAttention, MultiHeadAttention
from ..exchange.agreement import agreed
from .split import Heads
from .sums import Ranks, entered, summed

WHERE = "HeadParallel"
PROJECTIONS = ("q", "k", "v", "o")


class SummedLinear(torch.nn.Linear):
    """A linear layer with some columns of a whole one: Σ over ranks of x Wᵀ, in rank order, plus the bias."""

    ranks: Ranks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output of the whole layer, the same on every rank."""
        out = summed(linear(x, self.weight), self.ranks, "the output of a layer")
        return out if self.bias is None else out + self.bias.to(out.dtype)


class DividedAttention(Attention):
    """An `Attention` with the heads `part` of a whole one."""

    part: Heads
    ranks: Ranks

    def forward(self, x: torch.Tensor, memory=None, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """As `Attention.forward`; `cache` has the key heads of this rank, and so have keys from `remember`."""
        given = [x, *([] if memory is None else memory if isinstance(memory, tuple) else [memory])]
        _agree(self, given, lambda: self._check(x, memory, cache, positions))
        x = entered(x, self.ranks, "the input")
        if isinstance(memory, torch.Tensor):
            memory = entered(memory, self.ranks, "the memory")
        with _whole_gradients(self):
            return super().forward(x, memory, mask=mask, cache=cache, positions=positions)

    def remember(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Attention.remember`, with the key heads of this rank."""
        _agree(self, [memory], lambda: None)
        with _whole_gradients(self):
            return super().remember(entered(memory, self.ranks, "the memory"))

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"{super().extra_repr()}, {self.part}"


class DividedDifferentialAttention(DifferentialAttention):
    """A `DifferentialAttention` with the heads `part` of a whole one."""

    part: Heads
    ranks: Ranks

    def forward(self, x: torch.Tensor, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """As `DifferentialAttention.forward`; `cache` has the key heads of this rank."""
        _agree(self, [x], lambda: None)
        with _whole_gradients(self):
            x = entered(x, self.ranks, "the input")
            return super().forward(x, mask=mask, cache=cache, positions=positions)

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"{super().extra_repr()}, {self.part}"


class DividedMultiHeadAttention(MultiHeadAttention):
    """A `MultiHeadAttention` with the heads `part` of a whole one; `num_heads` and masks are those of the whole."""

    part: Heads
    ranks: Ranks

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """As `MultiHeadAttention.forward`, with need_weights=False: no rank has the weights of all heads."""

        def check() -> None:
            if need_weights or query.is_nested:
                raise refuse(
                    WHERE,
                    "weights or nested tensors, of a layer whose heads are divided over ranks",
                    "nested tensors" if query.is_nested else "need_weights=True, which is the default",
                    "need_weights=False, and padded tensors",
                    "pass need_weights=False",
                )

        _agree(self, [query, key, value], check)
        inside: dict[int, torch.Tensor] = {}
        for rows, name in ((query, "the query"), (key, "the key"), (value, "the value")):
            if id(rows) not in inside:  # the same tensor stays the same one
                inside[id(rows)] = entered(rows, self.ranks, name)
        q, k, v = (inside[id(rows)] for rows in (query, key, value))
        return super().forward(q, k, v, key_padding_mask, False, attn_mask, average_attn_weights, is_causal)

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return str(self.part)


def _agree(layer: Any, given: list[torch.Tensor], check: Callable[[], None]) -> None:
    """Compares what the ranks are about to compute; a refusal on one is raised on all."""

    def prepare() -> tuple[None, dict[str, str]]:
        for rows in given:
            if type(rows) is not torch.Tensor and hasattr(rows, "device_mesh"):
                raise refuse(
                    WHERE,
                    "an input is a DTensor",
                    f"{type(rows).__name__} with {rows.placements}",
                    "a tensor with all rows, the same on every rank",
                    "pass x.full_tensor()",
                )
        check()
        shapes = ", ".join(f"{tuple(rows.shape)} {rows.dtype}" for rows in given)
        terms = {"the inputs": shapes, "training": f"{layer.training}", "gradients": f"{torch.is_grad_enabled()}"}
        needed = [rows.requires_grad for rows in given] + [each.requires_grad for each in layer.parameters()]
        return None, terms | {"what requires gradients": f"{needed}"}

    agreed(layer.ranks.transport, WHERE, prepare)


@contextlib.contextmanager
def _whole_gradients(layer: Any) -> Iterator[None]:
    """Inside, parameters that several ranks have get the sum of the gradients of these ranks."""
    replaced = [
        (owner._parameters, name, parameter, among)
        for owner, names, among in _held_by_several(layer)
        for name in names
        if (parameter := owner._parameters[name]) is not None and parameter.requires_grad and torch.is_grad_enabled()
    ]
    try:
        for held, name, parameter, among in replaced:
            held[name] = entered(parameter, layer.ranks, name, among)
        yield
    finally:
        for held, name, parameter, _ in replaced:
            held[name] = parameter
        if replaced:
            layer._build()  # the score reads the parameters themselves again


def _held_by_several(layer: Any) -> Iterator[tuple[torch.nn.Module, list[str], tuple[int, ...]]]:
    """Modules, names of their parameters, and the ranks that have these: the projections of a key head that several
    ranks share, and what belongs to no head, such as norms and learned positions.
    """
    if layer.part.ranks > layer.part.key_heads:
        for projection in (layer.k, layer.v):
            yield projection, [*projection._parameters], layer.part.sharers
    for name, child in layer.named_children():
        if name not in PROJECTIONS:
            for owner in child.modules():
                yield owner, [*owner._parameters], layer.ranks.everyone
    yield layer, [name for name in layer._parameters if name != "sinks"], layer.ranks.everyone
