"""Fixtures of the tests of visuals: a real browser, and a visual alone in a page of it."""

import pytest

from tests.support.browser import chromium  # noqa: F401
from tests.support.visuals import Picture


@pytest.fixture
def shown(chromium, tmp_path):  # noqa: F811
    """Opens a visual of a kind with its data; afterwards its page must have been silent."""
    found = []

    def opening(kind, _context=None, **data):
        found.append(Picture(chromium, tmp_path, kind, data, **(_context or {})))
        return found[-1]

    yield opening
    for each in found:
        each.silent()
        each.context.close()
