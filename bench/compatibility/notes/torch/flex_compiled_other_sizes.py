"""FlexAttention, compiled for masks of several sizes in one process, writes C++ that does not compile."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

attend = torch.compile(flex_attention)


def blocks_of(mask):
    return create_block_mask(lambda b, h, i, j: mask[b, h, i, j], *mask.shape, "cpu")


try:
    for B, H, Q, K in ((1, 2, 5, 100), (2, 4, 5, 7), (2, 4, 6, 6), (3, 3, 3, 3)):
        q, k, mask = torch.ones(B, H, Q, 8), torch.ones(B, H, K, 8), torch.ones(B, H, Q, K, dtype=torch.bool)
        attend(q, k, k, block_mask=blocks_of(mask), enable_gqa=True)
    raise AssertionError("it was computed")
except torch._inductor.exc.InductorError as error:
    print(str(error)[:200])
