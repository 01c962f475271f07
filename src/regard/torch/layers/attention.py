"""`Attention`: the multi-head attention layer that the models use, with projections, positions and a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...api.kv_cache import KVCache
from ...common.text.keywords import known_arguments
from ...language.expr import Expr
from ..cache import TensorCache
from ..functional import attention
from ..positions import Position
from .parts import Checks, Placed, RMSNorm, add_projections, dropped, join_heads, split_heads


@known_arguments
class Attention(Placed):
    """Multi-head, grouped-query or multi-query attention over the input rows, a memory, or a key/value cache.

    out = o(concat over h of softmax(score(q_h k_gᵀ / √D) where mask) v_g), with g = h // (H / G),
    q = q(x), k = k(source), v = v(source); the source is x or the memory.

    Parameters: q (H·D, d_model), k (G·D, source), v (G·E, source), o (d_model, H·E); sinks (H, n); q_norm and k_norm
    (D,).

    Args:
        d_model: the width of the input and output rows.
        heads: H, the number of query heads.
        kv_heads: G, the number of key/value heads, a divisor of H; None means H, 1 is multi-query attention.
        head_dim: D, the depth of queries and keys; None means d_model / H.
        value_dim: E, the depth of values; None means D.
        memory_dim: the width of the memory; None means d_model.
        bias: whether the four projections have a bias.
        positions: a `Position`, which rotates queries and keys or modifies the score; None for no position encoding.
        score: an expression for the logits, such as rg.softcap(50).
        sinks: the number of learned logits per head that are added to the denominator only.
        dropout: the probability that a weight is dropped in training mode.
        query_key_norm: whether RMSNorm is applied to each head's queries and keys before the rotation.

    Raises:
        Refused: sizes that do not fit or an invalid argument; the error lists every problem.

    Source:
        Vaswani et al. 2017; Shazeer 2019 (multi-query); Ainslie et al. 2023 (grouped-query); Xiao et al. 2023 and
        OpenAI 2025 (learned sinks); Henry et al. 2020 (query-key normalization).

    Examples:
        >>> import torch, regard as rg
        >>> from regard.torch import Attention
        >>> layer = Attention(32, heads=4, kv_heads=2)
        >>> layer(torch.zeros(2, 10, 32), mask=rg.causal()).shape
        torch.Size([2, 10, 32])
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = False,
        positions: Position | None = None,
        score: Expr | None = None,
        sinks: int = 0,
        dropout: float = 0.0,
        query_key_norm: bool = False,
    ):
        super().__init__()
        check = Checks("Attention")
        self.d_model, self.heads = check.size("d_model", d_model), check.size("heads", heads)
        self.head_dim = check.heads(self.d_model, self.heads, head_dim)
        self.kv_heads = check.groups(self.heads, kv_heads)
        self.value_dim = self.head_dim if value_dim is None else check.size("value_dim", value_dim)
        self.memory_dim = self.d_model if memory_dim is None else check.size("memory_dim", memory_dim)
        self.dropout, extra = check.rate("dropout", dropout), check.size("sinks", sinks, least=0)
        self.place(check, positions, score)
        add_projections(self, bias)
        self.q_norm, self.k_norm = (
            RMSNorm(self.head_dim, eps=1e-6) if query_key_norm else torch.nn.Identity() for _ in range(2)
        )
        self.sinks = torch.nn.Parameter(torch.zeros(self.heads, extra)) if extra else None
        self.attend = attention

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        *,
        mask: Expr | torch.Tensor | Callable[..., Any] | None = None,
        cache: KVCache | TensorCache | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes the layer's output.

        Args:
            x: (B, n, d_model) input rows.
            memory: (B, m, memory_dim) rows to attend to instead of `x`, or the keys and values that `remember`
                returned for them.
            mask: as for `rg.attention`; None lets every row attend to every key.
            cache: a cache with kv_heads, head_dim and value_dim, to which the new keys and values are appended; the
                rows attend to everything in it.
            positions: (n,) or (B, n) positions of the rows; None means 0 … n − 1, after the rows in the cache.

        Returns:
            (B, n, d_model) output rows.

        Raises:
            Refused: shapes that do not fit, or arguments that cannot be combined; the error lists every problem.
        """
        self._check(x, memory, cache, positions)
        places = self.places(x, cache, positions)
        k, v = memory if isinstance(memory, tuple) else self._projected(x if memory is None else memory)
        q, k = self.turned(self.q_norm(split_heads(self.q(x), self.heads)), places), self.turned(k, places)
        rules = self.rules(x, mask, positions, sinks=self.sinks)
        if cache is None:
            out = self.attend(q, k, v, **rules, **dropped(self.dropout, self.training))
        else:
            cache.append(k, v)
            out = cache.attend(q, **rules)
        return self.o(join_heads(out))

    def remember(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the keys and values of a memory once, for many calls over the same memory.

        Args:
            memory: (B, m, memory_dim) rows.

        Returns:
            Keys (B, G, m, D) and values (B, G, m, E), to be passed as `memory`.
        """
        return self._projected(memory)

    def _projected(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values of rows, before rotation."""
        return self.k_norm(split_heads(self.k(rows), self.kv_heads)), split_heads(self.v(rows), self.kv_heads)

    def _check(self, x: torch.Tensor, memory, cache, positions) -> None:
        """Raises `Refused` for shapes that do not fit and for arguments without effect."""
        check = Checks("Attention")
        self.check_rows(check, x, cache, positions)
        if memory is None:
            check.need(
                self.memory_dim == self.d_model,
                "memory is missing",
                "memory=None",
                f"(B, m, {self.memory_dim}): memory_dim differs from d_model",
                "pass memory=…",
            )
        elif isinstance(memory, torch.Tensor):
            check.need(
                memory.ndim == 3 and memory.shape[-1] == self.memory_dim,
                "the memory does not fit the layer",
                f"{tuple(memory.shape)}",
                f"(B, m, {self.memory_dim})",
                "the layout is (batch, rows, memory_dim)",
            )
        check.need(
            memory is None or cache is None,
            "a memory is not appended to a cache",
            "both memory and cache",
            "one of them",
            "to reuse the keys of a memory, pass memory=layer.remember(memory)",
        )
        check.need(
            memory is None or self.positions is None,
            "positions are not defined between rows and a memory",
            f"a memory, and positions={type(self.positions).__name__}",
            "a layer without positions",
            "construct the cross-attention layer with positions=None",
        )
        check.done()

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"heads={self.heads}, kv_heads={self.kv_heads}, dropout={self.dropout}, score={self.score}"
