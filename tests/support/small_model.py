"""A causal language model of one layer that can be made ill in one place each."""

import torch

from regard.audits.checks import ModelCheck, names, selected
from regard.torch.hf.tiny_models import tiny_model

BEHAVIOUR = [check.name for check in selected(ModelCheck, names())]
LENGTH = 17


class Small(torch.nn.Module):
    """A causal language model of one layer that can be made ill in one place each."""

    def __init__(self, sees=None, heads=None, after=None, numbers=None):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.places = torch.nn.Embedding(40, 16), torch.nn.Embedding(64, 16)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 40)
        self.sees, self.heads, self.after = sees or sees_past, heads or split, after or (lambda x: x)
        self.numbers = numbers or positions_of

    def forward(self, ids, attention_mask=None):
        n = ids.shape[1]
        real = torch.ones_like(ids) if attention_mask is None else attention_mask
        x = self.table(ids) + self.places(self.numbers(real))
        q, k, v = (self.heads(part) for part in self.qkv(x).chunk(3, -1))
        seen = self.sees(n, None if attention_mask is None else attention_mask[:, None, None].bool())
        scores = (q @ k.transpose(2, 3) / 2).masked_fill(~seen, -torch.inf)
        return self.out(self.after(x + (scores.softmax(-1).nan_to_num(0) @ v).transpose(1, 2).flatten(2)))


def positions_of(real):
    """Positions counted over real tokens."""
    return (real.cumsum(1) - 1).clamp(min=0)


def split(x):
    """(B, n, 16) -> (B, 4 heads, n, 4)."""
    return x.unflatten(2, (4, 4)).transpose(1, 2)


def sees_past(n, real, diagonal=0):
    """Keys up to the row's own position, without padding."""
    past = torch.ones(n, n, dtype=torch.bool).tril(diagonal)
    return past if real is None else past & real


def sees_all(n, real):
    """Every key that is no padding."""
    return torch.ones(n, n, dtype=torch.bool) if real is None else real


def words(seed=0, n=LENGTH):
    """Tokens, every one of 1 to 39 about as likely."""
    return torch.randint(1, 40, (1, n), generator=torch.Generator().manual_seed(seed))


def only(found):
    """The one finding that is no note."""
    findings = [finding for finding in found.findings if finding.severity != "note"]
    assert len(findings) == 1, str(found)
    return findings[0]


def neighbours(x):
    """The mean with the positions on both sides."""
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1))
    return (x + padded[:, 2:] + padded[:, :-2]) / 3


def tiny(name):
    """A tiny random model on its own attention code."""
    torch.manual_seed(0)
    return tiny_model(name)
