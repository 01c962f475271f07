"""torch's FlexAttention on the CPU, eager and compiled: masks become a block mask, biases a score_mod."""

import functools

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from regard.conformance.conventions.fields import Adapter

ADAPTER = Adapter(
    arrays="torch",
    parameters={
        "q": "query",
        "k": "key",
        "v": "value",
        "mask": "mask",
        "bias": "bias",
        "softcap": "softcap",
        "scale": "scale",
    },
    mask_shapes=("BHQK", "B1QK", "1HQK", "11QK"),
    dtypes=("float32", "float64", "float16", "bfloat16"),
    gradients="torch",
    returns=("out", "lse"),
)


def eager(query, key, value, mask=None, bias=None, softcap=None, scale=None, attend=flex_attention):
    B, H, Q = query.shape[:3]
    K = key.shape[2]
    blocks = change = None
    if mask is not None:
        mask = mask.expand(B, H, Q, K)
        blocks = create_block_mask(lambda b, h, q, k: mask[b, h, q, k], B, H, Q, K, device="cpu")
    if bias is not None or softcap is not None:
        added = None if bias is None else bias.expand(B, H, Q, K)

        def change(score, b, h, q, k):
            if softcap is not None:
                score = softcap * torch.tanh(score / softcap)
            return score if added is None else score + added[b, h, q, k]

    out, aux = attend(query, key, value, change, blocks, scale, enable_gqa=True, return_aux=AuxRequest(lse=True))
    return out, aux.lse


@functools.cache
def compiled_attention():
    return torch.compile(flex_attention)


def compiled(query, key, value, mask=None, bias=None, softcap=None, scale=None):
    return eager(query, key, value, mask, bias, softcap, scale, compiled_attention())
