"""torch's FlexAttention on the CPU, eager and compiled: masks become a block mask, biases a score_mod."""

import functools

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from regard.conformance import adapter

EAGER = {
    "arrays": "torch",
    "parameters": {
        "q": "query",
        "k": "key",
        "v": "value",
        "mask": "mask",
        "bias": "bias",
        "softcap": "softcap",
        "scale": "scale",
    },
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK"),
    "dtypes": ("float32", "float64", "float16", "bfloat16"),
    "returns": ("out", "lse"),
}
COMPILED = EAGER | {
    "returns": "out",
}


def rules(query, key, mask, bias, softcap):
    """The score_mod and the block_mask of these arguments."""
    B, H, Q, K = *query.shape[:3], key.shape[2]
    blocks = change = None
    if mask is not None:
        mask = mask.expand(B, H, Q, K)
        blocks = create_block_mask(lambda b, h, q, k: mask[b, h, q, k], B, H, Q, K, device="cpu")
    if bias is not None:
        bias = bias.expand(B, H, Q, K)
    if bias is not None or softcap is not None:

        def change(score, b, h, q, k):
            if softcap is not None:
                score = softcap * torch.tanh(score / softcap)
            return score if bias is None else score + bias[b, h, q, k]

    return change, blocks


@adapter(**EAGER)
def eager(query, key, value, mask=None, bias=None, softcap=None, scale=None):
    given = rules(query, key, mask, bias, softcap)
    out, aux = flex_attention(query, key, value, *given, scale, enable_gqa=True, return_aux=AuxRequest(lse=True))
    return out, aux.lse


@functools.cache
def compiled_attention():
    torch._dynamo.config.recompile_limit = 10_000  # beyond it torch runs the eager function instead
    return torch.compile(flex_attention)


@adapter(**COMPILED)
def compiled(query, key, value, mask=None, bias=None, softcap=None, scale=None):
    given = rules(query, key, mask, bias, softcap)
    return compiled_attention()(query, key, value, *given, scale, enable_gqa=True)
