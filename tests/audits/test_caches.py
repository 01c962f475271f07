"""Caches of modules of anybody: every fault is found and named, and the healthy hosts are silent."""

import pytest
import torch

from bench.audit_faults.__main__ import judged
from bench.audit_faults.decoders import FAULTS, HELD_BACK, HOSTS, fits, host
from regard.audits import audit
from tests.audits.small_audits import healthy

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
