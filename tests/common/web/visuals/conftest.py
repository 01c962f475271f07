"""Fixtures of the tests of visuals: a real browser, and a visual alone in a page of it."""

import pytest

from tests.support.visuals import Picture


@pytest.fixture(scope="module")
def tab(chromium):
    """The tab in which the visuals of a module are opened, one after another."""
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    yield context.new_page()
    context.close()


@pytest.fixture
def shown(chromium, tab, tmp_path):
    """Opens a visual of a kind with its data, in a context of its own if one is given; its page must be silent."""
    found = []

    def opening(kind, _context=None, **data):
        for each in found:
            each.silent()
        own = chromium.new_context(**{"viewport": {"width": 1000, "height": 900}, **_context}) if _context else None
        found.append(Picture(own.new_page() if own else tab, tmp_path, kind, data))
        return found[-1]

    yield opening
    for each in found:
        each.silent()
        if each.tab is not tab:
            each.tab.context.close()
