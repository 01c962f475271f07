"""Faults that are planted into whole models by hand, in the styles of eight public projects."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, GROUPS, TOKENS, WORDS, LONGEST = 32, 4, 2, 15, 61, 64
DEPTH = WIDTH // HEADS
SCALE, MASK, POSITIONS, PADDING = ("scale",), ("mask", "causal", "diagonal"), ("position",), ("pad", "mask", "lengths")
CAUSAL = ("gpt", "lit", "complex", "alibi", "lens")
ALL = (*CAUSAL, "annotated", "vit", "sequence_first")
OWN_SOFTMAX = ("gpt", "annotated", "complex", "alibi", "lens", "sequence_first")
TURNED = ("lit", "complex")

# Faults by name: words of the causes that are right, and the hosts that can have the fault.
FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "output projection skipped": (("projection", "never read"), ALL),
    "keys as values": (("values", "keys"), ALL),
    "queries as keys": (("queries", "never read", "projection"), ALL),
    "scale missing": (SCALE, ALL),
    "scale of the width": (SCALE, ALL),
    "scale inverted": (SCALE, ALL),
    "scale twice": (SCALE, ALL),
    "softmax over queries": (("axis", "softmax"), OWN_SOFTMAX),
    "softmax over heads": (("axis", "softmax"), ("annotated", "complex", "lens")),
    "merged without transpose": (
        ("transpose", "merged", "reshape", "view"),
        ("gpt", "annotated", "vit", "lit", "complex"),
    ),
    "values of the next head": (("head", "values"), ALL),
    "groups tiled": (("repeat", "tile", "group"), ("lit", "complex")),
    "positions not added": (POSITIONS, ("gpt", "annotated", "vit", "lens")),
    "positions all the same": (POSITIONS, ("gpt", "annotated", "lens")),
    "rotary of queries alone": (("rotat", "rotary"), TURNED),
    "rotary of one layer missing": (("rotat", "rotary"), TURNED),
    "rotary at position 0": (("rotat", "position", "rotary"), TURNED),
    "rotary over heads": (("rotat", "position", "rotary", "axis"), TURNED),
    "slopes with the wrong sign": (("slope", "sign", "distance"), ("alibi",)),
    "slopes the same for all heads": (("slope",), ("alibi",)),
    "slopes not used": (("slope", "bias", "never read", "position"), ("alibi",)),
    "no causal mask": (MASK, CAUSAL),
    "mask of the upper layer missing": (MASK, CAUSAL),
    "mask sees the next token": (MASK, CAUSAL),
    "mask hides the token itself": (MASK, CAUSAL),
    "mask after the softmax": (MASK, OWN_SOFTMAX),
    "padding ignored": (PADDING, ("annotated", "sequence_first")),
    "padding of queries": (PADDING, ("annotated", "sequence_first")),
    "padding inverted": (PADDING, ("annotated", "sequence_first")),
    "norm of queries only": (("norm",), ("vit",)),
    "attention over the batch": (("batch",), ("sequence_first", "vit", "gpt")),
    "dropout": (("dropout",), ("gpt", "annotated", "lit", "vit")),
    "softmax in 16 bit": (("16", "bit", "precision", "round"), ("gpt", "complex", "lens")),
    "no softmax": (("softmax", "weights"), OWN_SOFTMAX),
    "sigmoid": (("softmax", "weights"), OWN_SOFTMAX),
    "keys of the next token": (("keys", "order", "rolled"), ("gpt", "annotated", "vit")),
    "one query": (("query", "queries"), ("gpt", "annotated", "vit")),
}
# Nothing is held back any more. All were written before the checks were changed for them: then 75 of 147 were found.
HELD_BACK: list[str] = []
HOSTS = ["gpt", "annotated", "vit", "complex", "alibi", "lit", "lens", "sequence_first"]
HOSTS_HELD_BACK: list[str] = []


def fits(fault: str, host: str) -> bool:
    """Whether a host can have a fault."""
    return host in FAULTS[fault][1]


def host(name: str, fault: str | None = None) -> tuple[Any, dict[str, Any]]:
    """(a model of two layers, healthy or with a fault; the arguments of `audit`)."""
    model = STYLES[name](fault).eval()
    for module in model.modules():  # trained models have biases and norms that differ
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.1)
    ids = torch.randint(1, WORDS, (1, TOKENS))
    if name == "annotated":
        return model, {"inputs": {"src": ids, "src_mask": torch.ones(1, 1, TOKENS, dtype=torch.bool)}}
    if name == "vit":
        return model, {"inputs": {"pixels": torch.randn(1, 3, 16, 16)}}
    if name == "sequence_first":
        real = torch.zeros(1, TOKENS, dtype=torch.bool)
        return model, {"inputs": {"x": torch.randn(1, TOKENS, WIDTH), "key_padding_mask": real}}
    if name == "alibi":
        return model, {"inputs": {"ids": ids, "lengths": torch.tensor([TOKENS])}, "causal": True}
    return model, {"inputs": {"ids": ids}, "causal": True}


def _factor(fault: str | None) -> float:
    """What a wrong scale is multiplied with."""
    wrong = {
        "scale missing": DEPTH**0.5,
        "scale of the width": HEADS**-0.5,
        "scale inverted": DEPTH,
        "scale twice": DEPTH**-0.5,
    }
    return wrong.get(fault or "", 1.0)


def _seen(n: int, fault: str | None, at: int) -> torch.Tensor:
    """Which keys each row attends to, in a causal layer."""
    if fault == "no causal mask" or (fault == "mask of the upper layer missing" and at):
        return torch.ones(n, n, dtype=torch.bool)
    seen = torch.ones(n, n, dtype=torch.bool).tril(
        {"mask sees the next token": 1, "mask hides the token itself": -1}.get(fault or "", 0)
    )
    seen[0, 0] = True
    return seen


def _weights(scores: torch.Tensor, seen: torch.Tensor, fault: str | None) -> torch.Tensor:
    """The weights of scores over (…, rows, keys)."""
    if fault == "no softmax":
        return scores.masked_fill(~seen, 0) / scores.shape[-1]
    if fault == "mask after the softmax":
        return scores.softmax(-1).masked_fill(~seen, 0)
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    if fault == "sigmoid":
        return scores.sigmoid()
    if fault == "softmax in 16 bit":
        return scores.clamp(min=-3e4).half().softmax(-1).to(scores)
    return scores.softmax({"softmax over queries": -2, "softmax over heads": -3}.get(fault or "", -1))


def _moved(q: torch.Tensor, k: torch.Tensor, fault: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (batch, heads, positions, depth) of other positions than their own."""
    if fault == "one query":
        q = q[:, :, :1].expand_as(q)
    return q, k.roll(-1, 2) if fault == "keys of the next token" else k


class Gpt(nn.Module):
    """A decoder with one projection for q, k and v, learned positions, and attention written out."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.h = nn.ModuleList(GptBlock(fault, at) for at in range(2))
        self.ln_f, self.lm_head, self.fault = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False), fault

    def forward(self, ids):
        places = torch.arange(ids.shape[1]) * (self.fault != "positions all the same")
        x = self.wte(ids)
        if self.fault != "positions not added":
            x = x + self.wpe(places)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class GptBlock(nn.Module):
    def __init__(self, fault: str | None, at: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = GptAttention(fault, at)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GptAttention(nn.Module):
    def __init__(self, fault: str | None, at: int):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.n_head, self.fault, self.at = HEADS, fault, at
        self.register_buffer("bias", torch.tril(torch.ones(LONGEST, LONGEST)).view(1, 1, LONGEST, LONGEST))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = q if self.fault == "queries as keys" else k
        v = k if self.fault == "keys as values" else v
        q, k, v = (part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for part in (q, k, v))
        v = v.roll(1, 1) if self.fault == "values of the next head" else v
        q, k = _moved(q, k, self.fault)
        if self.fault == "attention over the batch":
            q, k, v = (part.transpose(0, 2) for part in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1))) * _factor(self.fault)
        n = att.shape[-1]
        att = functional.dropout(_weights(att, _seen(n, self.fault, self.at), self.fault), 0.2, self.fault == "dropout")
        y = att @ v
        y = y.transpose(0, 2) if self.fault == "attention over the batch" else y
        y = y if self.fault == "merged without transpose" else y.transpose(1, 2)
        y = y.contiguous().view(B, T, C)
        return y if self.fault == "output projection skipped" else self.c_proj(y)


class Annotated(nn.Module):
    """An encoder with four linear layers in a list, sinusoidal positions, and a mask of (B, 1, n)."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.lut, self.fault = nn.Embedding(WORDS, WIDTH), fault
        places, rates = torch.arange(LONGEST)[:, None], torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(1e4) / WIDTH))
        table = torch.zeros(LONGEST, WIDTH)
        table[:, 0::2], table[:, 1::2] = torch.sin(places * rates), torch.cos(places * rates)
        self.register_buffer("pe", table[None])
        self.layers = nn.ModuleList(AnnotatedAttention(fault) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, src, src_mask=None):
        x = self.lut(src) * math.sqrt(WIDTH) * 0.2
        if self.fault == "positions all the same":
            x = x + self.pe[:, :1]
        elif self.fault != "positions not added":
            x = x + self.pe[:, : x.size(1)]
        for layer, norm in zip(self.layers, self.norms):
            y = norm(x)
            x = x + layer(y, y, y, src_mask)
        return x


class AnnotatedAttention(nn.Module):
    def __init__(self, fault: str | None):
        super().__init__()
        self.h, self.d_k, self.fault = HEADS, DEPTH, fault
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        entries = query.size(0)
        seen = torch.ones(1, 1, 1, query.size(1), dtype=torch.bool)
        if mask is not None and self.fault != "padding ignored":
            seen = mask.unsqueeze(1) != 0
            seen = ~seen if self.fault == "padding inverted" and not seen.all() else seen
            seen = seen.mT if self.fault == "padding of queries" else seen
        query, key, value = (
            linear(x).view(entries, -1, self.h, self.d_k).transpose(1, 2)
            for linear, x in zip(self.linears, (query, key, value))
        )
        key = query if self.fault == "queries as keys" else key
        value = key if self.fault == "keys as values" else value
        value = value.roll(1, 1) if self.fault == "values of the next head" else value
        query, key = _moved(query, key, self.fault)
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k) * _factor(self.fault)
        p_attn = functional.dropout(_weights(scores, seen, self.fault), 0.1, self.fault == "dropout")
        x = torch.matmul(p_attn, value)
        x = x if self.fault == "merged without transpose" else x.transpose(1, 2)
        x = x.contiguous().view(entries, -1, self.h * self.d_k)
        return x if self.fault == "output projection skipped" else self.linears[-1](x)


class Vit(nn.Module):
    """An image classifier with norms of queries and keys, a class token, and SDPA."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, 17, WIDTH) * 0.5)
        self.blocks = nn.ModuleList(VitAttention(fault) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.head, self.fault = nn.Linear(WIDTH, 10), fault

    def forward(self, pixels):
        x = self.patch_embed(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        x = x if self.fault == "positions not added" else x + self.pos_embed
        for block, norm in zip(self.blocks, self.norms):
            x = x + block(norm(x))
        return self.head(x[:, 0])


class VitAttention(nn.Module):
    def __init__(self, fault: str | None):
        super().__init__()
        self.num_heads, self.head_dim, self.scale, self.fault = HEADS, DEPTH, DEPTH**-0.5, fault
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.q_norm, self.k_norm = nn.LayerNorm(DEPTH), nn.LayerNorm(DEPTH)
        for norm in (self.q_norm, self.k_norm):
            nn.init.normal_(norm.weight, 1.0, 0.2)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        k = q if self.fault == "queries as keys" else k
        v = k if self.fault == "keys as values" else v
        v = v.roll(1, 1) if self.fault == "values of the next head" else v
        q, k = _moved(q, k, self.fault)
        q, k = self.q_norm(q), k if self.fault == "norm of queries only" else self.k_norm(k)
        if self.fault == "attention over the batch":
            q, k, v = (part.transpose(0, 2) for part in (q, k, v))
        scale = self.scale * _factor(self.fault)
        x = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3 * (self.fault == "dropout"), scale=scale)
        x = x.transpose(0, 2) if self.fault == "attention over the batch" else x
        x = x if self.fault == "merged without transpose" else x.transpose(1, 2)
        x = x.reshape(B, N, C)
        return x if self.fault == "output projection skipped" else self.proj(x)


class Decoder(nn.Module):
    """A decoder over one of the attentions below, with norms and a feed-forward layer."""

    def __init__(self, attention: Callable[..., nn.Module], fault: str | None, places: bool = False):
        super().__init__()
        self.tok_embeddings, self.fault = nn.Embedding(WORDS, WIDTH), fault
        self.W_pos = nn.Parameter(torch.randn(LONGEST, WIDTH)) if places else None
        self.layers = nn.ModuleList(attention(fault, at) for at in range(2))
        self.attention_norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.feed_forwards = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.SiLU(), nn.Linear(64, WIDTH)) for _ in range(2)
        )
        self.norm, self.output = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids, lengths=None):
        h = self.tok_embeddings(ids)
        if self.W_pos is not None and self.fault != "positions not added":
            h = h + self.W_pos[torch.arange(ids.shape[1]) * (self.fault != "positions all the same")]
        for layer, norm, feed in zip(self.layers, self.attention_norms, self.feed_forwards):
            h = h + (layer(norm(h)) if lengths is None else layer(norm(h), lengths))
            h = h + feed(h)
        return self.output(self.norm(h))


class ComplexAttention(nn.Module):
    """Grouped attention with rotary positions as complex numbers."""

    def __init__(self, fault: str | None, at: int):
        super().__init__()
        self.wq, self.wo = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk, self.wv = (nn.Linear(WIDTH, GROUPS * DEPTH, bias=False) for _ in range(2))
        self.fault, self.at, self.head_dim = fault, at, DEPTH
        rates = 1.0 / (1e4 ** (torch.arange(0, DEPTH, 2).float() / DEPTH))
        angles = torch.outer(torch.arange(LONGEST).float(), rates)
        self.freqs_cis = torch.polar(torch.ones_like(angles), angles)

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(bsz, seqlen, HEADS, DEPTH)
        xk = xq[:, :, :GROUPS].clone() if self.fault == "queries as keys" else xk.view(bsz, seqlen, GROUPS, DEPTH)
        xv = xk if self.fault == "keys as values" else xv.view(bsz, seqlen, GROUPS, DEPTH)
        if not (self.fault == "rotary of one layer missing" and self.at):
            xq = self.turn(xq)
            xk = xk if self.fault == "rotary of queries alone" else self.turn(xk)
        each = HEADS // GROUPS
        if self.fault == "groups tiled":
            keys, values = xk.repeat(1, 1, each, 1), xv.repeat(1, 1, each, 1)
        else:
            keys, values = (torch.repeat_interleave(part, each, dim=2) for part in (xk, xv))
        values = values.roll(1, 2) if self.fault == "values of the next head" else values
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.head_dim) * _factor(self.fault)
        scores = _weights(scores.float(), _seen(seqlen, self.fault, self.at), self.fault).type_as(xq)
        output = torch.matmul(scores, values)
        output = output if self.fault == "merged without transpose" else output.transpose(1, 2)
        output = output.contiguous().view(bsz, seqlen, -1)
        return output if self.fault == "output projection skipped" else self.wo(output)

    def turn(self, part):
        """Rotary positions."""
        turns = self.freqs_cis[: part.shape[1]]
        if self.fault == "rotary at position 0":
            turns = turns[:1].expand_as(turns)
        axis = (1, 1, part.shape[2], -1) if self.fault == "rotary over heads" else (1, part.shape[1], 1, -1)
        turns = turns[: part.shape[2]] if self.fault == "rotary over heads" else turns
        pairs = torch.view_as_complex(part.float().reshape(*part.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns.view(axis)).flatten(3).type_as(part)


class LitAttention(nn.Module):
    """Grouped attention whose one projection interleaves q, k and v by group."""

    def __init__(self, fault: str | None, at: int):
        super().__init__()
        self.attn = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * DEPTH, bias=False)
        self.proj, self.fault, self.at = nn.Linear(WIDTH, WIDTH, bias=False), fault, at
        rates = 1.0 / (1e4 ** (torch.arange(0, DEPTH, 2).float() / DEPTH))
        angles = torch.outer(torch.arange(LONGEST).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x):
        B, T, C = x.size()
        each = HEADS // GROUPS
        qkv = self.attn(x).view(B, T, GROUPS, each + 2, DEPTH).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((each, 1, 1), dim=2)
        k = q[:, :, :1] if self.fault == "queries as keys" else k
        v = k if self.fault == "keys as values" else v
        k, v = (part.squeeze(2) for part in (k, v))
        if self.fault == "groups tiled":
            k, v = k.repeat(1, each, 1, 1), v.repeat(1, each, 1, 1)
        else:
            k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        v = v.roll(1, 1) if self.fault == "values of the next head" else v
        q, k = _moved(q, k, self.fault)
        q = q.reshape(B, -1, T, DEPTH)
        if not (self.fault == "rotary of one layer missing" and self.at):
            q = self.turn(q)
            k = k if self.fault == "rotary of queries alone" else self.turn(k)
        scale = _factor(self.fault) / math.sqrt(DEPTH)
        seen = _seen(T, self.fault, self.at)
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, dropout_p=0.2 * (self.fault == "dropout"), scale=scale
        )
        y = y if self.fault == "merged without transpose" else y.transpose(1, 2)
        y = y.reshape(B, T, C)
        return y if self.fault == "output projection skipped" else self.proj(y)

    def turn(self, part):
        """Rotary positions."""
        count = part.shape[1] if self.fault == "rotary over heads" else part.shape[2]
        cos, sin = self.cos[:count], self.sin[:count]
        if self.fault == "rotary over heads":
            cos, sin = cos[:, None], sin[:, None]
        if self.fault == "rotary at position 0":
            cos, sin = cos[:1], sin[:1]
        first, second = part.chunk(2, -1)
        return part * cos + torch.cat((-second, first), -1) * sin


class AlibiAttention(nn.Module):
    """Attention by einsum with ALiBi, and the lengths of the rows as padding."""

    def __init__(self, fault: str | None, at: int):
        super().__init__()
        self.Wqkv, self.out_proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.n_heads, self.fault, self.at = HEADS, fault, at
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, HEADS + 1) / HEADS))

    def forward(self, x, lengths):
        b, n, _ = x.shape
        q, k, v = (part.view(b, n, self.n_heads, DEPTH) for part in self.Wqkv(x).chunk(3, dim=2))
        k = q if self.fault == "queries as keys" else k
        v = k if self.fault == "keys as values" else v
        v = v.roll(1, 2) if self.fault == "values of the next head" else v
        places = torch.arange(n)
        distance = (places[None] - places[:, None]).float()
        slopes = self.slopes.mean().expand(HEADS) if self.fault == "slopes the same for all heads" else self.slopes
        bias = slopes[:, None, None] * distance * (-1 if self.fault == "slopes with the wrong sign" else 1)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * DEPTH**-0.5 * _factor(self.fault)
        scores = scores if self.fault == "slopes not used" else scores + bias
        seen = _seen(n, self.fault, self.at)[None, None]
        real = places[None] < lengths[:, None]
        seen = seen & (real[:, None, None] | torch.eye(n, dtype=torch.bool))
        weights = _weights(scores, seen, self.fault)
        out = torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)
        return out if self.fault == "output projection skipped" else self.out_proj(out)


class LensAttention(nn.Module):
    """Attention with a matrix for each head."""

    def __init__(self, fault: str | None, at: int):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(HEADS, WIDTH, DEPTH) * WIDTH**-0.5) for _ in range(3))
        self.b_Q, self.b_K, self.b_V = (nn.Parameter(torch.randn(HEADS, DEPTH) * 0.1) for _ in range(3))
        self.W_O, self.b_O = (
            nn.Parameter(torch.randn(HEADS, DEPTH, WIDTH) * WIDTH**-0.5),
            nn.Parameter(torch.randn(WIDTH) * 0.1),
        )
        self.fault, self.at, self.attn_scale = fault, at, math.sqrt(DEPTH)

    def forward(self, x):
        q = torch.einsum("bpm,hmd->bphd", x, self.W_Q) + self.b_Q
        k = torch.einsum("bpm,hmd->bphd", x, self.W_Q if self.fault == "queries as keys" else self.W_K) + self.b_K
        v = torch.einsum("bpm,hmd->bphd", x, self.W_K if self.fault == "keys as values" else self.W_V) + self.b_V
        v = v.roll(1, 2) if self.fault == "values of the next head" else v
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / self.attn_scale * _factor(self.fault)
        pattern = _weights(scores, _seen(x.shape[1], self.fault, self.at), self.fault)
        z = torch.einsum("bkhd,bhqk->bqhd", v, pattern)
        if self.fault == "output projection skipped":
            return z.flatten(2)
        return torch.einsum("bqhd,hdm->bqm", z, self.W_O) + self.b_O


class SequenceFirst(nn.Module):
    """An encoder that works on (n, B, width) with the heads merged into the batch."""

    def __init__(self, fault: str | None):
        super().__init__()
        self.layers = nn.ModuleList(SequenceFirstAttention(fault) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x, key_padding_mask=None):
        x = x.transpose(0, 1)
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x), key_padding_mask)
        return x.transpose(0, 1)


class SequenceFirstAttention(nn.Module):
    def __init__(self, fault: str | None):
        super().__init__()
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.scaling, self.fault = DEPTH**-0.5, fault

    def forward(self, query, key_padding_mask=None):
        tgt_len, bsz, embed_dim = query.size()
        fault = self.fault
        q = self.q_proj(query) * self.scaling * _factor(fault)
        k = self.q_proj(query) if fault == "queries as keys" else self.k_proj(query)
        v = self.k_proj(query) if fault == "keys as values" else self.v_proj(query)
        if fault == "attention over the batch":
            q, k, v = (part.transpose(0, 1).contiguous() for part in (q, k, v))
            tgt_len, bsz = bsz, tgt_len
        q, k, v = (part.contiguous().view(tgt_len, bsz * HEADS, DEPTH).transpose(0, 1) for part in (q, k, v))
        v = v.unflatten(0, (bsz, HEADS)).roll(1, 1).flatten(0, 1) if fault == "values of the next head" else v
        weights = torch.bmm(q, k.transpose(1, 2)).view(bsz, HEADS, tgt_len, tgt_len)
        seen = torch.ones(1, 1, 1, tgt_len, dtype=torch.bool)
        if key_padding_mask is not None and fault not in ("padding ignored", "attention over the batch"):
            seen = ~key_padding_mask[:, None, None]
            seen = ~seen if fault == "padding inverted" and not seen.all() else seen
            seen = seen.mT if fault == "padding of queries" else seen
        weights = _weights(weights, seen, fault).view(bsz * HEADS, tgt_len, tgt_len)
        attn = torch.bmm(weights, v).transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        attn = attn.transpose(0, 1) if fault == "attention over the batch" else attn
        return attn if fault == "output projection skipped" else self.out_proj(attn)


STYLES: dict[str, Callable[[str | None], nn.Module]] = {
    "gpt": Gpt,
    "annotated": Annotated,
    "vit": Vit,
    "complex": lambda fault: Decoder(ComplexAttention, fault),
    "lit": lambda fault: Decoder(LitAttention, fault),
    "alibi": lambda fault: Decoder(AlibiAttention, fault),
    "lens": lambda fault: Decoder(LensAttention, fault, places=True),
    "sequence_first": SequenceFirst,
}
