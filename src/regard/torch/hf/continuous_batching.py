"""Continuous batching of transformers (`generate_batch`, `transformers serve`) on regard: rows of many requests in one
call, and keys and values in pages, which rows that continue a request read in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers.generation.continuous_batching import cache, continuous_api, initialization

from ...api.kv_cache.pages import PAGE
from ...common.arrays import like, read_array
from ...common.public import Engine
from ...engines.jit.code.target import host
from ...engines.jit.decode import Decoder
from ...engines.jit.threads import count
from ...language.checks.arguments import Arguments
from ...language.masks import causal, window
from ...language.problem import Problem
from ...observe.recorder import NAME
from ..functional import attention_rows_first

ROOM = 1024  # a kernel is prepared for multiples of so many keys


def admit() -> None:
    """Lets continuous batching run models on regard.

    transformers admits implementations by their names: those that read a mask of all rows and keys, and flash
    attention, which reads where each request begins instead, as regard does.
    """
    for module in (cache, continuous_api, initialization):
        if not isinstance(module.is_flash_attention_requested, _ReadsStarts):
            module.is_flash_attention_requested = _ReadsStarts(module.is_flash_attention_requested)
    cache.PagedAttentionCache.update = _passed_on


_update = cache.PagedAttentionCache.update


def _passed_on(self, key_states, value_states, layer_idx, kwargs):
    """`update`, which layers call themselves since transformers 5.24; regard writes and reads the pages itself."""
    if self.config._attn_implementation != NAME:
        return _update(self, key_states, value_states, layer_idx, kwargs)
    kwargs["cache"] = self
    return key_states, value_states


class _ReadsStarts:
    """Whether an implementation reads where each request begins; otherwise transformers' own function."""

    def __init__(self, usual: Callable[..., bool]):
        self.usual = usual

    def __call__(self, config=None, requested_attention_implementation=None, version=None) -> bool:
        name = requested_attention_implementation if config is None else config._attn_implementation
        return (name == NAME and version is None) or self.usual(config, requested_attention_implementation, version)


class Requests(NamedTuple):
    """What transformers says of the rows of a call.

    rows (n + 1,), keys (n + 1,): where requests begin among the rows of the call, and among the keys that they attend
    to. read, write: the places of old keys and new ones in the pages, where a new key's place is not read; without any
    old keys, `read` is empty. positions: of the rows, in their requests; None if the model does not pass them on.
    pages: transformers' allocator of the layer. stores: its keys and values (places, G, D). views: the same as pages
    (pages, page, G, D). span: the size of the ring that pages of a layer with a window are; None for all others.
    """

    rows: np.ndarray
    keys: np.ndarray
    read: np.ndarray
    write: np.ndarray
    positions: np.ndarray | None
    pages: Any
    stores: tuple[torch.Tensor, torch.Tensor]
    views: tuple[torch.Tensor, torch.Tensor]
    span: int | None

    @classmethod
    def taken_from(cls, module: torch.nn.Module, kwargs: dict[str, Any]) -> Requests | None:
        """The requests of a call of continuous batching, whose arguments are removed; None for other calls."""
        if not isinstance(kwargs.get("cache"), cache.PagedAttentionCache):
            return None
        pages: Any = kwargs.pop("cache").layer_to_allocator[module.layer_idx]
        for name in ("block_table", "logits_indices", "logits_processor_args"):
            kwargs.pop(name, None)
        read, write = (kwargs.pop(name)[pages.index].cpu().numpy() for name in ("read_index", "write_index"))
        starts = kwargs.pop("cu_seq_lens_q"), kwargs.pop("cu_seq_lens_k")[pages.layer_type]
        rows, keys = (each.cpu().numpy() for each in starts)
        ids = kwargs.get("position_ids")
        stores, views = pages._kv_token_views[module.layer_idx], pages._kv_page_views[module.layer_idx]
        span = pages.sliding_window if pages.layer_type == cache.SLIDING_ATTENTION else None
        return cls(rows, keys, read, write, None if ids is None else ids[0].cpu().numpy(), pages, stores, views, span)

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rules: Arguments, engine: Engine
    ) -> torch.Tensor:
        """out (1, rows, H, E): each row of query (1, H, rows, D) attends to the keys of its request up to its own.

        key and value (1, G, rows, D) are those of the rows; they are written to the pages.
        """
        out = query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1])
        new = [each[0].transpose(0, 1) for each in (key, value)]
        sizes = np.diff(self.rows)
        old = np.diff(self.keys) - sizes if len(self.read) else np.zeros_like(sizes)
        steps = np.flatnonzero((sizes == 1) & (old > 0)) if self._in_place(query, engine) else sizes[:0]
        mask = causal() if self.span is None else window(self.span)
        for request in np.setdiff1d(np.arange(len(sizes)), steps):  # before their old keys are overwritten
            first, last, begin = self.rows[request], self.rows[request + 1], self.keys[request]
            places = torch.from_numpy(self.read[begin : begin + old[request]]).to(query.device)
            own = [
                torch.cat([store.index_select(0, places), rows[first:last]]) if len(places) else rows[first:last]
                for store, rows in zip(self.stores, new)
            ]
            k, v = (each.transpose(0, 1)[None] for each in own)
            arguments = rules._replace(mask=mask)
            out[:, first:last] = attention_rows_first(query[:, :, first:last], k, v, arguments, engine, NAME)
        places = torch.from_numpy(self.write).to(query.device)
        for store, rows in zip(self.stores, new):
            store.index_copy_(0, places, rows)
        if len(steps):
            rows = self.rows[steps]
            q = query[0].transpose(0, 1)[rows, :, None]
            out[0, rows] = self._steps(q, rules, old[steps], rows, self.keys[steps])[:, :, 0]
        return out

    def _in_place(self, query: torch.Tensor, engine: Engine) -> bool:
        """Whether rows that continue a request read the pages themselves."""
        known = self.span is None or self.positions is not None
        same = query.dtype == self.stores[0].dtype and engine in ("auto", "jit")
        return known and same and self.pages.tokens_per_page % PAGE == 0 and query.is_cpu

    def _steps(self, q: torch.Tensor, rules: Arguments, old, rows, begins) -> torch.Tensor:
        """(n, H, 1, E) for q (n, H, 1, D), the last rows of n requests with `old` keys before them.

        In a ring the order of keys is not that of their positions, which no rule reads.
        """
        page, span = self.pages.tokens_per_page, self.span
        ends = old + 1
        firsts = np.arange(-(-ends.max() // page)) * page  # of each page
        number = np.broadcast_to(firsts, (len(rows), len(firsts)))  # of the key there, among those of the request
        if span is not None and self.positions is not None:
            number = (number - (self.positions[rows] - old)[:, None]) % span
        is_old = number < old[:, None]
        places = self.read[np.where(is_old, begins[:, None] + number, 0)]
        places = np.where(is_old, places, self.write[rows][:, None])
        pools = [read_array(each.transpose(1, 2), NAME) for each in self.views]
        call = read_array(q, NAME)
        keys = -(-int(ends.max()) // ROOM) * ROOM
        sinks = None if rules.sinks is None else rules.sinks.detach().double().numpy().reshape(q.shape[1], -1)
        shapes = call.shape, (len(rows), pools[0].shape[1], keys, q.shape[3]), pools[1].shape[3]
        decoder = _decoder(shapes, call.dtype, page, rules._replace(sinks=None), sinks is not None, (count(), host()))
        table = np.ascontiguousarray(places // page, np.int32)
        out, _ = decoder(call, pools, table=table, start=np.zeros(len(rows), np.int64), ends=ends, sinks=sinks)
        return like(q, out)


@functools.lru_cache(maxsize=64)
def _decoder(shapes, dtype: np.dtype, page: int, rules: Arguments, sinks: bool, at: tuple) -> Decoder:
    """Attention of q to keys in pages, of these shapes, where each row attends to all keys of its request.

    at: the number of threads and the processor, for which a decoder is prepared.
    """
    q, k, depth = shapes
    zeros = [np.broadcast_to(np.zeros((), dtype), shape) for shape in (k, (*k[:3], depth))]
    rules = rules._replace(query_start=0, sinks=np.zeros(q[1], np.float32) if sinks else None)
    problem = Problem.of(np.zeros(q, dtype), *zeros, **rules._asdict(), where=NAME)
    return Decoder(problem, np.full(q[0], k[2], np.int64), 0, page)
