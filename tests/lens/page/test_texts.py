"""Texts of ten kinds in the page, recorded from a trained model: their direction, their letters, and that they fit."""

import functools
import itertools
import re

import numpy as np
import pytest

import regard as rg
from regard.lens.viewer import page
from tests.lens.minilm import with_minilm
from tests.support.browser import example
from tests.support.lanes import sweep
from tests.support.layout import CUT_OFF

pytestmark = [pytest.mark.slow, with_minilm]

FAMILY, FLAG, ASTRONAUT = "👨\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "👩🏽\u200d🚀"
TEXTS = {
    "arabic": "لم يعبر الحيوان الشارع لأنه كان متعبا جدا.",
    "emoji": f"The family {FAMILY} flew {FLAG} to {ASTRONAUT} e\u0301te\u0301 🇫🇷 today",
    "code": "def add(a, b):\n    # sum of both\n    return {'sum': a + b}[\"sum\"]\n",
    "word": "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "mixed": "He said שלום עולם and then مرحبا بالعالم to 3 people, 𓀀 too.",
}


@pytest.fixture(scope="module")
def read(kept_open):
    """A function from the name of a text to its page, with every section open, and its run; each is recorded once."""

    @functools.cache
    def reading(name):
        run = rg.look(None, TEXTS[name])
        view = kept_open(run)
        for part in ("walk", "lines"):
            view.reach(part)
        view.tab.evaluate('document.querySelectorAll("details:not(.menu)").forEach((each) => { each.open = true; })')
        view.settled()
        return view, run

    return reading


def tokens(view):
    """The tokens on the screen: their text, and their boxes."""
    return view.each(
        "#words .token",
        """(({ left, right, top, bottom }) => ({ left, right, top, bottom, i: Number(node.dataset.token),
            text: node.textContent, line: Math.round((top + bottom) / 54) }))(node.getBoundingClientRect())""",
    )


def lines(view):
    """The tokens on the screen by lines."""
    return [list(line) for _, line in itertools.groupby(tokens(view), lambda each: each["line"])]


@pytest.mark.spread
@pytest.mark.parametrize("width", [360, 1000])
@pytest.mark.parametrize("name", ["mixed", "word", *sweep("emoji", "code")])
def test_nothing_is_cut_off_at_any_width(read, name, width):
    """With every section open: the page does not scroll sideways, no box reaches out of the window, no text is hidden,
    and no text lies over another.
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
    for name, style, what in (
        ("reader-readout", "width: 3000px", "sticks out"),
        ("atlas-as-table", "width: 30px", "cut off"),
        ("atlas-note", "height: 8px; min-height: 0; overflow: hidden", "cut off below"),
        ("map-level", "margin-top: -40px", "overlap"),
    ):
        assert view.tab.evaluate(CUT_OFF) == []
        view.tab.evaluate("([name, style]) => { $(name).style.cssText = style; }", [name, style])
        assert any(what in each for each in view.tab.evaluate(CUT_OFF)), name
        view.tab.evaluate("(name) => { $(name).style.cssText = ''; }", name)


def test_arabic_reads_from_the_right_and_its_letters_join(read):
    """The first token of each line is its rightmost, and the next ones lie to its left. A word of several tokens is as
    wide as in one piece, which is narrower than its letters alone.
    """
    view, run = read("arabic")
    assert sum(map(len, lines(view))) == len(run.axes["text"])
    for line in lines(view):
        assert (np.diff([each["right"] for each in line]) <= 0).all()
    word = [each for each in tokens(view) if 13 <= each["i"] < 19]
    assert "".join(each["text"] for each in word) == "الشارع" and run.axes["text"].tokens[13] == " ا"
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
    assert word[0]["right"] - word[-1]["left"] == pytest.approx(whole + 6, abs=1.5)  # with the padding at its two ends


def test_every_token_of_a_joined_word_is_clickable(read):
    """A click in the middle of a token chooses that token."""
    view, _ = read("arabic")
    view.tab.evaluate("$('words').scrollIntoView({ block: 'center' })")
    found = tokens(view)
    middles = [[(each["left"] + each["right"]) / 2, (each["top"] + each["bottom"]) / 2] for each in found]
    hits = view.tab.evaluate(
        "(places) => places.map(([x, y]) => Number(document.elementFromPoint(x, y).dataset.token))", middles
    )
    assert hits == [each["i"] for each in found]


def test_arrow_keys_move_on_the_screen(read):
    """ArrowLeft chooses the token to the left, ArrowRight the one to the right, whatever the direction of the text;
    beyond the end of a line is the next line, or the one before.
    """
    view, _ = read("arabic")
    view.choose(key=None, pins=[])
    view.tab.focus("#words")
    places = [[each["i"] for each in sorted(line, key=lambda each: each["left"])] for line in lines(view)]
    line = places[0]
    view.choose(query=line[0])
    for pressed, rest in (("ArrowRight", line[1:]), ("ArrowLeft", line[-2::-1])):
        for place in rest:
            view.press(pressed)
            assert view.state("query") == place
    if len(places) > 1:
        view.press("ArrowLeft")
        assert view.state("query") == places[1][-1]


def test_limits_cut_between_characters(read):
    """A clipped text is a beginning of the whole one that ends between two characters, also in labels of the map."""
    view, _ = read("mixed")
    parts = [FAMILY, "e\u0301", FLAG, ASTRONAUT, "🇫🇷", "⟨U+200D⟩", "⟨F0⟩", "क्षि", "a"]
    whole = "".join(parts)
    ends = ["".join(parts[:count]) for count in range(len(parts) + 1)]
    assert view.tab.evaluate("(text) => characters(text)", whole) == parts
    clipped, fitted = view.tab.evaluate(
        """(text) => {
            const pen = new OffscreenCanvas(1, 1).getContext("2d"), rooms = [...Array(200).keys()];
            pen.font = "12px sans-serif";
            return [rooms.slice(1).map((most) => clip(text, most)), rooms.map((room) => fittedText(pen, text, room))];
        }""",
        whole,
    )
    assert len(set(fitted)) > 5 and clipped[len(parts) - 1] == whole != clipped[len(parts) - 2]
    assert all(text == whole or (text[-1:] in "…" and text.removesuffix("…") in ends) for text in clipped + fitted)


def test_unknown_tokens_show_their_letters(read):
    """In the text, the list and the sentence: the letters, and what the model saw; a search finds the letters."""
    view, run = read("mixed")
    axis = run.axes["text"]
    ((i, letters),) = axis.unknown
    assert (letters, axis.tokens[i]) == ("𓀀", " [UNK]")
    (told,) = view.each(f"#words [data-token='{i}']", "[node.textContent, node.title, node.ariaLabel]")
    assert told[:2] == ["𓀀 ([UNK])", "the model saw [UNK]: its vocabulary lacks “𓀀”"]
    assert told[2].startswith("𓀀 ([UNK])")
    view.choose(query=i, key=i)
    assert f"“𓀀 ([UNK])” (token {i})" in view.text("#sentence")
    assert f"𓀀 ([UNK])” ({i})" in view.tab.evaluate("share.python()")
    assert all("𓀀 ([UNK])" in view.text(name) for name in ("#strongest-list", "#reader-title"))
    view.press("/")
    view.tab.fill("#find", "𓀀")
    assert view.text("#find-count") == "1 of 1"
    view.tab.fill("#find", "")


def test_bytes_of_a_character_are_explained(opened):
    """A token of half a character is shown as its bytes, and says what they are."""
    run, _ = example(4, 1, 1, tokens=("a", " ⟨F0⟩⟨9F⟩", "⟨A6⟩⟨8A⟩", "\ufffd"))
    view = opened(run)
    assert [each["text"] for each in tokens(view)] == ["a", "⟨F0⟩⟨9F⟩", "⟨A6⟩⟨8A⟩", "⟨U+FFFD⟩"]
    titles = view.each("#words .token", "node.title")
    assert titles[0] == "" and titles[1] == titles[2] == "⟨…⟩ is a byte of a character that is split between tokens"
    assert titles[3] == "⟨U+…⟩ is the number of a character that is invisible, or that a font cannot show"


def test_labels_of_right_to_left_tokens(opened):
    """Labels of the map are drawn in one piece and in their own direction, in the picture that is saved."""
    run, _ = example(8, 1, 1, tokens=("[CLS]", " الحيوان!", *[" word"] * 5, "[SEP]"))
    svg = opened(run).tab.evaluate("figureOf($('map'))")
    found = re.findall(r'text-anchor="(\w+)" direction="rtl"[^>]*>الحيوان!</text>', svg)
    assert found == ["end", "start"]


# Counts and their nouns: a run of one call, one head and one key says "1 head", never "1 heads".

# A 1 that is no part of another number, before a plural; another number before a singular; and the way out of both.
WRONG = re.compile(
    r"(?<![\d.,–:×])\b(?<!aw )1 (?!is\b|has\b|was\b)\w+s\b"
    r"|(?<![\d.])\b(?!1\b)\d+ (?:head|key|token|row|call|weight|finding|cell|position)\b"
    r"|\w\(s\)"
)

EVERYTHING = """() => {
    const shown = [...document.body.querySelectorAll("*")].filter((node) => !node.closest("script, style, dialog"));
    const names = ["aria-label", "title", "aria-valuetext"];
    const labels = shown.flatMap((node) => names.map((name) => node.getAttribute(name)));
    const kinds = "p, h2, h3, li, dd, dt, td, th, summary, button, option, output, .entry, data";
    const texts = shown.filter((node) => node.matches(kinds)).map((node) => node.textContent);
    return [...labels, ...texts].filter(Boolean);
}"""


def said(view):
    """Everything that the page says, with every section in use."""
    view.reach("walk")
    view.tab.evaluate(
        """for (const step of document.querySelectorAll("#walk-steps details")) step.open = true;
        headTable.turn();
        map.pointer();"""
    )
    found = []
    for change in ({}, {"direction": "from"}, {"key": 0}, {"metric": "spread"}):
        view.choose(**change)
        found += view.tab.evaluate(EVERYTHING)
    view.press("/")
    view.tab.fill("#find", "word")
    view.settled()
    return found + view.tab.evaluate(EVERYTHING)


def test_one_of_everything(opened):
    """One token, one head, one call; one finding; one weight that is not a number."""
    run, _ = example(1, 1, 1, tokens=("word",), mask=rg.causal())
    found = said(opened(run))
    assert any("1 call × 1 head · 1 token" in each for each in found)
    assert any("1 of 1 key is allowed" in each for each in found)
    broken, _ = example(3, 1, 1, mask=rg.causal(), poison=lambda q, k: np.copyto(q[0, 0], np.nan))
    found += said(opened(page(broken, findings=[each.to_json() for each in rg.audit(broken).findings][:1])))
    assert any("1 fault" in each or "1 warning" in each or "1 note" in each for each in found)
    assert {each for each in found if WRONG.search(each)} == set()


def test_the_pattern_finds_what_is_wrong():
    """The pattern of these tests itself."""
    wrong = ["1 heads", "is on 1 keys", "is on 2 key", "letter(s)", "16 token"]
    right = ["1 head", "2 heads", "0.1 % of keys", "1.00 tokens", "11 heads", "1 is not", "16 tokens", "law 1 says"]
    assert [text for text in wrong + right if WRONG.search(text)] == wrong
