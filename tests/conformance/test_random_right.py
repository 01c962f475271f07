"""No false alarms: right implementations in random conventions are accepted with their adapter, and with a measured and
confirmed one.
"""

from dataclasses import replace

import numpy as np
import pytest

import regard.conformance as rc

from .implementations import right


def rejected(seed):
    """What is found in the right implementation of a seed, with its own adapter and with the measured one."""
    function, declared = right(np.random.default_rng(seed))
    names = {"parameters": declared.parameters, "heads": declared.heads, "layout": declared.layout}
    found = [str(each) for each in rc.conform(function, adapter=declared, level=2).findings]
    inferred = rc.infer(function, adapter=rc.Adapter(**names)).adapter
    measured = rc.conform(function, adapter=replace(inferred, confirmed=True), level=2)
    return [*found, *(f"after infer: {each}" for each in measured.findings)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(16))
def test_right_implementations_are_accepted(seed):
    """A few of them, in every run."""
    assert rejected(seed) == []


@pytest.mark.sweep
def test_500_right_implementations_are_accepted():
    """All layouts, polarities, alignments, window counts, groups, bases of lse and empty rows, drawn at random."""
    assert {seed: found for seed in range(1000, 1500) if (found := rejected(seed))} == {}
