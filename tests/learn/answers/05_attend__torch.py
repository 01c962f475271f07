"""A right answer in another style: torch."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def attend(q, k, v):
    q, k, v = (torch.tensor(x)[None] for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v)[0].numpy()
