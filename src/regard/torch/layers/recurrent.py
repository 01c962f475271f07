"""Transformer-XL: attention that remembers the segments before, and knows distances instead of places."""

from __future__ import annotations

from typing import Any

import torch

from ...language.expr import Expr
from ..functional import attention
from ..positions.sinusoidal import waves
from .parts import Checks, dropped, join_heads, split_heads

__all__ = ["SegmentMemory", "TransformerXL"]


class SegmentMemory:
    """What one layer remembers of the segments before: its last `length` input rows, from which no gradient leads back.

    Give each layer and each stream of text its own, and pass it as cache.

    >>> memory = SegmentMemory(4)
    >>> memory.append(torch.zeros(1, 6, 8))
    >>> memory
    SegmentMemory(4 of 4 rows)
    """

    def __init__(self, length: int):
        check = Checks("SegmentMemory")
        self.length = check.size("length", length, least=0)
        check.done()
        self.rows: torch.Tensor | None = None

    def before(self, x: torch.Tensor) -> torch.Tensor:
        """What is remembered and behind it the rows x, (B, m + n, d_model)."""
        if self.rows is None:
            return x
        check = Checks("SegmentMemory")
        check.need(
            self.rows.shape[::2] == x.shape[::2],
            "another batch than the one that is remembered",
            given=f"x {tuple(x.shape)}",
            expected=f"({self.rows.shape[0]}, n, {self.rows.shape[2]})",
            fix="start with a new SegmentMemory",
        )
        check.done()
        return torch.cat((self.rows.to(x.dtype), x), dim=1)

    def append(self, x: torch.Tensor) -> None:
        """Remember the rows x (B, n, d_model); what is older than `length` rows is forgotten."""
        seen = self.before(x.detach())
        self.rows = seen[:, max(seen.shape[1] - self.length, 0) :].clone()  # not a view that keeps the whole alive

    def __repr__(self):
        return f"SegmentMemory({0 if self.rows is None else self.rows.shape[1]} of {self.length} rows)"


class TransformerXL(torch.nn.Module):
    """Attention over the rows and over those remembered, whose scores know how far apart two rows are.

    s_ij = [(q_i + u)·k_j + (q_i + w)·W_r r(i − j)] / √D,   r(p) = [sin(p θ_f) …, cos(p θ_f) …],   θ_f = 10000^(−2f/R)

    heads (H); head_dim (D, by default d_model / H); relative_dim (R, by default d_model, as in the paper): the width of
    r;
    score: the rule for s_ij; dropout: of the weights, in training. Parameters: q, k, v, r, o (projections, r being
    W_r), content_bias and position_bias (H, D: u and w).

    The second term is no table of distances, for it depends on the query. It is a product nevertheless: with a = W_rᵀ
    (q_i + w)

        a·r(i − j) = Σ_f (a_f sin iθ_f + a′_f cos iθ_f) cos jθ_f + (a′_f sin iθ_f − a_f cos iθ_f) sin jθ_f,

    so R components more in queries and keys are enough, exactly. Nothing of size n × n is built and nothing is shifted.
    A score costs D + R multiplications, where the paper's two products cost 2·D and a matrix: relative_dim=head_dim
    costs as little as the paper, the paper's own width more, and memory grows with n.

    Refused, with all reasons at once: sizes that do not fit; with the call, rows that do not fit.

    Source: Dai et al. 2019, section 3.3.

    >>> import regard as rg
    >>> layer, memory = TransformerXL(32, heads=4), SegmentMemory(10)
    >>> for segment in torch.randn(2, 30, 32).split(10, dim=1):
    ...     out = layer(segment, mask=rg.causal(), cache=memory)
    >>> memory
    SegmentMemory(10 of 10 rows)
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        head_dim: int | None = None,
        relative_dim: int | None = None,
        bias: bool = False,
        score: Expr | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        check = Checks("TransformerXL")
        self.d_model, self.heads = check.size("d_model", d_model), check.size("heads", heads)
        self.head_dim = self.d_model // self.heads if head_dim is None else check.size("head_dim", head_dim)
        self.relative_dim = self.d_model if relative_dim is None else check.size("relative_dim", relative_dim)
        self.dropout, self.score = check.rate("dropout", dropout), score
        check.need(
            head_dim is not None or self.d_model % self.heads == 0,
            "heads do not divide d_model",
            given=f"d_model={d_model}, heads={heads}",
            expected="d_model to be a multiple of heads",
            fix="say head_dim=…",
        )
        check.need(
            self.relative_dim % 2 == 0,
            "sines and cosines come in pairs",
            given=f"relative_dim={self.relative_dim}",
            expected="an even number",
            fix="choose another relative_dim",
        )
        check.need(
            score is None or isinstance(score, Expr),
            "score is no expression",
            given=f"{score!r}",
            expected="a rule such as rg.softcap(50)",
            fix="leave it out for none",
        )
        check.done()
        width = self.heads * self.head_dim
        self.q, self.k, self.v = (torch.nn.Linear(self.d_model, width, bias) for _ in range(3))
        self.r, self.o = (
            torch.nn.Linear(self.relative_dim, width, bias=False),
            torch.nn.Linear(width, self.d_model, bias),
        )
        self.content_bias, self.position_bias = (
            torch.nn.Parameter(torch.zeros(self.heads, self.head_dim)) for _ in range(2)
        )
        self.attend = attention

    def forward(
        self, x: torch.Tensor, *, mask: Any = None, cache: SegmentMemory | None = None, positions: None = None
    ) -> torch.Tensor:
        """x (B, n, d_model) -> (B, n, d_model).

        cache: what is remembered of the segments before; x is remembered too. mask: as for `rg.attention`, over the m
        remembered rows and the n new ones; rg.causal() lets each row see all that is before it.
        """
        check = Checks("TransformerXL")
        check.need(
            x.ndim == 3 and x.shape[-1] == self.d_model,
            "x does not fit the layer",
            given=f"{tuple(x.shape)}",
            expected=f"(B, n, {self.d_model})",
            fix="the layout is (batch, rows, d_model)",
        )
        check.need(
            positions is None,
            "the layer has no use for positions",
            given=f"positions={positions!r}",
            expected="positions=None",
            fix="leave them out: it counts distances between rows itself",
        )
        check.need(
            cache is None or isinstance(cache, SegmentMemory),
            "not what this layer remembers",
            given=f"cache={cache!r}",
            expected="a SegmentMemory",
            fix="pass cache=SegmentMemory(length)",
        )
        check.done()
        source = x if cache is None else cache.before(x)
        q = split_heads(self.q(x), self.heads)
        k, v = split_heads(self.k(source), self.heads), split_heads(self.v(source), self.heads)
        sin, cos = self._waves(source)
        q = torch.cat(
            (q + self.content_bias[:, None], self._towards(q, sin[-x.shape[1] :], cos[-x.shape[1] :])), dim=-1
        )
        k = torch.cat((k, torch.cat((cos, sin), dim=-1).expand(*k.shape[:2], -1, -1)), dim=-1)
        rules: dict[str, Any] = {"mask": mask, "score": self.score, "scale": self.head_dim**-0.5}
        found = self.attend(q, k, v, **rules, **dropped(self.dropout, self.training))
        if cache is not None:
            cache.append(x)
        return self.o(join_heads(found))

    def _waves(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The sines and cosines (m + n, R/2) of all rows; only their differences count, so the first row stands at
        0.
        """
        found = waves(torch.arange(source.shape[1], device=source.device), self.relative_dim).to(self.r.weight.dtype)
        return found[..., 0::2], found[..., 1::2]

    def _towards(self, q: torch.Tensor, sin: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
        """What the queries (B, H, n, D) look for among the cosines and sines of the keys, (B, H, n, R)."""
        sought = (q + self.position_bias[:, None]) @ self.r.weight.unflatten(0, (self.heads, -1))
        of_sin, of_cos = sought.chunk(2, dim=-1)
        return torch.cat((of_sin * sin + of_cos * cos, of_cos * sin - of_sin * cos), dim=-1)

    def extra_repr(self) -> str:
        """What the projections do not tell."""
        return f"heads={self.heads}, relative_dim={self.relative_dim}, dropout={self.dropout}, score={self.score}"
