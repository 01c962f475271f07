"""Audits of small models, and the checks that their results are of."""

import torch

from regard.audits import audit
from tests.support.small_model import BEHAVIOUR, words


def checked(results):
    """The names of the checks of some results."""
    return {each.check for each in results}


def healthy(found, *passed):
    """Fails unless an audit has no fault and no warning, and these checks passed."""
    assert found.healthy and {*passed} <= checked(found.passed), str(found)


def audited(model, inputs=None, causal=True, checks=BEHAVIOUR):
    """The audit of a model in evaluation mode, by default of a causal one of tokens."""
    return audit(model.eval(), inputs=words() if inputs is None else inputs, causal=causal, checks=checks)


class ByHand(torch.nn.Module):
    """Attention written by hand, which declares nothing."""

    def __init__(self, attend):
        super().__init__()
        self.qkv, self.attend = torch.nn.Linear(32, 96), attend

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.attend(q, k, v).transpose(1, 2).flatten(2)
