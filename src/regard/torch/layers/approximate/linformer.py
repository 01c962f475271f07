"""Linformer: keys and values are projected along the sequence to a fixed number of rows before attention."""

from __future__ import annotations

from typing import Any

import torch

from ....common.text.keywords import known_arguments
from ...functional import attention
from .deviation import ApproximateAttention
from .mask_parts import MaskParts


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
            given="a causal mask",
            expected="rows that may attend to all keys",
            fix="use LinearAttention or Performer: each row of A k mixes all keys, later ones too",
        )
        check.need(
            k.shape[2] <= self.length,
            "more keys than the projections have columns",
            given=f"{k.shape[2]} keys",
            expected=f"at most {self.length}",
            fix="construct the layer with a larger length, or shorten the input",
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
