"""A page that many tests of the page share."""

import pytest

import regard as rg
from regard.lens.viewer import page
from tests.support.browser import example


@pytest.fixture(scope="module")
def shown(kept_open):
    """One page for many tests: (the page, its run, the exact weights). Three heads of two calls, causal, GQA with one
    key head.
    """
    run, exact = example(n=12, mask=rg.causal(), groups=1)
    return kept_open(page(run)), run, exact


@pytest.fixture
def home(shown):
    """The same, as it was when it was opened."""
    view, run, exact = shown
    view.tab.evaluate("document.activeElement.blur()")
    view.choose(
        call=0,
        head=0,
        query=0,
        key=None,
        pins=[],
        direction="to",
        scale="log",
        pool="share",
        hideSpecial=False,
        metric="matrix",
        sort="order",
        filter=None,
        view=None,
    )
    return view, run, exact
