"""Healthy modules of torch.nn with the masks that their users pass: (random choices) -> (module, arguments
of `audit`).
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn

Made = tuple[Any, dict[str, Any]]


def of_torch(choose: random.Random) -> Made:
    """An attention module of torch.nn of random sizes, with some of the masks that it takes."""
    return choose.choice([encoder, encoder, layer, decoder, transformer, multihead, multihead])(choose)


def encoder(choose: random.Random) -> Made:
    """nn.TransformerEncoder, causal or not, with padding or not."""
    width, heads = _sizes(choose)
    n = choose.choice([7, 12, 17])
    one = nn.TransformerEncoderLayer(
        width, heads, 2 * width, batch_first=True, norm_first=choose.random() < 0.5, bias=choose.random() < 0.8
    )
    module = nn.TransformerEncoder(one, choose.choice([1, 2]), enable_nested_tensor=False).eval()
    inputs: dict[str, Any] = {"src": torch.randn(1, n, width)}
    causal = choose.random() < 0.6
    if causal:
        inputs["mask"] = _causal(choose, n)
        inputs |= {"is_causal": True} if choose.random() < 0.5 else {}
    if choose.random() < 0.5:
        inputs["src_key_padding_mask"] = _padding(choose, n, inputs.get("mask"))
    return module, {"inputs": inputs, **({"causal": True} if causal and choose.random() < 0.5 else {})}


def layer(choose: random.Random) -> Made:
    """nn.TransformerEncoderLayer with arguments by position."""
    width, heads = _sizes(choose)
    n = choose.choice([7, 12, 17])
    module = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True).eval()
    inputs = [torch.randn(1, n, width)]
    if choose.random() < 0.6:
        inputs.append(_causal(choose, n))
        if choose.random() < 0.5:
            inputs.append(_padding(choose, n, inputs[1]))
    return module, {"inputs": tuple(inputs)}


def decoder(choose: random.Random) -> Made:
    """nn.TransformerDecoder over a memory, which may have padding."""
    width, heads = _sizes(choose)
    n, m = choose.choice([7, 12, 17]), choose.choice([7, 10])
    one = nn.TransformerDecoderLayer(width, heads, 2 * width, batch_first=True, norm_first=choose.random() < 0.5)
    module = nn.TransformerDecoder(one, choose.choice([1, 2])).eval()
    inputs: dict[str, Any] = {"tgt": torch.randn(1, n, width), "memory": torch.randn(1, m, width)}
    causal = choose.random() < 0.8
    if causal:
        inputs["tgt_mask"] = _causal(choose, n)
    if choose.random() < 0.5:
        inputs["memory_key_padding_mask"] = _padding(choose, m, None)
    if choose.random() < 0.4:
        inputs["tgt_key_padding_mask"] = _padding(choose, n, inputs.get("tgt_mask"))
    return module, {"inputs": inputs, **({"causal": True} if causal and choose.random() < 0.5 else {})}


def transformer(choose: random.Random) -> Made:
    """nn.Transformer with the masks of a translation model."""
    width, heads = _sizes(choose)
    n, m = choose.choice([7, 12]), choose.choice([7, 10, 15])
    module = nn.Transformer(width, heads, 1, choose.choice([1, 2]), 2 * width, batch_first=True).eval()
    module.encoder.enable_nested_tensor = False
    inputs: dict[str, Any] = {"src": torch.randn(1, m, width), "tgt": torch.randn(1, n, width)}
    inputs["tgt_mask"] = _causal(choose, n)
    inputs |= {"tgt_is_causal": True} if choose.random() < 0.3 else {}
    if choose.random() < 0.6:
        inputs["src_key_padding_mask"] = inputs["memory_key_padding_mask"] = _padding(choose, m, None)
    if choose.random() < 0.3:
        inputs["tgt_key_padding_mask"] = _padding(choose, n, inputs["tgt_mask"])
    return module, {"inputs": inputs, **({"causal": True} if choose.random() < 0.5 else {})}


def multihead(choose: random.Random) -> Made:
    """nn.MultiheadAttention, as self-attention or with other numbers of queries and keys, by position or by name."""
    width, heads = _sizes(choose)
    n, m = choose.choice([7, 12, 17]), choose.choice([7, 11, 17])
    more = {"add_zero_attn": True} if choose.random() < 0.15 else {}
    more |= {"add_bias_kv": True} if choose.random() < 0.15 else {}
    module = nn.MultiheadAttention(width, heads, batch_first=True, **more).eval()
    x, context = torch.randn(1, n, width), torch.randn(1, m, width)
    itself = choose.random() < 0.4
    m, context = (n, x) if itself else (m, context)
    inputs: dict[str, Any] = {"query": x, "key": context, "value": context}
    if choose.random() < 0.6:
        inputs["key_padding_mask"] = _padding(choose, m, None)
    if itself and choose.random() < 0.5:
        inputs["attn_mask"] = _causal(choose, n)
        if "key_padding_mask" in inputs:
            inputs["key_padding_mask"] = _padding(choose, m, inputs["attn_mask"])
    order = ("query", "key", "value", "key_padding_mask")
    if "attn_mask" not in inputs and choose.random() < 0.5:
        return module, {"inputs": tuple(inputs[name] for name in order if name in inputs)}
    return module, {"inputs": inputs}


def _sizes(choose: random.Random) -> tuple[int, int]:
    heads = choose.choice([1, 2, 4])
    return heads * choose.choice([4, 8]), heads


def _causal(choose: random.Random, n: int) -> torch.Tensor:
    """A causal mask of booleans (True is masked), or of 0 and −infinity."""
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    return hidden if choose.random() < 0.5 else torch.zeros(n, n).masked_fill(hidden, -torch.inf)


def _padding(choose: random.Random, n: int, mask: torch.Tensor | None) -> torch.Tensor:
    """Padding at the end, or at the beginning where no mask would leave rows without a key; of the mask's dtype."""
    hidden, count = torch.zeros(1, n, dtype=torch.bool), choose.choice([1, 2, 3])
    if mask is None and choose.random() < 0.5:
        hidden[:, :count] = True
    else:
        hidden[:, -count:] = True
    as_added = choose.random() < 0.3 if mask is None else mask.is_floating_point()
    return torch.zeros(1, n).masked_fill(hidden, -torch.inf) if as_added else hidden
