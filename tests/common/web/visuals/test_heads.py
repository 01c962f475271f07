"""The visual of heads side by side: the numbers of the large one, and where each head sends most of its weight."""

import numpy as np
import pytest

from tests.support.lanes import sweep

pytestmark = pytest.mark.browser


def weights_of(heads, count, seed=0):
    powers = np.exp(2 * np.random.default_rng(seed).standard_normal((heads, count, count)))
    return powers / powers.sum(-1, keepdims=True)


def words(count):
    return [f"word{number}" for number in range(count)]


def places(matrix):
    """The mean weight on five places, over the rows that have such a key."""
    count = len(matrix)
    return {
        "first token": matrix[:, 0].mean(),
        "itself": np.diagonal(matrix).mean(),
        "token before": np.diagonal(matrix, -1).mean() if count > 1 else 0,
        "token after": np.diagonal(matrix, 1).mean() if count > 1 else 0,
        "last token": matrix[:, -1].mean(),
    }


@pytest.mark.parametrize("heads, count", [(1, 1), (2, 2), (4, 9), *sweep((12, 16))])
def test_every_number_is_that_of_the_head(shown, heads, count):
    """Every weight, and the place to which the head gives most."""
    weights = weights_of(heads, count)
    view = shown("heads", tokens=words(count), weights=weights)
    for head in range(heads):
        view.change(head=head, row=count - 1, column=0)
        numbers = view.numbers()
        np.testing.assert_allclose(view.cells("picked-weight", count, count), weights[head], rtol=1e-12)
        assert numbers["picked-weight"] == pytest.approx(weights[head, -1, 0], rel=1e-12)
        name, share = max(places(weights[head]).items(), key=lambda pair: pair[1])
        assert numbers[f"place-{head}"] == pytest.approx(share, rel=1e-12)
        assert name in view.tab.locator(".heads-one").nth(head).inner_text() or count < 3


@pytest.mark.parametrize("name, at", [("first token", 0), ("token before", -1), ("token after", 1), ("itself", None)])
def test_a_pattern_is_recognized(shown, name, at):
    """By its name, below the head."""
    count = 6
    matrix = np.full((count, count), 0.02)
    for i in range(count):
        matrix[i, 0 if name == "first token" else min(count - 1, max(0, i + (at or 0)))] = 0.9
    view = shown("heads", tokens=words(count), weights=[matrix])
    assert f"{name} 0.9" in view.tab.locator(".heads-one").first.inner_text()


def test_a_head_is_chosen_by_click_and_arrow_keys(shown):
    """And one alone is marked as chosen."""
    weights = weights_of(5, 4)
    view = shown("heads", tokens=words(4), weights=weights, names=[f"head {each}" for each in "ABCDE"])
    view.tab.locator(".heads-one").nth(2).click()
    assert view.tab.inner_text(".name").startswith("head C:")
    view.tab.keyboard.press("ArrowRight")
    assert view.tab.inner_text(".name").startswith("head D:")
    assert view.numbers()["weight-3-1"] == pytest.approx(weights[3, 3, 1], rel=1e-12)
    assert view.tab.locator(".heads-one[aria-pressed=true]").count() == 1
