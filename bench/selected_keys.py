"""Attention over keys that are selected for each row, next to attention over as many keys, to all keys under a mask of
booleans, and to torch under that mask.

    python -m bench.selected_keys
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

import regard as rg

from .interleave import interleaved, seconds
from .shapes import PACE

K, SELECTED = 32768, 2048
# Name: heads of queries and of keys, depths, rows. DeepSeek's latent attention has its values in the keys.
SHAPES = {
    "DeepSeek-V3.2, a step": (128, 1, 576, 512, 1),
    "DeepSeek-V3.2, 16 rows": (128, 1, 576, 512, 16),
    "128 heads on one of keys, 16 rows": (128, 1, 192, 128, 16),
    "16 heads on one of keys, 64 rows": (16, 1, 64, 64, 64),
    "16 heads on two of keys, 64 rows": (16, 2, 64, 64, 64),
    "16 heads with their own keys, 64 rows": (16, 16, 64, 64, 64),
    "16 heads with their own keys, a step": (16, 16, 64, 64, 1),
}


def main() -> None:
    random = np.random.default_rng(0)
    for name, (H, G, D, E, Q) in SHAPES.items():
        q, k = (random.standard_normal((1, heads, rows, D), dtype=np.float32) for heads, rows in ((H, Q), (G, K)))
        v = k[..., :E] if D > 256 else random.standard_normal((1, G, K, E), dtype=np.float32)
        indices = np.stack([random.permutation(K)[:SELECTED] for _ in range(Q)])
        booleans = np.zeros((Q, K), bool)
        np.put_along_axis(booleans, indices, True, -1)
        selected, few = rg.selected_keys(indices, query_start=K - Q), (k[:, :, :SELECTED], v[:, :, :SELECTED])
        ways = {
            "selected": partial(rg.attention, q, k, v, mask=selected),
            "as many keys": partial(rg.attention, q, *few, query_start=SELECTED),
            "booleans": partial(rg.attention, q, k, v, mask=booleans),
        }
        if H < 128:  # torch repeats the keys for each head, which takes 10 GB for the others
            tensors = [torch.from_numpy(each) for each in (q, k, v)]
            mask = torch.from_numpy(booleans)
            ways["torch"] = partial(F.scaled_dot_product_attention, *tensors, attn_mask=mask, enable_gqa=G != H)
        spans = {way: seconds(each) for way, each in interleaved(ways, PACE).items()}
        first, *others = spans.values()
        ratios = " · ".join(f"{way} {each / first:.2f}" for way, each in zip(list(spans)[1:], others))
        print(f"{name}: {first * 1e3:.2f} ms; over it, {ratios}", flush=True)


if __name__ == "__main__":
    main()
