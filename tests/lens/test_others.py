"""The mean weight of the other rows, how many rows may attend to a key, and which rows figures leave out."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.engines.choice import ONE_CALL
from regard.language.expr import head, key, query
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs.call import readers
from tests.support.engines import at_every_pair, normal
from tests.support.lanes import by_name

MASKS = {
    "none": None,
    "causal": rg.causal(),
    "window": rg.causal() & rg.window(3),
    "by head": (key + head) % 3 != query % 2,
    "a table": rg.documents(np.arange(40) // 7),
    "no row at all": key > 40,
}


@pytest.mark.parametrize("start", [0, 5])
@by_name("mask", MASKS)
def test_readers_are_the_rows_that_the_mask_allows(mask, start):
    """Of every head, as many as in the table of all pairs; rows may begin later on the key axis."""
    H, Q, K = 3, 19, 26
    allowed = at_every_pair(rg.everything() if mask is None else mask, (1, H, Q, K), start)[0]
    assert np.array_equal(readers(mask, (H, Q, K), start), allowed.sum(1))
    n = int(ONE_CALL**0.5) + 40 + start  # the compiled engine counts the same
    assert np.array_equal(readers(rg.causal(), (2, n - start, n), start)[1], n - np.arange(n).clip(start))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("mask", [MASKS[name] for name in ("none", "causal", "by head", "a table")])
def test_others_are_the_mean_of_the_other_rows(mask, given):
    """Over the rows that may attend to the key, without the row itself; NaN without such a row."""
    q, k = normal(2, 2, 40, 8)
    call = of_arrays(q, k, mask=mask).calls[0]
    call = of_weights(call.weights(), mask=mask).calls[0] if given else call
    p, allowed = call.weights(), call.allowed()
    rows, found = allowed.sum(1, keepdims=True) - allowed, call.others()
    exact = np.where(rows > 0, (p.sum(1, keepdims=True) - p) / np.maximum(rows, 1), np.nan)
    np.testing.assert_allclose(found, exact, atol=1e-6)
    np.testing.assert_array_equal(call.others(rows=[4], keys=[2, 3], heads=1), found[1:, 4:5, 2:4])
    bare = dataclasses.replace(call, received=None)  # has no sums yet
    np.testing.assert_allclose(bare.others(), found, atol=1e-6)


@pytest.mark.parametrize(("start", "more"), [(0, {}), (3, {}), (0, {"mask": rg.documents(np.arange(9) // 4)})])
def test_figures_leave_out_rows_that_cannot_have_them(start, more):
    """A head that always attends to the previous key has 100 %: the first row has none, nor the first of a document.
    Uniform attention has 100 % of the largest entropy, also where the first row has one key; no row more is no number.
    """
    at = start + np.arange(9)
    first = at % 4 == 0 if more else at == 0
    weights = np.eye(9 + start)[at - ~first]
    assert of_weights(weights[None], query_start=start, **more).calls[0].figures["previous"] == 1
    for length, exact in ((1, np.nan), (2, 1), (9, 1)):
        q = np.ones((1, length, 4))
        figures = of_arrays(q, q, mask=rg.causal()).calls[0].figures
        assert figures["spread"] == pytest.approx(exact, abs=1e-6, nan_ok=True)
