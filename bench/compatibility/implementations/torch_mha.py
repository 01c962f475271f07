"""torch.nn.MultiheadAttention with projections that change nothing, with and without weights."""

import torch

from regard.conformance import adapter

WITH_WEIGHTS = {
    "arrays": "torch",
    "layout": "BSD",
    "parameters": {
        "q": "query",
        "k": "key",
        "v": "value",
        "mask": "attn_mask",
        "bias": "attn_mask",
        "heads": "num_heads",
        "dropout": "dropout",
    },
    "mask": "true-hides",
    "mask_shapes": ("BHQK", "QK"),
    "groups": "none",
    "empty_row": "nan",
    "dtypes": ("float32", "float64", "float16", "bfloat16"),
    "gradients": "torch",
    "returns": ("out", "weights"),
}
WITHOUT_WEIGHTS = WITH_WEIGHTS | {
    "empty_row": "zero",
    "returns": "out",
}


def module(width, num_heads, dtype, dropout):
    """A MultiheadAttention whose four projections are the identity."""
    made = torch.nn.utils.skip_init(  # it would draw random projections
        torch.nn.MultiheadAttention, width, num_heads, dropout, bias=False, batch_first=True, dtype=dtype
    )
    with torch.no_grad():
        made.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        made.out_proj.weight.copy_(torch.eye(width))
    return made.train(dropout > 0)


@adapter(**WITH_WEIGHTS)
def with_weights(query, key, value, num_heads, attn_mask=None, dropout=0.0):
    if attn_mask is not None and attn_mask.ndim == 4:
        attn_mask = attn_mask.flatten(0, 1)  # the module takes (Q, K) or (batch · heads, Q, K)
    made = module(query.shape[-1], num_heads, query.dtype, dropout)
    return made(query, key, value, attn_mask=attn_mask, need_weights=True, average_attn_weights=False)


@adapter(**WITHOUT_WEIGHTS)
def without_weights(query, key, value, num_heads, attn_mask=None, dropout=0.0):
    if attn_mask is not None and attn_mask.ndim == 4:
        attn_mask = attn_mask.flatten(0, 1)
    made = module(query.shape[-1], num_heads, query.dtype, dropout)
    return made(query, key, value, attn_mask=attn_mask, need_weights=False)[0]
