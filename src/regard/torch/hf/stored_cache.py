"""Layers of transformers' caches whose keys and values are in a `KVCache`: in 8 bits, or in pages."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map_only
from transformers.cache_utils import DynamicLayer

from ...api.kv_cache import KVCache
from ...common.arrays import like
from ...common.errors import Refused, refuse
from ...common.public import Engine
from ...language.checks.arguments import Arguments

RULES = ("mask", "score", "scale", "query_start", "sinks", "batch_start", "head_start")


class StoredRows(torch.Tensor):
    """The keys or values (B, G, K, depth) of a `KVCache`, which attention on regard reads where they are.

    Every operator of torch gets a copy of them in the dtype of the cache, in which
    released rows are 0; none writes to them.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    cache: KVCache
    read: Callable[[int], np.ndarray]

    @classmethod
    def of(cls, cache: KVCache, dtype: torch.dtype) -> tuple[StoredRows, StoredRows]:
        """The keys and the values of a cache whose sequences have equal lengths."""
        shape = len(cache), cache.heads, int(cache.lengths.max(initial=0))

        def rows(depth: int, read: Callable[[int], np.ndarray]) -> StoredRows:
            made = cls._make_wrapper_subclass(cls, (*shape, depth), dtype=dtype)
            made.cache, made.read = cache, read
            return made

        return rows(cache.depth, cache.keys), rows(cache.value_depth, cache.values)

    def copied(self) -> torch.Tensor:
        """The rows as a tensor in memory of its own."""
        whole, cache = torch.zeros(self.shape, dtype=self.dtype), self.cache
        for sequence, rows in enumerate(whole):
            first = cache.held(sequence).start
            rows[:, first:] = like(whole, self.read(sequence))[:, : max(self.shape[2] - first, 0)]
        return whole

    def __deepcopy__(self, memo):
        return self.copied()

    def __dlpack__(self, **options):
        return self.copied().__dlpack__(**options)

    def attention(
        self, query: torch.Tensor, value: torch.Tensor, arguments: Arguments, engine: Engine
    ) -> torch.Tensor | None:
        """(B, Q, H, E) of query (B, H, Q, D) with these keys and their values; None if they are not all that the cache
        has, or not its own.
        """
        cache = self.cache
        whole = type(value) is StoredRows and value.cache is cache and (cache.lengths == self.shape[2]).all()
        if not whole or query.shape[0] != self.shape[0]:
            return None
        rules = {name: each for name, each in arguments._asdict().items() if name in RULES}
        if arguments.query_start is None and (cache.lengths - cache.newest_start != query.shape[2]).any():
            rules["query_start"] = self.shape[2] - query.shape[2]
        return cache.attend(query, engine=engine, **rules).transpose(1, 2).contiguous()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        arguments, kwargs = function._schema.arguments, kwargs or {}
        written = {argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write}
        names = zip((argument.name for argument in arguments), args)
        if any(name in written and type(each) is StoredRows for name, each in (*names, *kwargs.items())):
            raise _cannot_write(f"{function} of them")
        args, kwargs = tree_map_only(StoredRows, StoredRows.copied, (args, kwargs))
        return function(*args, **kwargs)


def _cannot_write(given: str) -> Refused:
    return refuse(
        "regard.torch.hf.Cache",
        "keys and values in pages, or in 8 bits, cannot be written to",
        given,
        "cache.update, crop, reorder_cache and the other methods of the cache",
        "change a copy: keys.clone()",
    )


def _rows(number: int) -> Any:
    """The keys (0) or values (1) of a layer; None before its first update."""

    def read(layer: StoredLayer) -> StoredRows | None:
        return None if layer.store is None else StoredRows.of(layer.store, layer.dtype)[number]

    def empty(layer: StoredLayer, rows: None) -> None:
        if rows is not None:
            raise _cannot_write("other rows in their place")
        layer.store = None

    return property(read, empty)


class StoredLayer(DynamicLayer):
    """The keys and values of a layer in a `KVCache`.

    Positions count from the first token, also in a layer with a window, of which the rows that no later row attends to
    are released, a page at a time.

    Args:
        window: the most recent positions that a row attends to; None means all.
        options: storage and pages of the `KVCache`.
    """

    keys, values = _rows(0), _rows(1)

    def __init__(self, window: int | None, **options: Any):
        super().__init__()
        self.window, self.options = window, options
        self.is_sliding = window is not None
        self.store: KVCache | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"store": copy.deepcopy(self.store)}  # a copy goes on alone

    def lazy_initialization(self, key_states, value_states) -> None:
        """An empty cache for keys and values of these shapes."""
        self.dtype, self.device = torch.promote_types(key_states.dtype, value_states.dtype), key_states.device
        B, G, _, D = key_states.shape
        self.store = KVCache(
            G, D, value_states.shape[-1], batch=B, dtype=self.dtype, window=self.window, **self.options
        )
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        """Appends rows; returns all that there are."""
        if torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad):
            raise refuse(
                "regard.torch.hf.Cache",
                "a cache in 8 bits, or in pages, has no gradients",
                "keys or values that require gradients",
                "a call without gradients",
                "call the model inside torch.no_grad(), or train with use_cache=False",
            )
        if self.store is None:
            self.lazy_initialization(key_states, value_states)
        assert self.store is not None
        self.store.append(
            *(each.to(torch.promote_types(each.dtype, self.dtype)) for each in (key_states, value_states))
        )
        return StoredRows.of(self.store, self.dtype)

    def get_seq_length(self) -> int:
        """The number of positions that were appended."""
        return 0 if self.store is None else int(self.store.lengths.max(initial=0))

    def activate_past_recording(self) -> None:
        """Keeps all rows, so that any of them can be cropped."""
        self.window = None if self.store is None else self.window

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last -tokens_to_remove rows."""
        if self.store is not None:
            self.store.truncate(np.int64(self.get_seq_length() + tokens_to_remove))

    def reorder_cache(self, beam_idx) -> None:
        """Selects entries of the batch in this order; repeated ones share their pages until one writes to them."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats each entry of the batch; they share their pages until one writes to them."""
        if self.store is not None:
            self.store.reorder(np.repeat(np.arange(len(self.store)), repeats))

    def batch_select_indices(self, indices) -> None:
        """Selects entries of the batch."""
        if self.store is not None:
            self.store.reorder(np.arange(len(self.store))[indices.cpu().numpy()])
