"""The cache of latent attention: a row's values are the first numbers of its key, and are kept once."""

from __future__ import annotations

import numpy as np

from ...api.kv_cache import KVCache
from ...api.kv_cache.reader import Reader
from ...api.kv_cache.storage import Rows

__all__ = ["LatentCache"]


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
        self.whole, self.heads, self.depth, self.dtype, self.in_place = (
            whole,
            whole.heads,
            depth,
            whole.dtype,
            whole.in_place,
        )

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
