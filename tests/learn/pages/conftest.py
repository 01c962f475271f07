"""Fixtures of the tests of pages: a real browser."""

import pytest


@pytest.fixture
def folder(tmp_path):
    """The learner's folder."""
    return tmp_path / "learner"


@pytest.fixture
def contexts(chromium):
    """Makes contexts: browsers with a storage of their own."""
    found = []

    def make(**options):
        found.append(chromium.new_context(**{"viewport": {"width": 1000, "height": 800}, **options}))
        return found[-1]

    yield make
    for each in found:
        each.close()
