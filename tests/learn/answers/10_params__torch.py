"""The parameters of linear layers on torch's meta device."""

import torch
from torch import nn


def params(d, h, g):
    few = g * (d // h)
    with torch.device("meta"):
        layers = nn.ModuleList([nn.Linear(d, out, bias=False) for out in (d, few, few, d)])
    return sum(each.numel() for each in layers.parameters())
