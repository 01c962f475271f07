"""Every layer once: what goes in, what comes out, what it costs, and that it agrees with its plain relative.

python examples/layers.py
"""

from __future__ import annotations

import torch

import regard as rg
from regard.torch.layers import (
    Attention,
    DifferentialAttention,
    LatentAttention,
    LatentCache,
    MultiHeadAttention,
    SelfAttention,
)
from regard.torch.positions import Rotary

BATCH, ROWS, WIDTH, HEADS = 2, 256, 256, 8


def numbers(layer: torch.nn.Module) -> int:
    """How many parameters a layer has."""
    return sum(parameter.numel() for parameter in layer.parameters())


def apart(found: torch.Tensor, expected: torch.Tensor) -> str:
    """The largest difference."""
    return f"{(found - expected).abs().max().item():.0e}"


def textbook(x: torch.Tensor) -> None:
    """One head, with its weights."""
    out, weights = SelfAttention(WIDTH, d_k=64)(x, mask=rg.causal(), return_weights=True)
    print(
        f"SelfAttention          one head: out {tuple(out.shape)}, weights {tuple(weights.shape)}, rows sum "
        f"to {weights.sum(-1).mean():.3f}"
    )


def in_place_of_torchs(x: torch.Tensor) -> None:
    """torch's encoder layer with our attention in it."""
    theirs = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=True).eval()
    expected = theirs(x)
    theirs.self_attn = MultiHeadAttention.of(theirs.self_attn)
    print(f"MultiHeadAttention     inside torch's TransformerEncoderLayer: apart by {apart(theirs(x), expected)}")
    weights = theirs.self_attn(x, x, x, key_padding_mask=torch.ones(BATCH, ROWS, dtype=torch.bool))[1]
    print(
        f"                       a row that may attend nothing has weights of {weights.abs().max():.0f}, "
        "where torch has NaN"
    )


def shared_heads(x: torch.Tensor) -> None:
    """Fewer key heads, a smaller cache."""
    for name, kv_heads in (("multi-head", HEADS), ("grouped-query", 2), ("multi-query", 1)):
        layer = Attention(WIDTH, HEADS, kv_heads, positions=Rotary(WIDTH // HEADS), sinks=1).eval()
        cache = rg.KVCache(kv_heads, WIDTH // HEADS, batch=BATCH, pages=BATCH * ROWS // 128)
        parts = torch.cat([layer(part, mask=rg.causal(), cache=cache) for part in x.split([ROWS - 1, 1], dim=1)], dim=1)
        print(
            f"Attention              {name}: {numbers(layer):,} parameters, {cache.nbytes // (BATCH * ROWS)} "
            "bytes cached per token; "
            f"decoding and prefill apart by {apart(parts, layer(x, mask=rg.causal()))}"
        )
    layer = Attention(WIDTH, HEADS, memory_dim=48)
    print(f"                       over a memory of width 48: out {tuple(layer(x, torch.randn(BATCH, 77, 48)).shape)}")


def latent(x: torch.Tensor) -> None:
    """One short row per token for all heads."""
    layer = LatentAttention(WIDTH, HEADS, kv_rank=48, head_dim=32, rope_dim=16).eval()
    cache = LatentCache(kv_rank=48, rope_dim=16, batch=BATCH, pages=BATCH * ROWS // 128)
    parts = torch.cat([layer(part, mask=rg.causal(), cache=cache) for part in x.split([ROWS - 1, 1], dim=1)], dim=1)
    print(
        f"LatentAttention        {numbers(layer):,} parameters, {cache.nbytes // (BATCH * ROWS)} bytes "
        "cached per token; "
        f"absorbed and parallel apart by {apart(parts, layer(x, mask=rg.causal()))}"
    )


def differential(x: torch.Tensor) -> None:
    """Two maps, one taken away from the other."""
    for depth in (0, 11):
        layer = DifferentialAttention(WIDTH, HEADS // 2, depth=depth, positions=Rotary(WIDTH // HEADS))
        out = layer(x, mask=rg.causal())
        print(f"DifferentialAttention  layer {depth}: λ = {layer.mixing():.2f}, out {tuple(out.shape)}")


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(BATCH, ROWS, WIDTH)
    with torch.no_grad():
        for show in (textbook, in_place_of_torchs, shared_heads, latent, differential):
            show(x)


if __name__ == "__main__":
    main()
