"""The page on paper: colors are printed, and every step keeps its name and formula."""

import pytest

import regard as rg
from regard.lens.viewer import page
from tests.support.browser import example


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_weights_keep_their_colors_on_paper(opened, scheme):
    """Browsers leave out backgrounds unless the page says that they mean something: here they are the weights, and the
    ground of the dark theme.
    """
    view = opened(page(example(mask=rg.causal())[0]), color_scheme=scheme)
    view.tab.emulate_media(media="print")
    for selector in ("body", "#words .token", "#strongest-list i", "#swatches i"):
        adjusted = view.tab.eval_on_selector(selector, "node => getComputedStyle(node).printColorAdjust")
        assert adjusted == "exact", selector


def test_steps_have_names_on_paper(opened):
    """They are buttons on the screen; the other buttons are left out."""
    view = opened(page(example()[0]))
    view.reach("walk")
    view.tab.emulate_media(media="print")
    assert view.tab.is_visible("#walk-head-p") and view.tab.is_visible("#grid button")
    assert not view.tab.is_visible("#help") and not view.tab.is_visible("#places") and not view.tab.is_visible("#fill")
