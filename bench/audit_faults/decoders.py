"""Decoders written by hand in several styles, and the faults of key/value caches that are planted into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, TOKENS, LAYERS, LONGEST = 32, 4, 60, 2, 64
DEPTH = WIDTH // HEADS
Cache = Sequence[tuple[torch.Tensor, torch.Tensor]]

# Faults by name: words of the causes that are right, and the positions of the hosts that can have the fault, or all.
FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "not appended": (("not appended",), ()),
    "appended twice": (("twice",), ()),
    "overwritten": (("replace",), ()),
    "kept unrotated": (("unrotated",), ("rotary",)),
    "positions restart": (("restart",), ("learned", "rotary")),
    "no offset of the bias": (("offset",), ("ALiBi", "T5")),
    "top left": (("top left",), ()),
    "first entry only": (("first entry",), ()),
    "not reordered": (("reordering",), ()),
    "raises": (("does not support",), ()),
    # held back
    "prepended": (("order",), ()),
    "upper layers ahead": (("ahead",), ("rotary",)),
    "no mask among new tokens": (("no causal mask",), ()),
    "entries swapped": (("mixed up",), ()),
    "keys alone reordered": (("reordering",), ()),
    "values lost": (("values",), ()),
    "query unrotated": (("query is not rotated",), ("rotary",)),
    "mask too short": (("mask of a step hides",), ()),
    "off by one": (("too large",), ("learned", "rotary")),
}
HELD_BACK = list(FAULTS)[10:]

# (style of attention, positions, where the cache is); those of the second list are held back.
HOSTS = [
    ("einsum", "learned", "past"),
    ("sdpa", "rotary", "past"),
    ("matmul", "rotary", "buffer"),
    ("sdpa", "ALiBi", "dicts"),
    ("einsum", "rotary", "dicts"),
    ("matmul", "ALiBi", "past"),
]
HOSTS_HELD_BACK = [
    ("bmm", "T5", "stacked"),
    ("bmm", "rotary", "attribute"),
    ("einsum", "ALiBi", "method"),
    ("sdpa", "rotary", "closure"),
    ("matmul", "T5", "stacked"),
    ("bmm", "learned", "attribute"),
]


def fits(fault: str, host: tuple[str, str, str]) -> bool:
    """Whether a host can have a fault."""
    _, places, form = host
    if "reordered" in fault and form not in ("past", "dicts"):
        return False
    if form == "buffer" and fault in ("not appended", "appended twice", "overwritten"):
        return False  # its keys are written at their positions
    return not FAULTS[fault][1] or places in FAULTS[fault][1]


def host(style: str, places: str, form: str, fault: str | None = None) -> tuple[Any, dict[str, Any]]:
    """(a decoder, healthy or with a fault; the arguments of `audit`)."""
    arguments = {"inputs": torch.randint(1, TOKENS, (1, 17)), "causal": True}
    model = FORMS.get(form, Past)(style, places, fault).eval()
    if form == "method":
        return model.forward, arguments
    return (lambda ids, past=None: model(ids, past)) if form == "closure" else model, arguments


def rotated(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Rotary positions, in halves."""
    half = x.shape[-1] // 2
    angles = at[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    (a, b), cos, sin = x.split(half, -1), angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Decoder(nn.Module):
    """Two layers of attention over tokens. Subclasses say where the cache is."""

    def __init__(self, style: str, places: str, fault: str | None):
        super().__init__()
        self.style, self.places, self.fault = style, places, fault
        self.table, self.rows = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LONGEST + 2, WIDTH)
        self.projections = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.outputs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.relative, self.head = nn.Embedding(16, HEADS), nn.Linear(WIDTH, TOKENS)

    def decode(self, ids: torch.Tensor, cache: Cache | None, start: int) -> tuple[torch.Tensor, Cache]:
        """(logits of these tokens, the cache with them) after `start` tokens."""
        fault = self.fault if start else None  # every fault is one of the steps over a cache
        entries, n = ids.shape
        if fault == "raises":
            raise RuntimeError("shape '[1, 17, 4, 8]' is invalid")
        first = {"positions restart": 0, "off by one": start + 1}.get(fault or "", start)
        at = torch.arange(first, first + n)
        x = self.table(ids) + (self.rows(at) if self.places == "learned" else 0)
        kept = []
        for layer in range(LAYERS):
            q, k, v = (
                part.view(entries, n, HEADS, DEPTH).transpose(1, 2) for part in self.projections[layer](x).chunk(3, -1)
            )
            if self.places == "rotary":
                places = at + (fault == "upper layers ahead" and layer > 0)
                q = q if fault == "query unrotated" else rotated(q, places)
                k = k if fault == "kept unrotated" else rotated(k, places)
            (keys, values), keep = self.joined(k, v, cache[layer] if cache and start else None, fault)
            kept.append(keep)
            mixed = self.attended(q, keys, values, self.seen(n, keys.shape[2], fault), self.bias(n, keys, fault))
            x = x + self.outputs[layer](mixed.transpose(1, 2).reshape(entries, n, WIDTH))
        return self.head(x), kept

    def joined(self, k: Any, v: Any, past: Any, fault: str | None) -> tuple[Any, Any]:
        """(the keys and values of a step, those that are kept)."""
        if past is None:
            return (k, v), (k, v)
        before, values = past
        if fault == "entries swapped":
            before = before.flip(0)
        if fault == "first entry only":
            before, values = before[:1].expand_as(before), values[:1].expand_as(values)
        if fault == "values lost":
            values = values * 0
        if fault == "overwritten":
            before, values = before[:, :, k.shape[2] :], values[:, :, k.shape[2] :]
        pair = torch.cat([k, before] if fault == "prepended" else [before, k], 2), torch.cat([values, v], 2)
        if fault == "not appended":
            return pair, past
        return pair, (torch.cat([pair[0], k], 2), torch.cat([pair[1], v], 2)) if fault == "appended twice" else pair

    def seen(self, n: int, keys: int, fault: str | None) -> torch.Tensor:
        """(n, keys): what each row attends to."""
        causal = torch.ones(n, keys).tril(keys - n).bool()
        if n > 1 and fault == "top left":
            return torch.ones(n, keys).tril().bool()
        if n > 1 and fault == "no mask among new tokens":
            return torch.ones_like(causal)
        return causal & (torch.arange(keys) > 0) if fault == "mask too short" else causal

    def bias(self, n: int, keys: torch.Tensor, fault: str | None) -> torch.Tensor:
        """What is added to the scores."""
        count = keys.shape[2]
        rows = torch.arange(n) + (0 if fault == "no offset of the bias" else count - n)
        distance = (rows[:, None] - torch.arange(count)).clamp(min=0)
        if self.places == "T5":
            return self.relative(distance.clamp(max=15)).permute(2, 0, 1)
        slopes = 0.5 ** torch.arange(1, HEADS + 1) if self.places == "ALiBi" else torch.zeros(HEADS)
        return -distance * slopes[:, None, None]

    def attended(self, q: Any, k: Any, v: Any, seen: Any, bias: Any) -> torch.Tensor:
        """The attention itself, in the style of the host."""
        added = bias.masked_fill(~seen, -math.inf).expand(len(q), HEADS, *seen.shape)
        if self.style == "sdpa":
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
        if self.style == "einsum":
            weights = (torch.einsum("bhid,bhjd->bhij", q, k) * DEPTH**-0.5 + added).softmax(-1)
            return torch.einsum("bhij,bhjd->bhid", weights, v)
        if self.style == "matmul":
            return torch.matmul((torch.matmul(q, k.mT) / math.sqrt(DEPTH) + added).softmax(-1), v)
        q, k, v, added = (part.flatten(0, 1) for part in (q, k, v, added))
        mixed = torch.bmm((torch.bmm(q, k.transpose(1, 2)) / math.sqrt(DEPTH) + added).softmax(-1), v)
        return mixed.unflatten(0, (-1, HEADS))

    def reordered(self, cache: Cache, order: torch.Tensor) -> Cache:
        """The cache with other entries."""
        if self.fault == "not reordered":
            return cache
        return [(k[order], v if self.fault == "keys alone reordered" else v[order]) for k, v in cache]


class Past(Decoder):
    """Takes and returns a list of pairs."""

    def forward(self, ids, past=None):
        return self.decode(ids, past, 0 if past is None else past[0][0].shape[2])

    def reorder_cache(self, past, order):
        return self.reordered(past, order)


class Dicts(Decoder):
    """Takes a list of dicts, and returns one where it is asked to."""

    def forward(self, ids, cache=None, use_cache=False):
        pairs = cache and [(held["k"], held["v"]) for held in cache]
        logits, kept = self.decode(ids, pairs, pairs[0][0].shape[2] if pairs else 0)
        return {"logits": logits, **({"cache": [{"k": k, "v": v} for k, v in kept]} if use_cache else {})}

    def _reorder_cache(self, cache, order):
        return [{"k": k, "v": v} for k, v in self.reordered([(held["k"], held["v"]) for held in cache], order)]


class Stacked(Decoder):
    """Takes and returns one tensor (layers, 2, entries, heads, positions, depth)."""

    def forward(self, x, kv=None):
        logits, kept = self.decode(
            x, None if kv is None else [tuple(layer) for layer in kv], 0 if kv is None else kv.shape[-2]
        )
        return logits, torch.stack([torch.stack(tuple(pair)) for pair in kept])


class Buffer(Decoder):
    """Writes into buffers, at the position that it is told."""

    def __init__(self, *how):
        super().__init__(*how)
        self.register_buffer("cache", torch.zeros(2, LAYERS, 4, HEADS, LONGEST, DEPTH), persistent=False)

    def forward(self, tokens, start_pos=0):
        held = self.cache[:, :, : len(tokens), :, :start_pos]
        logits, kept = self.decode(tokens, list(zip(*held)), start_pos)
        for layer, pair in enumerate(kept):
            for number, part in enumerate(pair):
                self.cache[number, layer, : len(tokens), :, : part.shape[2]] = part
        return logits


class Attribute(Decoder):
    """Keeps its cache as an attribute, where it is asked to."""

    cache: Cache | None = None

    def forward(self, ids, use_cache=False):
        if not use_cache:
            return self.decode(ids, None, 0)[0]
        logits, self.cache = self.decode(ids, self.cache, self.cache[0][0].shape[2] if self.cache else 0)
        return logits


FORMS = {"past": Past, "dicts": Dicts, "stacked": Stacked, "buffer": Buffer, "attribute": Attribute}
