"""A scale that is missing in every layer of a hand-written model is a fault; one that is applied to q, to k, to both
or to the weights is right."""

import math

import pytest
import torch
from torch import nn

import regard as rg

D = 16
SCALES = {
    "scores": lambda q, k: (q, k, D**-0.5),
    "queries": lambda q, k: (q * D**-0.5, k, 1),
    "keys": lambda q, k: (q, k / math.sqrt(D), 1),
    "both": lambda q, k: (q * D**-0.25, k * D**-0.25, 1),
    "nothing": lambda q, k: (q, k, 1),
}


class Block(nn.Module):
    """norm: whether a LayerNorm is before the projections · biased: whether scores have a bias, as in T5"""

    def __init__(self, scaled, norm, biased=False):
        super().__init__()
        self.scaled, self.biased = scaled, biased
        self.norm = nn.LayerNorm(64) if norm else nn.Identity()
        self.q, self.k, self.v, self.out = (nn.Linear(64, 64) for _ in range(4))

    def heads(self, x):
        return x.unflatten(-1, (-1, D)).transpose(1, 2)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (self.heads(part(y)) for part in (self.q, self.k, self.v))
        q, k, scale = SCALES[self.scaled](q, k)
        scores = q @ k.transpose(-2, -1) * scale if scale != 1 else q @ k.transpose(-2, -1)
        scores = scores + torch.eye(scores.shape[-1]) if self.biased else scores
        out = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        return x + self.out(out)


def test_layers_beside_biased_ones_may_have_a_scale_of_1():
    """T5 has no scale anywhere; its cross-attention has no bias either."""
    torch.manual_seed(0)
    model = nn.Sequential(Block("nothing", True, biased=True), Block("nothing", True)).eval()
    found = rg.audit(model, inputs=torch.randn(1, 12, 64)).findings
    assert [each.severity for each in found if each.check == "scale"] == ["warning"] * 2


@pytest.mark.parametrize("scaled", SCALES)
@pytest.mark.parametrize("norm", [True, False])
def test_a_scale_is_missing_or_anywhere(scaled, norm):
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(scaled, norm) for _ in range(2))).eval()
    x = torch.randn(1, 12, 64)
    found = [(each.check, each.severity) for each in rg.audit(model, inputs=x).findings if each.check == "scale"]
    assert found == ([("scale", "fault")] * 2 if scaled == "nothing" else [])
