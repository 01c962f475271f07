"""The model that the counters count: a causal language model of two layers, eight query heads over two key heads."""

from __future__ import annotations

import torch
from shown import pairs
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import regard as rg

__all__ = ["HEADS", "LAYERS", "TOKENS", "WIDTH", "brute", "config", "exact", "ids", "model"]

TOKENS, WIDTH, HEADS, LAYERS = 128, 64, 8, 2


def config() -> LlamaConfig:
    """Its configuration."""
    return LlamaConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        vocab_size=100,
    )


def model() -> LlamaForCausalLM:
    """The model with random weights; it keeps no cache, which some counters cannot pass on."""
    built = LlamaForCausalLM(config()).eval()
    built.config.use_cache = False
    return built


def ids(tokens: int = TOKENS) -> torch.Tensor:
    """One sequence."""
    return torch.zeros(1, tokens, dtype=torch.long)


def exact(tokens: int = TOKENS) -> tuple[int, int]:
    """Operations of the linear layers and of attention, as `rg.cost` gives them."""
    cost = rg.cost(config(), tokens=tokens)
    return cost.linear.value, cost.attention.value


def brute(tokens: int = TOKENS) -> tuple[int, int]:
    """The same, counted without regard: linear layers as they are called, allowed pairs one by one."""
    counted = 0

    def count(layer: nn.Linear, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        nonlocal counted
        counted += 2 * out.numel() * layer.in_features

    built = model()
    for layer in built.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        built(ids(tokens))
    allowed = pairs(tokens, tokens, lambda query, key: key <= query)
    return counted, LAYERS * HEADS * allowed * 2 * (2 * WIDTH // HEADS)
