"""The course as files: whole, small, without network or server, from a sub-path, and where nothing is kept."""

import pytest

from regard.common.errors import Refused
from regard.learn.pages.site import write_site
from regard.learn.source import chapters
from tests.support.axe import violations
from tests.support.browser import listened

pytestmark = pytest.mark.browser
LARGEST = 6_000_000  # bytes of the whole site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole course, written once."""
    folder = tmp_path_factory.mktemp("course") / "site"
    assert all(path.is_file() for path in list(write_site(folder, chapters())))
    return folder


@pytest.mark.sweep
def test_the_site_is_small(site):
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) <= LARGEST


@pytest.mark.sweep
@pytest.mark.parametrize("name", [f"{chapter.path.stem}.html" for chapter in chapters()])
def test_every_chapter_works_from_a_file(site, chromium, name):
    """Every answer is shown to who asks for it; every visual is drawn; nothing is said to the console, and nothing is
    wider than the window; then axe-core, which itself asks for the style, finds nothing.
    """
    tab = chromium.new_page(viewport={"width": 360, "height": 900}, bypass_csp=True)
    said = listened(tab)
    tab.goto((site / name).as_uri())
    tab.wait_for_selector("html[data-ready]", state="attached")
    hidden = tab.locator("main > .part:not(.again)").filter(visible=False)
    assert hidden.count()  # predictions come first
    while (skip := tab.locator(".question .skip:visible").first).count():
        skip.click()
    assert hidden.count() == 0
    for figure in tab.locator("[data-visual]").all():
        figure.scroll_into_view_if_needed()
    tab.wait_for_function("() => !document.querySelector('[data-visual]:not([data-drawn])')")
    assert tab.evaluate("[...drawn.keys()].length") == tab.locator("[data-visual]").count()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360 and said == []
    assert violations(tab) == []
    tab.close()


def test_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(Refused, match="the folder is not empty"):
        next(write_site(tmp_path, chapters()[:1]))
    assert (tmp_path / "mine.txt").read_text() == "keep me"
