"""The visual of ALiBi: slopes, penalties and weights are those of regard and of NumPy."""

import numpy as np
import pytest

import regard as rg

pytestmark = pytest.mark.browser

N = 9
Q, K = np.random.default_rng(0).standard_normal((2, 1, 1, N, 8))
SCORES = (Q[0, 0] @ K[0, 0].T / 8**0.5).tolist()


def test_slopes_are_those_of_regard(shown):
    """For powers of two, and for numbers between them, whose further slopes are those of twice as many heads."""
    view = shown("alibi", scores=SCORES, heads=8)
    assert view.row("slope", 8) == (2.0 ** -np.arange(1, 9)).tolist()
    for heads in range(1, 17):
        view.change(heads=heads)
        assert np.allclose(view.row("slope", heads), rg.alibi_slopes(heads), rtol=1e-7)
        assert f"slope-{heads}" not in view.numbers()


def test_weights_of_a_row_before_and_after(shown):
    """With the scores of the rows and with equal ones, with a causal mask and without."""
    view = shown("alibi", scores=SCORES, heads=8)
    keys = np.arange(N)
    for heads, head, row, equal in ((8, 0, N - 1, False), (12, 9, 4, False), (1, 0, 0, False), (6, 5, 3, True)):
        q, k = (np.repeat(each, heads, 1) for each in (np.zeros_like(Q) if equal else Q, K))
        for causal in (True, False):
            view.change(heads=heads, head=head, row=row, equal=equal, causal=causal)
            penalty = -rg.alibi_slopes(heads)[head] * np.abs(row - keys)
            score = np.where((keys <= row) | (not causal), 0 if equal else SCORES[row], -np.inf)
            assert np.allclose(view.row("penalty", N), penalty, rtol=1e-6)
            assert np.array_equal(view.row("score", N), score)
            for name, rule, error in (("before", None, 1e-9), ("after", rg.alibi(heads), 1e-6)):
                weights = rg.attention_weights(q, k, mask=rg.causal() if causal else None, score=rule)[0, head, row]
                assert np.allclose(view.row(name, N), weights, rtol=error, atol=1e-6 * error)


def test_the_matrix_has_the_weights_as_opacity(shown):
    """Without the penalty and with it."""
    view = shown("alibi", scores=SCORES, heads=4)
    view.change(head=1)
    q, k = (np.repeat(each, 4, 1) for each in (Q, K))
    for at, score in enumerate((None, rg.alibi(4))):
        weights = rg.attention_weights(q, k, mask=rg.causal(), score=score)[0, 1]
        assert np.allclose(view.opacities(at), weights, atol=0.51 / 255)


def test_fewer_heads_keep_a_head_that_there_is(shown):
    """The last one, if there are fewer than its number."""
    view = shown("alibi", scores=SCORES, heads=8)
    view.change(head=7)
    view.change(heads=2)
    assert view.state("head") == 1
