"""Differential attention: the difference of two attention maps, so that noise common to both cancels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...api.kv_cache import KVCache
from ...common.text.keywords import known_arguments
from ...language.expr import Expr
from ..cache import TensorCache
from ..functional import attention
from ..positions import Position
from .parts import Checks, Placed, RMSNorm, dropped, join_heads, split_heads


@known_arguments
class DifferentialAttention(Placed):
    """Multi-head attention in which each head is the difference of two softmax maps.

    head_h = (softmax(Q₁ K₁ᵀ / √D) − λ softmax(Q₂ K₂ᵀ / √D)) V,   out = o(concat over h of (1 − λ₀) · RMSNorm(head_h))
    λ = exp(λ_q1 · λ_k1) − exp(λ_q2 · λ_k2) + λ₀,   λ₀ = 0.8 − 0.6 exp(−0.3 · depth)

    Parameters: q (H·2D, d_model), k and v (G·2D, d_model), o (d_model, H·2D), norm (2D,), lambda_q1, lambda_k1,
    lambda_q2, lambda_k2 (D,). Within a head, the rows of q and k are those of the first map, then those of the second.

    Args:
        d_model: the width of the input and output rows.
        heads: H, the number of query heads.
        kv_heads: G, the number of key/value heads, a divisor of H; None means H.
        depth: the index of the layer in its model, from 0.
        head_dim: D, the depth of the queries and keys of each map; None means d_model / 2H. Values have depth 2·D.
        bias: whether the four projections have a bias.
        positions: a `Position` over D, or None.
        dropout: the probability that a weight of either map is dropped in training mode.

    Raises:
        Refused: sizes that do not fit or an invalid argument; the error lists every problem.

    Source:
        Ye et al. 2024, "Differential Transformer", section 2.1.

    Examples:
        >>> import torch, regard as rg
        >>> from regard.torch import DifferentialAttention
        >>> layer = DifferentialAttention(32, heads=2, depth=0)
        >>> layer(torch.zeros(2, 10, 32), mask=rg.causal()).shape
        torch.Size([2, 10, 32])
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        depth: int,
        head_dim: int | None = None,
        bias: bool = False,
        positions: Position | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        check = Checks("DifferentialAttention")
        self.d_model, self.heads = check.size("d_model", d_model), check.size("heads", heads)
        self.head_dim = self.d_model // self.heads // 2 if head_dim is None else check.size("head_dim", head_dim)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * check.size("depth", depth, least=0))
        self.dropout = check.rate("dropout", dropout)
        check.need(
            head_dim is not None or self.d_model % (2 * self.heads) == 0,
            "heads do not divide d_model into halves",
            f"d_model={d_model}, heads={heads}",
            "d_model to be a multiple of 2 · heads",
            "pass head_dim=…",
        )
        self.kv_heads = check.groups(self.heads, kv_heads)
        self.place(check, positions)
        D = self.head_dim
        self.q = torch.nn.Linear(self.d_model, self.heads * 2 * D, bias)
        self.k = torch.nn.Linear(self.d_model, self.kv_heads * 2 * D, bias)
        self.v = torch.nn.Linear(self.d_model, self.kv_heads * 2 * D, bias)
        self.o = torch.nn.Linear(self.heads * 2 * D, self.d_model, bias)
        self.norm = RMSNorm(2 * D, eps=1e-5)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            torch.nn.Parameter(torch.randn(D) * 0.1) for _ in range(4)
        )
        self.attend = attention

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: Expr | torch.Tensor | Callable[..., Any] | None = None,
        cache: KVCache | TensorCache | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes the layer's output.

        Args:
            x: (B, n, d_model) input rows.
            mask: as for `rg.attention`; None lets every row attend to every key.
            cache: a cache with heads=kv_heads and depth=2·D, to which the new keys and values are appended; the rows
                attend to everything in it.
            positions: (n,) or (B, n) positions of the rows; None means 0 … n − 1, after the rows in the cache.

        Returns:
            (B, n, d_model) output rows.

        Raises:
            Refused: shapes that do not fit, or arguments that cannot be combined; the error lists every problem.
        """
        check = Checks("DifferentialAttention")
        self.check_rows(check, x, cache, positions)
        check.done()
        places = self.places(x, cache, positions)
        v = split_heads(self.v(x), self.kv_heads)
        q, k = (
            self._halves(split_heads(part(x), heads), places)
            for part, heads in ((self.q, self.heads), (self.k, self.kv_heads))
        )
        rules = self.rules(x, mask, positions, scale=1 / math.sqrt(self.head_dim))
        if cache is None:
            first, second = (
                self.attend(own_q, own_k, v, **rules, **dropped(self.dropout, self.training))
                for own_q, own_k in zip(q, k, strict=True)
            )
        else:
            # A cache row has the keys of both maps; zeros in one half of a query select the score of the other map.
            cache.append(torch.cat(k, -1), v)
            zeros = torch.zeros_like(q[0])
            first, second = (cache.attend(torch.cat(row, -1), **rules) for row in ((q[0], zeros), (zeros, q[1])))
        out = self.norm(first - self.mixing().to(first.dtype) * second) * (1 - self.lambda_init)
        return self.o(join_heads(out))

    def mixing(self) -> torch.Tensor:
        """Computes λ, the factor of the second map.

        Returns:
            A scalar tensor, differentiable in the lambda parameters.
        """
        exact = torch.promote_types(self.lambda_q1.dtype, torch.float32)
        first, second = (
            (q * k).sum(dtype=exact) for q, k in ((self.lambda_q1, self.lambda_k1), (self.lambda_q2, self.lambda_k2))
        )
        return first.exp() - second.exp() + self.lambda_init

    def _halves(self, rows: torch.Tensor, places: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """The two halves (B, heads, n, D) of queries or keys, rotated by their positions."""
        return tuple(self.turned(half, places) for half in rows.chunk(2, -1))

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return (
            f"heads={self.heads}, kv_heads={self.kv_heads}, lambda_init={self.lambda_init:.3f}, dropout={self.dropout}"
        )
