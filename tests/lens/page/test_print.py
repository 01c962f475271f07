"""The page on paper: colors are printed, and every step keeps its name and formula."""

import regard as rg
from regard.lens.viewer import page
from tests.support.browser import example


def test_weights_keep_their_colors_on_paper(opened):
    """Browsers leave out backgrounds unless the page says that they mean something: here they are the weights, and the
    ground of the dark theme. Steps are buttons on the screen, and stay; the other buttons are left out.
    """
    view = opened(page(example(mask=rg.causal())[0]), color_scheme="dark")
    view.reach("walk")
    view.tab.emulate_media(media="print")
    for selector in ("body", "#words .token", "#strongest-list i", "#swatches i"):
        assert {*view.each(selector, "getComputedStyle(node).printColorAdjust")} == {"exact"}, selector
    visible = [view.tab.is_visible(f"#{name}") for name in ("walk-head-p", "grid button", "help", "places", "fill")]
    assert visible == [True, True, False, False, False]
