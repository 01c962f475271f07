"""The page of known mistakes is the catalog."""

from bench.mistakes_page import SUBJECTS, page
from regard.laws.mistakes import CATALOG
from tests import ROOT


def test_the_page_is_written_from_the_catalog():
    """docs/reference/mistakes.md is up to date: `python -m bench.mistakes_page` writes it."""
    assert (ROOT / "docs/reference/mistakes.md").read_text(encoding="utf-8") == page()


def test_every_mistake_is_on_the_page_once():
    """The subjects hold the whole catalog."""
    on_page = [mistake.name for mistakes in SUBJECTS.values() for mistake in mistakes]

    assert sorted(on_page) == sorted(mistake.name for mistake in CATALOG) and len(set(on_page)) == len(on_page)
