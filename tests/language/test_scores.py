"""Every score of the factories equals its formula, and the sources it is taken from."""

import functools

import numpy as np
import pytest

import regard as rg
from regard.language.analysis import evaluate
from regard.language.expr import score
from tests.support.engines import at_every_pair
from tests.support.lanes import by_name
from tests.support.refusals import refused_in

B, H, Q, K = 2, 4, 9, 9
b, h, q, k = np.ix_(*map(range, (B, H, Q, K)))
rng = np.random.default_rng(0)
S = rng.standard_normal((B, H, Q, K)) * 10
BIAS = rng.standard_normal((B, H, Q, K))
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625])
RELATIVE = rng.standard_normal((H, 7))


value = functools.partial(at_every_pair, shape=S.shape, score=S)
ROWS = {
    "softcap": (rg.softcap(5.0), 5 * np.tanh(S / 5)),
    "softcap per head": (rg.softcap(rg.table(SLOPES)[rg.head]), SLOPES[h] * np.tanh(S / SLOPES[h])),
    "alibi by head count": (rg.alibi(4), S - 2.0 ** (-2 * h - 2) * abs(q - k)),
    "bias": (rg.bias(BIAS), S + BIAS),
    "bias, one number": (rg.bias(1.5), S + 1.5),
    "bias, last rows": (rg.bias(BIAS[0, 0, :4]), S + BIAS[0, 0, np.clip(q - 5, 0, 3), k]),
    "bias, a start for each entry": (
        rg.bias(BIAS[0, 0, :4], query_start=[3, 1]),
        S + BIAS[0, 0, np.clip(q - np.array([3, 1])[b], 0, 3), k],
    ),
    "bias, first rows": (rg.bias(BIAS[0, 0, :4], query_start=0), S + BIAS[0, 0, np.minimum(q, 3), k]),
    "gate": (rg.gate(BIAS), S * BIAS),
    "gate of integers": (rg.gate(np.arange(K)), S * np.arange(K)),
    "relative": (rg.relative(RELATIVE[0]), S + RELATIVE[0, np.clip(k - q, -3, 3) + 3]),
    "relative per head": (rg.relative(RELATIVE), S + RELATIVE[h, np.clip(k - q, -3, 3) + 3]),
    "composed": (
        rg.softcap(5.0, rg.alibi(SLOPES, rg.bias(BIAS))),
        5 * np.tanh((S + BIAS - SLOPES[h] * abs(q - k)) / 5),
    ),
}


@by_name("expression, formula", ROWS)
def test_a_score_equals_its_formula(expression, formula):
    """The expression's value is the formula's."""
    assert expression.kind == "float"
    assert np.allclose(value(expression), formula, rtol=1e-12)


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 40])
def test_alibi_slopes_are_those_of_the_paper(heads):
    """Powers of 2**(-8/n), and for other head counts the interleaved ones that transformers' models were trained
    with.
    """
    import torch
    from transformers.models.bloom import modeling_bloom as bloom

    theirs = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)

    assert np.allclose(rg.alibi_slopes(heads), theirs[:, 0, 1], rtol=1e-6)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 512), (4, 5)])
def test_t5_buckets_are_those_of_transformers(bidirectional, buckets, max_distance):
    """Every distance falls into the bucket that T5's own code gives it, up to well beyond max_distance."""
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    key, query = np.arange(2 * max_distance + 101), max_distance + 50

    distance = torch.from_numpy(key - query)
    theirs = T5Attention._relative_position_bucket(distance, bidirectional, buckets, max_distance)
    rule = rg.t5_buckets(np.arange(float(buckets))[:, None], bidirectional=bidirectional, max_distance=max_distance)

    assert evaluate(rule, {"head": 0, "query": query, "key": key, "score": 0.0}).tolist() == theirs.tolist()


def test_scores_start_from_the_logit():
    """Left to themselves, the factories change the scaled logit itself."""
    assert repr(rg.alibi(np.int64(8))) == repr(rg.alibi(8))
    assert rg.softcap(5.0) is rg.softcap(5.0, score) and rg.bias(2.0) is score + 2.0


TABLE = np.ones((32, 1))
REFUSED = {
    "the cap is not a positive finite number": lambda: rg.softcap(-1),
    "a finite number above 0": lambda: rg.softcap(float("inf")),
    "not a number": lambda: rg.softcap(None),
    "the number of heads is too small": lambda: rg.alibi(0),
    "the number of heads is not an integer": lambda: rg.alibi_slopes(2.5),
    "max_distance is not an integer": lambda: rg.t5_buckets(TABLE, bidirectional=True, max_distance="a"),
    "fewer than 2**31 positions": lambda: rg.t5_buckets(TABLE, bidirectional=True, max_distance=10**12),
    "an odd number of buckets cannot be split": lambda: rg.t5_buckets(np.ones((33, 1)), bidirectional=True),
    "numbers with 2 axes": lambda: rg.t5_buckets(TABLE[0], bidirectional=True),
    "at least 4 buckets": lambda: rg.t5_buckets(TABLE[:2], bidirectional=True),
    "beyond the 16 exact ones": lambda: rg.t5_buckets(TABLE, bidirectional=False, max_distance=16),
    "numbers with 1 or 2 axes": lambda: rg.relative(np.zeros((2, 2, 3))),
    "pass it as mask=": lambda: rg.bias(np.ones((2, 2), bool)),
    "numbers with 1 axes": lambda: rg.alibi(np.ones((2, 2))),
}


test_what_is_not_a_score_is_refused = refused_in(REFUSED)
