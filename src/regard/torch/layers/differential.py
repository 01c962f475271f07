"""Differential attention: the difference of two attention maps, so that what both attend to by accident cancels."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..functional import attention
from ..positions import Position
from .parts import Checks, RMSNorm, dropped, join_heads, split_heads
from .positioned import Placed

__all__ = ["DifferentialAttention"]


class DifferentialAttention(Placed):
    """Attention of many heads, each the difference of two maps over values twice as wide.

    head_h = (softmax(Q₁ K₁ᵀ / √D) − λ softmax(Q₂ K₂ᵀ / √D)) V,   out = o(concat over h of (1 − λ₀) · RMSNorm(head_h))
    λ = exp(λ_q1 · λ_k1) − exp(λ_q2 · λ_k2) + λ₀,   λ₀ = 0.8 − 0.6 exp(−0.3 · depth)

    depth: the number of the layer in its model, from 0. heads (H); kv_heads (G, by default H); head_dim (D, by default
    d_model / 2H) of each half of queries and keys; values have 2·D. positions: a `Position` over D. bias: of all four
    projections.
    dropout: of the weights of both maps, in training.

    Parameters: q (H·2D, d_model), k and v (G·2D, d_model), o (d_model, H·2D), norm (2D,), lambda_q1, lambda_k1,
    lambda_q2, lambda_k2 (D,). Within a head the rows of q and k are those of the first map, then those of the second.

    Refused, with all reasons at once: sizes that do not fit; with the call, rows that do not fit.

    Source: Ye et al. 2024, "Differential Transformer", section 2.1.

    >>> import regard as rg
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
        self.kv_heads = self.heads if kv_heads is None else check.size("kv_heads", kv_heads)
        self.head_dim = self.d_model // self.heads // 2 if head_dim is None else check.size("head_dim", head_dim)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * check.size("depth", depth, least=0))
        self.dropout = check.rate("dropout", dropout)
        check.need(
            head_dim is not None or self.d_model % (2 * self.heads) == 0,
            "heads do not divide d_model into halves",
            given=f"d_model={d_model}, heads={heads}",
            expected="d_model to be a multiple of 2 · heads",
            fix="say head_dim=…",
        )
        check.need(
            self.heads % self.kv_heads == 0,
            "kv_heads do not divide heads",
            given=f"heads={heads}, kv_heads={kv_heads}",
            expected="heads to be a multiple of kv_heads",
            fix="kv_heads=1 fits every number of heads",
        )
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

    def forward(self, x: torch.Tensor, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """x (B, n, d_model) -> (B, n, d_model).

        mask: as for `rg.attention`. cache: an `rg.KVCache` (heads=kv_heads, depth=2·D) to which keys and values are
        appended, and over which the rows then attend. positions (n,) or (B, n): where the rows stand, by default 0 … n
        - 1, counted on from what the cache holds.
        """
        check = Checks("DifferentialAttention")
        self.check_rows(check, x, self.d_model, self.dropout, cache, positions)
        check.done()
        places = self.places(x, cache, positions)
        v = split_heads(self.v(x), self.kv_heads)
        q, k = (
            self._halves(split_heads(part(x), heads), places)
            for part, heads in ((self.q, self.heads), (self.k, self.kv_heads))
        )
        rules: dict[str, Any] = {"mask": mask, "score": self.rule(), "scale": 1 / math.sqrt(self.head_dim)}
        if cache is None:
            first, second = (
                self.attend(own_q, own_k, v, **rules, **dropped(self.dropout, self.training))
                for own_q, own_k in zip(q, k, strict=True)
            )
        else:
            # Both halves of the keys lie in one row of the cache; a half of zeros leaves the other half's score as it
            # is.
            cache.append(torch.cat(k, -1), v)
            nothing = torch.zeros_like(q[0])
            first, second = (cache.attend(torch.cat(row, -1), **rules) for row in ((q[0], nothing), (nothing, q[1])))
        found = self.norm(first - self.mixing().to(first.dtype) * second) * (1 - self.lambda_init)
        return self.o(join_heads(found))

    def mixing(self) -> torch.Tensor:
        """λ, the share of the second map that is taken away: a number with gradients."""
        exact = torch.promote_types(self.lambda_q1.dtype, torch.float32)
        first, second = (
            (q * k).sum(dtype=exact) for q, k in ((self.lambda_q1, self.lambda_k1), (self.lambda_q2, self.lambda_k2))
        )
        return first.exp() - second.exp() + self.lambda_init

    def _halves(self, rows: torch.Tensor, places: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """The two halves (B, heads, n, D) of queries or keys, told where they stand."""
        return tuple(self.turned(half, places) for half in rows.chunk(2, -1))

    def extra_repr(self) -> str:
        """What the projections do not tell."""
        return (
            f"heads={self.heads}, kv_heads={self.kv_heads}, lambda_init={self.lambda_init:.3f}, dropout={self.dropout}"
        )
