"""Linformer: keys and values of the whole length are projected to a few rows, which are then attended exactly."""

from __future__ import annotations

import torch

from ...functional import attention
from .deviation import ApproximateAttention
from .mask_parts import MaskParts

__all__ = ["Linformer"]


class Linformer(ApproximateAttention):
    """Attention over `rows` learned mixtures of the keys, in place of the keys themselves: linear in the length.

    out_i = softmax(q_i (A k)ᵀ / √D) (B v),  A and B (rows, length), learned, shared by all heads

    length: the longest that fits; shorter texts use the first columns. rows: how many mixtures are attended. Sizes and
    the other parameters as for `Attention`; A and B are project_k and project_v.

    Refused: causal masks, for a mixture holds keys of every place; caches, for a new key would change every mixture;
    and what is longer than length.

    Source: Wang et al. 2020.

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
            # Mixtures of `length` independent keys are then as long as a single key, on average.
            torch.nn.init.normal_(projection, std=self.length**-0.5)
        self.attend = attention

    def mix(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: MaskParts, cache) -> torch.Tensor:
        check = self.checks()
        check.need(
            not parts.causal,
            "Linformer cannot be causal",
            given="a causal mask",
            expected="rows that may see all keys",
            fix="use LinearAttention or Performer: each row of A k mixes keys of every place, later ones too",
        )
        check.need(
            k.shape[2] <= self.length,
            "longer than the projections",
            given=f"{k.shape[2]} keys",
            expected=f"at most {self.length}",
            fix="make the layer with a larger length, or cut the text",
        )
        check.done()
        k, v = parts.hide(k, v)
        few_k, few_v = (
            projection[:, : k.shape[2]].to(k.dtype) @ each
            for projection, each in ((self.project_k, k), (self.project_v, v))
        )
        return self.attend(q, few_k, few_v)

    def extra_repr(self) -> str:
        return f"length={self.length}, rows={self.rows}"
