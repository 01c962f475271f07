"""How a batch is divided over ranks: by sequences, or by tokens; dropout drops what one process would drop."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from ...language.checks.arguments import Arguments
from ...parallel.context.attention import over
from ...parallel.exchange.transport import Transport
from ...parallel.placement import Placement
from ...torch.functional import attention, in_autocast
from ...torch.layers.attention import Attention


class Division(Protocol):
    """The part of a batch (B, n, …) that this rank computes."""

    positions: torch.Tensor | None

    def begin(self, tokens: torch.Tensor) -> None:
        """Notes the batch that is computed next: all tokens (B, n)."""

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of a tensor (B, n, …)."""

    def whole(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape of a tensor of which this rank has a part of this shape."""

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **rules: Any) -> torch.Tensor:
        """The attention of this rank's part."""


class Rows:
    """Data parallel: each rank computes some sequences of a batch."""

    positions = None

    def __init__(self, transport: Transport):
        self.rank, self.ranks = transport.rank, transport.ranks
        self.batch, self.part = 0, slice(0)

    def begin(self, tokens: torch.Tensor) -> None:
        """Notes the number of sequences."""
        self.batch = len(tokens)
        first, last = (self.batch * rank // self.ranks for rank in (self.rank, self.rank + 1))
        self.part = slice(first, last)

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """Some entries of the batch."""
        return tensor[self.part]

    def whole(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape with all sequences."""
        return self.batch, *shape[1:]

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **rules: Any) -> torch.Tensor:
        """Attention of the sequences of this rank; dropout counts them from the first of the batch."""
        return attention(q, k, v, batch_start=self.part.start, **rules)


class Tokens:
    """Context parallel: each rank computes some tokens of every sequence."""

    def __init__(self, transport: Transport, placement: Placement):
        self.transport, self.placement = transport, placement
        self.positions = torch.from_numpy(placement.positions(transport.rank))

    def begin(self, tokens: torch.Tensor) -> None:
        """Does nothing: every batch is divided alike."""

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tokens of this rank."""
        return tensor[:, self.positions]

    def whole(self, shape: torch.Size) -> tuple[int, ...]:
        """The shape with all tokens."""
        return shape[0], self.placement.sizes.tokens, *shape[2:]

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **rules: Any) -> torch.Tensor:
        """Attention of the whole sequence, for the tokens of this rank."""
        if "seed" in rules:
            rules["seed"] = int(rules["seed"])
        return over(self.transport, in_autocast(q, k, v), self.placement, Arguments(**rules))[0]


class _Dropout(nn.Module):
    """Dropout of a part of a batch: every rank draws for the whole batch, from the same state, and keeps its part. So
    the result, and the state afterwards, do not depend on the number of ranks.
    """

    def __init__(self, rate: float, division: Division):
        super().__init__()
        self.rate, self.division = rate, division

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drops numbers of x (B, n, …) in training."""
        if not self.training or not self.rate:
            return x
        factors = nn.functional.dropout(x.new_ones(self.division.whole(x.shape)), self.rate)
        return x * self.division.own(factors)


def divided(model: nn.Module, division: Division) -> None:
    """Lets the attention and dropout of a model compute this rank's part of each batch, in place."""
    for module in list(model.modules()):
        if isinstance(module, Attention):
            module.attend = division.attention
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, name, _Dropout(child.p, division))
