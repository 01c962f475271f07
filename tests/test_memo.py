"""What is kept from call to call does not keep the caller's arrays."""

import gc
import weakref

import numpy as np

import regard as rg
from regard.expr import tables_of


def test_arrays_go_when_their_rule_goes():
    """After a call, the tables of a mask and a score that nobody holds any more are freed: plan and kernel forget them."""
    q = np.ones((2, 100, 8), np.float32)
    mask, score = rg.documents(lengths=[40, 60]), rg.alibi(2)
    rg.attention(q, q, q, mask=mask, score=score, engine="jit")
    held = [weakref.ref(table) for table in tables_of(mask, score).values()]
    assert len(held) == 2 and all(table() is not None for table in held)
    del mask, score
    gc.collect()

    assert [table() for table in held] == [None, None]
