"""The visual of ALiBi: slopes, penalties and weights are those of regard and of NumPy."""

import numpy as np

import regard as rg

N = 9
Q, K = np.random.default_rng(0).standard_normal((2, 1, 1, N, 8))
SCORES = (Q[0, 0] @ K[0, 0].T / 8**0.5).tolist()


def test_slopes_are_those_of_regard(shown):
    """For powers of two, and for numbers between them, whose further slopes are those of twice as many heads."""
    view = shown("alibi", scores=SCORES, heads=8)
    for heads in (1, 8, 12, 15):
        view.change(heads=heads)
        view.near({"slope": rg.alibi_slopes(heads)}, rel=1e-7)
        assert f"slope-{heads}" not in view.numbers()


def test_weights_of_a_row_before_and_after(shown):
    """With the scores of the rows and with equal ones, with a causal mask and without."""
    view = shown("alibi", scores=SCORES, heads=8)
    keys = np.arange(N)
    for heads, head, row, equal, causal in ((8, 0, 8, False, True), (12, 9, 4, False, False), (6, 5, 3, True, True)):
        q, k = (np.repeat(each, heads, 1) for each in (Q * (not equal), K))
        view.change(heads=heads, head=head, row=row, equal=equal, causal=causal)
        penalty = -rg.alibi_slopes(heads)[head] * np.abs(row - keys)
        score = np.where((keys <= row) | (not causal), 0 if equal else SCORES[row], -np.inf)
        view.near({"penalty": penalty}, rel=1e-6)
        assert view.row("score", N) == score.tolist()
        for name, rule, error in (("before", None, 1e-9), ("after", rg.alibi(heads), 1e-6)):
            weights = rg.attention_weights(q, k, mask=rg.causal() if causal else None, score=rule)[0, head, row]
            view.near({name: weights}, rel=error, abs=1e-6 * error)


def test_the_matrix_has_the_weights_as_opacity(shown):
    """Without the penalty and with it; fewer heads keep a head that there is."""
    view = shown("alibi", scores=SCORES, heads=4)
    view.change(head=1)
    q, k = (np.repeat(each, 4, 1) for each in (Q, K))
    for at, score in enumerate((None, rg.alibi(4))):
        weights = rg.attention_weights(q, k, mask=rg.causal(), score=score)[0, 1]
        assert np.allclose(view.opacities(at), weights, atol=0.51 / 255)
    view.change(heads=1)
    assert view.state("head") == 0
