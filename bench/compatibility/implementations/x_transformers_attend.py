"""Attend of x-transformers: from basic operations of torch, and with flash=True on torch's SDPA."""

from x_transformers.attend import Attend

from regard.conformance import adapter

PLAIN = {
    "arrays": "torch",
    "parameters": {
        "q": "q",
        "k": "k",
        "v": "v",
        "mask": "mask",
        "bias": "attn_bias",
        "causal": "causal",
        "scale": "scale",
        "softcap": "softcap",
        "sinks": "sinks",
        "dropout": "dropout",
    },
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K"),
    "groups": "tile",
    "softcap": "after-bias",
    "dtypes": ("float32", "float64", "float16", "bfloat16"),
    "gradients": "torch",
}
FLASH = PLAIN | {
    "parameters": {role: name for role, name in PLAIN["parameters"].items() if role not in ("softcap", "sinks")},
}


@adapter(**PLAIN)
def plain(q, k, v, mask=None, attn_bias=None, causal=False, scale=None, softcap=None, sinks=None, dropout=0.0):
    capped = {} if softcap is None else {"softclamp_logits": True, "logit_softclamp_value": softcap}
    module = Attend(
        causal=causal, scale=scale, heads=q.shape[1], head_learned_sink=sinks is not None, dropout=dropout, **capped
    )
    if sinks is not None:
        del module.head_attn_sink  # its parameter, replaced by the given tensor
        module.head_attn_sink = sinks
    return module.train(dropout > 0)(q, k, v, mask=mask, attn_bias=attn_bias)[0]


@adapter(**FLASH)
def flash(q, k, v, mask=None, attn_bias=None, causal=False, scale=None, dropout=0.0):
    module = Attend(causal=causal, scale=scale, dropout=dropout, flash=True)
    return module.train(dropout > 0)(q, k, v, mask=mask, attn_bias=attn_bias)[0]
