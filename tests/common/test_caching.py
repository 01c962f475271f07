"""What is kept from call to call: plans of equal rules, and no number of an array that may change."""

import numpy as np

import regard as rg
from regard.engines.plan import _plans
from tests.support.engines import normal


def test_equal_rules_of_regard_are_planned_once():
    """Every call makes a new `documents(…)`; a rule that reads an array of the caller sees each change of it."""
    q = normal(2, 64, 8)

    def attend(mask):
        return rg.attention(q, q, q, mask=mask, engine="jit")

    plans = []
    for _ in range(3):
        attend(rg.documents(lengths=[32, 32]))
        plans.append(len(_plans.results))
    assert plans == plans[:1] * 3

    own = np.zeros(64, int)
    read = rg.table(own, "document")
    mask = read[rg.query] == read[rg.key]
    for end in (32, 7, 32, 50):
        own[:] = np.arange(64) >= end
        assert np.array_equal(attend(mask), attend(rg.documents(lengths=[end, 64 - end])))
