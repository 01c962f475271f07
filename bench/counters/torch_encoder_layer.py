"""Shows that FlopCounterMode of torch 2.13.0 counts 0 for a whole nn.TransformerEncoderLayer without gradients."""

import torch
from shown import shown
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import regard as rg

TOKENS, WIDTH, HIDDEN = 128, 64, 128
layer = nn.TransformerEncoderLayer(WIDTH, 4, HIDDEN, batch_first=True).eval()
x = torch.randn(1, TOKENS, WIDTH)
with torch.no_grad(), FlopCounterMode(display=False) as fused:
    layer(x)
with FlopCounterMode(display=False) as plain:  # gradients are recorded: another path, which calls SDPA
    layer(x)
linear = 2 * TOKENS * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN)
attention = 4 * TOKENS * TOKENS * WIDTH
regard = rg.cost(layer, tokens=TOKENS).forward.value
shown(
    "torch",
    {
        "FlopCounterMode, no_grad": fused.get_total_flops(),
        "FlopCounterMode, with gradients": plain.get_total_flops(),
        "rg.cost": regard,
        "brute force": linear + attention,
    },
    wrong=fused.get_total_flops() == 0 and plain.get_total_flops() == linear,
    exact=regard == linear + attention,
)
