"""Every item of the sources is in a chapter, elsewhere in regard, or planned; the page of it is up to date."""

from pathlib import Path

import pytest

from bench import course_coverage as coverage
from regard.learn.chapter import Chapter
from regard.learn.source import chapters, read_chapter
from tests import ROOT
from tests.learn.chapter_files import HEAD

READ = chapters()


def invented(folder: Path, text: str, number: int = 0) -> Chapter:
    """A chapter with this text."""
    path = folder / f"{number:02}-a.md"
    path.write_text(HEAD.replace("number = 3", f"number = {number}") + text, encoding="utf-8")
    return read_chapter(path)


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


def test_items_are_of_what_begins_next(tmp_path):
    """Those of a reveal are of its question; several comments add up."""
    question = '```toml prediction p\nask = "x"\nform = "number"\nanswer = 1\n```\n'
    reveal = "<!-- covers 1.3 -->\n```python reveal p\n1\n```\n"
    text = f"<!-- covers 1.1 -->\n<!-- covers 0.9 1.2 -->\n## A\n\nText.\n{question}{reveal}"
    chapter = invented(tmp_path, f"## First\n\n{text}")

    assert [(item, part.name) for item, part in coverage.covered(chapter)] == [
        ("1.1", "text-2"), ("0.9", "text-2"), ("1.2", "text-2"), ("1.3", "p")
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["<!-- covers 1.2, 1.3 -->\nText\n", "Text\n\n<!-- covers 1.2 -->\n"])
def test_comments_that_cannot_be_read(text, tmp_path):
    """Other signs between the numbers, and nothing that follows."""
    with pytest.raises(ValueError, match=r"00-a\.md, line [79]: <!-- covers"):
        coverage.covered(invented(tmp_path, "\n" + text))


def test_meta_each_check_can_fail(monkeypatch, tmp_path):
    """An item that is nowhere, an unknown item, and a plan that is out of date are found."""
    items = {
        "0.1": coverage.Item("0.1", ("S",), "covered"),
        "0.2": coverage.Item("0.2", ("S",), "nowhere"),
        "0.3": coverage.Item("0.3", ("S",), "planned", later="chapter 9: positions"),
    }
    monkeypatch.setattr(coverage, "ITEMS", items)
    first = invented(tmp_path, "<!-- covers 0.1 -->\n## A heading\n")
    second = invented(tmp_path, "<!-- covers 0.1 7.7 -->\n## A heading\n", number=9)

    assert coverage.missing([first]) == ["0.2"]
    assert coverage.unknown([first]) == [] and coverage.unknown([second]) == ["09-a.md, line 7: 7.7"]
    assert coverage.superfluous([first]) == [] and coverage.superfluous([second]) == ["0.3"]
