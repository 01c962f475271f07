"""Shows that torchinfo 1.8.0 (torch 2.13.0) counts one token, no attention, and tied weights twice."""

import subject
import torch
from shown import shown
from torch import nn
from torchinfo import summary


class Tied(nn.Module):
    """An embedding whose weights are also those of the head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.embedding(ids))


short, long = (
    2 * summary(subject.model(), input_data=subject.ids(tokens), verbose=0).total_mult_adds
    for tokens in (subject.TOKENS, 2 * subject.TOKENS)
)
tied = summary(Tied(), input_data=torch.zeros(1, 5, dtype=torch.long), verbose=0).total_params
linear, attention = subject.exact()
shown(
    "torchinfo torch",
    {
        f"torchinfo, twice, {subject.TOKENS} tokens": short,
        f"torchinfo, twice, {2 * subject.TOKENS} tokens": long,
        "rg.cost": linear + attention,
        "brute force": sum(subject.brute()),
        "torchinfo, tied parameters": tied,
        "Tied().parameters()": sum(each.numel() for each in Tied().parameters()),
    },
    wrong=short == long and tied == 2 * 1000 * 64,
    exact=(linear, attention) == subject.brute(),
)
