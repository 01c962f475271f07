"""Shows that FlopCounterMode of torch 2.13.0 counts 0 for SDPA on the CPU, and with dropout the whole square."""

import torch
from shown import pairs, shown
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

import regard as rg

TOKENS, WIDTH, HEADS = 128, 64, 4


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self):
        super().__init__()
        self.projections = nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.projections(x).chunk(3, -1))
        return scaled_dot_product_attention(q, k, v, is_causal=True)


def counted(heads=HEADS, backward=False, **options):
    """What FlopCounterMode counts for one call."""
    q = torch.randn(1, HEADS, TOKENS, WIDTH // HEADS, requires_grad=backward)
    k = torch.randn(1, heads, TOKENS, WIDTH // HEADS)
    with FlopCounterMode(display=False) as counter:
        out = scaled_dot_product_attention(q, k, k, **options)
        if backward:
            out.sum().backward()
    return counter.get_total_flops()


lower = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
zeros = {
    "SDPA": counted(),
    "SDPA with backward": counted(backward=True),
    "SDPA, causal": counted(is_causal=True),
    "SDPA, mask": counted(attn_mask=lower),
    "SDPA, one key head": counted(heads=1, enable_gqa=True),
}
dropout = counted(is_causal=True, dropout_p=0.1)
regard = rg.cost(Attention(), tokens=TOKENS).attention.value
allowed = pairs(TOKENS, TOKENS, lambda query, key: key <= query)
square = 4 * TOKENS * TOKENS * WIDTH
shown(
    "torch",
    zeros | {"SDPA, causal, dropout": dropout, "rg.cost, causal": regard, "brute force, causal": 4 * allowed * WIDTH},
    wrong=not any(zeros.values()) and dropout == square,
    exact=regard == 4 * allowed * WIDTH,
)
