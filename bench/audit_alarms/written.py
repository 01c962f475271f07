"""Healthy attention modules written by hand: (generator of random choices) -> (module, arguments of `audit`)."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

Made = tuple[Any, dict[str, Any]]


class Attention(nn.Module):
    """Self-attention of (B, n, width); subclasses change one part."""

    def __init__(self, heads: int, depth: int, causal: bool = True, groups: int = 0, fused: bool = True):
        super().__init__()
        self.heads, self.depth, self.is_causal, self.fused = heads, depth, causal, fused
        self.groups = groups or heads
        width = heads * depth
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * self.groups * depth)
        self.o = nn.Linear(width, width)

    def project(self, x):
        """q, k and v with one head of keys and values for each query head."""
        q = self.q(x).unflatten(2, (self.heads, self.depth)).transpose(1, 2)
        k, v = (part.unflatten(2, (self.groups, self.depth)).transpose(1, 2) for part in self.kv(x).chunk(2, -1))
        each = self.heads // self.groups
        return q, k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)

    def allowed(self, n):
        """Which keys each row attends to."""
        every = torch.ones(n, n, dtype=torch.bool)
        return every.tril() if self.is_causal else every

    def score(self, scores):
        """The scores, changed or with something added."""
        return scores

    def mix(self, weights):
        """The weights, changed after the softmax."""
        return weights

    def attend(self, q, k, v):
        """The output of all heads."""
        if self.fused:
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.allowed(q.shape[2]))
        scores = self.score(q @ k.mT * self.depth**-0.5).masked_fill(~self.allowed(q.shape[2]), -torch.inf)
        return self.mix(scores.softmax(-1)) @ v

    def forward(self, x):
        """(B, n, width) -> (B, n, width)"""
        return self.o(self.attend(*self.project(x)).transpose(1, 2).flatten(2))


class Windowed(Attention):
    """Each row attends to the last few keys."""

    window = 4

    def allowed(self, n):
        every = torch.ones(n, n, dtype=torch.bool)
        return every.tril().triu(1 - self.window)


class Prefix(Attention):
    """The first keys are visible to all rows."""

    def allowed(self, n):
        every = torch.ones(n, n, dtype=torch.bool).tril()
        every[:, :3] = True  # so it is not causal
        return every


class Packed(Attention):
    """Two documents in one row of tokens."""

    def allowed(self, n):
        document = torch.arange(n) >= n // 2
        return super().allowed(n) & (document[:, None] == document)


class Softcapped(Attention):
    """cap · tanh(score / cap)"""

    def score(self, scores):
        return 5 * torch.tanh(scores / 5)


class Alibi(Attention):
    """A slope for each head, times the distance."""

    def score(self, scores):
        n = scores.shape[-1]
        slopes = 2.0 ** -torch.arange(1, self.heads + 1)
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        return scores + slopes[:, None, None] * distance


class TalkingHeads(Attention):
    """Scores and weights are mixed over the heads."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.before = nn.Parameter(torch.eye(self.heads) + torch.randn(self.heads, self.heads) / 3)
        self.after = nn.Parameter(torch.eye(self.heads) + torch.randn(self.heads, self.heads) / 3)
        self.einsum = random.Random(self.heads * self.depth).random() < 0.5

    def score(self, scores):
        return self.over_heads(scores, self.before)

    def mix(self, weights):
        return self.over_heads(weights, self.after)

    def over_heads(self, part, matrix):
        """A linear map of the head axis."""
        if self.einsum:
            return torch.einsum("bhqk,hg->bgqk", part, matrix)
        return functional.linear(part.permute(0, 2, 3, 1), matrix).permute(0, 3, 1, 2)


class Differential(Attention):
    """The difference of two softmaxes."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        width = self.heads * self.depth
        self.second = nn.Linear(width, 2 * width)
        self.rate = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        q, k, v = self.project(x)
        r, s = (part.unflatten(2, (self.heads, self.depth)).transpose(1, 2) for part in self.second(x).chunk(2, -1))
        hidden = ~self.allowed(x.shape[1])
        first, second = (
            (a @ b.mT * self.depth**-0.5).masked_fill(hidden, -torch.inf).softmax(-1) for a, b in ((q, k), (r, s))
        )
        return self.o(((first - self.rate * second) @ v).transpose(1, 2).flatten(2))


class LowerRight(Attention):
    """torch's bias that aligns the diagonal bottom right; the rows are the last positions."""

    rows = 0

    def attend(self, q, k, v):
        q = q[:, :, -self.rows :] if 0 < self.rows < q.shape[2] else q
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(q.shape[2], k.shape[2]))


class Normalized(Attention):
    """q and k of norm 1, and a learned scale."""

    def attend(self, q, k, v):
        q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.allowed(q.shape[2]), scale=8.0)


class Sinks(Attention):
    """A learned sink in the denominator of each head."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.sinks = nn.Parameter(torch.randn(self.heads))

    def attend(self, q, k, v):
        scores = (q @ k.mT * self.depth**-0.5).masked_fill(~self.allowed(q.shape[2]), -torch.inf)
        sinks = self.sinks[None, :, None, None].expand(*scores.shape[:3], 1)
        return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1] @ v


class PreviousToken(nn.Module):
    """A clean previous-token head over positions, as trained models have: its scores are large on purpose."""

    def __init__(self, causal: bool, strength: float):
        super().__init__()
        self.is_causal, self.strength = causal, strength

    def forward(self, x):
        n = x.shape[1]
        places = torch.eye(n, dtype=x.dtype).expand(len(x), 1, n, n)
        before = places.roll(-1, 3).clone()
        before[:, :, 0], before[:, :, 0, 0] = 0, 1
        before[:, :, 1:] = torch.eye(n, dtype=x.dtype)[: n - 1]
        q = before * self.strength * n**0.5
        return functional.scaled_dot_product_attention(q, places, x[:, None], is_causal=self.is_causal)[:, 0]


class Padded(Attention):
    """Self-attention with a padding mask; fully masked rows are 0."""

    def forward(self, x, attention_mask=None):
        q, k, v = self.project(x)
        allowed = self.allowed(x.shape[1])[None, None]
        if attention_mask is not None:
            allowed = allowed & attention_mask[:, None, None].bool()
        scores = (q @ k.mT * self.depth**-0.5).masked_fill(~allowed, torch.finfo(q.dtype).min)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class FixedLength(Padded):
    """A learned vector for each of n positions, so that it takes no other number of them."""

    def __init__(self, *sizes, n: int, **options):
        super().__init__(*sizes, **options)
        self.places = nn.Parameter(torch.randn(1, n, self.heads * self.depth))

    def forward(self, x, attention_mask=None):
        return super().forward(x + self.places, attention_mask)


class Pooled(Padded):
    """One vector for all tokens: the first, the last real one, or the mean or maximum of the real ones."""

    pooling = "first"

    def forward(self, x, attention_mask=None):
        out = super().forward(x, attention_mask)
        real = torch.ones(out.shape[:2]) if attention_mask is None else attention_mask.to(out)
        if self.pooling == "first":
            return out[:, 0]
        if self.pooling == "last":
            return out[torch.arange(len(out)), out.shape[1] - 1 - real.flip(1).argmax(1)]
        if self.pooling == "mean":
            return (out * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return out.masked_fill(real[..., None] == 0, torch.finfo(out.dtype).min).amax(1)


class Conditioned(nn.Module):
    """An image whose pixels attend to a text of its own length, as in diffusion models."""

    def __init__(self, heads: int, depth: int):
        super().__init__()
        self.inward, self.outward = nn.Conv2d(4, heads * depth, 3, padding=1), nn.Conv2d(heads * depth, 4, 1)
        self.layer = Cross(heads, depth)

    def forward(self, sample, context, attention_mask=None):
        x = self.inward(sample)
        padding = None if attention_mask is None else attention_mask == 0
        mixed = self.layer(x.flatten(2).transpose(1, 2), context, padding)
        return self.outward(mixed.transpose(1, 2).unflatten(2, x.shape[2:]))


class Cross(nn.Module):
    """Cross-attention of x over a context, with a padding mask of the context."""

    def __init__(self, heads: int, depth: int):
        super().__init__()
        self.layer = nn.MultiheadAttention(heads * depth, heads, batch_first=True)
        self.norm = nn.LayerNorm(heads * depth)

    def forward(self, x, context, key_padding_mask=None):
        found, _ = self.layer(x, context, context, key_padding_mask=key_padding_mask, need_weights=False)
        return self.norm(x + found)


class Stack(nn.Module):
    """Several layers with residual connections, norms and feed-forward layers."""

    def __init__(self, layers, width: int):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in layers)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(norm(x))
        return x + self.feed(x)


def written(choose: random.Random) -> Made:
    """A module of one of the classes above, of random sizes."""
    heads, depth = choose.choice([1, 2, 4]), choose.choice([4, 8, 16])
    n, width = choose.choice([9, 13, 17, 29]), heads * depth
    kind = choose.choice(KINDS)
    x = torch.randn(1, n, width)
    if kind is PreviousToken:
        return PreviousToken(choose.random() < 0.5, choose.choice([30.0, 60.0, 200.0])).eval(), {"inputs": x}
    if kind is Cross:
        context = torch.randn(1, choose.choice([7, 11, n]), width)
        inputs: dict[str, Any] = {"x": x, "context": context}
        return Cross(heads, depth).eval(), {"inputs": inputs}
    if kind is Conditioned:
        text = choose.choice([7, 11])
        inputs = {"sample": torch.randn(1, 4, 6, 6), "context": torch.randn(1, text, width)}
        if choose.random() < 0.5:
            inputs["attention_mask"] = (torch.arange(text) < text - choose.choice([0, 2])).long()[None]
        return Conditioned(heads, depth).eval(), {"inputs": inputs}
    causal = (choose.random() < 0.7 or kind in (Windowed, LowerRight)) and kind is not Prefix
    groups = choose.choice([1, heads])
    options = {"causal": causal, "groups": groups, "fused": choose.random() < 0.5 and kind not in WRITTEN_OUT}
    count = choose.choice([1, 2, 3])
    if kind is LowerRight and choose.random() < 0.5:
        module = LowerRight(heads, depth, **options)
        module.rows = choose.choice([1, 5])
        return module.eval(), {"inputs": x}
    if kind in (Padded, FixedLength, Pooled):
        mask = torch.ones(1, n, dtype=torch.long)
        pads = choose.choice([0, 2, 3])
        mask[:, -pads if choose.random() < 0.5 else 0 : None if pads else 0] = 1
        if pads:
            mask[:, -pads:] = 0
        module = FixedLength(heads, depth, n=n, **options) if kind is FixedLength else kind(heads, depth, **options)
        if kind is Pooled:
            module.pooling = choose.choice(["first", "last", "mean", "max"])
        return module.eval(), {"inputs": {"x": x, "attention_mask": mask}}
    layers = [kind(heads, depth, **options) for _ in range(count)]
    model = (Stack(layers, width) if count > 1 else layers[0]).eval()
    says = causal and choose.random() < 0.7
    return model, {"inputs": x, **({"causal": True} if says else {})}


KINDS = [Attention, Windowed, Prefix, Packed, Softcapped, Alibi, TalkingHeads, Differential, LowerRight, Normalized]
KINDS += [Sinks, PreviousToken, Padded, Cross, TalkingHeads, Differential, LowerRight]
KINDS += [FixedLength, Conditioned, Pooled]
WRITTEN_OUT = (Softcapped, Alibi, TalkingHeads, Differential)
