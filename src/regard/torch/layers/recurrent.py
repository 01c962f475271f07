"""Transformer-XL: attention with a memory of the previous segments and relative positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...common.text.keywords import known_arguments
from ...language.expr import Expr
from ..functional import attention
from ..positions.position import waves
from .parts import Checks, dropped, join_heads, split_heads


@known_arguments
class SegmentMemory:
    """The memory of one `TransformerXL` layer: the last `length` input rows of the previous segments, detached.

    Use one memory for each layer and each stream of text, and pass it as `cache`.

    Args:
        length: the maximum number of rows, 0 or more.

    Raises:
        Refused: length is not an integer of 0 or more.

    Examples:
        >>> import torch
        >>> from regard.torch import SegmentMemory
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
        """Concatenates the remembered rows and new rows.

        Args:
            x: (B, n, d_model) new rows.

        Returns:
            (B, m + n, d_model): the m remembered rows, then `x`.

        Raises:
            Refused: the batch size or width differs from that of the remembered rows.
        """
        if self.rows is None:
            return x
        check = Checks("SegmentMemory")
        check.need(
            self.rows.shape[::2] == x.shape[::2],
            "the batch size or width differs from the remembered rows",
            f"x {tuple(x.shape)}",
            f"({self.rows.shape[0]}, n, {self.rows.shape[2]})",
            "use a new SegmentMemory",
        )
        check.done()
        return torch.cat((self.rows.to(x.dtype), x), dim=1)

    def append(self, x: torch.Tensor) -> None:
        """Appends rows to the memory and removes all but the last `length`.

        Args:
            x: (B, n, d_model) new rows.

        Raises:
            Refused: the batch size or width differs from that of the remembered rows.
        """
        rows = self.before(x.detach())
        self.rows = rows[:, max(rows.shape[1] - self.length, 0) :].clone()  # a view would keep all rows in memory

    def __repr__(self):
        return f"SegmentMemory({0 if self.rows is None else self.rows.shape[1]} of {self.length} rows)"


@known_arguments
class TransformerXL(torch.nn.Module):
    """Multi-head attention over the new and the remembered rows, with scores that depend on relative positions.

    s_ij = [(q_i + u)·k_j + (q_i + w)·W_r r(i − j)] / √D,   r(p) = [sin(p θ_f) …, cos(p θ_f) …],   θ_f = 10000^(−2f/R)

    The second term depends on the query, so it is not a table of distances, but it is a product: with
    a = W_rᵀ (q_i + w),

        a·r(i − j) = Σ_f (a_f sin iθ_f + a′_f cos iθ_f) cos jθ_f + (a′_f sin iθ_f − a_f cos iθ_f) sin jθ_f,

    so R additional components of queries and keys are sufficient and exact. No n × n matrix is built or shifted, and
    memory grows with n. A score costs D + R multiplications; the paper's two products cost 2·D. With
    relative_dim=head_dim the costs are equal.

    Parameters: q, k, v, r, o (projections, r is W_r), content_bias and position_bias (H, D: u and w).

    Args:
        d_model: the width of the input and output rows.
        heads: H, the number of heads.
        head_dim: D, the depth of queries, keys and values; None means d_model / H.
        relative_dim: R, the width of r, an even number; None means d_model, as in the paper.
        bias: whether the projections q, k, v and o have a bias.
        score: an expression for s_ij, such as rg.softcap(50).
        dropout: the probability that a weight is dropped in training mode.

    Raises:
        Refused: sizes that do not fit or an invalid argument; the error lists every problem.

    Source:
        Dai et al. 2019, section 3.3.

    Examples:
        >>> import torch, regard as rg
        >>> from regard.torch import SegmentMemory, TransformerXL
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
        self.head_dim = check.heads(self.d_model, self.heads, head_dim)
        self.relative_dim = self.d_model if relative_dim is None else check.size("relative_dim", relative_dim)
        self.dropout, self.score = check.rate("dropout", dropout), score
        check.need(
            self.relative_dim % 2 == 0,
            "relative_dim is not even",
            f"relative_dim={self.relative_dim}",
            "an even number, for pairs of sine and cosine",
            "pass an even relative_dim",
        )
        check.need(
            score is None or isinstance(score, Expr),
            "score is not an expression",
            f"{score!r}",
            "an expression such as rg.softcap(50)",
            "omit it to use the scores unchanged",
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
        self,
        x: torch.Tensor,
        *,
        mask: Expr | torch.Tensor | Callable[..., Any] | None = None,
        cache: SegmentMemory | None = None,
        positions: None = None,
    ) -> torch.Tensor:
        """Computes the layer's output.

        Args:
            x: (B, n, d_model) input rows of the new segment.
            mask: as for `rg.attention`, over the m remembered and the n new rows as keys; rg.causal() lets each row
                attend to itself and everything before it. None allows every key.
            cache: the memory of the previous segments, to which `x` is appended; None for no memory.
            positions: must be None; the layer computes relative positions itself.

        Returns:
            (B, n, d_model) output rows.

        Raises:
            Refused: shapes that do not fit, or unsupported arguments; the error lists every problem.
        """
        check = Checks("TransformerXL")
        check.rows(x, self.d_model)
        check.need(
            positions is None,
            "the layer takes no positions",
            f"positions={positions!r}",
            "positions=None: the layer computes relative positions itself",
            "omit positions",
        )
        check.need(
            cache is None or isinstance(cache, SegmentMemory),
            "cache is not a SegmentMemory",
            f"cache={cache!r}",
            "a SegmentMemory",
            "pass cache=SegmentMemory(length)",
        )
        check.done()
        source = x if cache is None else cache.before(x)
        q = split_heads(self.q(x), self.heads)
        k, v = split_heads(self.k(source), self.heads), split_heads(self.v(source), self.heads)
        sin, cos = self._waves(source)
        q = torch.cat(
            (q + self.content_bias[:, None], self._relative(q, sin[-x.shape[1] :], cos[-x.shape[1] :])), dim=-1
        )
        k = torch.cat((k, torch.cat((cos, sin), dim=-1).expand(*k.shape[:2], -1, -1)), dim=-1)
        rules: dict[str, Any] = {"mask": mask, "score": self.score, "scale": self.head_dim**-0.5}
        out = self.attend(q, k, v, **rules, **dropped(self.dropout, self.training))
        if cache is not None:
            cache.append(x)
        return self.o(join_heads(out))

    def _waves(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The sines and cosines (m + n, R/2) of all rows; only differences matter, so positions start at 0."""
        pairs = waves(torch.arange(source.shape[1], device=source.device), self.relative_dim).to(self.r.weight.dtype)
        return pairs[..., 0::2], pairs[..., 1::2]

    def _relative(self, q: torch.Tensor, sin: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
        """The components (B, H, n, R) of queries whose products with the keys' cosines and sines are a·r(i − j)."""
        a = (q + self.position_bias[:, None]) @ self.r.weight.unflatten(0, (self.heads, -1))
        of_sin, of_cos = a.chunk(2, dim=-1)
        return torch.cat((of_sin * sin + of_cos * cos, of_cos * sin - of_sin * cos), dim=-1)

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"heads={self.heads}, relative_dim={self.relative_dim}, dropout={self.dropout}, score={self.score}"
