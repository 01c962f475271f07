"""Counts and their nouns: a run of one call, one head and one key says "1 head", never "1 heads"."""

import re

import numpy as np

import regard as rg
from regard.lens.viewer import page
from tests.support.browser import example

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
    view.tab.evaluate("walk.set({ all: true }); headTable.turn(); map.pointer()")
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
    run, _ = example(1, 1, 1, tokens=("word",))
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
