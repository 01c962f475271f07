"""Faults that are planted into whole models of five further layouts, such as windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, GROUPS, TOKENS, WORDS, LONGEST = 32, 4, 2, 15, 61, 64
DEPTH = WIDTH // HEADS
MASK, ROTARY, BUCKETS = (
    ("mask", "causal", "diagonal"),
    ("rotat", "rotary", "position"),
    ("bucket", "bias", "never read"),
)
PADDING, CACHE = ("pad", "mask"), ("cache", "append", "token", "entr")
ALL = ("fused", "swin", "buckets", "cached")

# Faults by name: words of the causes that are right, and the hosts that can have the fault.
FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scale missing": (("scale",), ALL),
    "scale of the groups": (("scale",), ("fused", "swin", "cached")),
    "softmax over queries": (("axis", "softmax"), ALL),
    "softmax twice": (("softmax", "twice", "weights"), ALL),
    "weights not normalized": (("softmax", "normal", "sum"), ("fused", "cached")),
    "powers of two": (("base", "scale", "softmax"), ("fused", "cached")),
    "scores without sign": (("softmax", "sign", "scores"), ("fused", "swin")),
    "merged without transpose": (("transpose", "merged", "reshape", "view"), ALL),
    "heads merged in another order": (("head", "order", "merged"), ("fused",)),
    "query heads of the next group": (("repeat", "tile", "group", "head"), ("fused",)),
    "rotary of values, not of keys": (ROTARY, ("fused",)),
    "rotary back for keys": (ROTARY, ("fused",)),
    "rotary of queries in other pairs": (ROTARY, ("fused",)),
    "rotary of half of the heads": (ROTARY, ("fused",)),
    "rotary base not as declared": ((*ROTARY, "base"), ("fused",)),
    "window not applied": (("window",), ("fused",)),
    "window one too long": (("window",), ("fused",)),
    "mask as a factor": (MASK, ("fused", "buckets", "cached")),
    "mask too weak": (MASK, ("fused", "buckets", "cached")),
    "mask transposed": (MASK, ("fused", "buckets", "cached")),
    "no causal mask": (MASK, ("fused", "buckets", "cached", "linear")),
    "padding ignored": (PADDING, ("fused", "buckets")),
    "padding inverted": (PADDING, ("fused", "buckets")),
    "memory padding ignored": (PADDING, ("buckets",)),
    "keys of the decoder": (("memory", "cross", "encoder", "never read", "keys"), ("buckets",)),
    "memory not passed": (("memory", "encoder", "never read", "input", "source"), ("buckets",)),
    "values of the projection of keys": (("never read", "values", "keys"), ("buckets", "cached", "swin")),
    "buckets without direction": (BUCKETS, ("buckets",)),
    "buckets of the other direction": (BUCKETS, ("buckets",)),
    "bias of the lower layer only": (BUCKETS, ("buckets", "swin")),
    "bias not added": (BUCKETS, ("buckets", "swin")),
    "bias of one head for all": ((*BUCKETS, "head"), ("buckets", "swin")),
    "shift without a mask": (("mask", "window", "shift"), ("swin",)),
    "mask of the shift inverted": (("mask", "window", "shift"), ("swin",)),
    "windows cut by view": (("transpose", "window", "view", "order"), ("swin",)),
    "attention over windows": (("batch", "window", "axis"), ("swin",)),
    "slopes reversed": (("slope",), ("cached",)),
    "slopes multiplied by the depth": (("slope", "scale", "bias"), ("cached",)),
    "no offset of the bias": ((*CACHE, "offset", "bias"), ("cached",)),
    "not appended": (CACHE, ("cached", "linear")),
    "cache of the lower layer": ((*CACHE, "layer"), ("cached",)),
    "cache of the last four": (CACHE, ("cached",)),
    "values appended in front": ((*CACHE, "order"), ("cached",)),
    "top left": ((*CACHE, "top left", "mask"), ("cached",)),
    "entries of the cache reversed": ((*CACHE, "batch", "mixed"), ("cached", "linear")),
}
HELD_BACK: list[str] = []
HOSTS = [*ALL, "linear"]
HOSTS_HELD_BACK: list[str] = []


def fits(fault: str, host: str) -> bool:
    """Whether a host can have a fault."""
    return host in FAULTS[fault][1]


def host(name: str, fault: str | None = None) -> tuple[Any, dict[str, Any]]:
    """(a model of two layers, healthy or with a fault; the arguments of `audit`)."""
    model = LAYOUTS[name](fault).eval()
    ids = torch.randint(1, WORDS, (1, TOKENS))
    if name == "fused":
        return model, {"inputs": {"input_ids": ids, "attention_mask": torch.ones(1, TOKENS, dtype=torch.long)}}
    if name == "swin":
        return model, {"inputs": {"images": torch.randn(1, 3, 16, 16)}}
    if name == "buckets":
        inputs = {
            "src": ids,
            "tgt": torch.randint(1, WORDS, (1, 11)),
            "src_pad": torch.zeros(1, TOKENS, dtype=torch.bool),
        }
        return model, {"inputs": inputs, "causal": True}
    return model, {"inputs": {"ids": ids}, "causal": True}


def _scale(fault: str | None) -> float:
    return {"scale missing": 1.0, "scale of the groups": (GROUPS * DEPTH) ** -0.5}.get(fault or "", DEPTH**-0.5)


def _weights(scores: torch.Tensor, fault: str | None) -> torch.Tensor:
    """The weights of masked scores over (…, rows, keys)."""
    if fault == "weights not normalized":
        return (scores - 1).exp()
    if fault == "powers of two":
        return (scores * math.log(2)).softmax(-1)
    if fault == "scores without sign":
        return torch.where(scores > -1e9, scores.abs(), scores).softmax(-1)
    weights = scores.softmax(-2 if fault == "softmax over queries" else -1)
    return weights.softmax(-1) if fault == "softmax twice" else weights


def _masked(scores: torch.Tensor, seen: torch.Tensor, fault: str | None) -> torch.Tensor:
    """The scores with a causal mask."""
    if fault == "mask as a factor":
        return scores * seen
    if fault == "no causal mask":
        return scores
    return scores.masked_fill(
        ~(seen.mT if fault == "mask transposed" else seen), -4.0 if fault == "mask too weak" else -1e30
    )


def _feed() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))


class Fused(nn.Module):
    """A decoder with one projection for all, partial rotary positions, windows in the upper layer, groups by einsum."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.config = SimpleNamespace(
            hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=DEPTH,
            rope_theta=10_000.0, sliding_window=5, layer_types=["full_attention", "sliding_attention"],
        )  # fmt: skip
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(FusedAttention(self.config, at, fault) for at in range(2))
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.feeds = nn.ModuleList(_feed() for _ in range(2))
        self.unembed = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, input_ids, attention_mask=None):
        x = self.embed(input_ids)
        for block, norm, feed in zip(self.blocks, self.norms, self.feeds):
            x = x + block(norm(x), attention_mask)
            x = x + feed(x)
        return {"logits": self.unembed(x)}


class FusedAttention(nn.Module):
    def __init__(self, config: Any, at: int, fault: str | None):
        super().__init__()
        self.config, self.fault = config, fault
        self.sliding_window = config.sliding_window if at else None
        self.qkv_proj = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * DEPTH, bias=False)
        self.dense = nn.Linear(WIDTH, WIDTH, bias=False)
        base = 100.0 if fault == "rotary base not as declared" else config.rope_theta
        self.register_buffer("inv_freq", base ** (-torch.arange(0, DEPTH, 2) / DEPTH), persistent=False)

    def forward(self, x, attention_mask):
        B, n, fault = len(x), x.shape[1], self.fault
        sizes = [HEADS * DEPTH, GROUPS * DEPTH, GROUPS * DEPTH]
        q, k, v = (part.unflatten(-1, (-1, DEPTH)).transpose(1, 2) for part in self.qkv_proj(x).split(sizes, -1))
        q = self.turned(q, other_pairs=fault == "rotary of queries in other pairs")
        if fault == "rotary of values, not of keys":
            v = self.turned(v)
        else:
            k = self.turned(k, -1 if fault == "rotary back for keys" else 1)
        if fault == "query heads of the next group":
            q = q.unflatten(1, (-1, GROUPS)).transpose(1, 2)
        else:
            q = q.unflatten(1, (GROUPS, -1))
        scores = torch.einsum("bgrqd,bgkd->bgrqk", q, k) * _scale(fault)
        at = torch.arange(n)
        seen = at[:, None] >= at
        if self.sliding_window and fault != "window not applied":
            seen = seen & (at[:, None] - at < self.sliding_window + (fault == "window one too long"))
        if attention_mask is not None and fault != "padding ignored":
            real = attention_mask[:, None, None, None] > 0
            seen = seen & (~real if fault == "padding inverted" and not real.all() else real)
        out = torch.einsum("bgrqk,bgkd->bgrqd", _weights(_masked(scores, seen, fault), fault), v)
        if fault == "heads merged in another order" or fault == "query heads of the next group":
            out = out.transpose(1, 2)
        out = out.flatten(1, 2)
        return self.dense((out if fault == "merged without transpose" else out.transpose(1, 2)).reshape(B, n, WIDTH))

    def turned(self, part, sign=1, other_pairs=False):
        """Rotary positions."""
        angles = sign * torch.arange(part.shape[2])[:, None] * self.inv_freq
        cos, sin = angles.cos(), angles.sin()
        if other_pairs:
            even, odd = part[..., ::2], part[..., 1::2]
            return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
        low, high = part.chunk(2, -1)
        turned = torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
        if self.fault == "rotary of half of the heads":
            return torch.cat([turned[:, : part.shape[1] // 2], part[:, part.shape[1] // 2 :]], 1)
        return turned


class Swin(nn.Module):
    """A classifier of pictures with attention in windows of 4 × 4 patches, shifted in the upper layer."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 2, 2)
        self.layers = nn.ModuleList(SwinAttention(2 * at, fault) for at in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.feeds = nn.ModuleList(_feed() for _ in range(2))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images):
        x = self.patches(images).permute(0, 2, 3, 1)
        for layer, norm, feed in zip(self.layers, self.norms, self.feeds):
            x = x + layer(norm(x))
            x = x + feed(x)
        return self.head(x.mean((1, 2)))


class SwinAttention(nn.Module):
    SIDE = 4

    def __init__(self, shift: int, fault: str | None):
        super().__init__()
        self.num_heads, self.shift, self.fault, self.scale = HEADS, shift, fault, _scale(fault)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * self.SIDE - 1) ** 2, HEADS))
        places = torch.cartesian_prod(torch.arange(self.SIDE), torch.arange(self.SIDE))
        apart = places[:, None] - places + self.SIDE - 1
        self.register_buffer("relative_position_index", apart[..., 0] * (2 * self.SIDE - 1) + apart[..., 1])

    def windows(self, x):
        """(B · windows, patches of a window, …)."""
        B, rows, columns, C = x.shape
        if self.fault == "windows cut by view":
            return x.reshape(-1, self.SIDE**2, C)
        cut = x.view(B, rows // self.SIDE, self.SIDE, columns // self.SIDE, self.SIDE, C)
        return cut.transpose(2, 3).reshape(-1, self.SIDE**2, C)

    def forward(self, x):
        B, rows, columns, C = x.shape
        fault, size = self.fault, self.SIDE**2
        moved = torch.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        parts = self.windows(moved)
        qkv = self.qkv(parts).view(len(parts), size, 3, HEADS, DEPTH).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        v = k if fault == "values of the projection of keys" else v
        if fault == "attention over windows":
            q, k, v = (part.transpose(0, 2) for part in (q, k, v))
        scores = q @ k.transpose(-2, -1)
        if (
            fault != "bias not added"
            and not (fault == "bias of the lower layer only" and self.shift)
            and scores.shape[-1] == size
        ):
            table = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
            scores = scores + (table[:1] if fault == "bias of one head for all" else table)
        if self.shift and fault not in ("shift without a mask", "attention over windows"):
            region = torch.zeros(1, rows, columns, 1)
            cuts = (slice(0, -self.SIDE), slice(-self.SIDE, -self.shift), slice(-self.shift, None))
            for number, (down, right) in enumerate((down, right) for down in cuts for right in cuts):
                region[:, down, right] = number
            region = self.windows(region).squeeze(-1)
            other = (region[:, None] != region[:, :, None]) != (fault == "mask of the shift inverted")
            scores = (scores.unflatten(0, (B, -1)) + (other * -100.0)[None, :, None]).flatten(0, 1)
        out = _weights(scores, fault) @ v
        out = out.transpose(0, 2) if fault == "attention over windows" else out
        out = out if fault == "merged without transpose" else out.transpose(1, 2)
        out = self.proj(out.reshape(len(parts), size, C))
        if fault != "windows cut by view":
            out = out.view(B, rows // self.SIDE, columns // self.SIDE, self.SIDE, self.SIDE, C).transpose(2, 3)
        out = out.reshape(B, rows, columns, C)
        return torch.roll(out, (self.shift, self.shift), (1, 2)) if self.shift else out


class Buckets(nn.Module):
    """An encoder–decoder with relative positions in buckets, which all layers of a stack share."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.shared, self.fault = nn.Embedding(WORDS, WIDTH), fault
        self.encoder = nn.ModuleList(BucketsAttention(fault) for _ in range(2))
        self.decoder = nn.ModuleList(BucketsAttention(fault) for _ in range(2))
        self.cross = nn.ModuleList(BucketsAttention(fault) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(7))
        self.feeds = nn.ModuleList(_feed() for _ in range(4))
        self.encoder_bias, self.decoder_bias = nn.Embedding(16, HEADS), nn.Embedding(16, HEADS)
        self.out = nn.Linear(WIDTH, WORDS)

    def bias(self, table, n, both_sides, at):
        """(1, heads, n, n) from 16 buckets."""
        if self.fault == "bias not added" or (self.fault == "bias of the lower layer only" and at):
            return 0.0
        apart = torch.arange(n)[None] - torch.arange(n)[:, None]
        if both_sides:
            sides = 0 if self.fault == "buckets without direction" else 8 * (apart > 0)
            bucket, half, exact = apart.abs(), 8, 4
        else:
            apart = -apart if self.fault == "buckets of the other direction" else apart
            sides, bucket, half, exact = 0, -apart.clamp(max=0), 16, 8
        far = exact + (torch.log(bucket.clamp(min=1) / exact) / math.log(32 / exact) * (half - exact)).long()
        bucket = sides + torch.where(bucket < exact, bucket, far.clamp(max=half - 1))
        made = table(bucket).permute(2, 0, 1)[None]
        return made[:, :1] if self.fault == "bias of one head for all" else made

    def forward(self, src, tgt, src_pad=None):
        real = torch.ones(1, 1, 1, src.shape[1], dtype=torch.bool) if src_pad is None else ~src_pad[:, None, None]
        real = ~real if self.fault == "padding inverted" and not real.all() else real
        own = torch.ones_like(real) if self.fault == "padding ignored" else real
        memory_real = torch.ones_like(real) if self.fault in ("padding ignored", "memory padding ignored") else real
        x = start = self.shared(src)
        for at in range(2):
            y = self.norms[at](x)
            x = x + self.encoder[at](y, y, own, self.bias(self.encoder_bias, x.shape[1], True, at))
            x = x + self.feeds[at](x)
        memory = start if self.fault == "memory not passed" else self.norms[2](x)
        x = self.shared(tgt)
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        for at in range(2):
            y = self.norms[3 + at](x)
            x = x + self.decoder[at](y, y, seen, self.bias(self.decoder_bias, x.shape[1], False, at), causal=True)
            y = self.norms[5 + at](x)
            if self.fault == "keys of the decoder":
                x = x + self.cross[at](y, y, seen)
            else:
                x = x + self.cross[at](y, memory, memory_real)
            x = x + self.feeds[2 + at](x)
        return self.out(x)


class BucketsAttention(nn.Module):
    def __init__(self, fault: str | None):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.n_heads, self.key_value_proj_dim, self.fault = HEADS, DEPTH, fault

    def forward(self, x, memory, seen, bias=0.0, causal=False):
        values = self.k if self.fault == "values of the projection of keys" else self.v
        q, k, v = (
            part.view(len(x), -1, HEADS, DEPTH).transpose(1, 2) for part in (self.q(x), self.k(memory), values(memory))
        )
        scores = torch.matmul(q, k.transpose(3, 2)) * _scale(self.fault) + bias
        scores = _masked(scores, seen, self.fault if causal else None)
        out = torch.matmul(_weights(scores, self.fault), v)
        out = out if self.fault == "merged without transpose" else out.transpose(1, 2)
        return self.o(out.contiguous().view(x.shape[0], -1, WIDTH))


class Cached(nn.Module):
    """A decoder with a key/value cache that it takes and returns, over one of the two attentions below."""

    def __init__(self, attention: Callable[..., nn.Module], fault: str | None):
        super().__init__()
        self.emb, self.fault = nn.Embedding(WORDS, WIDTH), fault
        self.attns = nn.ModuleList(attention(fault) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.feeds = nn.ModuleList(_feed() for _ in range(2))
        self.logits = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, past=None):
        x, present = self.emb(ids), []
        for at in range(2):
            layer = 0 if self.fault == "cache of the lower layer" else at
            out, kept = self.attns[at](self.norms[at](x), None if past is None else past[layer])
            present.append(kept)
            x = x + out
            x = x + self.feeds[at](x)
        return self.logits(x), tuple(present)


class CachedAttention(nn.Module):
    """Attention with ALiBi."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.heads, self.fault = HEADS, fault

    def forward(self, x, past):
        fault = self.fault
        q, k, v = (part.unflatten(-1, (HEADS, DEPTH)).transpose(1, 2) for part in (self.wq(x), self.wk(x), self.wv(x)))
        v = k if fault == "values of the projection of keys" else v
        if past is not None:
            old_k, old_v = past
            if fault == "entries of the cache reversed":
                old_k, old_v = old_k.flip(0), old_v.flip(0)
            if fault == "cache of the last four":
                old_k, old_v = old_k[:, :, -4:], old_v[:, :, -4:]
            k = torch.cat([old_k, k], 2)
            v = torch.cat([v, old_v] if fault == "values appended in front" else [old_v, v], 2)
        kept = (k, v) if fault != "not appended" or past is None else past
        n, m = q.shape[2], k.shape[2]
        rows = torch.arange(n)[:, None] + (0 if fault == "no offset of the bias" else m - n)
        slopes = 2.0 ** (-8 * torch.arange(1, HEADS + 1) / HEADS)
        slopes = slopes.flip(0) if fault == "slopes reversed" else slopes
        slopes = slopes * DEPTH if fault == "slopes multiplied by the depth" else slopes
        bias = -(rows - torch.arange(m)).abs() * slopes[:, None, None]
        scores = q @ k.transpose(2, 3) * _scale(fault) + bias
        own = torch.arange(n)[:, None] + (0 if fault == "top left" else m - n)
        out = _weights(_masked(scores, torch.arange(m) <= own, fault if n == m else None), fault) @ v
        out = out if fault == "merged without transpose" else out.transpose(1, 2)
        return self.wo(out.reshape(x.shape)), kept


class LinearAttention(nn.Module):
    """Attention without a softmax: sums of products of keys and values, and of keys."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.fault = fault

    def forward(self, x, past):
        q, k, v = (part.unflatten(-1, (HEADS, DEPTH)) for part in (self.wq(x), self.wk(x), self.wv(x)))
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
        pairs = k[..., None] * v[..., None, :]
        every = self.fault == "no causal mask" and past is None
        pairs, sums = ((p.sum(1, keepdim=True).expand_as(p) if every else p.cumsum(1)) for p in (pairs, k))
        if past is not None:
            before = [part.flip(0) for part in past] if self.fault == "entries of the cache reversed" else past
            pairs, sums = pairs + before[0], sums + before[1]
        out = (q[..., None, :] @ pairs).squeeze(-2) / (q * sums).sum(-1, keepdim=True)
        kept = past if self.fault == "not appended" and past is not None else (pairs[:, -1:], sums[:, -1:])
        return self.wo(out.flatten(2)), kept


LAYOUTS: dict[str, Callable[[str | None], nn.Module]] = {
    "fused": Fused,
    "swin": Swin,
    "buckets": Buckets,
    "cached": lambda fault: Cached(CachedAttention, fault),
    "linear": lambda fault: Cached(LinearAttention, fault),
}
