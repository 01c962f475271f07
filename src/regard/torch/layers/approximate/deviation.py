"""What approximate attentions share: the projections of an exact layer, and how far the result is from the exact
one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...functional import attention
from ..parts import Checks, join_heads, split_heads
from .mask_parts import MaskParts

__all__ = ["ApproximateAttention", "Deviation", "deviation"]


class ApproximateAttention(torch.nn.Module):
    """A layer with the face and the parameters of `Attention`, and `mix` in place of softmax attention.

    out = o(concat over h of mix(q_h, k_g, v_g)). Sizes as for `Attention`. The parameters q, k, v, o have the same
    names, so the projections of an exact layer load with load_state_dict(…, strict=False).
    """

    keeps: type | None = None  # what is taken as cache
    keeps_instead = "use LinearAttention or Performer, which keep sums"

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
        self.kv_heads = self.heads if kv_heads is None else check.size("kv_heads", kv_heads)
        self.head_dim = self.d_model // self.heads if head_dim is None else check.size("head_dim", head_dim)
        self.value_dim = self.head_dim if value_dim is None else check.size("value_dim", value_dim)
        self.memory_dim = self.d_model if memory_dim is None else check.size("memory_dim", memory_dim)
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
        check.done()
        self.q = torch.nn.Linear(self.d_model, self.heads * self.head_dim, bias)
        self.k = torch.nn.Linear(self.memory_dim, self.kv_heads * self.head_dim, bias)
        self.v = torch.nn.Linear(self.memory_dim, self.kv_heads * self.value_dim, bias)
        self.o = torch.nn.Linear(self.heads * self.value_dim, self.d_model, bias)

    def checks(self) -> Checks:
        return Checks(type(self).__name__)

    def forward(self, x: torch.Tensor, memory=None, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """x (B, n, d_model) -> (B, n, d_model).

        memory (B, m, memory_dim): what is attended instead of x. mask: None, rg.causal(), conditions on keys or on rows
        such as rg.lengths(n), or booleans (…, 1, K). cache: what the kind of layer keeps of the rows before.
        """
        q, k, v = self.projected(x, memory)
        check = self.checks()
        check.need(
            positions is None,
            "the layer has no use for positions",
            given=f"positions={positions!r}",
            expected="positions=None",
            fix="tell the rows where they stand before the first layer: Sinusoidal or Learned",
        )
        check.need(
            cache is None or (self.keeps is not None and isinstance(cache, self.keeps)),
            "not what this layer keeps",
            given=f"cache={cache!r}",
            expected=f"a {self.keeps.__name__}" if self.keeps else "cache=None",
            fix=self.keeps_instead,
        )
        check.need(
            memory is None or cache is None,
            "a memory is not appended to a cache",
            given="both memory and cache",
            expected="one of them",
            fix="leave the cache to the rows' own attention",
        )
        check.done()
        return self.o(join_heads(self.mixed(q, k, v, mask, cache)))

    def mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask, cache=None) -> torch.Tensor:
        """`mix` under a mask as layers take it; rows that may attend nothing give 0."""
        rows, keys = range(k.shape[2] - q.shape[2], k.shape[2]), range(k.shape[2])
        if cache is not None:
            rows = keys = range(cache.length, cache.length + k.shape[2])
        parts = MaskParts.of(type(self).__name__, mask, q, rows, keys)
        found = self.mix(q, k, v, parts, cache)
        return found if parts.rows is None else torch.where(parts.rows, found, 0)

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: MaskParts, cache) -> torch.Tensor:
        """q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, Q, E), in about linear time."""
        raise NotImplementedError

    def projected(
        self, x: torch.Tensor, memory: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries (B, H, n, D), keys (B, G, m, D) and values (B, G, m, E)."""
        source, check = x if memory is None else memory, self.checks()
        check.need(
            x.ndim == 3 and x.shape[-1] == self.d_model,
            "x does not fit the layer",
            given=f"{tuple(x.shape)}",
            expected=f"(B, n, {self.d_model})",
            fix="the layout is (batch, rows, d_model)",
        )
        name = "x" if memory is None else "the memory"
        check.need(
            source.ndim == 3 and source.shape[-1] == self.memory_dim,
            f"{name} does not fit the keys and values",
            given=f"{tuple(source.shape)}",
            expected=f"(B, m, {self.memory_dim})",
            fix="pass what they were made for as memory=…",
        )
        check.done()
        return split_heads(self.q(x), self.heads), *(
            split_heads(part(source), self.kv_heads) for part in (self.k, self.v)
        )


@dataclass(frozen=True)
class Deviation:
    """How far an approximation is from the exact result, relative to its size.

    overall: ‖approximate − exact‖ / ‖exact‖ over all rows and heads. worst: the largest of single rows. uniform: what
    `overall` would be if every row gave the mean of the values that it may see; an approximation that does no better
    knows nothing of queries and keys.
    """

    overall: float
    worst: float
    uniform: float

    def __str__(self):
        return f"{self.overall:.1%} off (worst row {self.worst:.1%}; equal weights {self.uniform:.1%})"


@torch.no_grad()
def deviation(
    layer: ApproximateAttention, x: torch.Tensor, memory: torch.Tensor | None = None, *, mask=None
) -> Deviation:
    """How far the heads of an approximate layer are from softmax attention with the same queries, keys, values and
    mask.

    The exact result is regard's own, so no matrix is built for it either. It is taken before the projection o.

    >>> from .performer import Performer
    >>> _ = torch.manual_seed(0)
    >>> str(deviation(Performer(32, heads=2, features=4096), torch.randn(1, 40, 32)))  # doctest: +ELLIPSIS
    '... off (worst row ...; equal weights ...)'
    """
    q, k, v = layer.projected(x, memory)
    found = layer.mixed(q, k, v, mask)
    exact = attention(q, k, v, mask=mask)
    uniform = attention(torch.zeros_like(q), k, v, mask=mask)
    return Deviation(float(_apart(found, exact)), float(_apart(found, exact, -1).max()), float(_apart(uniform, exact)))


def _apart(found: torch.Tensor, exact: torch.Tensor, axes=None) -> torch.Tensor:
    """The length of the difference, relative to that of the exact result."""
    off, size = (torch.linalg.vector_norm(each.double(), dim=axes) for each in (found - exact, exact))
    return off / size.clamp_min(torch.finfo(torch.float64).tiny)
