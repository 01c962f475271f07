"""Faults that are planted into models of five further styles, such as a Perceiver and a conformer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LONGEST, WORDS = 48, 4, 40, 67
DEPTH = WIDTH // HEADS

# Faults by name: words of the causes that are right, and the hosts that can have the fault.
FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "inverse norm missing": (("scale",), ("gpt", "latents", "conformer")),
    "inverse norm twice": (("scale", "twice"), ("gpt", "vit")),
    "norm of the width": (("scale", "width"), ("vit", "latents")),
    "slopes added, not subtracted": (("slope", "sign"), ("gpt",)),
    "slopes by powers of heads": (("slope",), ("gpt",)),
    "one mask for the first sequence": (("batch", "padding", "entr"), ("conformer",)),
    "keys for values": (("values", "keys"), ("gpt", "latents")),
    "merged by reshape": (("transpose", "view", "reshape", "merged"), ("gpt", "vit", "latents", "conformer")),
    "softmax of the wrong axis": (("axis", "softmax"), ("gpt", "latents", "conformer")),
    "diagonal one too far": (("off by one", "next key", "causal"), ("gpt", "seq2seq")),
    "weights masked after the softmax": (("sum", "normal", "after the softmax", "mask"), ("gpt", "latents")),
    "mask filled with zero": (("mask", "negative enough"), ("latents", "conformer")),
    "dropout stays on": (("dropout", "random"), ("gpt", "vit")),
    "slopes from the start in each step": (("offset", "bias", "cache"), ("gpt",)),
    "top left in each step": (("top left", "mask", "cache"), ("gpt",)),
    "keys appended twice": (("append", "twice", "cache"), ("gpt",)),
    "positions not added": (("position",), ("vit", "seq2seq", "latents")),
    "position of the class token for all": (("position",), ("vit",)),
    "bias not passed": (("bias",), ("vit",)),
    "bias of the first head": (("bias", "head"), ("vit",)),
    "bias transposed": (("bias", "position", "direction", "transposed"), ("vit",)),
    "heads as positions": (("axis", "axes", "heads"), ("vit",)),
    "causal by mistake": (("causal", "mask"), ("vit",)),
    "norm of queries only": (("norm",), ("vit",)),
    "class token is no key": (("class", "mask", "first key"), ("vit",)),
    "source padding not in the encoder": (("source_pad", "padding"), ("seq2seq",)),
    "source padding not in the decoder": (("source_pad", "padding"), ("seq2seq",)),
    "target padding not passed": (("target_pad", "padding"), ("seq2seq",)),
    "source padding inverted in the decoder": (("source_pad", "inverted", "padding"), ("seq2seq",)),
    "memory is the target": (("input", "memory", "decoder"), ("seq2seq",)),
    "no mask of later tokens": (("causal", "mask"), ("seq2seq",)),
    "mask as numbers": (("boolean", "mask", "added"), ("seq2seq",)),
    "positions by batch entry": (("position", "batch"), ("seq2seq",)),
    "one attention for both": (("never read", "projection", "place"), ("seq2seq",)),
    "mask not passed": (("valid", "padding", "lengths"), ("latents", "conformer")),
    "input not attended to": (("input",), ("latents",)),
    "keys of all heads summed": (("head", "keys"), ("latents",)),
    "softmax in half precision": (("float16", "bit", "precision"), ("latents",)),
    "no relative shift": (("shift", "position", "relative"), ("conformer",)),
    "content bias not added": (("never read", "bias"), ("conformer",)),
    "position term not scaled": (("scale",), ("conformer",)),
    "positions reversed": (("position", "direction", "revers"), ("conformer",)),
    "padding in the convolution": (("convolution", "padding"), ("conformer",)),
    "lengths one too long": (("length", "padding", "off by one"), ("conformer",)),
    "lengths one too short": (("length", "padding", "off by one"), ("conformer",)),
    "statistics of the batch": (("batch",), ("conformer",)),
}
HELD_BACK: list[str] = []
HOSTS = ["gpt", "vit", "seq2seq", "latents", "conformer"]
HOSTS_HELD_BACK: list[str] = []


def fits(fault: str, host: str) -> bool:
    """Whether a host can have a fault."""
    return host in FAULTS[fault][1]


def host(name: str, fault: str | None = None) -> tuple[Any, dict[str, Any]]:
    """(a model of two layers, healthy or with a fault; the arguments of `audit`)."""
    model = BLOCKS[name](fault).eval()
    if name == "gpt":
        return model, {"inputs": {"tokens": torch.randint(1, WORDS, (1, 17))}, "causal": True}
    if name == "vit":
        return model, {"inputs": {"pixels": torch.randn(1, 3, 12, 12)}}
    if name == "seq2seq":
        source, target = torch.randint(1, WORDS, (1, 14)), torch.randint(1, WORDS, (1, 10))
        pads = {"source_pad": torch.zeros(1, 14, dtype=torch.bool), "target_pad": torch.zeros(1, 10, dtype=torch.bool)}
        return model, {"inputs": {"source": source, "target": target, **pads}, "causal": True}
    if name == "latents":
        return model, {"inputs": {"features": torch.randn(1, 21, 10), "valid": torch.ones(1, 21, dtype=torch.bool)}}
    return model, {"inputs": {"frames": torch.randn(1, 18, 20), "lengths": torch.tensor([18])}}


def _feed() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


class Gpt(nn.Module):
    """A decoder with one projection, ALiBi, and products of merged heads as in BLOOM; takes and returns its cache."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.wte = nn.Embedding(WORDS, WIDTH)
        self.h = nn.ModuleList(GptBlock(fault) for _ in range(2))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens, past_kv=None):
        x, presents = self.wte(tokens), []
        for at, block in enumerate(self.h):
            x, present = block(x, None if past_kv is None else past_kv[at])
            presents.append(present)
        return self.ln_f(x) @ self.wte.weight.T, tuple(presents)


class GptBlock(nn.Module):
    def __init__(self, fault: str | None):
        super().__init__()
        self.ln_1, self.mlp = nn.LayerNorm(WIDTH), _feed()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.n_head, self.fault = HEADS, fault
        powers = torch.arange(1, HEADS + 1) * (1 if fault == "slopes by powers of heads" else 8 / HEADS)
        self.register_buffer("slopes", 2.0**-powers, persistent=False)

    def forward(self, x, past):
        B, T, _ = x.shape
        fault = self.fault
        q, k, v = self.c_attn(self.ln_1(x)).split(WIDTH, 2)
        v = k if fault == "keys for values" else v
        q, k, v = (part.view(B, T, HEADS, DEPTH).transpose(1, 2).reshape(B * HEADS, T, DEPTH) for part in (q, k, v))
        if past is not None:
            old_k, old_v = past
            k, v = torch.cat([old_k, k], 1), torch.cat([old_v, v], 1)
            if fault == "keys appended twice":
                k, v = torch.cat([k, k[:, -T:]], 1), torch.cat([v, v[:, -T:]], 1)
        S = k.shape[1]
        first = 0 if fault == "slopes from the start in each step" else S - T
        apart = torch.arange(S)[None] - torch.arange(first, first + T)[:, None]
        sign = -1 if fault == "slopes added, not subtracted" else 1
        alibi = (sign * apart.clamp(max=0) * self.slopes[:, None, None]).repeat(B, 1, 1)
        norm = {"inverse norm missing": 1.0, "inverse norm twice": 1 / DEPTH}.get(fault, DEPTH**-0.5)
        scores = torch.baddbmm(alibi, q, k.transpose(1, 2), beta=1.0, alpha=norm)
        offset = 0 if fault == "top left in each step" else S - T
        mask = torch.ones(T, S, dtype=torch.bool).tril(offset + (fault == "diagonal one too far"))
        if fault == "weights masked after the softmax":
            weights = functional.softmax(scores, -1) * mask
        else:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            weights = functional.softmax(scores, 1 if fault == "softmax of the wrong axis" else -1)
        if fault == "dropout stays on":
            weights = functional.dropout(weights, 0.1)
        y = torch.bmm(weights, v).view(B, HEADS, T, DEPTH)
        y = (y if fault == "merged by reshape" else y.permute(0, 2, 1, 3)).reshape(B, T, WIDTH)
        x = x + self.c_proj(y)
        return x + self.mlp(x), (k, v)


class Vit(nn.Module):
    """A classifier of pictures with a class token, learned positions, and a relative bias in each layer, by SDPA."""

    SIDE = 4

    def __init__(self, fault: str | None):
        super().__init__()
        self.fault = fault
        self.patch_embed = nn.Conv2d(3, WIDTH, 3, 3)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, self.SIDE**2 + 1, WIDTH))
        self.blocks = nn.ModuleList(VitBlock(self.SIDE, fault) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 9)

    def forward(self, pixels):
        x = self.patch_embed(pixels).flatten(2).mT
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        if self.fault == "position of the class token for all":
            x = x + self.pos_embed[:, :1]
        elif self.fault != "positions not added":
            x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class VitBlock(nn.Module):
    def __init__(self, side: int, fault: str | None):
        super().__init__()
        self.fault, self.norm1, self.mlp = fault, nn.LayerNorm(WIDTH), _feed()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.q_norm, self.k_norm = nn.LayerNorm(DEPTH), nn.LayerNorm(DEPTH)
        for norm in (self.q_norm, self.k_norm):
            nn.init.normal_(norm.weight, 1, 0.3)
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * side - 1) ** 2 + 3, HEADS))
        places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
        apart = places[:, None] - places + side - 1
        index = torch.zeros(side**2 + 1, side**2 + 1, dtype=torch.long)
        index[1:, 1:] = apart[..., 0] * (2 * side - 1) + apart[..., 1]
        index[0, :], index[:, 0] = (2 * side - 1) ** 2, (2 * side - 1) ** 2 + 1
        index[0, 0] = (2 * side - 1) ** 2 + 2
        self.register_buffer("relative_position_index", index)

    def forward(self, x):
        B, N, fault = len(x), x.shape[1], self.fault
        qkv = self.qkv(self.norm1(x)).reshape(B, N, 3, HEADS, DEPTH).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), k if fault == "norm of queries only" else self.k_norm(k)
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        bias = {"bias of the first head": bias[:1], "bias transposed": bias.mT}.get(fault, bias)
        if fault == "class token is no key":
            bias = bias.masked_fill(torch.arange(N) == 0, -torch.inf)
        q = q * DEPTH**-0.5 if fault == "inverse norm twice" else q
        if fault == "heads as positions":
            out = functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (q, k, v)))
            out = out.transpose(1, 2)
        elif fault == "causal by mistake":
            out = functional.scaled_dot_product_attention(
                q, k, v, bias.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf)
            )
        else:
            out = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=None if fault == "bias not passed" else bias,
                dropout_p=0.1 if fault == "dropout stays on" else 0.0,
                scale=WIDTH**-0.5 if fault == "norm of the width" else None,
            )  # fmt: skip
        out = out if fault == "merged by reshape" else out.transpose(1, 2)
        x = x + self.proj(out.reshape(B, N, WIDTH))
        return x + self.mlp(x)


class Seq2seq(nn.Module):
    """An encoder–decoder of nn.MultiheadAttention with a table of sines, and padding of both texts."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.fault = fault
        self.words = nn.Embedding(WORDS, WIDTH)
        angles = torch.arange(LONGEST)[:, None] * 10_000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        self.register_buffer("pe", torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[None])
        self.encoders = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))
        self.decoders = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))
        self.crosses = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(6))
        self.feeds = nn.ModuleList(_feed() for _ in range(4))
        self.generator = nn.Linear(WIDTH, WORDS)

    def placed(self, tokens):
        """The vectors of tokens, with positions."""
        x = self.words(tokens) * math.sqrt(WIDTH)
        if self.fault == "positions not added":
            return x
        return x + (self.pe[:, : len(x)] if self.fault == "positions by batch entry" else self.pe[:, : x.shape[1]])

    def forward(self, source, target, source_pad=None, target_pad=None):
        fault = self.fault
        x = self.placed(source)
        for at in range(2):
            pad = None if fault == "source padding not in the encoder" else source_pad
            x = self.norms[at](x + self.encoders[at](x, x, x, key_padding_mask=pad, need_weights=False)[0])
            x = x + self.feeds[at](x)
        memory, y = x, self.placed(target)
        n = y.shape[1]
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1 + (fault == "diagonal one too far"))
        mask = {"no mask of later tokens": None, "mask as numbers": hidden.float()}.get(fault, hidden)
        own = None if fault == "target padding not passed" else target_pad
        own = own.float() * -1e9 if own is not None and fault == "mask as numbers" else own
        other = None if fault == "source padding not in the decoder" else source_pad
        other = ~other if fault == "source padding inverted in the decoder" and other.any() else other
        for at in range(2):
            z = self.norms[2 + at](y)
            y = y + self.decoders[at](z, z, z, attn_mask=mask, key_padding_mask=own)[0]
            z = self.norms[4 + at](y)
            cross = self.decoders[at] if fault == "one attention for both" else self.crosses[at]
            if fault == "memory is the target":
                y = y + cross(z, z, z, key_padding_mask=own, attn_mask=mask)[0]
            else:
                y = y + cross(z, memory, memory, key_padding_mask=other)[0]
            y = y + self.feeds[2 + at](y)
        return {"logits": self.generator(y)}


class Latents(nn.Module):
    """A classifier whose learned vectors attend to the input and then to each other, as in Perceiver, by einsum."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.fault = fault
        self.latents = nn.Parameter(torch.randn(6, WIDTH))
        self.embed, self.position = nn.Linear(10, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.read, self.think = LatentAttention(fault, True), LatentAttention(fault, False)
        self.feeds, self.out = nn.ModuleList(_feed() for _ in range(2)), nn.Linear(WIDTH, 7)

    def forward(self, features, valid=None):
        x = self.embed(features)
        if self.fault != "positions not added":
            x = x + self.position(torch.arange(x.shape[1]))
        z = self.latents.expand(len(x), -1, -1)
        z = z + self.read(z, z if self.fault == "input not attended to" else x, valid)
        z = z + self.feeds[0](z)
        z = z + self.think(z, z)
        return self.out((z + self.feeds[1](z)).mean(1))


class LatentAttention(nn.Module):
    def __init__(self, fault: str | None, reads: bool):
        super().__init__()
        self.heads, self.fault, self.reads = HEADS, fault, reads
        self.norm, self.norm_context = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.to_q, self.to_kv = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.to_out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, context, valid=None):
        fault = self.fault
        q, (k, v) = self.to_q(self.norm(x)), self.to_kv(self.norm_context(context)).chunk(2, dim=-1)
        v = k if fault == "keys for values" else v
        q, k, v = (part.unflatten(-1, (HEADS, DEPTH)) for part in (q, k, v))
        norm = {"inverse norm missing": 1.0, "norm of the width": WIDTH**-0.5}.get(fault, DEPTH**-0.5)
        if fault == "keys of all heads summed":
            sim = torch.einsum("b i h d, b j g d -> b h i j", q, k) * norm
        else:
            sim = torch.einsum("b i h d, b j h d -> b h i j", q, k) * norm
        mask = None if valid is None or sim.shape[-1] != valid.shape[1] else valid[:, None, None]
        mask = None if fault == "mask not passed" else mask
        after = fault == "weights masked after the softmax"
        if mask is not None and not after:
            sim = sim.masked_fill(~mask, 0.0 if fault == "mask filled with zero" else -torch.finfo(sim.dtype).max)
        if fault == "softmax in half precision":
            attn = sim.half().softmax(-1).float()
        else:
            attn = sim.softmax(-2 if fault == "softmax of the wrong axis" else -1)
        attn = attn * mask if mask is not None and after else attn
        out = torch.einsum("b h i j, b j h d -> b i h d", attn, v)
        out = out.transpose(1, 2) if fault == "merged by reshape" else out
        return self.to_out(out.reshape(x.shape))


class Conformer(nn.Module):
    """An encoder of sound with relative positions as in Transformer-XL, convolutions, and lengths."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.fault = fault
        self.input = nn.Linear(20, WIDTH)
        self.layers = nn.ModuleList(ConformerBlock(fault) for _ in range(2))
        self.ctc = nn.Linear(WIDTH, 11)

    def forward(self, frames, lengths):
        x, T = self.input(frames), frames.shape[1]
        more = {"lengths one too long": 1, "lengths one too short": -1}.get(self.fault, 0)
        real = torch.arange(T) < (lengths + more)[:, None]
        at = torch.arange(T - 1, -T, -1.0)[:, None] * (-1 if self.fault == "positions reversed" else 1)
        angles = at * 10_000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        pos = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        for layer in self.layers:
            x = layer(x, pos, real)
        return self.ctc(x).log_softmax(-1)


class ConformerBlock(nn.Module):
    def __init__(self, fault: str | None):
        super().__init__()
        self.fault = fault
        self.ffn1, self.ffn2, self.norm_att = _feed(), _feed(), nn.LayerNorm(WIDTH)
        self.linear_q, self.linear_k, self.linear_v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.linear_pos, self.linear_out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.pos_bias_u, self.pos_bias_v = (nn.Parameter(torch.randn(HEADS, DEPTH) / 3) for _ in range(2))
        self.norm_conv, self.pointwise1 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, 5, padding=2, groups=WIDTH)
        self.batch_norm, self.pointwise2 = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm_out = nn.LayerNorm(WIDTH)

    def attention(self, x, pos, real):
        """The attention over one batch."""
        B, T, fault = len(x), x.shape[1], self.fault
        q = self.linear_q(x).view(B, T, HEADS, DEPTH)
        k, v = (each(x).view(B, T, HEADS, DEPTH).transpose(1, 2) for each in (self.linear_k, self.linear_v))
        p = self.linear_pos(pos).view(1, -1, HEADS, DEPTH).transpose(1, 2)
        u = 0.0 if fault == "content bias not added" else self.pos_bias_u
        content = torch.matmul((q + u).transpose(1, 2), k.transpose(-2, -1))
        places = torch.matmul((q + self.pos_bias_v).transpose(1, 2), p.transpose(-2, -1))
        if fault != "no relative shift":
            padded = functional.pad(places, (1, 0)).view(B, HEADS, -1, T)
            places = padded[:, :, 1:].view(B, HEADS, T, 2 * T - 1)
        places = places[..., :T]
        norm = math.sqrt(DEPTH)
        if fault == "position term not scaled":
            scores = content / norm + places
        else:
            scores = (content + places) / (1.0 if fault == "inverse norm missing" else norm)
        hidden = ~real[:1] if fault == "one mask for the first sequence" else ~real
        if fault != "mask not passed":
            scores = scores.masked_fill(hidden[:, None, None], 0.0 if fault == "mask filled with zero" else -1e4)
        weights = torch.softmax(scores, dim=-2 if fault == "softmax of the wrong axis" else -1)
        x = torch.matmul(weights, v)
        x = x if fault == "merged by reshape" else x.transpose(1, 2)
        return self.linear_out(x.contiguous().view(B, T, WIDTH))

    def convolution(self, x, real):
        """The convolution over positions."""
        x = functional.glu(self.pointwise1(x), -1)
        if self.fault != "padding in the convolution":
            x = x * real[..., None]
        x, norm = self.depthwise(x.transpose(1, 2)), self.batch_norm
        if self.fault == "statistics of the batch":
            x = functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
        else:
            x = norm(x)
        return self.pointwise2(functional.silu(x).transpose(1, 2))

    def forward(self, x, pos, real):
        x = x + self.ffn1(x) / 2
        x = x + self.attention(self.norm_att(x), pos, real)
        x = x + self.convolution(self.norm_conv(x), real)
        return self.norm_out(x + self.ffn2(x) / 2)


BLOCKS: dict[str, Callable[[str | None], nn.Module]] = {
    "gpt": Gpt,
    "vit": Vit,
    "seq2seq": Seq2seq,
    "latents": Latents,
    "conformer": Conformer,
}
