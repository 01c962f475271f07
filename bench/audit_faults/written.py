"""Faults that are planted into attention written by hand in four styles, compiled, and as modules of torch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, GROUPS, TOKENS, WINDOW = 32, 4, 2, 17, 6
DEPTH = WIDTH // HEADS
BY_HAND = ("einsum", "sdpa", "bmm", "matmul", "compiled")
SCALE, MASK = ("scale",), ("mask",)

# Faults by name: words of the causes that are right, and the hosts that can have the fault.
FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scale missing": (SCALE, BY_HAND),
    "scale twice": (SCALE, BY_HAND),
    "scale of one layer": (SCALE, BY_HAND),
    "groups tiled": (("repeat", "tile"), BY_HAND),
    "merged without transpose": (("transpose", "merged", "reshape", "view"), BY_HAND),
    "softmax over queries": (("axis", "softmax"), ("einsum", "bmm", "matmul")),
    "no causal mask": (MASK, (*BY_HAND, "encoder", "multihead")),
    "mask inverted": (MASK, (*BY_HAND, "encoder", "multihead")),
    "padding ignored": (("pad_mask", "padding"), (*BY_HAND, "encoder", "multihead")),
    "dropout": (("dropout",), (*BY_HAND, "encoder")),
    "no softmax": (("softmax", "weights"), ("einsum", "bmm", "matmul")),
    # held back
    "scale doubled": (SCALE, BY_HAND),
    "split without transpose": (("transpose", "view", "split"), BY_HAND),
    "mask sees the next token": (MASK, (*BY_HAND, "encoder", "multihead")),
    "mask after the softmax": (MASK, ("einsum", "bmm", "matmul")),
    "mask as numbers": (("boolean mask",), (*BY_HAND, "encoder", "multihead")),
    "padding inverted": (("pad_mask", "inverted"), (*BY_HAND, "encoder", "multihead")),
}
FACTORS = {"scale missing": DEPTH**0.5, "scale twice": DEPTH**-0.5, "scale doubled": 2, "scale of one layer": 1.5}
HELD_BACK = list(FAULTS)[11:]
HOSTS = ["einsum", "sdpa", "bmm", "encoder", "compiled"]
HOSTS_HELD_BACK = ["matmul", "multihead"]


def fits(fault: str, host: str) -> bool:
    """Whether a host can have a fault."""
    return host in FAULTS[fault][1]


def host(name: str, fault: str | None = None) -> tuple[Any, dict[str, Any]]:
    """(a causal model of two layers, healthy or with a fault; the arguments of `audit`)."""
    model: Any = Layers(name, fault).eval()
    if fault == "dropout":
        model.drop = 0.3
    if name == "compiled":
        model = torch.compile(model, backend="eager")
    inputs = {"x": torch.randn(1, TOKENS, WIDTH), "pad_mask": torch.ones(1, TOKENS)}
    return model, {"inputs": inputs, "causal": True}


class Layers(nn.Module):
    """Two layers of attention over vectors, with residual sums."""

    drop = 0.0

    def __init__(self, style: str, fault: str | None):
        super().__init__()
        self.fault, made = fault, {"encoder": _encoder, "multihead": _multihead}.get(style)
        self.layers = nn.ModuleList(made() if made else Attention(style, fault, at) for at in range(2))

    def forward(self, x, pad_mask=None):
        n = x.shape[1]
        seen = torch.ones(n, n, dtype=torch.bool).tril(1 if self.fault == "mask sees the next token" else 0)
        seen = torch.ones_like(seen) if self.fault == "no causal mask" else seen
        seen = seen.T if self.fault == "mask inverted" else seen
        real = torch.ones(x.shape[:2]) if pad_mask is None or self.fault == "padding ignored" else pad_mask
        real = real.bool() ^ (self.fault == "padding inverted" and not bool(real.all()))
        for layer in self.layers:
            x = functional.dropout(x, self.drop)
            if isinstance(layer, Attention):
                own = torch.eye(n, dtype=torch.bool)  # so that no row of padding is without a key
                x = x + layer(x, seen & real[:, None, None] | own)
            elif isinstance(layer, nn.MultiheadAttention):
                hidden = seen.float() if self.fault == "mask as numbers" else _added(~seen)
                x = x + layer(x, x, x, attn_mask=hidden, key_padding_mask=_added(~real), need_weights=False)[0]
            else:
                hidden = seen.float() if self.fault == "mask as numbers" else _added(~seen)
                x = layer(x, hidden, _added(~real))
        return x


def _added(hidden: torch.Tensor) -> torch.Tensor:
    """A mask as numbers that are added to scores; finite, so that rows of padding are not NaN."""
    return torch.zeros(hidden.shape).masked_fill(hidden, -1e9)


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, 2 * WIDTH, 0.0, torch.tanh, batch_first=True
    )  # without fused layers


def _multihead() -> nn.Module:
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)


class Attention(nn.Module):
    """Grouped attention in one of the styles."""

    def __init__(self, style: str, fault: str | None, at: int):
        super().__init__()
        self.style, self.fault = style, None if fault == "scale of one layer" and not at else fault
        self.num_heads, self.num_key_value_heads = HEADS, GROUPS
        self.q_proj, self.o_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k_proj, self.v_proj = nn.Linear(WIDTH, GROUPS * DEPTH), nn.Linear(WIDTH, GROUPS * DEPTH)

    def forward(self, x, seen):
        entries, n, _ = x.shape
        q, k, v = (
            part(x).view(entries, -1, n, DEPTH)
            if self.fault == "split without transpose"
            else part(x).view(entries, n, -1, DEPTH).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        count = HEADS // GROUPS
        k, v = (
            part.repeat(1, count, 1, 1) if self.fault == "groups tiled" else part.repeat_interleave(count, 1)
            for part in (k, v)
        )
        out = self.attended(q, k, v, seen.expand(entries, HEADS, n, n))
        out = out if self.fault == "merged without transpose" else out.transpose(1, 2)
        return self.o_proj(out.reshape(entries, n, WIDTH))

    def attended(self, q, k, v, seen):
        """The attention itself."""
        factor = {
            "scale missing": DEPTH**0.5,
            "scale twice": DEPTH**-0.5,
            "scale doubled": 2,
            "scale of one layer": 1.5,
        }
        scale = DEPTH**-0.5 * factor.get(self.fault or "", 1)
        added = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
        added = seen.float() if self.fault == "mask as numbers" else added
        if self.style in ("sdpa", "compiled"):
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)
        if self.style == "einsum":
            return torch.einsum(
                "bhij,bhjd->bhid", self.weights(torch.einsum("bhid,bhjd->bhij", q, k) * scale, added), v
            )
        if self.style == "matmul":
            return torch.matmul(self.weights(torch.matmul(q, k.mT) * scale, added), v)
        q, k, v, added = (part.flatten(0, 1) for part in (q, k, v, added))
        return torch.bmm(self.weights(torch.bmm(q, k.mT) * scale, added), v).unflatten(0, (-1, HEADS))

    def weights(self, scores, added):
        """Weights of scores."""
        if self.fault == "mask after the softmax":
            return scores.softmax(-1) * (added == 0)
        if self.fault == "no softmax":
            return (scores * (added == 0)) / scores.shape[-1]
        return (scores + added).softmax(-2 if self.fault == "softmax over queries" else -1)
