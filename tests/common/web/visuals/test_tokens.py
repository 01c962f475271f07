"""The visual of tokens that can be chosen: the row, or the column, of a token, in each head and in their mean."""

import numpy as np
import pytest

from tests.support.lanes import sweep

pytestmark = pytest.mark.browser


def weights_of(heads, count, seed=0):
    powers = np.exp(2 * np.random.default_rng(seed).standard_normal((heads, count, count)))
    return powers / powers.sum(-1, keepdims=True)


def words(count):
    return [f"word{number}" for number in range(count)]


@pytest.mark.parametrize("heads, count", [(1, 1), (3, 7), *sweep((1, 2), (2, 32))])
def test_every_number_is_that_of_the_row(shown, heads, count):
    """Or of the column, in each head and in their mean; the three largest are named."""
    weights = weights_of(heads, count)
    view = shown("tokens", tokens=words(count), weights=weights)
    matrices = [*weights, weights.mean(0)] if heads > 1 else weights
    for head, matrix in enumerate(matrices):
        for token in {0, count // 2, count - 1}:
            for direction, row in (("attends to", matrix[token]), ("receives attention from", matrix[:, token])):
                view.change(head=head, token=token, direction=direction)
                np.testing.assert_allclose(view.row("weight", count), row, rtol=1e-12)
                assert view.numbers()["sum"] == pytest.approx(row.sum(), rel=1e-12)
                best = np.sort(row)[::-1][:3]
                np.testing.assert_allclose(view.row("best", len(best)), best, rtol=1e-12)


def test_a_token_is_chosen_by_click_hover_and_arrow_keys(shown):
    """And has the focus; at the first token the arrow stops."""
    weights = weights_of(2, 5)
    view = shown("tokens", tokens=words(5), weights=weights, token=1)
    tab = view.tab

    def chosen():
        assert view.numbers()["weight-0"] == pytest.approx(
            weights[0, int(tab.inner_text(".tokens-said strong")[4:]), 0]
        )
        pressed = tab.locator(".token[aria-pressed=true]")
        assert pressed.count() == 1
        return pressed.inner_text().split()[0]

    assert chosen() == "word1"
    tab.locator(".token").nth(3).hover()
    assert chosen() == "word3"
    tab.locator(".token").nth(2).click()
    assert chosen() == "word2"
    tab.keyboard.press("ArrowRight")
    assert chosen() == "word3"
    assert tab.evaluate("document.activeElement.innerText").startswith("word3")
    for _ in range(9):
        tab.keyboard.press("ArrowLeft")
    assert chosen() == "word0"


def test_stronger_weights_have_stronger_colors(shown):
    """By the root of the weight."""
    weights = [[[0.0, 0.04, 0.36, 0.6]] * 4]
    view = shown("tokens", tokens=words(4), weights=weights)
    shares = view.tab.locator(".token").evaluate_all(
        "all => all.map((each) => parseFloat(each.style.getPropertyValue('--share')))"
    )
    assert shares == pytest.approx([0, 20, 60, 100 * 0.6**0.5], abs=0.06)
