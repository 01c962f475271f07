"""Multi-head latent attention: all heads read their keys and values from one short row per token, and only that row is
kept.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import torch

from ...api.kv_cache import KVCache
from ...api.kv_cache.reader import Reader
from ...api.kv_cache.storage import Rows
from ..functional import attention
from ..positions import Position, Rotary
from .parts import Checks, RMSNorm, dropped, join_heads, split_heads
from .positioned import Placed

__all__ = ["LatentAttention", "LatentCache"]


class LatentAttention(Placed):
    """Multi-head latent attention (MLA) of DeepSeek-V2 and V3.

    c = norm(x W_down), r = turn(x W_rope)    kept for each token: kv_rank + rope_dim numbers
    k_h = [c W_k,h ; r],  v_h = c W_v,h,  q_h = [x W_q,h ; turn(x W_qr,h)],
    out = o(concat over h of softmax(scale · q_h k_hᵀ) v_h)

    With a cache, the up-projections are absorbed: q_h k_hᵀ = [q_h W_k,hᵀ ; q_r,h] · [c ; r], so the heads attend to the
    kept rows as one key/value head, and W_v,h turns what they found into values.

    heads (H); kv_rank: numbers of the latent row c; q_rank: of the queries' own, None projects them directly; head_dim:
    of the part of queries and keys without positions; rope_dim: of the part with them, shared by all heads; value_dim
    (by default head_dim). positions: a `Position` over rope_dim, by default Rotary(rope_dim, interleaved=True) as in
    the source.
    scale: by default 1/√(head_dim + rope_dim). bias: of the projections down and of the last one. dropout: of the
    weights, in training.

    Parameters: q (or q.down, q.norm, q.up), kv_down (kv_rank + rope_dim, d_model), kv_norm, kv_up (H·(head_dim +
    value_dim), kv_rank), o: the shapes of transformers' DeepseekV3Attention.

    Refused, with all reasons at once: sizes that do not fit; with the call, rows that do not fit.

    Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1 and appendix C.

    >>> import regard as rg
    >>> layer = LatentAttention(32, heads=4, kv_rank=16, head_dim=8, rope_dim=4)
    >>> layer(torch.zeros(2, 10, 32), mask=rg.causal()).shape
    torch.Size([2, 10, 32])
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_rank: int,
        head_dim: int,
        rope_dim: int,
        q_rank: int | None = None,
        value_dim: int | None = None,
        positions: Position | None = None,
        scale: float | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        check = Checks("LatentAttention")
        self.d_model, self.heads = check.size("d_model", d_model), check.size("heads", heads)
        self.kv_rank, self.head_dim = check.size("kv_rank", kv_rank), check.size("head_dim", head_dim)
        self.rope_dim = check.size("rope_dim", rope_dim, least=2)
        self.value_dim = self.head_dim if value_dim is None else check.size("value_dim", value_dim)
        rank = None if q_rank is None else check.size("q_rank", q_rank)
        self.dropout = check.rate("dropout", dropout)
        check.need(
            positions is not None or self.rope_dim % 2 == 0,
            "rope_dim does not fall into pairs",
            given=f"rope_dim={rope_dim}",
            expected="an even number",
            fix="choose an even one, or give another kind of positions=",
        )
        check.need(
            scale is None or (isinstance(scale, int | float) and math.isfinite(scale)),
            "scale is not a number",
            given=f"{scale!r}",
            expected="a finite number",
            fix="leave it out for 1/√(head_dim + rope_dim)",
        )
        usual = positions is None and self.rope_dim % 2 == 0
        self.place(check, Rotary(self.rope_dim, interleaved=True) if usual else positions)
        depth = self.head_dim + self.rope_dim
        self.scale = 1 / math.sqrt(depth) if scale is None else float(scale)
        self.q = _queries(self.d_model, rank, self.heads * depth, bias)
        self.kv_down = torch.nn.Linear(self.d_model, self.kv_rank + self.rope_dim, bias)
        self.kv_norm = RMSNorm(self.kv_rank, eps=1e-6)
        self.kv_up = torch.nn.Linear(self.kv_rank, self.heads * (self.head_dim + self.value_dim), bias=False)
        self.o = torch.nn.Linear(self.heads * self.value_dim, self.d_model, bias)
        self.attend = attention

    def forward(self, x: torch.Tensor, *, mask=None, cache=None, positions=None) -> torch.Tensor:
        """x (B, n, d_model) -> (B, n, d_model).

        mask: as for `rg.attention`. cache: a `LatentCache` (kv_rank, rope_dim) to which the rows are appended, and over
        which they then attend in the absorbed form. positions (n,) or (B, n): where the rows stand, by default 0 … n -
        1, counted on from what the cache holds.
        """
        check = Checks("LatentAttention")
        self.check_rows(check, x, self.d_model, self.dropout, cache, positions)
        check.done()
        places = self.places(x, cache, positions)
        q, latent = self.queries(x, places), self.latent(x, places)
        rules: dict[str, Any] = {"mask": mask, "score": self.rule(), "scale": self.scale}
        if cache is None:
            k, v = self.keys_and_values(latent)
            found = self.attend(q, k, v, **rules, **dropped(self.dropout, self.training))
        else:
            cache.append(latent, latent[..., : self.kv_rank])
            found = self.from_latent(cache.attend(self.into_latent(q), **rules))
        return self.o(join_heads(found))

    def queries(self, x: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
        """(B, H, n, head_dim + rope_dim), the last part told where it stands."""
        plain, turning = split_heads(self.q(x), self.heads).split((self.head_dim, self.rope_dim), -1)
        return torch.cat((plain, self.turned(turning, places)), -1)

    def latent(self, x: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
        """What is kept of each row, (B, 1, n, kv_rank + rope_dim): c, and r told where it stands."""
        plain, turning = self.kv_down(x)[:, None].split((self.kv_rank, self.rope_dim), -1)
        return torch.cat((self.kv_norm(plain), self.turned(turning, places)), -1)

    def keys_and_values(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (B, H, n, head_dim + rope_dim) and values (B, H, n, value_dim) of kept rows."""
        plain, shared = latent.split((self.kv_rank, self.rope_dim), -1)
        k, v = split_heads(self.kv_up(plain[:, 0]), self.heads).split((self.head_dim, self.value_dim), -1)
        return torch.cat((k, shared.expand(-1, self.heads, -1, -1)), -1), v

    def into_latent(self, q: torch.Tensor) -> torch.Tensor:
        """Queries (B, H, n, kv_rank + rope_dim) that score kept rows as `queries` score keys."""
        plain, turned = q.split((self.head_dim, self.rope_dim), -1)
        return torch.cat((plain @ self._up(plain)[0], turned), -1)

    def from_latent(self, found: torch.Tensor) -> torch.Tensor:
        """Means of kept rows (B, H, n, kv_rank) as means of values (B, H, n, value_dim)."""
        return found @ self._up(found)[1].mT

    def _up(self, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """W_k (H, head_dim, kv_rank) and W_v (H, value_dim, kv_rank)."""
        return self.kv_up.weight.to(like.dtype).unflatten(0, (self.heads, -1)).split((self.head_dim, self.value_dim), 1)

    def extra_repr(self) -> str:
        """What the projections do not tell."""
        return f"heads={self.heads}, head_dim={self.head_dim}, rope_dim={self.rope_dim}, dropout={self.dropout}"


def _queries(d_model: int, rank: int | None, width: int, bias: bool) -> torch.nn.Module:
    if rank is None:
        return torch.nn.Linear(d_model, width, bias=False)
    down, up = torch.nn.Linear(d_model, rank, bias), torch.nn.Linear(rank, width, bias=False)
    return torch.nn.Sequential(OrderedDict(down=down, norm=RMSNorm(rank, eps=1e-6), up=up))


class LatentCache(KVCache):
    """A `KVCache` with one head, for `LatentAttention`: kv_rank + rope_dim numbers for each token, whatever the heads.

    batch, dtype, window, pages and storage as for `rg.KVCache`. Everything else too, but append(k, v) does not read v:
    the values are k[…, :kv_rank].

    Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.

    >>> LatentCache(kv_rank=512, rope_dim=64, dtype="bfloat16", pages=1).nbytes // 128  # bytes for each token
    1152
    """

    def __init__(self, kv_rank, rope_dim, *, batch=1, dtype="float32", window=None, pages=None, storage=None):
        super().__init__(
            1, kv_rank + rope_dim, kv_rank, batch=batch, dtype=dtype, window=window, pages=pages, storage=storage
        )
        self._v = First(self._k, kv_rank)
        self._reader = Reader(self._held, self._k, self._v, self.window)

    def __repr__(self):
        return (
            f"LatentCache({self.value_depth} + {self.depth - self.value_depth} numbers, {self.dtype}; "
            f"lengths {self.lengths.tolist()}, {self.nbytes:,} bytes)"
        )


class First(Rows):
    """The first numbers of other rows, where they lie."""

    def __init__(self, whole: Rows, depth: int):
        self.whole, self.depth = whole, depth
        self.heads, self.dtype, self.in_place = whole.heads, whole.dtype, whole.in_place

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        return self.whole.array[..., : self.depth]

    @property
    def nbytes(self) -> int:
        return 0

    def grow(self, pages: int) -> None:
        """Nothing: the whole rows grow."""

    def copy(self, source, target) -> None:
        """Nothing: the whole rows are copied."""

    def write(self, pages, places, rows) -> None:
        """Nothing: the whole rows are written."""

    def read(self, pages: np.ndarray) -> np.ndarray:
        return self.whole.read(pages)[..., : self.depth]
