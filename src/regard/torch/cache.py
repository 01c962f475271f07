"""Key/value caches for models: `rg.KVCache` on the CPU, plain tensors on every other device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ..api.kv_cache import KVCache
from ..api.kv_cache.checks import checked_lengths, rows_taken
from ..common.errors import Reason, Refused
from ..language.masks import lengths, window
from .functional import attention


class Held(NamedTuple):
    """Everything that the methods of a `TensorCache` change.

    k, v: (B, G, capacity, depth). lengths (B,): positions appended so far. start (B,): those before the last append.
    """

    k: torch.Tensor
    v: torch.Tensor
    lengths: np.ndarray
    start: np.ndarray


class TensorCache:
    """The keys and values of one attention layer as tensors, with the methods of `rg.KVCache` that models call.

    out = softmax(score(q kᵀ / √D) where mask) v, over the keys that the row's own sequence has appended so far.

    The capacity doubles when it is full. Rows outside the window are masked, not removed. A method that raises, or is
    interrupted, leaves the cache as it was: it writes only after the last row of a sequence or to new tensors, and
    ends with the assignment of the new state.

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
        k = torch.zeros(batch, heads, 0, depth, dtype=dtype, device=device)
        v = torch.zeros(batch, heads, 0, depth if value_depth is None else value_depth, dtype=dtype, device=device)
        self.window = window
        self._held = Held(k, v, np.zeros(batch, np.int64), np.zeros(batch, np.int64))

    def __len__(self) -> int:
        return len(self._held.lengths)

    @property
    def lengths(self) -> np.ndarray:
        """(B,) how many positions each sequence has appended."""
        return self._held.lengths.copy()

    def append(self, k: torch.Tensor, v: torch.Tensor, rows=None) -> None:
        """Appends keys (B, G, new, D) and values (B, G, new, E); rows (B,): how many of them each sequence has."""
        held = self._held
        reasons = [
            Reason(
                f"{name} does not fit the cache",
                f"{tuple(new.shape)}",
                f"{(*kept.shape[:2], 'new', kept.shape[3])}",
                "use one cache for each layer, with a sequence for each row of the batch",
            )
            for name, new, kept in (("k", k, held.k), ("v", v, held.v))
            if new.ndim != 4 or (*new.shape[:2], new.shape[3]) != (*kept.shape[:2], kept.shape[3])
        ]
        width, start = k.shape[2], held.lengths
        taken = np.full(len(start), width) if rows is None else rows_taken(rows, len(start), width, reasons)
        if reasons:
            raise Refused("TensorCache.append", reasons)
        # Padding is written too, after the last row; the next append overwrites it.
        own_k, own_v = (_with_room(kept, int(start.max(initial=0)) + width) for kept in held[:2])
        sequences = torch.arange(len(start), device=k.device)[:, None]
        places = torch.as_tensor(start, device=k.device)[:, None] + torch.arange(width, device=k.device)
        for kept, new in ((own_k, k), (own_v, v)):
            kept[sequences, :, places] = new.detach().transpose(1, 2).to(kept.dtype)
        self._held = Held(own_k, own_v, start + taken, start)

    def truncate(self, lengths) -> None:
        """Removes the last rows of sequences; lengths: how many positions remain, one integer or (B,)."""
        held = self._held
        first = np.zeros_like(held.lengths)
        target = checked_lengths(lengths, held.lengths, None, first, "TensorCache.truncate")
        self._held = held._replace(lengths=target, start=np.minimum(held.start, target))

    def attend(self, q: torch.Tensor, *, mask=None, score=None, sinks=None, head_start=None) -> torch.Tensor:
        """Attention of q (B, H, Q, D), the rows that were appended last -> (B, H, Q, E); padding rows give 0.

        head_start: the number of the first query head, if the cache holds some heads of a model.
        """
        held = self._held
        longest = int(held.lengths.max(initial=0))
        rules = [] if self.window is None else [window(self.window)]
        if (held.lengths - held.start != q.shape[2]).any() or (held.lengths != longest).any():
            rules.append(lengths(held.lengths, held.lengths))
        for rule in rules:
            mask = rule if mask is None else mask & rule
        k, v = held.k[:, :, :longest], held.v[:, :, :longest]
        places = {"query_start": held.start, "head_start": head_start}
        return attention(q, k, v, mask=mask, score=score, sinks=sinks, **places)

    def drop(self, sequences) -> None:
        """Removes these sequences (an index or several); the others keep their order."""
        self.reorder(np.setdiff1d(np.arange(len(self)), np.atleast_1d(sequences) % max(len(self), 1)))

    def reorder(self, sequences) -> None:
        """Selects these sequences in this order; an index that occurs twice duplicates its sequence."""
        held, chosen = self._held, np.atleast_1d(sequences).astype(np.int64)
        k, v = (kept[torch.as_tensor(chosen, device=kept.device)] for kept in held[:2])
        self._held = Held(k, v, held.lengths[chosen], held.start[chosen])


def _with_room(kept: torch.Tensor, rows: int) -> torch.Tensor:
    """A tensor (B, G, capacity, depth) with room for this many rows."""
    more = max(rows, 2 * kept.shape[2]) - kept.shape[2]
    return torch.nn.functional.pad(kept, (0, 0, 0, more)) if rows > kept.shape[2] else kept


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
