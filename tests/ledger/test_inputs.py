"""Inputs that the caller gives to a cost, for modules that read more than tokens."""

import pytest
import torch
from torch import nn

import regard as rg
from regard.torch.hf.tiny_models import config_class, tiny_config
from tests.support.refusals import refusing


class CrossAttention(nn.Module):
    """Reads two sequences and a mask of the second."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, memory, mask=None):
        return self.attention(x, memory, memory, key_padding_mask=mask)[0]


X, MEMORY = torch.zeros(2, 5, 32), torch.zeros(2, 9, 32)


@pytest.mark.parametrize(
    "inputs", [(X, MEMORY), {"memory": MEMORY, "x": X, "mask": torch.zeros(2, 9, dtype=torch.bool)}]
)
def test_the_inputs_of_the_caller_are_counted(inputs):
    cost = rg.cost(CrossAttention(), inputs=inputs)
    projections = 2 * 32 * 32 * 2 * (5 + 9 + 9 + 5)
    attention = 4 * 32 * 5 * 9 * 2
    assert sum(line.forward.counted for line in cost.lines) == projections + attention
    assert (cost.tokens, cost.batch) == (5, 2)


@pytest.mark.parametrize("name", ["bert", "jetmoe"])
def test_tokens_as_inputs_are_as_many_tokens_and_sequences(name):
    """Also where stand-ins take the place of experts that are chosen by values."""
    config = tiny_config(config_class(name))
    given = rg.cost(config, inputs={"input_ids": torch.zeros(3, 7, dtype=torch.long)})
    assert given.lines == rg.cost(config, tokens=7, batch=3).lines


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "pass inputs"),
        ({"inputs": (X, MEMORY), "batch": 2}, "the inputs have sizes of their own"),
        ({"inputs": (X, MEMORY, None, X)}, "the inputs do not fit the model"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(options, words):
    with refusing(words):
        rg.cost(CrossAttention(), **options)
