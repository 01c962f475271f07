"""The visual of tokens that can be chosen: the row, or the column, of a token, in each head and in their mean."""

import numpy as np
import pytest

from tests.common.web.visuals.test_heads import WORDS, weights
from tests.support.lanes import sweep


@pytest.mark.parametrize("heads, count", [(1, 1), (3, 7), *sweep((1, 2), (2, 16))])
def test_every_number_is_that_of_the_row(shown, heads, count):
    """Or of the column, in each head and in their mean; the three largest are named."""
    matrices = weights(heads, count, count)
    view = shown("tokens", tokens=WORDS[:count], weights=matrices)
    for head, matrix in enumerate([*matrices, matrices.mean(0)] if heads > 1 else matrices):
        for token in {0, count - 1}:
            for direction, row in (("attends to", matrix[token]), ("receives attention from", matrix[:, token])):
                view.change(head=head, token=token, direction=direction)
                view.near({"weight": row, "sum": row.sum(), "best": np.sort(row)[::-1][:3]}, rel=1e-12)


def test_a_token_is_chosen_by_click_hover_and_arrow_keys(shown):
    """Its row is shown."""
    matrices = weights(2, 5, 5)
    view = shown("tokens", tokens=WORDS[:5], weights=matrices, token=1)
    tokens, keyboard = view.tab.locator(".token"), view.tab.keyboard
    for act, token in (
        (tokens.nth(3).hover, 3),
        (tokens.nth(2).click, 2),
        (lambda: keyboard.press("ArrowRight"), 3),
    ):
        act()
        (pressed,) = view.tab.locator(".token[aria-pressed=true]").all_inner_texts()
        assert pressed.split()[0] == view.tab.inner_text(".tokens-said strong") == WORDS[token]
        view.near({"weight-0": matrices[0, token, 0]})
