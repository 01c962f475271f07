"""Transformer blocks: embeddings, attention and feed-forward layers with normalization and residual connections, and
stacks of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from ..common.errors import Reason, refuse
from ..language.expr import Expr
from ..language.scores import softcap
from ..torch.layers.attention import Attention
from ..torch.positions import ALiBi, Learned, Position, Rotary, Sinusoidal
from .config import BlockConfig, TextConfig

Output: TypeAlias = torch.Tensor | tuple[torch.Tensor, torch.Tensor]  # logits, or logits and their loss
Mask: TypeAlias = Expr | np.ndarray | torch.Tensor
Memory: TypeAlias = torch.Tensor | tuple[torch.Tensor, torch.Tensor]  # rows, or their keys and values


class Embedding(nn.Module):
    """Embeds tokens, and adds their positions if they are learned or sinusoidal.

    Args:
        config: the configuration of the model.
        std: standard deviation of the initial weights.

    Examples:
        >>> embedding = Embedding(TextConfig(vocabulary=256, d_model=32), std=0.5)
        >>> embedding(torch.zeros(2, 5, dtype=torch.long), torch.arange(5)).shape
        torch.Size([2, 5, 32])
    """

    def __init__(self, config: TextConfig, std: float):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.d_model)
        self.places: Position = Position()
        if config.positions == "learned":
            self.places = Learned(config.context, config.d_model)
        elif config.positions == "sinusoidal":
            self.places = Sinusoidal(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        for weight in (self.tokens.weight, *self.places.parameters()):
            nn.init.normal_(weight, std=std)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Embeds tokens (B, n) at positions `places` (n,) or (B, n) -> (B, n, d_model)."""
        return self.dropout(self.places.embed(self.tokens(tokens), places))


def attention_positions(config: TextConfig) -> Position | None:
    """The position encoding that is applied in the attention of every layer, or None."""
    if config.positions == "rotary":
        return Rotary(config.d_model // config.heads, base=config.rotary_base)
    return ALiBi(config.heads) if config.positions == "alibi" else None


def token_positions(
    tokens: torch.Tensor, cache: list[Any] | None = None, rows: Sequence[int] | np.ndarray | torch.Tensor | None = None
) -> torch.Tensor:
    """Positions of tokens (B, n): (n,) counted from 0, or (B, n) counted from the lengths of a cache.

    rows (B,): number of real tokens of each sequence; the padding after them gets the position of the last one.
    """
    offsets = torch.arange(tokens.shape[1], device=tokens.device)
    if cache is None:
        return offsets
    if rows is not None:
        offsets = torch.minimum(offsets, torch.as_tensor(rows, device=tokens.device)[:, None] - 1).clamp(min=0)
    return torch.as_tensor(cache[0].lengths, device=tokens.device)[:, None] + offsets


def token_problems(tokens: torch.Tensor) -> list[Reason]:
    """What is wrong with a batch of tokens: a list with one reason, or an empty list."""
    if tokens.ndim == 2 and tokens.dtype in (torch.int64, torch.int32):
        return []
    return [
        Reason(
            "tokens have the wrong dtype or shape",
            f"{tokens.dtype} {tuple(tokens.shape)}",
            "int64 or int32, (B, n)",
            "convert them with tokens.long(); pass a single sequence as tokens[None]",
        )
    ]


class FeedForward(nn.Module):
    """Feed-forward layer, applied to each row: out = down(activation(up(x))).

    Args:
        d_model: model width.
        hidden: width of the hidden layer.
        activation: the activation module, such as `nn.GELU()`.
        bias: whether both linear layers have biases.

    Source:
        Vaswani et al. 2017; Hendrycks and Gimpel 2016 (GELU).

    Examples:
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
        """Computes the layer: x (…, d_model) -> (…, d_model)."""
        return self.down(self.activation(self.up(x)))


class SwiGLU(nn.Module):
    """SwiGLU feed-forward layer, applied to each row: out = down(silu(gate(x)) · up(x)).

    Args:
        d_model: model width.
        hidden: width of the hidden layer.
        bias: whether the three linear layers have biases.

    Source:
        Shazeer 2020.

    Examples:
        >>> SwiGLU(8, 24)(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, d_model: int, hidden: int, bias: bool = False):
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, hidden, bias), nn.Linear(d_model, hidden, bias)
        self.down = nn.Linear(hidden, d_model, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the layer: x (…, d_model) -> (…, d_model)."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Residual(nn.Module):
    """Residual connection around a sublayer: x + part(norm(x)) if `norm_first`, else norm(x + part(x)).

    Args:
        part: the sublayer.
        norm: the normalization layer.
        norm_first: normalize the input of the sublayer (pre-norm) or the sum (post-norm).
        dropout: probability of dropping an output of the sublayer in training.

    Source:
        He et al. 2016; Vaswani et al. 2017 (post-norm); Xiong et al. 2020 (pre-norm).

    Examples:
        >>> Residual(SwiGLU(8, 24), nn.RMSNorm(8))(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, part: nn.Module, norm: nn.Module, *, norm_first: bool = True, dropout: float = 0.0):
        super().__init__()
        self.part, self.norm, self.norm_first, self.dropout = part, norm, norm_first, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Computes the layer: x (B, n, d_model) -> (B, n, d_model). Other arguments are passed to the sublayer."""
        if self.norm_first:
            return x + self.dropout(self.part(self.norm(x), *args, **kwargs))
        return self.norm(x + self.dropout(self.part(x, *args, **kwargs)))


class Block(nn.Module):
    """Transformer block: self-attention, optional cross-attention, feed-forward.

    Call an encoder block without a mask and a decoder block with mask=rg.causal(). A decoder that attends to the
    output of an encoder has `cross`.

    Args:
        attention: the self-attention layer.
        feed_forward: the feed-forward layer.
        norm: function that creates a normalization layer; called once per sublayer.
        cross: the cross-attention layer. None: no cross-attention.
        norm_first: normalize the input of each sublayer (pre-norm) or the sum after it (post-norm).
        dropout: probability of dropping an output of a sublayer in training.

    Source:
        Vaswani et al. 2017.

    Examples:
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
        self,
        x: torch.Tensor,
        memory: Memory | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        cache: Any = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes the block.

        Args:
            x: (B, n, d_model) rows.
            memory: (B, m, memory_dim) rows for cross-attention, or the result of `Attention.remember` for them.
            mask: which rows a row attends to in self-attention, as for `rg.attention`. None: all.
            memory_mask: which memory rows a row attends to. None: all.
            cache: key/value cache of the self-attention layer, such as `rg.KVCache`.
            positions: (n,) or (B, n) positions of the rows. None: 0 … n - 1, after those in the cache.

        Returns:
            (B, n, d_model).

        Raises:
            Refused: `memory` was passed to a block without cross-attention.
        """
        x = self.attention(x, mask=mask, cache=cache, positions=positions)
        if self.cross is not None:
            x = self.cross(x, memory, mask=memory_mask)
        elif memory is not None:
            raise refuse(
                "Block",
                "the block has no cross-attention",
                "memory",
                "memory=None, or a block with cross-attention",
                "create the block with cross=Attention(…), or omit memory",
            )
        return self.feed_forward(x)


class Stack(nn.Module):
    """A sequence of blocks and a final normalization layer.

    Args:
        blocks: the blocks, applied in order.
        norm: the final normalization layer; `nn.Identity()` after post-norm blocks.

    Examples:
        >>> block = Block(Attention(8, 2), SwiGLU(8, 24), partial(nn.RMSNorm, 8))
        >>> Stack([block], nn.RMSNorm(8))(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, blocks: list[Block], norm: nn.Module):
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(blocks), norm

    def forward(
        self,
        x: torch.Tensor,
        memory: Memory | list[Memory] | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        cache: list[Any] | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Applies all blocks.

        Args:
            x: (B, n, d_model) rows.
            memory: (B, m, memory_dim) rows for the cross-attention of all blocks, or a list with the result of
                `Attention.remember` for each block.
            mask, memory_mask, positions: as for `Block.forward`.
            cache: a list with one key/value cache per block.

        Returns:
            (B, n, d_model).
        """
        caches = [None] * len(self.blocks) if cache is None else cache
        memories = memory if isinstance(memory, list) else [memory] * len(self.blocks)
        for block, block_cache, block_memory in zip(self.blocks, caches, memories, strict=True):
            x = block(x, block_memory, mask=mask, memory_mask=memory_mask, cache=block_cache, positions=positions)
        return self.norm(x)


def feed_forward(config: BlockConfig) -> nn.Module:
    """Creates the feed-forward layer of a configuration.

    Args:
        config: the configuration of the blocks.

    Returns:
        A `SwiGLU` or `FeedForward` layer.

    Examples:
        >>> type(feed_forward(BlockConfig())).__name__
        'SwiGLU'
    """
    if config.feed_forward == "swiglu":
        return SwiGLU(config.d_model, config.inner, config.bias)
    activation = nn.GELU(approximate="tanh" if config.feed_forward == "gelu_tanh" else "none")
    return FeedForward(config.d_model, config.inner, activation, config.bias)


def stack(config: BlockConfig, *, positions: Position | None = None, memory_dim: int | None = None) -> Stack:
    """Creates the blocks of a configuration, with freshly initialized weights.

    Args:
        config: the configuration of the blocks.
        positions: position encoding that all self-attention layers share. None: no positions in attention.
        memory_dim: width of the memory for cross-attention. None: no cross-attention.

    Returns:
        The stack of blocks.

    Examples:
        >>> stack(BlockConfig(d_model=8, layers=1, heads=2))(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5, 8])
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
    """Initializes the weights of a stack in place.

    Matrices are drawn from N(0, 1 / inputs), which keeps the scale of the rows constant across layers. The output
    matrix of each of the n sublayers is divided by √n. Biases are 0.

    Args:
        made: the stack.

    Returns:
        The same stack.

    Source:
        Radford et al. 2019.
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


def with_loss(logits: torch.Tensor, targets: torch.Tensor | None) -> Output:
    """The logits (…, classes); with targets (…), also their mean cross-entropy in nats, without those that are -100."""
    if targets is None:
        return logits
    return logits, nn.functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())
