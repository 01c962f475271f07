"""No false alarms: right implementations in random conventions are accepted with their adapter, and with a measured and
confirmed one.
"""

from dataclasses import replace

import numpy as np
import pytest

import regard.conformance as rc
from tests.support.lanes import sweep

from .implementations import right


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", [*range(16), *sweep(*range(1000, 1500))])
def test_right_implementations_are_accepted(seed):
    """All layouts, polarities, alignments, window counts, groups, bases of lse and empty rows, drawn at random: with
    their own adapter, and with the measured one.
    """
    function, declared = right(np.random.default_rng(seed))
    names = {"parameters": declared.parameters, "heads": declared.heads, "layout": declared.layout}
    inferred = rc.infer(function, adapter=rc.Adapter(**names)).adapter
    for adapter in (declared, replace(inferred, confirmed=True)):
        assert [str(each) for each in rc.conform(function, adapter=adapter, level=2).findings] == []
