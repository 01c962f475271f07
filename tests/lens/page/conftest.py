"""A page that many tests of the page share."""

import pytest

import regard as rg
from tests.support.browser import example
from tests.support.page_map import BEGIN


@pytest.fixture(scope="module")
def shown(kept_open):
    """One page for many tests: (the page, its run, the exact weights). Three heads of two calls, causal, GQA with one
    key head.
    """
    run, exact = example(n=12, mask=rg.causal(), groups=1)
    return kept_open(run), run, exact


@pytest.fixture
def home(shown):
    """The same, as it was when it was opened."""
    view, run, exact = shown
    view.tab.mouse.move(0, 0)
    view.tab.evaluate("document.activeElement.blur()")
    parts = {"direction": "to", "metric": "matrix", "second": None}
    view.choose(**BEGIN | parts)
    return view, run, exact
