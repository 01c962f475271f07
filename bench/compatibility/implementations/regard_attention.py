"""regard by its public functions: NumPy arrays on two engines, torch tensors, torch's operator, the key/value cache."""

import numpy as np

import regard as rg
from regard.conformance import adapter

ARGUMENTS = ("q", "k", "v", "mask", "bias", "causal", "lengths", "scale", "softcap", "sinks")
CACHE = {
    "parameters": {name: name for name in ARGUMENTS} | {"window_before": "left", "window_after": "right"},
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K", "HQK", "QK", "K"),
    "window": "self-included",
    "dtypes": ("float32", "float64", "float16", "bfloat16"),
    "returns": ("out", "lse"),
}
NUMPY = CACHE | {
    "parameters": CACHE["parameters"] | {"dropout": "dropout", "seed": "seed"},
}
TORCH = NUMPY | {
    "arrays": "torch",
    "gradients": "torch",
}


def rules(q, k, mask, bias, causal, left, right, lengths, softcap):
    """The mask= and score= of these arguments."""
    start = k.shape[-2] - q.shape[-2]
    allowed = rg.everything() if mask is None else rg.dense(mask, query_start=start)
    if causal:
        allowed = allowed & rg.causal()
    if left is not None:
        allowed = allowed & rg.window(left, right)
    if lengths is not None:
        allowed = allowed & rg.lengths(lengths)
    score = rg.score if softcap is None else rg.softcap(softcap)
    return {"mask": allowed, "score": score if bias is None else rg.bias(bias, score, query_start=start)}


@adapter(**NUMPY)
def jit(q, k, v, mask=None, bias=None, causal=False, left=None, right=0, lengths=None, softcap=None, **others):
    given = rules(q, k, mask, bias, causal, left, right, lengths, softcap)
    return rg.attention_with_lse(q, k, v, **given, **others, engine="jit")


@adapter(**NUMPY)
def reference(q, k, v, mask=None, bias=None, causal=False, left=None, right=0, lengths=None, softcap=None, **others):
    given = rules(q, k, mask, bias, causal, left, right, lengths, softcap)
    return rg.attention_with_lse(q, k, v, **given, **others, engine="reference")


@adapter(**TORCH)
def autograd(q, k, v, mask=None, bias=None, causal=False, left=None, right=0, lengths=None, softcap=None, **others):
    given = rules(q, k, mask, bias, causal, left, right, lengths, softcap)
    return rg.attention_with_lse(q, k, v, **given, **others)


@adapter(**TORCH)
def operator(q, k, v, mask=None, bias=None, causal=False, left=None, right=0, lengths=None, softcap=None, **others):
    from regard.torch import attention_with_lse

    given = rules(q, k, mask, bias, causal, left, right, lengths, softcap)
    return attention_with_lse(q, k, v, **given, **others)


def chunks(rows):
    """Up to three slices of the rows, at least one."""
    size = max(-(-rows // 3), 1)
    return [slice(first, first + size) for first in range(0, max(rows, 1), size)]


@adapter(**CACHE)
def cache(q, k, v, mask=None, bias=None, causal=False, left=None, right=0, lengths=None, softcap=None, **others):
    """Keys are appended in a few chunks, and rows attend in a few chunks."""
    given = rules(q, k, mask, bias, causal, left, right, lengths, softcap)
    Q, K = q.shape[-2], k.shape[-2]
    held = rg.KVCache(k.shape[1], k.shape[-1], v.shape[-1], batch=k.shape[0], dtype=k.dtype)
    for chunk in chunks(K):
        held.append(k[:, :, chunk], v[:, :, chunk])
    parts = [
        held.attend_with_lse(q[:, :, chunk], **given, **others, query_start=K - Q + chunk.start) for chunk in chunks(Q)
    ]
    return tuple(np.concatenate(part, 2) for part in zip(*parts))
