"""Runs every attention layer: output shapes, parameters, bytes cached per token, and agreement with reference layers.

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


def parameters(layer: torch.nn.Module) -> int:
    """The number of parameters of a layer."""
    return sum(parameter.numel() for parameter in layer.parameters())


def difference(result: torch.Tensor, expected: torch.Tensor) -> str:
    """The maximum absolute difference."""
    return f"{(result - expected).abs().max().item():.0e}"


def single_head(x: torch.Tensor) -> None:
    """SelfAttention: one head that returns its weights."""
    out, weights = SelfAttention(WIDTH, d_k=64)(x, mask=rg.causal(), return_weights=True)
    print(
        f"SelfAttention          one head: out {tuple(out.shape)}, weights {tuple(weights.shape)}, rows sum "
        f"to {weights.sum(-1).mean():.3f}"
    )


def torch_replacement(x: torch.Tensor) -> None:
    """MultiHeadAttention: replaces the attention of torch's encoder layer."""
    encoder = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=True).eval()
    expected = encoder(x)
    encoder.self_attn = MultiHeadAttention.of(encoder.self_attn)
    print(f"MultiHeadAttention     in torch's TransformerEncoderLayer: difference {difference(encoder(x), expected)}")
    weights = encoder.self_attn(x, x, x, key_padding_mask=torch.ones(BATCH, ROWS, dtype=torch.bool))[1]
    print(f"                       a fully masked row has weights of {weights.abs().max():.0f}; torch returns NaN")


def grouped_query(x: torch.Tensor) -> None:
    """Attention: fewer key/value heads make the cache smaller."""
    for name, kv_heads in (("multi-head", HEADS), ("grouped-query", 2), ("multi-query", 1)):
        layer = Attention(WIDTH, HEADS, kv_heads, positions=Rotary(WIDTH // HEADS), sinks=1).eval()
        cache = rg.KVCache(kv_heads, WIDTH // HEADS, batch=BATCH, pages=BATCH * ROWS // 128)
        parts = torch.cat([layer(part, mask=rg.causal(), cache=cache) for part in x.split([ROWS - 1, 1], dim=1)], dim=1)
        print(
            f"Attention              {name}: {parameters(layer):,} parameters, {cache.nbytes // (BATCH * ROWS)} "
            f"bytes cached per token; decoding differs by {difference(parts, layer(x, mask=rg.causal()))}"
        )
    layer = Attention(WIDTH, HEADS, memory_dim=48)
    out = layer(x, torch.randn(BATCH, 77, 48))
    print(f"                       cross-attention to rows of width 48: out {tuple(out.shape)}")


def latent(x: torch.Tensor) -> None:
    """LatentAttention: caches one short row per token for all heads."""
    layer = LatentAttention(WIDTH, HEADS, kv_rank=48, head_dim=32, rope_dim=16).eval()
    cache = LatentCache(kv_rank=48, rope_dim=16, batch=BATCH, pages=BATCH * ROWS // 128)
    parts = torch.cat([layer(part, mask=rg.causal(), cache=cache) for part in x.split([ROWS - 1, 1], dim=1)], dim=1)
    print(
        f"LatentAttention        {parameters(layer):,} parameters, {cache.nbytes // (BATCH * ROWS)} bytes "
        f"cached per token; decoding differs by {difference(parts, layer(x, mask=rg.causal()))}"
    )


def differential(x: torch.Tensor) -> None:
    """DifferentialAttention: the difference of two attention maps."""
    for depth in (0, 11):
        layer = DifferentialAttention(WIDTH, HEADS // 2, depth=depth, positions=Rotary(WIDTH // HEADS))
        out = layer(x, mask=rg.causal())
        print(f"DifferentialAttention  layer {depth}: λ = {layer.mixing():.2f}, out {tuple(out.shape)}")


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(BATCH, ROWS, WIDTH)
    with torch.no_grad():
        for show in (single_head, torch_replacement, grouped_query, latent, differential):
            show(x)


if __name__ == "__main__":
    main()
