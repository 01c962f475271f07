"""Shows that thop 0.1.1.post2209072238 (torch 2.13.0) counts no attention, and nn.MultiheadAttention as 0."""

import subject
import thop
import torch
from shown import shown
from torch import nn

macs, parameters = map(int, thop.profile(subject.model(), (subject.ids(),), verbose=False))
x = torch.randn(1, subject.TOKENS, subject.WIDTH)
torchs = int(thop.profile(nn.MultiheadAttention(subject.WIDTH, 8, batch_first=True), (x, x, x), verbose=False)[0])
linear, attention = subject.exact()
shown(
    "thop torch",
    {
        "thop, twice": 2 * macs,
        "rg.cost, linear": linear,
        "rg.cost": linear + attention,
        "brute force": sum(subject.brute()),
        "thop, nn.MultiheadAttention": torchs,
        "thop, parameters": parameters,
        "model.parameters()": sum(each.numel() for each in subject.model().parameters()),
    },
    wrong=2 * macs == linear and torchs == 0,
    exact=(linear, attention) == subject.brute(),
)
