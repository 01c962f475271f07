"""Caches of modules of anybody: every fault is found and named, and the healthy hosts are silent."""

import pytest
import torch

from bench.audit_faults.__main__ import judged
from bench.audit_faults.decoders import FAULTS, HELD_BACK, HOSTS, fits, host
from regard.audits import audit
from tests.audits.small_audits import healthy
from tests.support.refusals import refusing

CASES = [(fault, next(at for at in HOSTS[number % 3 :] if fits(fault, at))) for number, fault in enumerate(FAULTS)]


@pytest.mark.parametrize("fault, where", [each for each in CASES if each[0] not in HELD_BACK], ids=str)
def test_faults_of_caches_are_named(fault, where):
    """Each in one host; `python -m bench.audit_faults` plants them in all, and those that are held back."""
    assert judged(where, fault) == "cause"


@pytest.mark.parametrize("where", HOSTS, ids=str)
def test_healthy_caches_are_silent(where):
    """A cache that is an argument or a buffer is decoded with, and left as it was."""
    model, arguments = host(*where)
    before = {name: part.clone() for name, part in model.named_buffers()}

    healthy(audit(model, **arguments), "cache")
    assert all(torch.equal(part, before[name]) for name, part in model.named_buffers())


class Positioned(torch.nn.Module):
    """Attention without a cache, which takes the place of its first token and keeps a table named like a cache."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)
        self.register_buffer("cos_cached", torch.linspace(0, 1, 64)[:, None].cos())

    def forward(self, x, start_pos=0):
        x = x + self.cos_cached[start_pos : start_pos + x.shape[1]]
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def test_a_table_that_is_named_like_a_cache_is_none():
    """A model that a step changes nothing in, and whose next step depends on none before, is not decoded with."""
    with refusing("keeps no cache"):
        audit(Positioned().eval(), inputs=torch.randn(1, 12, 16), causal=True, checks=["cache"])
