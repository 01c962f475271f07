"""What is kept from call to call does not keep the caller's arrays."""

import gc
import weakref

import numpy as np

import regard as rg
from regard.engines.plan import _plans
from regard.language.expr import tables_of


def test_arrays_go_when_their_rule_goes():
    """After a call, the tables of an unreferenced mask and score are freed: plan and kernel forget them."""
    q = np.ones((2, 100, 8), np.float32)
    slope, document = rg.table(np.array([0.123, 0.456]), "slope"), rg.table(np.repeat([0, 1], [41, 59]), "document")
    mask = document[rg.query] == document[rg.key]
    score = rg.score - slope[rg.head] * (rg.query - rg.key)
    del slope, document
    rg.attention(q, q, q, mask=mask, score=score, engine="jit")
    held = [weakref.ref(table) for table in tables_of(mask, score).values()]
    assert len(held) == 2 and all(table() is not None for table in held)
    del mask, score
    gc.collect()

    assert [table() for table in held] == [None, None]


def test_equal_rules_of_regard_are_planned_once():
    """Every call makes a new `documents(…)`; a rule that reads an array of the caller sees each change of it."""
    q = np.random.default_rng(0).standard_normal((2, 64, 8), dtype=np.float32)
    own = np.repeat([0, 1], 32)
    read = rg.table(own, "document")
    mask = read[rg.query] == read[rg.key]
    for _ in range(3):
        rg.attention(q, q, q, mask=rg.documents(lengths=[32, 32]), engine="jit")
    plans = len(_plans.results)
    rg.attention(q, q, q, mask=rg.documents(lengths=[32, 32]), engine="jit")
    assert len(_plans.results) == plans

    for end in (32, 7, 32, 50):
        own[:] = np.arange(64) >= end
        expected = rg.attention(q, q, q, mask=rg.documents(lengths=[end, 64 - end]), engine="jit")
        assert np.array_equal(rg.attention(q, q, q, mask=mask, engine="jit"), expected)
