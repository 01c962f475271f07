"""A whole attention function in NumPy, as a user's file, and changes of it that each break one law."""

SOURCE = '''"""Attention in NumPy."""

import numpy as np


def attention(q, k, v, mask=None, bias=None, causal=False, window=None, scale=None, softcap=None, sinks=None,
              dropout=0.0, seed=0, return_lse=False):
    given = q.dtype
    q, k, v = (part.astype(np.float64 if given == np.float64 else np.float32) for part in (q, k, v))
    H, Q, K, D = q.shape[1], q.shape[2], k.shape[2], q.shape[3]
    k, v = (np.repeat(part, H // part.shape[1], axis=1) for part in (k, v))
    scale = D**-0.5 if scale is None else scale
    s = scale * np.einsum("bhqd,bhkd->bhqk", q, k)
    if softcap is not None:
        s = softcap * np.tanh(s / softcap)
    if bias is not None:
        s = s + bias
    rows, keys = np.arange(Q)[:, None] + K - Q, np.arange(K)
    allowed = np.ones(s.shape, bool)
    if mask is not None:
        allowed = allowed & mask
    if causal:
        allowed = allowed & (keys <= rows)
    if window is not None:
        allowed = allowed & (keys > rows - window) & (keys <= rows)
    s = np.where(allowed, s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None, None])
    shift = np.where(np.isinf(top), 0, top)
    p = np.exp(s - shift)
    total = p.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - shift)
    w = p / np.where(total == 0, 1, total)
    if dropout:
        w = np.where(np.random.default_rng(seed).random(w.shape) < dropout, 0, w / (1 - dropout))
    out = np.where(w[..., None] == 0, 0, w[..., None] * v[:, :, None]).sum(-2).astype(given)
    with np.errstate(divide="ignore"):
        lse = (shift + np.log(total))[..., 0]
    return (out, lse) if return_lse else out
'''

# For each law: what is replaced, by what, and the mistake that is named (None: it has no name).
BREAKS = {
    "1-scale": (1, "D**-0.5 if", "1.0 if", "scale-missing"),
    "1-groups": (1, "np.repeat(part, H // part.shape[1], axis=1)",
                 "np.tile(part, (1, H // part.shape[1], 1, 1))", "groups-tiled"),
    "1-softcap": (1, "softcap * np.tanh(s / softcap)", "np.tanh(s / softcap)", "softcap-without-multiplying-back"),
    "1-bias": (1, "s = s + bias", "s = s - bias", "bias-subtracted"),
    "1-overflow": (1, "shift = np.where(np.isinf(top), 0, top)", "shift = np.zeros_like(top)",
                   "softmax-without-maximum"),
    "2-inverted": (2, "allowed & mask", "allowed & ~mask", "mask-inverted"),
    "2-ignored": (2, "allowed & mask", "allowed", "mask-ignored"),
    "3-alignment": (3, "+ K - Q, np", ", np", "alignment-top-left"),
    "3-off-by-one": (3, "(keys <= rows)\n    if", "(keys < rows)\n    if", "causal-hides-own-key"),
    "4-window": (4, "rows - window)", "rows - window - 1)", "window-longer-by-one"),
    "5-empty-row": (5, "np.where(total == 0, 1, total)", "total", "empty-row-nan"),
    "6-leak": (6, "np.where(w[..., None] == 0, 0, w[..., None] * v[:, :, None]).sum(-2)", "(w @ v)",
               "masked-nan-leaks"),
    "7-base": (7, "np.log(total)", "np.log2(total)", None),
    "7-maximum": (7, "shift + np.log(total)", "np.log(total)", "lse-without-maximum-added-back"),
    "8-sinks": (8, "total + np.exp(sinks[:, None, None] - shift)", "total", "sinks-ignored"),
    "10-float64": (10, ".sum(-2).astype(given)", ".sum(-2).astype(np.float32).astype(given)", None),
    "11-strides": (11, "    q, k, v = (part.astype",
                   "    v = v if v.flags.c_contiguous else v[..., ::-1]\n    q, k, v = (part.astype", None),
    "12-finite": (12, "s = s + bias", "s = np.where(bias < -9000, -np.inf, s + bias)", None),
    "13-mask-and-causal": (13, "if causal:", "if causal and mask is None:", "causal-ignored-when-mask"),
}  # fmt: skip


def broken(name):
    """The source with one law broken."""
    _, old, new, _ = BREAKS[name]
    assert SOURCE.count(old) == 1, name
    return SOURCE.replace(old, new)
