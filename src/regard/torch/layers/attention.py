"""The attention layer that models are built of: projections, positions, attention, and a projection back."""

from __future__ import annotations

from typing import Any

import torch

from ...language.expr import Expr
from ..functional import attention
from ..positions import Position
from .parts import Checks, RMSNorm, dropped, join_heads, split_heads
from .positioned import Placed

__all__ = ["Attention"]


class Attention(Placed):
    """Attention of many heads, which may share their keys and values; over its own rows, over a memory, or over a
    cache.

    out = o(concat over h of softmax(score(q_h k_gᵀ / √D) where mask) v_g), q = q(x), k = k(source), v = v(source), g =
    h // (H / G)

    heads (H); kv_heads (G, by default H; 1 is multi-query, in between is grouped-query attention); head_dim (D, by
    default d_model / H); value_dim (E, by default D); memory_dim: width of the memory, by default d_model; bias: of all
    four projections.
    positions: a `Position`, which turns queries and keys, or adds to the score. score: the rule for the logits, such as
    rg.softcap(50). sinks: learned logits per head that take weight and give nothing. dropout: of the weights, in
    training.
    query_key_norm: RMSNorm of each head's queries and keys, before they are turned.

    Parameters: q (H·D, d_model), k (G·D, source), v (G·E, source), o (d_model, H·E), sinks (H, n), q_norm and k_norm
    (D,).

    Refused, with all reasons at once: sizes that do not fit; with the call, rows that do not fit.

    Source: Vaswani et al. 2017; Shazeer 2019 (multi-query); Ainslie et al. 2023 (grouped-query); Xiao et al. 2023 and
    OpenAI 2025 (learned sinks); Henry et al. 2020 (normalised queries and keys).

    >>> import regard as rg
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
        self.kv_heads = self.heads if kv_heads is None else check.size("kv_heads", kv_heads)
        self.head_dim = self.d_model // self.heads if head_dim is None else check.size("head_dim", head_dim)
        self.value_dim = self.head_dim if value_dim is None else check.size("value_dim", value_dim)
        self.memory_dim = self.d_model if memory_dim is None else check.size("memory_dim", memory_dim)
        self.dropout, extra = check.rate("dropout", dropout), check.size("sinks", sinks, least=0)
        check.need(
            head_dim is not None or self.d_model % self.heads == 0,
            "heads do not divide d_model",
            given=f"d_model={d_model}, heads={heads}",
            expected="d_model to be a multiple of heads",
            fix="say head_dim=…",
        )
        check.need(
            self.heads % self.kv_heads == 0,
            "kv_heads do not divide heads",
            given=f"heads={heads}, kv_heads={kv_heads}",
            expected="heads to be a multiple of kv_heads",
            fix="kv_heads=1 fits every number of heads",
        )
        self.place(check, positions, score)
        self.q = torch.nn.Linear(self.d_model, self.heads * self.head_dim, bias)
        self.k = torch.nn.Linear(self.memory_dim, self.kv_heads * self.head_dim, bias)
        self.v = torch.nn.Linear(self.memory_dim, self.kv_heads * self.value_dim, bias)
        self.o = torch.nn.Linear(self.heads * self.value_dim, self.d_model, bias)
        self.q_norm, self.k_norm = (
            RMSNorm(self.head_dim, eps=1e-6) if query_key_norm else torch.nn.Identity() for _ in range(2)
        )
        self.sinks = torch.nn.Parameter(torch.zeros(self.heads, extra)) if extra else None
        self.attend = attention

    def forward(self, x: torch.Tensor, memory=None, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """x (B, n, d_model) -> (B, n, d_model).

        memory: what is attended instead of x, (B, m, memory_dim), or what `remember` made of it. mask: as for
        `rg.attention`; None lets every row see all keys. cache: an `rg.KVCache` (kv_heads, head_dim, value_dim) to
        which the keys and values are appended, and over which the rows then attend. positions (n,) or (B, n): where the
        rows stand, by default 0 … n - 1, counted on from what the cache holds.
        """
        self._check(x, memory, cache, positions)
        places = self.places(x, cache, positions)
        k, v = memory if isinstance(memory, tuple) else self.remember(x if memory is None else memory)
        q, k = self.turned(self.q_norm(split_heads(self.q(x), self.heads)), places), self.turned(k, places)
        rules: dict[str, Any] = {"mask": mask, "score": self.rule(), "sinks": self.sinks}
        if cache is None:
            found = self.attend(q, k, v, **rules, **dropped(self.dropout, self.training))
        else:
            cache.append(k, v)
            found = cache.attend(q, **rules)
        return self.o(join_heads(found))

    def remember(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys (B, G, m, D) and values (B, G, m, E) of a memory (B, m, memory_dim), for many calls over the
        same.
        """
        return self.k_norm(split_heads(self.k(memory), self.kv_heads)), split_heads(self.v(memory), self.kv_heads)

    def _check(self, x: torch.Tensor, memory, cache, positions) -> None:
        """Rows that fit, and no argument that would have no meaning."""
        check = Checks("Attention")
        self.check_rows(check, x, self.d_model, self.dropout, cache, positions)
        if memory is None:
            check.need(
                self.memory_dim == self.d_model,
                "there is no memory",
                given="memory=None",
                expected=f"(B, m, {self.memory_dim}), for which the keys and values were made",
                fix="pass memory=…",
            )
        elif isinstance(memory, torch.Tensor):
            check.need(
                memory.ndim == 3 and memory.shape[-1] == self.memory_dim,
                "the memory does not fit the layer",
                given=f"{tuple(memory.shape)}",
                expected=f"(B, m, {self.memory_dim})",
                fix="the layout is (batch, rows, memory_dim)",
            )
        check.need(
            memory is None or cache is None,
            "a memory is not appended to a cache",
            given="both memory and cache",
            expected="one of them",
            fix="to keep the keys of a memory, pass memory=layer.remember(memory)",
        )
        check.need(
            memory is None or self.positions is None,
            "positions do not reach from rows to a memory",
            given=f"a memory, and positions={type(self.positions).__name__}",
            expected="a layer without positions",
            fix="make the cross-attention layer with positions=None",
        )
        check.done()

    def extra_repr(self) -> str:
        """What the projections do not tell."""
        return f"heads={self.heads}, kv_heads={self.kv_heads}, dropout={self.dropout}, score={self.score}"
