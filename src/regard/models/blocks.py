"""The blocks that models are stacked from: attention and a feed-forward, each with its norm, added to the rows they
read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from ..common.errors import refuse
from ..language.scores import softcap
from ..torch.layers.attention import Attention
from ..torch.positions import Position
from .config import BlockConfig

__all__ = ["Block", "FeedForward", "Residual", "Stack", "SwiGLU", "feed_forward", "initialise", "stack"]


class FeedForward(nn.Module):
    """y = down(activation(up(x))), row by row: x (…, d_model) -> (…, d_model).

    Source: Vaswani et al. 2017; Hendrycks and Gimpel 2016 (GELU).

    >>> FeedForward(8, 32, nn.GELU())(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, d_model: int, hidden: int, activation: nn.Module, bias: bool = True):
        super().__init__()
        self.up, self.activation, self.down = (
            nn.Linear(d_model, hidden, bias),
            activation,
            nn.Linear(hidden, d_model, bias),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x)))


class SwiGLU(nn.Module):
    """y = down(silu(gate(x)) · up(x)), row by row: x (…, d_model) -> (…, d_model).

    Source: Shazeer 2020.

    >>> SwiGLU(8, 24)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, d_model: int, hidden: int, bias: bool = False):
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, hidden, bias), nn.Linear(d_model, hidden, bias)
        self.down = nn.Linear(hidden, d_model, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Residual(nn.Module):
    """A part and its norm beside the rows it reads: x + part(norm(x)), or norm(x + part(x)) where the norm comes last.

    Source: He et al. 2016; Vaswani et al. 2017 (norm last); Xiong et al. 2020 (norm first).
    """

    def __init__(self, part: nn.Module, norm: nn.Module, *, norm_first: bool = True, dropout: float = 0.0):
        super().__init__()
        self.part, self.norm, self.norm_first, self.dropout = part, norm, norm_first, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        """x (B, n, d_model) -> the same; what else is given goes to the part."""
        if self.norm_first:
            return x + self.dropout(self.part(self.norm(x), *args, **kwargs))
        return self.norm(x + self.dropout(self.part(x, *args, **kwargs)))


class Block(nn.Module):
    """One layer of a transformer: attention, attention to a memory (where there is `cross`), feed-forward.

    An encoder's block lets every row see all, a decoder's is called with mask=rg.causal(), and a decoder over an
    encoder has `cross`. norm: makes a norm, one for each part.

    Source: Vaswani et al. 2017.

    >>> import regard as rg
    >>> block = Block(Attention(8, 2), SwiGLU(8, 24), partial(nn.RMSNorm, 8))
    >>> block(torch.zeros(2, 5, 8), mask=rg.causal()).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        *,
        cross: nn.Module | None = None,
        norm_first: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        residual = partial(Residual, norm_first=norm_first, dropout=dropout)
        self.attention = residual(attention, norm())
        self.cross = None if cross is None else residual(cross, norm())
        self.feed_forward = residual(feed_forward, norm())

    def forward(
        self, x: torch.Tensor, memory=None, *, mask=None, memory_mask=None, cache=None, positions=None
    ) -> torch.Tensor:
        """x (B, n, d_model) -> (B, n, d_model).

        memory: for `cross`, rows (B, m, …) or what `Attention.remember` made of them; memory_mask: which of them a row
        sees.
        mask, cache, positions: for the attention of the rows to themselves.
        """
        x = self.attention(x, mask=mask, cache=cache, positions=positions)
        if self.cross is not None:
            x = self.cross(x, memory, mask=memory_mask)
        elif memory is not None:
            raise refuse(
                "Block",
                "there is nothing that attends to a memory",
                given="memory",
                expected="a block with cross-attention",
                fix="make the block with cross=Attention(…), or leave memory out",
            )
        return self.feed_forward(x)


class Stack(nn.Module):
    """Blocks one after the other, and the last norm (which post-norm blocks have had already).

    memory: rows for the cross-attention of all blocks, or a list with what each block's `remember` made of them. cache:
    a list with one cache per block.
    """

    def __init__(self, blocks: list[Block], norm: nn.Module):
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(blocks), norm

    def forward(
        self, x: torch.Tensor, memory=None, *, mask=None, memory_mask=None, cache=None, positions=None
    ) -> torch.Tensor:
        """x (B, n, d_model) -> (B, n, d_model)."""
        caches = [None] * len(self.blocks) if cache is None else cache
        memories = memory if isinstance(memory, list) else [memory] * len(self.blocks)
        for block, own, remembered in zip(self.blocks, caches, memories, strict=True):
            x = block(x, remembered, mask=mask, memory_mask=memory_mask, cache=own, positions=positions)
        return self.norm(x)


def feed_forward(config: BlockConfig) -> nn.Module:
    """The feed-forward that a config asks for."""
    if config.feed_forward == "swiglu":
        return SwiGLU(config.d_model, config.inner, config.bias)
    activation = nn.GELU(approximate="tanh" if config.feed_forward == "gelu_tanh" else "none")
    return FeedForward(config.d_model, config.inner, activation, config.bias)


def stack(config: BlockConfig, *, positions: Position | None = None, memory_dim: int | None = None) -> Stack:
    """The blocks that a config asks for, with fresh weights. positions: what all layers share. memory_dim: adds
    cross-attention.
    """
    kind = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[config.norm]
    norm = partial(kind, config.d_model, eps=config.epsilon)
    attention = partial(
        Attention,
        config.d_model,
        config.heads,
        config.kv_heads,
        bias=config.bias,
        dropout=config.dropout,
        score=None if config.softcap is None else softcap(config.softcap),
    )
    blocks = [
        Block(
            attention(positions=positions),
            feed_forward(config),
            norm,
            norm_first=config.norm_first,
            dropout=config.dropout,
            cross=None if memory_dim is None else attention(memory_dim=memory_dim),
        )
        for _ in range(config.layers)
    ]
    return initialise(Stack(blocks, norm() if config.norm_first else nn.Identity()))


def initialise(made: Stack) -> Stack:
    """Fresh weights, so that rows neither grow nor fade from layer to layer: N(0, 1/inputs), and the last matrix of
    every part smaller by the root of how many parts are added up (Radford et al. 2019). Biases are 0.
    """
    parts = [module for module in made.modules() if isinstance(module, Residual)]
    for module in made.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for residual in parts:
        last = residual.part.o if isinstance(residual.part, Attention) else residual.part.down
        with torch.no_grad():
            last.weight /= math.sqrt(len(parts))
    return made
