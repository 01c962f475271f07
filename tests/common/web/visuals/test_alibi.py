"""The visual of ALiBi: slopes, penalties and weights are those of regard and of NumPy."""

import numpy as np
import pytest

import regard as rg
from tests.support.visual_pages import fits_and_is_accessible, opacities

pytestmark = pytest.mark.browser

N = 9
Q, K = np.random.default_rng(0).standard_normal((2, 1, 1, N, 8))
SCORES = (Q[0, 0] @ K[0, 0].T / 8**0.5).tolist()


def test_slopes_are_those_of_regard(shown):
    """For powers of two, and for numbers between them, whose further slopes are those of twice as many heads."""
    view = shown("alibi", scores=SCORES, heads=8)
    for heads in range(1, 17):
        view.change(heads=heads)
        numbers = view.numbers()
        found = [numbers[f"slope-{head}"] for head in range(heads)]
        assert np.allclose(found, rg.alibi_slopes(heads), rtol=1e-7)
        assert f"slope-{heads}" not in numbers


def test_slopes_of_the_formula(shown):
    view = shown("alibi", scores=SCORES, heads=8)
    numbers = view.numbers()
    assert [numbers[f"slope-{head}"] for head in range(8)] == (2.0 ** -np.arange(1, 9)).tolist()


@pytest.mark.parametrize("causal", [True, False])
def test_weights_of_a_row_before_and_after(shown, causal):
    view = shown("alibi", scores=SCORES, heads=8, causal=causal)
    for heads, head, row, equal in ((8, 0, N - 1, False), (12, 9, 4, False), (1, 0, 0, False), (6, 5, 3, True)):
        view.change(heads=heads, head=head, row=row, equal=equal)
        q = np.zeros_like(Q) if equal else Q
        q, k = (np.repeat(each, heads, 1) for each in (q, K))
        mask = rg.causal() if causal else None
        before = rg.attention_weights(q, k, mask=mask)[0, head, row]
        after = rg.attention_weights(q, k, mask=mask, score=rg.alibi(heads))[0, head, row]
        numbers = view.numbers()
        assert np.allclose([numbers[f"before-{key}"] for key in range(N)], before, rtol=1e-9, atol=1e-15)
        assert np.allclose([numbers[f"after-{key}"] for key in range(N)], after, rtol=1e-6, atol=1e-12)
        penalty = -rg.alibi_slopes(heads)[head] * np.abs(row - np.arange(N))
        assert np.allclose([numbers[f"penalty-{key}"] for key in range(N)], penalty, rtol=1e-6)
        score = np.where((np.arange(N) <= row) | (not causal), 0 if equal else SCORES[row], -np.inf)
        assert np.array_equal([numbers[f"score-{key}"] for key in range(N)], score)


def test_the_matrix_has_the_weights_as_opacity(shown):
    view = shown("alibi", scores=SCORES, heads=4)
    view.change(head=1)
    q, k = (np.repeat(each, 4, 1) for each in (Q, K))
    for at, score in enumerate((None, rg.alibi(4))):
        weights = rg.attention_weights(q, k, mask=rg.causal(), score=score)[0, 1]
        assert np.allclose(opacities(view, at), weights, atol=0.51 / 255)


def test_fewer_heads_keep_a_head_that_there_is(shown):
    view = shown("alibi", scores=SCORES, heads=8)
    view.change(head=7)
    view.change(heads=2)
    assert view.tab.evaluate("drawn.state.head") == 1


def test_the_controls_by_keyboard_and_pointer(shown):
    view = shown("alibi", scores=SCORES, heads=4)
    view.tab.get_by_role("slider", name="heads").press("ArrowRight")
    assert len([name for name in view.numbers() if name.startswith("slope")]) == 5
    view.tab.get_by_role("slider", name="head", exact=False).nth(1).press("ArrowRight")
    assert view.tab.evaluate("drawn.state.head") == 1
    view.tab.get_by_role("button", name="head 3").press("Enter")
    assert view.tab.evaluate("drawn.state.head") == 3
    view.tab.get_by_role("slider", name="row").press("ArrowLeft")
    assert view.tab.evaluate("drawn.state.row") == N - 2
    view.tab.get_by_label("causal mask").press("Space")
    assert view.numbers()[f"before-{N - 1}"] > 0
    view.tab.get_by_label("all scores equal").press("Space")
    assert view.numbers()["before-0"] == pytest.approx(1 / N)
    view.tab.locator(".alibi-matrix").first.click(position={"x": 100, "y": 30})
    assert view.tab.evaluate("drawn.state.row") == 0


def test_its_page(shown):
    fits_and_is_accessible(shown, "alibi", scores=SCORES, heads=12, tokens=[f"word{at}" for at in range(N)])
