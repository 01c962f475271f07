"""Multi-head latent attention (MLA): keys and values of all heads are projected from one cached row per token."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...api.kv_cache import KVCache
from ...api.kv_cache.state import Rows, Stores
from ...common.text.keywords import known_arguments
from ...language.expr import Expr
from ..cache import TensorCache
from ..functional import attention
from ..positions import Position, Rotary
from .parts import Checks, Placed, RMSNorm, dropped, join_heads, split_heads


@known_arguments
class LatentAttention(Placed):
    """Multi-head latent attention (MLA) of DeepSeek-V2 and V3.

    c = norm(x W_down),  r = rotate(x W_rope):  the cached row of a token, kv_rank + rope_dim numbers
    k_h = [c W_k,h ; r],  v_h = c W_v,h,  q_h = [x W_q,h ; rotate(x W_qr,h)],
    out = o(concat over h of softmax(scale · q_h k_hᵀ) v_h)

    With a cache, the up-projections are absorbed: q_h k_hᵀ = [q_h W_k,hᵀ ; q_r,h] · [c ; r], so all heads attend to
    the cached rows as one key/value head, and W_v,h maps the result to values.

    Parameters: q (or q.down, q.norm, q.up), kv_down (kv_rank + rope_dim, d_model), kv_norm, kv_up (H·(head_dim +
    value_dim), kv_rank), o, with the shapes of transformers' DeepseekV3Attention.

    Args:
        d_model: the width of the input and output rows.
        heads: H, the number of heads.
        kv_rank: the width of the latent row c.
        head_dim: the depth of the part of queries and keys without positions.
        rope_dim: the depth of the part with positions, which all heads share.
        q_rank: the width of the queries' latent row; None projects them directly.
        value_dim: E, the depth of values; None means head_dim.
        positions: a `Position` over rope_dim; None means Rotary(rope_dim, interleaved=True), as in the source.
        scale: the factor of q·k; None means 1/√(head_dim + rope_dim).
        bias: whether the down-projections and the output projection have a bias.
        dropout: the probability that a weight is dropped in training mode.

    Raises:
        Refused: sizes that do not fit or an invalid argument; the error lists every problem.

    Source:
        DeepSeek-AI 2024 (DeepSeek-V2), section 2.1 and appendix C.

    Examples:
        >>> import torch, regard as rg
        >>> from regard.torch import LatentAttention
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
            "rope_dim is not even",
            f"rope_dim={rope_dim}",
            "an even number, because rotary positions rotate pairs",
            "pass an even rope_dim, or another Position as positions=",
        )
        check.need(
            scale is None or (isinstance(scale, int | float) and math.isfinite(scale)),
            "scale is not a number",
            f"{scale!r}",
            "a finite number",
            "omit it for 1/√(head_dim + rope_dim)",
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

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: Expr | torch.Tensor | Callable[..., Any] | None = None,
        cache: LatentCache | TensorCache | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes the layer's output.

        Args:
            x: (B, n, d_model) input rows.
            mask: as for `rg.attention`; None lets every row attend to every key.
            cache: a `LatentCache` with kv_rank and rope_dim, to which the new rows are appended; the rows attend to
                everything in it, in the absorbed form.
            positions: (n,) or (B, n) positions of the rows; None means 0 … n − 1, after the rows in the cache.

        Returns:
            (B, n, d_model) output rows.

        Raises:
            Refused: shapes that do not fit, or arguments that cannot be combined; the error lists every problem.
        """
        check = Checks("LatentAttention")
        self.check_rows(check, x, cache, positions)
        check.done()
        places = self.places(x, cache, positions)
        q, latent = self.queries(x, places), self.latent(x, places)
        rules = self.rules(x, mask, positions, scale=self.scale)
        if cache is None:
            k, v = self.keys_and_values(latent)
            out = self.attend(q, k, v, **rules, **dropped(self.dropout, self.training))
        else:
            cache.append(latent, latent[..., : self.kv_rank])
            out = self.from_latent(cache.attend(self.into_latent(q), **rules))
        return self.o(join_heads(out))

    def queries(self, x: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
        """Computes the queries of input rows.

        Args:
            x: (B, n, d_model) input rows.
            places: (n,) or (B, n) positions of the rows.

        Returns:
            (B, H, n, head_dim + rope_dim) queries, the last rope_dim components rotated.
        """
        plain, rotary = split_heads(self.q(x), self.heads).split((self.head_dim, self.rope_dim), -1)
        return torch.cat((plain, self.turned(rotary, places)), -1)

    def latent(self, x: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
        """Computes the rows that a cache stores.

        Args:
            x: (B, n, d_model) input rows.
            places: (n,) or (B, n) positions of the rows.

        Returns:
            (B, 1, n, kv_rank + rope_dim) latent rows: the normalized c, then the rotated r.
        """
        plain, rotary = self.kv_down(x)[:, None].split((self.kv_rank, self.rope_dim), -1)
        return torch.cat((self.kv_norm(plain), self.turned(rotary, places)), -1)

    def keys_and_values(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the keys and values of latent rows.

        Args:
            latent: (B, 1, n, kv_rank + rope_dim) rows from `latent`.

        Returns:
            Keys (B, H, n, head_dim + rope_dim) and values (B, H, n, value_dim).
        """
        plain, shared = latent.split((self.kv_rank, self.rope_dim), -1)
        k, v = split_heads(self.kv_up(plain[:, 0]), self.heads).split((self.head_dim, self.value_dim), -1)
        return torch.cat((k, shared.expand(-1, self.heads, -1, -1)), -1), v

    def into_latent(self, q: torch.Tensor) -> torch.Tensor:
        """Maps queries so that their products with latent rows are the scores of the keys.

        Args:
            q: (B, H, n, head_dim + rope_dim) queries.

        Returns:
            (B, H, n, kv_rank + rope_dim) queries for latent rows.
        """
        plain, rotary = q.split((self.head_dim, self.rope_dim), -1)
        return torch.cat((plain @ self._up(plain)[0], rotary), -1)

    def from_latent(self, found: torch.Tensor) -> torch.Tensor:
        """Maps weighted means of latent rows to weighted means of values.

        Args:
            found: (B, H, n, kv_rank) weighted means of latent rows.

        Returns:
            (B, H, n, value_dim) weighted means of values.
        """
        return found @ self._up(found)[1].mT

    def _up(self, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """W_k (H, head_dim, kv_rank) and W_v (H, value_dim, kv_rank)."""
        return self.kv_up.weight.to(like.dtype).unflatten(0, (self.heads, -1)).split((self.head_dim, self.value_dim), 1)

    def extra_repr(self) -> str:
        """The settings that repr(layer) shows besides the submodules."""
        return f"heads={self.heads}, head_dim={self.head_dim}, rope_dim={self.rope_dim}, dropout={self.dropout}"


def _queries(d_model: int, rank: int | None, width: int, bias: bool) -> torch.nn.Module:
    if rank is None:
        return torch.nn.Linear(d_model, width, bias=False)
    down, up = torch.nn.Linear(d_model, rank, bias), torch.nn.Linear(rank, width, bias=False)
    return torch.nn.Sequential(OrderedDict(down=down, norm=RMSNorm(rank, eps=1e-6), up=up))


@known_arguments
class LatentCache(KVCache):
    """The cache of `LatentAttention`: a `KVCache` with one head and kv_rank + rope_dim numbers per token.

    It has the methods of `rg.KVCache`. append(k, v) does not read v, because the values are k[…, :kv_rank].

    Args:
        kv_rank: the width of the latent row.
        rope_dim: the depth of the part with positions.
        batch: B, the number of sequences.
        dtype: "float32", "float16", "bfloat16" or "float64".
        window: the number of most recent rows that a query attends to, itself included; None means all.
        pages: the fixed capacity in pages of 128 positions, shared by all sequences; None lets the cache grow.
        storage: "int8" stores rows in 8 bits with one scale per row; None stores them in `dtype`.

    Raises:
        Refused: invalid arguments, as for `rg.KVCache`.

    Source:
        DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.

    Examples:
        >>> from regard.torch import LatentCache
        >>> LatentCache(kv_rank=512, rope_dim=64, dtype="bfloat16", pages=1).nbytes // 128  # bytes per token
        1152
    """

    def __init__(
        self,
        kv_rank: int,
        rope_dim: int,
        *,
        batch: int = 1,
        dtype: str | np.dtype | torch.dtype = "float32",
        window: int | None = None,
        pages: int | None = None,
        storage: str | None = None,
    ):
        super().__init__(
            1, kv_rank + rope_dim, kv_rank, batch=batch, dtype=dtype, window=window, pages=pages, storage=storage
        )
        k = self._state.stores.k
        self._state = self._state._replace(stores=LatentStores(k, First(k, self.value_depth)))

    @classmethod
    def _sized(cls, heads: int, depth: int, value_depth: int, options: dict[str, Any]) -> LatentCache:
        return cls(value_depth, depth - value_depth, **options)

    def __repr__(self):
        return (
            f"LatentCache({self.value_depth} + {self.depth - self.value_depth} numbers, {self.dtype}; "
            f"lengths {self.lengths.tolist()}, {self.nbytes:,} bytes)"
        )


class LatentStores(Stores):
    """The stored rows; their values are a part of them."""

    def over(self, arrays: Sequence[np.ndarray]) -> LatentStores:
        k = self.k.over(arrays)
        return LatentStores(k, First(k, self.v.depth))


class First(Rows):
    """A view of the first `depth` components of other rows, which are written there."""

    def __init__(self, whole: Rows, depth: int):
        self.whole, self.depth = whole, depth
        self.heads, self.dtype = whole.heads, whole.dtype

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        return self.whole.array[..., : self.depth]

    @property
    def scales(self) -> np.ndarray | None:  # type: ignore[override]
        return self.whole.scales

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return ()

    def write(self, pages, places, rows) -> None:
        """Does nothing: the viewed rows are written."""

    def read(self, pages: np.ndarray) -> np.ndarray:
        return self.whole.read(pages)[..., : self.depth]
