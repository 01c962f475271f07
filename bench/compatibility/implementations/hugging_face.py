"""The attention interface functions of transformers, eager (of Llama) and sdpa, as its models call them."""

from types import SimpleNamespace

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

from regard.conformance import adapter

EAGER = {
    "arrays": "torch",
    "parameters": {
        "q": "query",
        "k": "key",
        "v": "value",
        "mask": "attention_mask",
        "bias": "attention_mask",
        "scale": "scaling",
        "dropout": "dropout",
    },
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K"),
    "empty_row": "mean",
    "dtypes": ("float32", "float64", "float16", "bfloat16"),
    "gradients": "torch",
    "returns": ("out", "weights"),
}
SDPA = EAGER | {
    "parameters": {**EAGER["parameters"], "causal": "is_causal"},
    "causal": "top-left",
    "empty_row": "zero",
    "returns": "out",
}


@adapter(**EAGER)
def eager(query, key, value, attention_mask=None, scaling=None, dropout=0.0):
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype)  # as masking_utils.eager_mask, which models call
        attention_mask = torch.where(attention_mask, zero, torch.finfo(query.dtype).min)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling  # as LlamaAttention.__init__
    out, weights = eager_attention_forward(
        module(query, key, dropout), query, key, value, attention_mask, scaling, dropout
    )
    return out.transpose(1, 2), weights  # the output is BSHD


@adapter(**SDPA)
def sdpa(query, key, value, attention_mask=None, scaling=None, is_causal=False, dropout=0.0):
    out, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](
        module(query, key, dropout), query, key, value, attention_mask, dropout, scaling, is_causal
    )
    return out.transpose(1, 2)


def module(query, key, dropout):
    """What the functions read of the module that calls them."""
    return SimpleNamespace(num_key_value_groups=query.shape[1] // key.shape[1], training=dropout > 0)
