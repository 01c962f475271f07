"""The visual of heads side by side: the numbers of the large one, and where each head sends most of its weight."""

import numpy as np
import pytest

from tests.support.lanes import sweep

WORDS = [f"word{number}" for number in range(16)]
RANDOM = np.random.default_rng(0)


def weights(*shape):
    """Random rows whose sum is 1."""
    powers = np.exp(2 * RANDOM.standard_normal(shape))
    return powers / powers.sum(-1, keepdims=True)


def places(matrix):
    """The mean weight on five places, over the rows that have such a key."""
    means = {"first token": matrix[:, 0].mean(), "last token": matrix[:, -1].mean()}
    for name, at in (("itself", 0), ("token before", -1), ("token after", 1)):
        means[name] = np.diagonal(matrix, at).mean() if abs(at) < len(matrix) else 0
    return means


@pytest.mark.parametrize("heads, count", [(1, 1), (4, 9), *sweep((2, 2), (12, 16))])
def test_every_number_is_that_of_the_head(shown, heads, count):
    """Every weight, and the place to which the head gives most."""
    matrices = weights(heads, count, count)
    view = shown("heads", tokens=WORDS[:count], weights=matrices)
    for head, matrix in enumerate(matrices):
        view.change(head=head, row=count - 1, column=0)
        name, share = max(places(matrix).items(), key=lambda pair: pair[1])
        view.near({"picked-weight": matrix[-1, 0], f"place-{head}": share}, rel=1e-12)
        np.testing.assert_allclose(view.cells("picked-weight", count, count), matrix, rtol=1e-12)
        assert name in view.tab.locator(".heads-one").nth(head).inner_text() or count < 3


def test_a_pattern_is_recognized(shown):
    """By its name, below the head."""
    at = np.arange(6)
    keys = {"first token": 0 * at, "token before": at - 1, "token after": at + 1, "itself": at}
    matrices = [np.where(at == np.clip(key, 0, 5)[:, None], 0.9, 0.02) for key in keys.values()]
    view = shown("heads", tokens=WORDS[:6], weights=matrices)
    for name, said in zip(keys, view.tab.locator(".heads-one").all_inner_texts(), strict=True):
        assert f"{name} 0.9" in said


def test_a_head_is_chosen_by_click_and_arrow_keys(shown):
    """And its numbers are shown."""
    matrices = weights(5, 4, 4)
    view = shown("heads", tokens=WORDS[:4], weights=matrices, names=[f"head {each}" for each in "ABCDE"])
    view.tab.locator(".heads-one").nth(2).click()
    assert view.tab.inner_text(".name").startswith("head C:")
    view.tab.keyboard.press("ArrowRight")
    assert view.tab.inner_text(".name").startswith("head D:")
    view.near({"weight-3-1": matrices[3, 3, 1]}, rel=1e-12)
