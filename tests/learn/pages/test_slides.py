"""`regard learn --slides`: a chapter's reveals one after another in a real browser, with notes, and on paper."""

import re
from pathlib import Path

import pytest

from regard.common.errors import Refused
from regard.learn.chapter import Claim, Question, Reveal, Visual
from regard.learn.pages.slides import slides, slides_page, write_slides
from regard.learn.running import run, runnable
from regard.learn.source import read_chapter
from tests.support.axe import violations
from tests.support.command import regard
from tests.support.lanes import sweep

from ..chapter_files import HEAD, each_chapter

TEXT = (
    HEAD
    + '''
# Scores

## One fraction

The notes say <script>window.harmed = 1</script> this.

```math
a = b / c
```

```toml prediction half
ask = "How much is 1 / 2?"
form = "choice"
choices = [{ text = "0.5" }, { text = "2", why = "That is 2 / 1." }]
answer = 1
right = "One half."
```

```python reveal half
print("</script>", 1 / 2)
answer = 1
```

## Softmax

Now weights.

```python visual weights softmax
"""Move the temperature."""

scores = [1.0, 2.0]
```

```python claim halves fails
"""Half of one is one.

source: nobody
"""

print(1 / 2)
holds = False
```

```python reveal many
for number in range(120):
    print(number)
```

```toml question last
ask = "And 1 + 1?"
form = "number"
answer = 2
wrong = [{ answer = 3, why = "Too many." }]
otherwise = "Count."
```

## The end

Nothing follows.
'''
)


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    path = tmp_path_factory.mktemp("chapter") / "03-scores.md"
    path.write_text(TEXT, encoding="utf-8")
    return read_chapter(path)


@pytest.fixture(scope="module")
def page(chapter):
    return slides_page(chapter, {block.name: run(block) for block in runnable(chapter)})


@pytest.fixture
def opened(contexts, page, tmp_path):
    """Opens the slides; afterwards they must have said nothing, and have asked for themselves alone."""
    file = tmp_path / "slides.html"
    file.write_text(page, encoding="utf-8")
    said, asked = [], set()

    def opening(**context):
        tab = contexts(**context).new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.add(request.url.partition("#")[0]))
        tab.goto(file.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        return tab

    yield opening
    assert said == [] and asked <= {file.as_uri()}


def place(tab):
    return tuple(tab.evaluate("[at.slide, at.step]"))


def test_what_the_slides_of_a_chapter_are(chapter):
    found = list(slides(chapter, {}))
    assert [(each.kind, each.heading, len(each.steps)) for each in found] == [
        ("Chapter 3", "Scores", 0),
        ("Predict", "One fraction", 2),
        ("Try it", "Softmax", 0),
        ("Is it true?", "Softmax", 2),
        ("Result", "Softmax", 1),
        ("Question", "Softmax", 1),
        ("The end", "Scores", 0),
    ]
    assert "a = b / c" in found[1].shown and "The notes say" in found[1].notes and "That is 2 / 1" in found[1].notes
    assert "Now weights" in found[2].notes and "Nothing follows" in found[-1].notes


@each_chapter
def test_every_chapter_has_a_slide_for_each_reveal_question_claim_and_visual(read):
    shown = [part for part in read.parts if isinstance(part, (Reveal, Question, Claim, Visual))]
    assert slides_page(read, {}).count('<section class="slide"') == len(shown) + 2


@pytest.mark.browser
def test_a_prediction_its_code_its_answer_and_the_next_slide(opened):
    """By keyboard; a screen reader hears what comes; the address holds the slide; a visual keeps its own keys."""
    tab = opened()

    def pressed(*keys):
        """Where the keys lead, and what is shown there."""
        for key in keys:
            tab.keyboard.press(key)
        return place(tab), tab.inner_text(".slide.now .screen")

    where, shown = pressed("ArrowRight")
    assert where == (1, 0) and "How much is 1 / 2?" in shown and "print" not in shown and "One half" not in shown
    assert tab.text_content("#status") == "Slide 2 of 7: One fraction"
    _, shown = pressed("Space")
    assert "</script> 0.5" in shown and "One half" not in shown and "</script> 0.5" in tab.text_content("#status")
    _, shown = pressed("Enter")
    assert "The answer is 1. 0.5." in shown and "One half." in shown
    where, shown = pressed("PageDown")
    assert where == (2, 0) and "Move the temperature" in shown and tab.url.endswith("#3")
    before = tab.get_attribute("[data-name=weight-0]", "value")
    tab.get_by_label("temperature").press("End")
    assert place(tab) == (2, 0) and tab.get_attribute("[data-name=weight-0]", "value") != before
    tab.evaluate("document.activeElement.blur()")
    for keys, expected in ((["ArrowLeft"] * 2, (1, 1)), (["End", "ArrowRight"], (6, 0)), (["Home"], (0, 0))):
        assert pressed(*keys)[0] == expected
    assert tab.is_disabled("#back") and tab.evaluate("window.harmed") is None


@pytest.mark.browser
def test_on_paper_each_slide_has_one_page_with_its_notes(opened):
    """Also the one that prints 120 lines; and the screen is as before."""
    tab = opened()
    tab.evaluate(
        "addEventListener('beforeprint', () => { window.printed = slides.map((slide) => [slide.scrollHeight * "
        "slide.style.zoom, slide.querySelector('.notes').checkVisibility(), "
        "[...slide.querySelectorAll('.step')].every((step) => step.checkVisibility())]); })"
    )
    assert len(re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True))) == 7
    assert all(height <= 990 and notes and steps for height, notes, steps in tab.evaluate("window.printed"))
    assert tab.locator("[data-name=weight-0]").count() == 1  # drawn, though its slide was never on the screen
    assert place(tab) == (0, 0) and tab.evaluate("slides.every(({ style }) => !style.zoom)")


@pytest.mark.browser
def test_clicks_show_the_next_slide_the_notes_and_the_overview(opened):
    """A click goes on, but not on a control; notes and overview are also toggled by keys."""
    tab = opened()
    tab.click("#next")
    tab.click(".slide.now h2")
    assert place(tab) == (1, 1) and not tab.is_visible(".slide.now .notes")
    tab.keyboard.press("n")
    assert "The notes say <script>" in tab.inner_text(".slide.now .notes")
    assert tab.get_attribute("#notes", "aria-pressed") == "true"
    tab.evaluate("go(2, 0)")
    tab.click(".slide.now .visual figcaption")
    assert place(tab) == (2, 0)
    tab.keyboard.press("o")
    assert tab.locator(".overview button").count() == 7 and not tab.is_visible(".deck")
    tab.locator(".overview button", has_text="How much is").click()
    assert place(tab) == (1, 0) and tab.inner_text("#counter") == "2 / 7"


@pytest.mark.browser
@pytest.mark.parametrize("width, scheme", [(360, "light"), *sweep((1280, "dark"))])
def test_it_fits_and_axe_finds_nothing(opened, width, scheme):
    tab = opened(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    tab.keyboard.press("n")
    for number in range(7):
        tab.evaluate("(number) => go(number, Infinity)", number)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, number
        assert violations(tab) == [], number
    tab.keyboard.press("o")
    assert violations(tab) == []


def test_slides_are_written_and_only_slides_are_overwritten(chapter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_slides(chapter)
    assert path.name == "slides-03.html" and write_slides(chapter) == path
    other = tmp_path / "mine.html"
    other.write_text('<meta name="generator" content="regard">')
    with pytest.raises(Refused, match="exists and is not slides"):
        write_slides(chapter, other)
    assert other.read_text() == '<meta name="generator" content="regard">'


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own").mkdir()
    Path("own/30-own.md").write_text(TEXT.replace("number = 3", "number = 30"), encoding="utf-8")
    for words, code, what in (
        ("--slides 30 --chapters own --out mine.html", 0, "Slides written to mine.html"),
        ("--slides 99", 2, "99"),
        ("--out a.html", 2, "--out has no use"),
        ("--slides 3 --list", 2, "two options"),
        ("--slides 3 folder", 2, "a folder has no use"),
    ):
        status, out, err = regard("learn", *words.split())
        assert status == code and what in out + err
    assert Path("mine.html").is_file()
