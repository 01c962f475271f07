"""The course as files: whole, small, without network or server, from a sub-path, and where nothing is kept."""

import functools
import http.server
import threading

import pytest

from regard.common.errors import Refused
from regard.learn.pages.site import write_site
from regard.learn.source import chapters
from tests.support.axe import violations

pytestmark = pytest.mark.browser
in_sweeps = pytest.mark.sweep  # building the site runs every chapter, which takes a minute

LARGEST = 6_000_000  # bytes of the whole site
WIDTHS = (360, 820, 1440)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole course, written once."""
    folder = tmp_path_factory.mktemp("course") / "site"
    paths = list(write_site(folder, chapters()))
    assert all(path.is_file() for path in paths)
    return folder


@pytest.fixture
def tab(chromium):
    """A tab that has to be silent, and to ask for nothing but files or its own server."""
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    made = context.new_page()
    said, asked = [], []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.on("request", lambda request: asked.append(request.url))
    yield made
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "http://127.0.0.1:", "blob:", "data:"))] == []


def opened(tab, address):
    tab.goto(address)
    tab.wait_for_selector("html[data-ready]", state="attached")
    return tab


def names():
    return [f"{chapter.path.stem}.html" for chapter in chapters()]


@in_sweeps
def test_the_site_is_small(site):
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) <= LARGEST


@in_sweeps
@pytest.mark.parametrize("name", names())
def test_every_chapter_works_from_a_file(site, tab, name):
    """Every question is answered with its own right answer; every visual is drawn."""
    opened(tab, (site / name).as_uri())
    tab.evaluate("localStorage.clear()")
    tab.reload()
    tab.wait_for_selector("html[data-ready]", state="attached")
    hidden = tab.locator("main > .part:not(.again):visible").count()
    assert hidden < tab.locator("main > .part:not(.again)").count()  # predictions come first
    while (question := tab.locator(".question form:has(.buttons:visible)").first).count():
        answer(tab, question)
    assert tab.locator("main > .part:not(.again)").count() == tab.locator("main > .part:not(.again):visible").count()
    assert tab.locator(".judged.wrong").count() == 0
    count = tab.locator("[data-visual]").count()
    for at in range(count):
        tab.locator("[data-visual]").nth(at).scroll_into_view_if_needed()
    tab.wait_for_function(
        "(count) => document.querySelectorAll('[data-visual][data-drawn]').length === count", arg=count
    )
    assert tab.evaluate("[...drawn.keys()].length") == count


def answer(tab, form):
    """Gives the right answer to a question, in its fields."""
    name = form.evaluate("(form) => form.parentElement.id")
    section = tab.locator(f"#{name}")  # the form that was found first is another one after the answer
    form = section.locator("form")
    question = tab.evaluate("(name) => page.questions[name]", name)
    right = question["fields"]["answer"]
    match question["form"]:
        case "choice" | "line":
            form.locator(f"input[value='{right[0] if isinstance(right, list) else right}']").check()
        case "pairs":
            for select, number in zip(form.locator("select").all(), right):
                select.select_option(str(number))
        case "table":
            for field, number in zip(form.locator("input").all(), [cell for row in right for cell in row]):
                field.fill(str(number))
        case "shape":
            form.locator(".typed").fill(", ".join(map(str, right)) or "()")
        case _:
            form.locator(".typed").fill(str(right))
    form.locator("button[type=submit]").click()
    assert section.locator(".judged.right").count() == 1, (name, section.inner_text()[:300])


@in_sweeps
def test_answers_are_kept_and_wrong_ones_come_back(site, tab):
    """A wrong answer of chapter 2 is asked again in chapter 3, and counted on the contents page."""
    opened(tab, (site / "02-projections.html").as_uri())
    first = tab.locator(".question form:has(.buttons:visible)").first
    key = tab.evaluate("(name) => page.questions[name].key", first.evaluate("(form) => form.parentElement.id"))
    first.locator(".skip").click()
    tab.reload()
    assert tab.evaluate("(key) => progress.answers[key].right", key) is False
    opened(tab, (site / "03-scores.html").as_uri())
    again = tab.locator(f"[data-key='{key}']")
    assert again.is_visible()
    again.locator(".skip").click()
    tab.reload()
    assert not tab.locator(f"[data-key='{key}']").is_visible()
    opened(tab, (site / "index.html").as_uri())
    assert "answered, 0 right" in tab.inner_text("[data-chapter='2']")


@pytest.fixture(scope="module")
def sub_path(site):
    """The address of a server that has the site in a folder."""
    handler = functools.partial(QuietHandler, directory=str(site.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{site.name}/"
        server.shutdown()
        thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_):
        pass


@in_sweeps
def test_it_works_from_a_sub_path(sub_path, tab):
    opened(tab, sub_path + "index.html")
    tab.click("text=4. Softmax")
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.click("header a[rel=next]")
    tab.wait_for_selector("html[data-ready]", state="attached")
    assert tab.url.startswith(sub_path) and tab.locator("h1").inner_text().startswith("5.")


@in_sweeps
def test_it_works_where_storage_is_forbidden(sub_path, tab):
    """In a sandboxed frame, reading localStorage raises SecurityError; the page says once that it keeps nothing."""
    tab.set_content(f'<iframe sandbox="allow-scripts allow-forms" src="{sub_path}04-softmax.html"></iframe>')
    frame = tab.frames[1]
    frame.wait_for_selector("html[data-ready]", state="attached")
    assert "keeps nothing" in frame.inner_text("#status")
    frame.locator(".question .skip:visible").first.evaluate("(button) => button.click()")
    assert frame.locator(".judged.wrong").count() == 1


@in_sweeps
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off_and_axe_finds_nothing(chromium, site, width, scheme):
    """Every page with everything shown, at three widths, light and dark: nothing is wider than the window."""
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    tab = context.new_page()
    for name in ["index.html", *names()]:
        opened(tab, (site / name).as_uri())
        tab.evaluate("() => { for (const each of document.querySelectorAll('.skip')) each.click(); }")
        for figure in tab.locator("[data-visual]").all():
            figure.scroll_into_view_if_needed()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        if width != 820:
            assert violations(tab) == [], name
    context.close()


def test_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(Refused, match="the folder is not empty"):
        next(write_site(tmp_path, chapters()[:1]))
    assert (tmp_path / "mine.txt").read_text() == "keep me"
