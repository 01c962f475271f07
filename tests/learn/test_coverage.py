"""Every item of the sources is in a chapter, elsewhere in regard, or planned; the page of it is up to date."""

from pathlib import Path

from bench import course_coverage as coverage
from regard.learn.chapter import Chapter, Text
from regard.learn.source import chapters
from tests import ROOT

READ = chapters()


def invented(*covers, number=0):
    """A chapter with one section that holds these items."""
    return Chapter(number, "A title", 5, (Text("text-1", 3, covers, "## A heading\n"),), Path("00-a.md"))


def test_every_item_is_somewhere():
    """No item of the sources is forgotten, no chapter names an unknown one, and none is planned that a chapter has."""
    assert (coverage.missing(READ), coverage.unknown(READ), coverage.superfluous(READ)) == ([], [], [])


def test_what_is_elsewhere_is_there():
    """The paths exist, and an item is planned, or elsewhere, or neither."""
    paths = {item.path for item in coverage.ITEMS.values() if item.elsewhere}

    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    assert [item.id for item in coverage.ITEMS.values() if bool(item.elsewhere) != bool(item.path)] == []
    assert [item.id for item in coverage.ITEMS.values() if item.later and item.elsewhere] == []


def test_the_list_is_complete():
    """The items of a source are numbered without a gap."""
    for number, count in enumerate([19, 52, 17, 21, 32]):
        of_source = [item.id for item in coverage.ITEMS.values() if item.id.startswith(f"{number}.")]

        assert of_source == [f"{number}.{each}" for each in range(1, count + 1)]
    assert {kind for item in coverage.ITEMS.values() for kind in item.kinds} == set("SXQVCNE")


def test_the_page_is_written_from_the_chapters():
    """docs/explanation/course-coverage.md is up to date: `python -m bench.course_coverage` writes it."""

    assert (ROOT / "docs/explanation/course-coverage.md").read_text(encoding="utf-8") == coverage.page(READ)


def test_meta_each_check_can_fail(monkeypatch):
    """An item that is nowhere, an unknown item, and a plan that is out of date are found."""
    items = {
        "0.1": coverage.Item("0.1", ("S",), "covered"),
        "0.2": coverage.Item("0.2", ("S",), "nowhere"),
        "0.3": coverage.Item("0.3", ("S",), "planned", later="chapter 9: positions"),
    }
    monkeypatch.setattr(coverage, "ITEMS", items)
    first, second = invented("0.1"), invented("0.1", "7.7", number=9)

    assert coverage.missing([first]) == ["0.2"]
    assert coverage.unknown([first]) == [] and coverage.unknown([second]) == ["00-a.md, line 3: 7.7"]
    assert coverage.superfluous([first]) == [] and coverage.superfluous([second]) == ["0.3"]
