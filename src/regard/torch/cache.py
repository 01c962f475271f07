"""Key/value caches for models: `rg.KVCache` on the CPU, plain tensors on every other device."""

from __future__ import annotations

import numpy as np
import torch

from ..api.kv_cache import KVCache
from ..common.errors import Reason, Refused
from ..language.masks import lengths, window
from .functional import attention

__all__ = ["Taking", "TensorCache", "cache_for"]


class TensorCache:
    """The keys and values of one attention layer as tensors, with the methods of `rg.KVCache` that models call.

    out = softmax(score(q kᵀ / √D) where mask) v, over the keys that the row's own sequence has appended so far.

    The capacity doubles when it is full. Rows outside the window are masked, not removed.

    Args:
        heads: G, the number of key/value heads.
        depth: D, the depth of a key.
        value_depth: E, the depth of a value; None means D.
        batch: B, the number of sequences.
        dtype: the dtype of the tensors.
        device: the device of the tensors.
        window: the number of most recent keys that a row attends to; None means all.

    Examples:
        >>> cache = TensorCache(2, 4)
        >>> k = v = q = torch.ones(1, 2, 3, 4)
        >>> cache.append(k, v)
        >>> cache.attend(q).shape, cache.lengths.tolist()
        (torch.Size([1, 2, 3, 4]), [3])
    """

    def __init__(
        self,
        heads: int,
        depth: int,
        value_depth: int | None = None,
        *,
        batch: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        window: int | None = None,
    ):
        self.k = torch.zeros(batch, heads, 0, depth, dtype=dtype, device=device)
        self.v = torch.zeros(batch, heads, 0, depth if value_depth is None else value_depth, dtype=dtype, device=device)
        self.window = window
        self.lengths = np.zeros(batch, np.int64)
        self._start = self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def append(self, k: torch.Tensor, v: torch.Tensor, rows=None) -> None:
        """Appends keys (B, G, new, D) and values (B, G, new, E); rows (B,): how many of them each sequence has."""
        reasons = [
            Reason(
                f"{name} does not fit the cache",
                given=f"{tuple(new.shape)}",
                expected=f"{(*kept.shape[:2], 'new', kept.shape[3])}",
                fix="use one cache for each layer, with a sequence for each row of the batch",
            )
            for name, new, kept in (("k", k, self.k), ("v", v, self.v))
            if new.ndim != 4 or (*new.shape[:2], new.shape[3]) != (*kept.shape[:2], kept.shape[3])
        ]
        if reasons:
            raise Refused("TensorCache.append", reasons)
        width = k.shape[2]
        taken = np.full(len(self), width) if rows is None else np.asarray(rows, np.int64)
        self._start, self.lengths = self.lengths, self.lengths + taken
        # Padding is written too, after the last row; the next append overwrites it.
        self._make_room(int(self._start.max(initial=0)) + width)
        sequences = torch.arange(len(self), device=k.device)[:, None]
        places = torch.as_tensor(self._start, device=k.device)[:, None] + torch.arange(width, device=k.device)
        self.k[sequences, :, places] = k.detach().transpose(1, 2).to(self.k.dtype)
        self.v[sequences, :, places] = v.detach().transpose(1, 2).to(self.v.dtype)

    def attend(self, q: torch.Tensor, *, mask=None, score=None, sinks=None) -> torch.Tensor:
        """Attention of q (B, H, Q, D), the rows that were appended last -> (B, H, Q, E); padding rows give 0."""
        longest = int(self.lengths.max(initial=0))
        rules = [] if self.window is None else [window(self.window)]
        if (self.lengths - self._start != q.shape[2]).any() or (self.lengths != longest).any():
            rules.append(lengths(self.lengths, self.lengths))
        for rule in rules:
            mask = rule if mask is None else mask & rule
        return attention(
            q,
            self.k[:, :, :longest],
            self.v[:, :, :longest],
            mask=mask,
            score=score,
            sinks=sinks,
            query_start=self._start,
        )

    def drop(self, sequences) -> None:
        """Removes these sequences (an index or several); the others keep their order."""
        self.reorder(np.setdiff1d(np.arange(len(self)), np.atleast_1d(sequences) % max(len(self), 1)))

    def reorder(self, sequences) -> None:
        """Selects these sequences in this order; an index that occurs twice duplicates its sequence."""
        chosen = np.atleast_1d(sequences).astype(np.int64)
        self.lengths, self._start = self.lengths[chosen], self._start[chosen]
        self.k, self.v = (kept[torch.as_tensor(chosen, device=kept.device)] for kept in (self.k, self.v))

    def _make_room(self, rows: int) -> None:
        if rows > self.k.shape[2]:
            more = max(rows, 2 * self.k.shape[2]) - self.k.shape[2]
            self.k, self.v = (torch.nn.functional.pad(kept, (0, 0, 0, more)) for kept in (self.k, self.v))


class Taking:
    """A cache that appends only the first rows (B,) of each sequence, for layers that pass padded rows."""

    def __init__(self, cache, rows):
        self.cache, self.rows = cache, rows

    @property
    def lengths(self) -> np.ndarray:
        return self.cache.lengths

    def append(self, k, v) -> None:
        """Appends the first `rows` of each sequence."""
        self.cache.append(k, v, rows=self.rows)

    def attend(self, q, **rules):
        """Attention of the rows appended last, padding included."""
        return self.cache.attend(q, **rules)


def cache_for(like: torch.Tensor, heads: int, depth: int, value_depth=None, *, batch: int = 1, window=None):
    """An empty cache on the device of this tensor and in its dtype, or in the dtype of autocast where it is enabled.

    >>> cache_for(torch.zeros(1, dtype=torch.bfloat16), 2, 16)
    KVCache(2 heads × 16, bfloat16; lengths [0], 0 bytes)
    """
    kind = like.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype
    if kind == "cpu":
        return KVCache(heads, depth, value_depth, batch=batch, dtype=dtype, window=window)
    return TensorCache(heads, depth, value_depth, batch=batch, dtype=dtype, device=like.device, window=window)
