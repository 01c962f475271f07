"""What is kept from call to call does not keep the caller's arrays."""

import gc
import weakref

import numpy as np

import regard as rg
from regard.language.expr import frozen_table, tables_of


def test_arrays_go_when_their_rule_goes():
    """After a call, the tables of an unreferenced mask and score are freed: plan and kernel forget
    them.
    """
    q = np.ones((2, 100, 8), np.float32)
    slope = frozen_table(np.array([0.123, 0.456]), "slope")  # numbers that no other test has: equal tables are one
    mask, score = rg.documents(lengths=[41, 59]), rg.score - slope[rg.head] * (rg.query - rg.key)
    del slope
    rg.attention(q, q, q, mask=mask, score=score, engine="jit")
    held = [weakref.ref(table) for table in tables_of(mask, score).values()]
    assert len(held) == 2 and all(table() is not None for table in held)
    del mask, score
    gc.collect()

    assert [table() for table in held] == [None, None]
