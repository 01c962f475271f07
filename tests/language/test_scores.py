"""Every score of the factories equals its formula, and the sources it is taken from."""

import numpy as np
import pytest

import regard as rg
from regard.language.analysis import evaluate
from regard.language.expr import score

B, H, Q, K = 2, 4, 9, 9
b, h, q, k = np.ix_(range(B), range(H), range(Q), range(K))
rng = np.random.default_rng(0)
S = rng.standard_normal((B, H, Q, K)) * 10
BIAS = rng.standard_normal((B, H, Q, K))
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625])
RELATIVE = rng.standard_normal((H, 7))


def value(expression):
    return np.broadcast_to(
        evaluate(expression, {"batch": b, "head": h, "query": q, "key": k, "score": S}), (B, H, Q, K)
    )


ROWS = {
    "softcap": (rg.softcap(5.0), lambda: 5 * np.tanh(S / 5)),
    "softcap per head": (rg.softcap(rg.table(SLOPES)[rg.head]), lambda: SLOPES[h] * np.tanh(S / SLOPES[h])),
    "alibi": (rg.alibi(SLOPES), lambda: S - SLOPES[h] * abs(q - k)),
    "alibi by head count": (rg.alibi(4), lambda: S - np.array([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])[h] * abs(q - k)),
    "bias": (rg.bias(BIAS), lambda: S + BIAS),
    "bias per head": (rg.bias(BIAS[0]), lambda: S + BIAS[0]),
    "bias of keys": (rg.bias(BIAS[0, 0, 0]), lambda: S + BIAS[0, 0, 0]),
    "bias, one number": (rg.bias(1.5), lambda: S + 1.5),
    "bias, last rows": (rg.bias(BIAS[0, 0, :4]), lambda: S + BIAS[0, 0, np.clip(q - 5, 0, 3), k]),
    "bias, first rows": (rg.bias(BIAS[0, 0, :4], query_start=0), lambda: S + BIAS[0, 0, np.minimum(q, 3), k]),
    "gate": (rg.gate(BIAS), lambda: S * BIAS),
    "gate of integers": (rg.gate(np.arange(K)), lambda: S * np.arange(K)),
    "relative": (rg.relative(RELATIVE[0]), lambda: S + RELATIVE[0, np.clip(k - q, -3, 3) + 3]),
    "relative per head": (rg.relative(RELATIVE), lambda: S + RELATIVE[h, np.clip(k - q, -3, 3) + 3]),
    "composed": (
        rg.softcap(5.0, rg.alibi(SLOPES, rg.bias(BIAS))),
        lambda: 5 * np.tanh((S + BIAS - SLOPES[h] * abs(q - k)) / 5),
    ),
}


@pytest.mark.parametrize(("expression", "formula"), ROWS.values(), ids=ROWS)
def test_a_score_equals_its_formula(expression, formula):
    """The expression's value is the formula's."""
    assert expression.kind == "float"
    assert np.allclose(value(expression), formula(), rtol=1e-12)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 20, 40])
def test_alibi_slopes_are_those_of_the_paper(heads):
    """Powers of 2**(-8/n), and for other head counts the interleaved ones that transformers' models were trained
    with.
    """
    pytest.importorskip("torch")
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    import torch

    theirs = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1].numpy()

    assert np.allclose(rg.alibi_slopes(heads), theirs, rtol=1e-6)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (64, 512), (4, 5)])
def test_t5_buckets_are_those_of_transformers(bidirectional, buckets, max_distance):
    """Every distance falls into the bucket that T5's own code gives it, up to well beyond max_distance."""
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    reach = max_distance + 50
    distance = torch.arange(-reach, reach + 1)

    theirs = t5.T5Attention._relative_position_bucket(distance, bidirectional, buckets, max_distance).numpy()
    numbers = np.arange(float(buckets))[:, None]
    rule = rg.t5_buckets(
        numbers, bidirectional=bidirectional, max_distance=max_distance, score=rg.where(True, 0.0, 0.0)
    )
    ours = evaluate(rule, {"head": 0, "query": np.full(2 * reach + 1, reach), "key": np.arange(2 * reach + 1)})

    assert ours.tolist() == theirs.tolist()


def test_scores_start_from_the_logit():
    """Left to themselves, the factories change the scaled logit itself."""
    assert repr(rg.alibi(np.int64(8))) == repr(rg.alibi(8))
    assert rg.softcap(5.0) is rg.softcap(5.0, score) and rg.bias(2.0) is score + 2.0


REFUSED = [
    (lambda: rg.softcap(-1), "the cap is not a positive finite number"),
    (lambda: rg.softcap(float("inf")), "a finite number above 0"),
    (lambda: rg.softcap("a"), "not a number"),
    (lambda: rg.softcap(None), "not a number"),
    (lambda: rg.softcap(np.ones(3)), "not a number"),
    (lambda: rg.alibi(0), "the number of heads is too small"),
    (lambda: rg.alibi(-3), "the number of heads is negative"),
    (lambda: rg.alibi_slopes(2.5), "the number of heads is not an integer"),
    (
        lambda: rg.t5_buckets(np.ones((32, 1)), bidirectional=True, max_distance="a"),
        "max_distance is not an integer",
    ),
    (lambda: rg.t5_buckets(np.ones((32, 1)), bidirectional=True, max_distance=10**12), "fewer than 2**31 positions"),
    (lambda: rg.t5_buckets(np.ones((33, 1)), bidirectional=True), "an odd number of buckets cannot be split"),
    (lambda: rg.bias([[1.0], [1.0, 2.0]]), "the array cannot be read"),
    (lambda: rg.relative(np.zeros((2, 2, 3))), "numbers with 1 or 2 axes"),
    (lambda: rg.relative(np.zeros(6)), "an odd number: -R … R"),
    (lambda: rg.bias(np.ones((2, 2), bool)), "pass it as mask="),
    (lambda: rg.bias(np.ones((3, 1))), "an array with one column needs query_start"),
    (lambda: rg.alibi(np.ones((2, 2))), "numbers with 1 axes"),
    (lambda: rg.t5_buckets(np.ones(3), bidirectional=True), "numbers with 2 axes"),
    (lambda: rg.t5_buckets(np.ones((2, 1)), bidirectional=True), "at least 4 buckets"),
    (lambda: rg.t5_buckets(np.ones((32, 1)), bidirectional=False, max_distance=16), "beyond the 16 exact ones"),
]


@pytest.mark.parametrize(("build", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_not_a_score_is_refused(build, words):
    """Invalid arguments raise `Refused` with these messages."""
    with pytest.raises(rg.Refused) as caught:
        build()

    assert words in str(caught.value)
