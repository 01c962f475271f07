"""Approximate attention: the base class of such layers, Linformer, and how far a layer is from the exact result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...common.text.keywords import known_arguments
from ...common.text.terminal_text import printable
from ...language.expr import Expr
from ..functional import attention
from .mask_parts import MaskParts
from .parts import Checks, add_projections, join_heads, split_heads


@known_arguments
class ApproximateAttention(torch.nn.Module):
    """Base class: a layer with the interface and parameters of `Attention`, and `mix` instead of softmax attention.

    out = o(concat over h of mix(q_h, k_g, v_g)). The arguments are those of `Attention`. The parameters q, k, v, o
    have the same names, so the projections of an exact layer load with load_state_dict(…, strict=False).
    """

    keeps: type | None = None  # the supported type of cache
    keeps_instead = "use LinearAttention or Performer, which store sums"

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
    ):
        super().__init__()
        check = self.checks()
        self.d_model, self.heads = check.size("d_model", d_model), check.size("heads", heads)
        self.head_dim = check.heads(self.d_model, self.heads, head_dim)
        self.kv_heads = check.groups(self.heads, kv_heads)
        self.value_dim = self.head_dim if value_dim is None else check.size("value_dim", value_dim)
        self.memory_dim = self.d_model if memory_dim is None else check.size("memory_dim", memory_dim)
        check.done()
        add_projections(self, bias)

    def checks(self) -> Checks:
        """Starts the argument checks of a call.

        Returns:
            Checks without problems, under the name of the class.
        """
        return Checks(type(self).__name__)

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        *,
        mask: Expr | torch.Tensor | Callable[..., Any] | None = None,
        cache: Any = None,
        positions: None = None,
    ) -> torch.Tensor:
        """Computes the layer's output.

        Args:
            x: (B, n, d_model) input rows.
            memory: (B, m, memory_dim) rows to attend to instead of `x`.
            mask: rg.causal(), conditions on keys or on rows such as rg.lengths(n), a conjunction of these, or booleans
                (…, 1, K). None allows every pair.
            cache: the `LinearState` of the previous rows, for `LinearAttention` and `Performer`; otherwise None.
            positions: must be None; add positions before the first layer.

        Returns:
            (B, n, d_model) output rows.

        Raises:
            Refused: shapes that do not fit, an unsupported mask, cache or length; the error lists every problem.
        """
        q, k, v = self.projected(x, memory)
        check = self.checks()
        check.need(
            positions is None,
            "the layer takes no positions",
            f"positions={positions!r}",
            "positions=None",
            "add positions to the rows before the first layer: Sinusoidal or Learned",
        )
        check.need(
            cache is None or (self.keeps is not None and isinstance(cache, self.keeps)),
            "the layer does not support this cache",
            f"cache={cache!r}",
            f"a {self.keeps.__name__}" if self.keeps else "cache=None",
            self.keeps_instead,
        )
        check.need(
            memory is None or cache is None,
            "a memory is not appended to a cache",
            "both memory and cache",
            "one of them",
            "pass a cache only for self-attention",
        )
        check.done()
        return self.o(join_heads(self.mixed(q, k, v, mask, cache)))

    def mixed(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Expr | torch.Tensor | Callable[..., Any] | None,
        cache: Any = None,
    ) -> torch.Tensor:
        """Computes the heads under a mask.

        Args:
            q: (B, H, Q, D) queries.
            k: (B, G, K, D) keys.
            v: (B, G, K, E) values.
            mask: as for `forward`.
            cache: as for `forward`.

        Returns:
            (B, H, Q, E); 0 in fully masked rows.

        Raises:
            Refused: the mask is not supported.
        """
        rows, keys = (k.shape[2] - q.shape[2], k.shape[2]), (0, k.shape[2])
        if cache is not None:
            rows = keys = (cache.length, cache.length + k.shape[2])
        parts = MaskParts.of(type(self).__name__, mask, q, rows, keys)
        out = self.mix(q, k, v, parts, cache)
        return out if parts.rows is None else torch.where(parts.rows, out, 0)

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: MaskParts, cache: Any) -> torch.Tensor:
        """Computes the approximation in about linear time; subclasses implement it.

        Args:
            q: (B, H, Q, D) queries.
            k: (B, G, K, D) keys.
            v: (B, G, K, E) values.
            parts: the mask, split into causality and conditions on keys.
            cache: the cache, or None.

        Returns:
            (B, H, Q, E) weighted means of the values.

        Raises:
            Refused: a combination of mask, sizes and cache that the layer does not support.
        """
        raise NotImplementedError

    def projected(
        self, x: torch.Tensor, memory: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Applies the projections q, k and v.

        Args:
            x: (B, n, d_model) input rows.
            memory: (B, m, memory_dim) rows to attend to, or None for `x`.

        Returns:
            Queries (B, H, n, D), keys (B, G, m, D) and values (B, G, m, E).

        Raises:
            Refused: shapes that do not fit; the error lists every problem.
        """
        source, check = x if memory is None else memory, self.checks()
        check.rows(x, self.d_model)
        name = "x" if memory is None else "the memory"
        check.need(
            source.ndim == 3 and source.shape[-1] == self.memory_dim,
            f"{name} does not fit the key and value projections",
            f"{tuple(source.shape)}",
            f"(B, m, {self.memory_dim})",
            "pass rows of width memory_dim as memory=…",
        )
        check.done()
        return split_heads(self.q(x), self.heads), *(
            split_heads(part(source), self.kv_heads) for part in (self.k, self.v)
        )


@printable
@dataclass(frozen=True)
class Deviation:
    """The error of an approximation, relative to the norm of the exact result.

    Args:
        overall: ‖approximate − exact‖ / ‖exact‖ over all rows and heads.
        worst: the same for the single worst row.
        uniform: the value of `overall` for uniform weights over the allowed keys; an approximation that is not better
            ignores queries and keys.
    """

    overall: float
    worst: float
    uniform: float

    def __str__(self) -> str:
        return f"{self.overall:.1%} off (worst row {self.worst:.1%}; equal weights {self.uniform:.1%})"


@torch.no_grad()
def deviation(
    layer: ApproximateAttention,
    x: torch.Tensor,
    memory: torch.Tensor | None = None,
    *,
    mask: Expr | torch.Tensor | Callable[..., Any] | None = None,
) -> Deviation:
    """Measures the error of an approximate layer against softmax attention with the same queries, keys and values.

    error = ‖approximate − exact‖ / ‖exact‖, of the heads before the output projection

    The exact result is computed without building the attention matrix.

    Args:
        layer: a `Linformer`, `Performer` or `LinearAttention`.
        x: (B, n, d_model) input rows.
        memory: (B, m, memory_dim) rows to attend to instead of `x`.
        mask: the mask of both, as for the layer.

    Returns:
        The error over all rows (`overall`), of the worst row (`worst`), and of uniform weights (`uniform`).

    Raises:
        Refused: shapes that do not fit, or a mask that the layer does not support.

    Examples:
        >>> import torch
        >>> from regard.torch import Performer, deviation
        >>> _ = torch.manual_seed(0)
        >>> str(deviation(Performer(32, heads=2, features=4096), torch.randn(1, 40, 32)))  # doctest: +ELLIPSIS
        '... off (worst row ...; equal weights ...)'
    """
    q, k, v = layer.projected(x, memory)
    out = layer.mixed(q, k, v, mask)
    exact = attention(q, k, v, mask=mask)
    uniform = attention(torch.zeros_like(q), k, v, mask=mask)
    return Deviation(
        float(_difference(out, exact)), float(_difference(out, exact, -1).max()), float(_difference(uniform, exact))
    )


def _difference(out: torch.Tensor, exact: torch.Tensor, axes: int | None = None) -> torch.Tensor:
    """The norm of the difference, relative to the norm of the exact result."""
    error, size = (torch.linalg.vector_norm(each.double(), dim=axes) for each in (out - exact, exact))
    return error / size.clamp_min(torch.finfo(torch.float64).tiny)


@known_arguments
class Linformer(ApproximateAttention):
    """Attention over `rows` learned mixtures of the keys instead of the keys, in time linear in the length.

    out_i = softmax(q_i (A k)ᵀ / √D) (B v),  A and B (rows, length), learned, shared by all heads

    A and B are the parameters project_k and project_v; the others are those of `Attention`. Causal masks and caches
    are not supported, because every mixture contains keys of all positions.

    Args:
        d_model: the width of the input and output rows.
        heads: H, the number of query heads.
        kv_heads: G, the number of key/value heads, a divisor of H; None means H.
        length: the maximum number of keys; shorter inputs use the first columns of A and B.
        rows: the number of mixtures.
        head_dim: D, the depth of queries and keys; None means d_model / H.
        value_dim: E, the depth of values; None means D.
        memory_dim: the width of the memory; None means d_model.
        bias: whether the four projections have a bias.

    Raises:
        Refused: sizes that do not fit; the error lists every problem.

    Source:
        Wang et al. 2020.

    Examples:
        >>> import torch
        >>> from regard.torch import Linformer
        >>> Linformer(32, heads=4, length=1000, rows=16)(torch.zeros(2, 300, 32)).shape
        torch.Size([2, 300, 32])
    """

    keeps_instead = "use LinearAttention or Performer: here a new key would change every row of A k"

    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        length: int,
        rows: int,
        head_dim: int | None = None,
        value_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = False,
    ):
        super().__init__(
            d_model, heads, kv_heads, head_dim=head_dim, value_dim=value_dim, memory_dim=memory_dim, bias=bias
        )
        check = self.checks()
        self.length, self.rows = check.size("length", length), check.size("rows", rows)
        check.done()
        self.project_k, self.project_v = (torch.nn.Parameter(torch.empty(self.rows, self.length)) for _ in range(2))
        for projection in (self.project_k, self.project_v):
            # A mixture of `length` independent keys then has the norm of a single key, on average.
            torch.nn.init.normal_(projection, std=self.length**-0.5)
        self.attend = attention

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: MaskParts, cache: Any) -> torch.Tensor:
        """Computes attention over the mixtures.

        Args:
            q: (B, H, Q, D) queries.
            k: (B, G, K, D) keys.
            v: (B, G, K, E) values.
            parts: the mask, split into causality and conditions on keys.
            cache: must be None.

        Returns:
            (B, H, Q, E) weighted means of the values.

        Raises:
            Refused: a causal mask, or more keys than `length`; the error lists both.
        """
        check = self.checks()
        check.need(
            not parts.causal,
            "Linformer does not support causal masks",
            "a causal mask",
            "rows that may attend to all keys",
            "use LinearAttention or Performer: each row of A k mixes all keys, later ones too",
        )
        check.need(
            k.shape[2] <= self.length,
            "more keys than the projections have columns",
            f"keys {tuple(k.shape)}",
            f"at most {self.length}",
            "construct the layer with a larger length, or shorten the input",
        )
        check.done()
        k, v = parts.hide(k, v)
        mixed_k, mixed_v = (
            projection[:, : k.shape[2]].to(k.dtype) @ each
            for projection, each in ((self.project_k, k), (self.project_v, v))
        )
        return self.attend(q, mixed_k, mixed_v)

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"length={self.length}, rows={self.rows}"
