"""The mean weight of the other rows, how many rows may attend to a key, and which rows figures leave out."""

import numpy as np
import pytest

import regard as rg
from regard.language.analysis import evaluate
from regard.language.expr import head, key, query
from regard.lens import Call
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs.readers import SMALL, readers

MASKS = {
    "none": None,
    "causal": rg.causal(),
    "window": rg.causal() & rg.window(3),
    "by head": (key + head) % 3 != query % 2,
    "a table": rg.documents(np.arange(40) // 7),
    "no row at all": key > 40,
}


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_readers_are_the_rows_that_the_mask_allows(mask, start):
    """Of every head, as many as in the table of all pairs; rows may begin later on the key axis."""
    H, Q, K = 3, 19, 26
    at = {"batch": 0, "head": np.arange(H)[:, None, None], "query": start + np.arange(Q)[:, None], "key": np.arange(K)}
    allowed = np.ones((H, Q, K), bool) if mask is None else np.broadcast_to(evaluate(mask, at), (H, Q, K))
    assert np.array_equal(readers(mask, (H, Q, K), start), allowed.sum(1))


def test_readers_of_many_rows():
    """The compiled engine counts the same."""
    K = int(SMALL**0.5) + 40
    assert np.array_equal(readers(rg.causal(), (2, K, K))[1], K - np.arange(K))
    assert np.array_equal(readers(rg.causal(), (1, 9, K), K - 9)[0, -10:], [9, *range(9, 0, -1)])


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("mask", [MASKS[name] for name in ("none", "causal", "by head", "a table")])
def test_others_are_the_mean_of_the_other_rows(mask, given):
    """Over the rows that may attend to the key, without the row itself; NaN without such a row."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 40, 8), dtype=np.float32)
    call = of_arrays(q, k, mask=mask).calls[0]
    call = of_weights(call.weights(), mask=mask).calls[0] if given else call
    p, allowed = call.weights(), call.allowed()
    rows, found = allowed.sum(1, keepdims=True) - allowed, call.others()
    exact = np.where(rows > 0, (p.sum(1, keepdims=True) - p) / np.maximum(rows, 1), np.nan)
    np.testing.assert_allclose(found, exact, atol=1e-6)
    np.testing.assert_array_equal(call.others(rows=[4], keys=[2, 3], heads=1), found[1:, 4:5, 2:4])


def test_others_without_figures():
    """A call that was made by hand has no sums yet; they are computed."""
    weights = np.array([[[0.9, 0.1], [0.3, 0.7]]])
    call = Call("by hand", 0, "text", "text", np.zeros((1, 2)), given=weights)
    np.testing.assert_allclose(call.others(), weights[:, ::-1])


@pytest.mark.parametrize("length", [1, 2, 50])
@pytest.mark.parametrize("mask", [None, rg.causal()])
def test_spread_leaves_out_rows_with_one_key(length, mask):
    """Uniform attention is 100 % of the largest entropy at any length, causal or not."""
    q = np.ones((1, length, 4), np.float32)
    exact = 1 if length > 1 else np.nan
    assert of_arrays(q, q, mask=mask).calls[0].figures["spread"] == pytest.approx(exact, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(("start", "more"), [(0, {}), (3, {}), (0, {"mask": rg.documents(np.arange(9) // 4)})])
def test_previous_leaves_out_rows_without_a_previous_key(start, more):
    """A head that always attends to the previous key has 100 %: the first row has none, nor the first of a document."""
    at = start + np.arange(9)
    first = at % 4 == 0 if more else at == 0
    weights = np.eye(9 + start)[at - ~first]
    assert of_weights(weights[None], query_start=start, **more).calls[0].figures["previous"] == 1
