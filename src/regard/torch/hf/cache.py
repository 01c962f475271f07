"""Caches of transformers that append keys and values in place, instead of copying all of them for each token."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, DynamicLayer, DynamicSlidingWindowLayer

from ...api.kv_cache import KVCache
from ...common.call_hooks import intercepted
from ...common.errors import refuse
from .stored_cache import StoredLayer

USUAL = DynamicLayer.update, DynamicSlidingWindowLayer.update
LEAST = 64  # rows of room after the first ones
SHARE = 4  # and a quarter of the rows that there are: each is then copied about four times in all
UNMASKED_WINDOWS = "moshi", "moshi_depth", "kyutai_speech_to_text"  # whose window only transformers' cache knows


class _Store:
    """Rows (B, G, n, D) in memory with room for more. rows: the view of those that are there."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None
        self.rows: torch.Tensor | None = None
        self.first = self.last = 0  # of the rows in the memory

    def append(self, kept: torch.Tensor, new: torch.Tensor, room: int) -> torch.Tensor:
        """A view of the rows `kept` and the new ones behind them; without room it begins in new memory."""
        count, more = kept.shape[-2] if kept.numel() else 0, new.shape[-2]
        memory = self.memory
        if memory is None or not self._holds(memory, kept, count) or self.last + more > memory.shape[-2]:
            memory = self.memory = new.new_empty(*new.shape[:-2], count + more + room, new.shape[-1])
            if count:
                memory[..., :count, :] = kept
            self.first, self.last = 0, count
        memory[..., self.last : self.last + more, :] = new
        self.last += more
        self.rows = memory[..., self.first : self.last, :]
        return self.rows

    def _holds(self, memory: torch.Tensor, kept: torch.Tensor, count: int) -> bool:
        """Whether `kept` is a view of rows in the memory, behind which rows may be written: those of the last append,
        or fewer of them.
        """
        if memory.is_inference() and not torch.is_inference_mode_enabled():
            return False
        if kept is self.rows:
            return True
        row = memory.stride(-2) * memory.itemsize
        first, rest = divmod(kept.data_ptr() - memory.data_ptr(), row)
        same = kept.stride() == memory.stride() and kept.shape[:-2] == memory.shape[:-2]
        if not same or rest or not self.first <= first <= first + count <= self.last:
            return False
        self.first, self.last = first, first + count
        return True


def _stores(layer: Any, new: torch.Tensor, values: torch.Tensor) -> tuple[_Store, _Store] | None:
    """Where the layer has its keys and values; None if this append is left to transformers: where operators are
    recorded or counted, in another dtype, with gradients, whose tensors must not change, and where a program has put
    another function in place of transformers' own.
    """
    if not layer.is_initialized:
        layer.lazy_initialization(new, values)
    if torch.is_grad_enabled() or intercepted(new) or new.is_meta or new.dtype != layer.keys.dtype:
        return None
    if (DynamicLayer.update, DynamicSlidingWindowLayer.update) != USUAL:
        return None
    if layer.__dict__.get("stores") is None:
        layer.stores = _Store(), _Store()
    return layer.stores


class _Copied:
    """A layer whose copies, and what is pickled of it, have memory of their own."""

    keys: Any
    values: Any

    def __getstate__(self) -> dict[str, Any]:
        own = dict(self.__dict__, stores=None)
        for name in ("keys", "values"):
            if isinstance(own.get(name), torch.Tensor):
                own[name] = own[name].clone()
        return own


class GrowingLayer(_Copied, DynamicLayer):
    """The keys and values of a layer, appended in place."""

    def update(self, key_states, value_states, *args, **kwargs):
        if (stores := _stores(self, key_states, value_states)) is None:
            return super().update(key_states, value_states, *args, **kwargs)
        room = LEAST + (self.get_seq_length() + key_states.shape[-2]) // SHARE
        self.keys = stores[0].append(self.keys, key_states, room)
        self.values = stores[1].append(self.values, value_states, room)
        return self.keys, self.values


class GrowingWindow(_Copied, DynamicSlidingWindowLayer):
    """The keys and values of a layer with a window, appended in place; each is moved once in a while."""

    def update(self, key_states, value_states, *args, **kwargs):
        stores = None if self.record_past else _stores(self, key_states, value_states)
        if stores is None:
            return super().update(key_states, value_states, *args, **kwargs)
        self.cumulative_length += key_states.shape[-2]
        room = LEAST + self.sliding_window
        keys = stores[0].append(self.keys, key_states, room)
        values = stores[1].append(self.values, value_states, room)
        self.keys, self.values = (each[:, :, -self.sliding_window + 1 :, :] for each in (keys, values))
        return keys, values


def use_growing_layers() -> None:
    """Makes these the layers of every DynamicCache that transformers creates from a configuration."""
    DYNAMIC_LAYER_TYPE_MAPPING.update(
        full_attention=GrowingLayer, sliding_attention=GrowingWindow, chunked_attention=GrowingWindow
    )


class Cache(DynamicCache):
    """A DynamicCache of transformers whose layers append in place, in 8 bits or in pages if you choose so.

    After `register()` every DynamicCache that is made from a configuration has layers that append in place, also the
    one that `generate` makes; this class needs no registration. Recurrent and indexed layers are those of transformers.
    The rows that `crop` removes are overwritten by the next ones, in views of the cache that were taken before too.

    With `storage` or `pages` each layer of attention has a `regard.KVCache`, whose pages attention on regard reads
    where they are; other implementations of attention get a copy in each step. Beams share the pages of what they have
    in common, and windows release theirs.

    Args:
        config: the configuration of the model.
        storage: "int8" stores rows in 8 bits with a scale for each row and head, with an error of up to 1/254 of the
            largest element of the row: n tokens of a layer take n · G · (D + E + 8) bytes. None means the dtype of the
            keys.
        pages: the size of the storage of each layer in pages of 128 positions, which all entries of the batch share;
            an append that does not fit raises `Refused`. None lets it grow.

    Raises:
        Refused: an invalid argument, a layer that has more than keys and values, or a model whose masks have no window;
            in an update, rows on another device than the CPU, or rows that require gradients.

    Examples:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> config = LlamaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> cache = Cache(config, storage="int8")
        >>> with torch.no_grad():
        ...     _ = LlamaForCausalLM(config)(torch.zeros(1, 3, dtype=torch.long), past_key_values=cache)
        >>> cache.get_seq_length()
        3
    """

    def __init__(self, config: PreTrainedConfig, *, storage: str | None = None, pages: int | None = None):
        super().__init__(config=config)
        stored = storage is not None or pages is not None
        options = {"storage": storage, "pages": pages}
        KVCache(1, 1, storage=storage, pages=pages)  # refuses what is invalid
        if stored and config.model_type in UNMASKED_WINDOWS:
            raise refuse(
                "regard.torch.hf.Cache",
                "the masks of this model have no window, only the cache of transformers has",
                f"a {config.model_type} with storage or pages",
                "a model whose masks hide what a window hides",
                "omit storage and pages",
            )
        self.layers: list[Any] = [_stored(layer, options) if stored else _growing(layer) for layer in self.layers]


def _stored(layer: Any, options: dict[str, Any]) -> Any:
    """The same layer, empty, over a `KVCache` with these options; a layer without keys is unchanged."""
    if not isinstance(layer, DynamicLayer):
        return layer
    if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer, GrowingLayer, GrowingWindow):
        raise refuse(
            "regard.torch.hf.Cache",
            "a layer has more than keys and values",
            f"{type(layer).__name__}",
            "layers of full attention or with a window, and recurrent ones",
            "omit storage and pages",
        )
    return StoredLayer(getattr(layer, "sliding_window", None), **options)


def _growing(layer: Any) -> Any:
    """The same layer, empty, that appends in place; a layer of another kind is unchanged."""
    if type(layer) is DynamicLayer:
        return GrowingLayer()
    return GrowingWindow(layer.sliding_window) if type(layer) is DynamicSlidingWindowLayer else layer
