"""The reader in a real browser: the text on the ground of its weights, the strongest tokens, search, pins, pictures."""

import dataclasses
import io
import re

import numpy as np
import pytest

import regard as rg
from regard.lens import Segment
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.runs.figures import of_weights
from regard.lens.viewer.html import SCRIPTS, _part
from tests.lens.page.colors import distance, logarithmic
from tests.support.browser import example, fault, near, share, spoiled
from tests.support.engines import normal
from tests.support.page_map import BEGIN

SENTENCE = ("[CLS]", " The", " animal", " did", "n", "'", "t", " cross", " the", " street", ".", "\n", " It", " was")
SENTENCE += (" too", " tired", ".", "[SEP]")


@pytest.fixture(scope="module")
def seen(kept_open):
    """A page of two causal layers of three heads over a sentence, and the exact weights of each."""
    run, exact = example(len(SENTENCE), tokens=SENTENCE, mask=rg.causal())
    return kept_open(run), exact


def listed(opened):
    """The weights in the list of the strongest, by token, in the order of the list."""
    answer = "[Number(node.dataset.token), Number(node.querySelector('data').value)]"
    return dict(opened.each("#strongest-list .entry[data-token]", answer))


def fresh(opened, **change):
    opened.choose(**BEGIN | {"query": 9, "direction": "to"} | change)


def test_the_list_holds_the_strongest_keys_with_their_weights(seen):
    """In falling order, each within the error that the codes state; and so it is for another head and layer."""
    opened, exact = seen
    for call, head, query in ((0, 0, 9), (1, 2, 15)):
        fresh(opened, call=call, head=head, query=query)
        shown, row = listed(opened), exact[call][head, query]
        assert list(shown) == list(np.argsort(-row, kind="stable")[: len(shown)]) and len(shown) >= 8
        near(shown, row, FINE_ERROR)


def test_the_list_shows_the_mean_of_the_other_rows(seen):
    """Next to each weight, of rows that attend to a key, too; a key of one row has none."""
    opened, exact = seen
    p = exact[0][0]
    for query, direction in ((17, "to"), (9, "from")):
        fresh(opened, query=query, direction=direction)
        answer = "[Number(node.dataset.token), node.querySelectorAll('data')[2].textContent]"
        shown = opened.each("#strongest-list .entry[data-token]", answer)
        assert len(shown) >= 6
        for at, said in shown:
            row, key = (query, at) if direction == "to" else (at, query)
            others = np.delete(p[key:, key], row - key)
            if len(others):
                assert said[0] == "<" or share(said) == pytest.approx(others.mean(), rel=0.06, abs=2e-5)
            else:
                assert said == "—"


def test_a_token_lies_on_the_colour_of_its_weight(seen):
    """The ground is the colour of the exact weight, linear from 0 to 1, also where the map has another scale; masked
    tokens have none, and are said to be masked.
    """
    opened, exact = seen
    fresh(opened)
    found = opened.each("#words .token", "node.style.background || node.className")
    for ground, p in zip(found[:10], exact[0][0, 9], strict=False):
        assert distance([int(part) for part in re.findall(r"\d+", ground)], p, slack=1) == 0
    assert len(found) == len(SENTENCE) and all("masked" in ground for ground in found[10:])
    assert opened.tab.get_attribute("#words-12", "aria-label") == "It, 12, masked"


def test_clicks_and_keys_move_row_pins_and_key(seen):
    """A click is the row, with Shift one more row or one less, with Alt the key; so are arrows. (In texts of both
    directions: test_texts.)
    """
    opened, _ = seen
    fresh(opened)
    opened.click("#words-6")
    opened.click("#words-8", modifiers=["Shift"])
    opened.click("#words-3", modifiers=["Alt"])
    assert opened.state("query", "pins", "key") == (6, [8], 3)
    assert "key" in opened.tab.get_attribute("#words-3", "class").split()
    opened.click("#reader-pins button")
    opened.tab.focus("#words")
    for pressed, expected in (
        ("Shift+ArrowRight", (7, [6], 3)),
        ("Shift+ArrowLeft", (6, [], 3)),
        ("Alt+ArrowLeft", (6, [], 2)),
        ("End", (len(SENTENCE) - 1, [], 2)),
    ):
        opened.press(pressed)
        assert opened.state("query", "pins", "key") == expected, pressed
    assert opened.tab.get_attribute("#words", "aria-activedescendant") == f"words-{len(SENTENCE) - 1}"


def test_several_rows_are_averaged_and_several_keys_summed(seen):
    """The mean of the rows of attention_weights, or the sum of its columns; the page says which."""
    opened, exact = seen
    fresh(opened, pins=[7, 4])
    near(listed(opened), exact[0][0, [9, 7, 4]].mean(0), FINE_ERROR)
    assert "Mean of 3 rows" in opened.text("#reader-pins")
    fresh(opened, pins=[7, 4], direction="from")
    near(listed(opened), exact[0][0][:, [9, 7, 4]].sum(1), FINE_ERROR)
    assert "Sum over 3 keys" in opened.text("#reader-pins")


def test_a_choice_does_not_undo_the_one_before(seen):
    """A key that is chosen while a row is still being read leaves the row to be shown."""
    opened, exact = seen
    fresh(opened)
    opened.tab.evaluate("() => Promise.all([choose({ query: 6 }), choose({ key: 2 })]).then(() => null)")
    opened.settled()
    near(listed(opened), exact[0][0, 6], FINE_ERROR)
    assert opened.text("#reader-title").startswith("“t” (6)")


def test_how_many_keys_hold_the_weight(seen):
    """The least number of keys that have four fifths of the weight."""
    opened, exact = seen
    fresh(opened, query=15)
    count = np.searchsorted(np.cumsum(np.sort(exact[0][0, 15])[::-1]), 0.8) + 1
    assert opened.text("#strongest-note") == f"80 % of the weight is on {count} key{'s' if count > 1 else ''}"


def test_next_and_previous_strongest(seen):
    """n goes down the list, N up; the list and the text mark where they are."""
    opened, exact = seen
    fresh(opened)
    opened.press("n", "n", "n", "N")
    second = np.argsort(-exact[0][0, 9])[1]
    assert opened.state("key") == second
    assert opened.tab.get_attribute("#strongest-list-1", "aria-selected") == "true"
    assert "key" in opened.tab.get_attribute(f"#words-{second}", "class").split()


def test_search_finds_words_of_several_tokens_and_positions(seen):
    """“didn’t” lies over four tokens; hits are marked, Enter chooses the first at or after the row, a number is
    a position.
    """
    opened, _ = seen
    fresh(opened, query=0)
    opened.press("/")
    for words, count, chosen in (("didn't", "1 of 1", 3), ("the", "2 of 2", 8), ("13", "", 13)):
        opened.tab.fill("#find", words)
        opened.settled()
        assert count in opened.text("#find-count"), words
        opened.press("Enter")
        assert opened.state("query") == chosen and opened.tab.query_selector(f"#words-{chosen}.found")
    opened.tab.fill("#find", "zebra")
    assert opened.text("#find-count") == "not found"
    opened.press("Escape")
    assert opened.tab.input_value("#find") == ""


def test_cross_attention_has_two_texts(opened):
    """Rows are chosen in the upper text, keys in the lower, which is coloured; the other way round it is the rows that
    are coloured.
    """
    run, exact = example(8, 1, 2, keys=11)
    view = opened(run, "#query=3")
    view.click("#other-words-5")
    view.click("#words-10")
    assert view.state("query", "key") == (5, 10)
    near(listed(view), exact[0][0, 5], FINE_ERROR)
    view.choose(direction="from")
    assert len(view.each("#words .token")) == 8 and len(view.each("#other-words .token")) == 11
    near(listed(view), exact[0][0][:, 10], FINE_ERROR)


def test_what_is_no_plain_weight_looks_and_reads_so(opened):
    """NaN, a weight out of range, a plain zero and a weight where the mask forbids it: each has a look and words of its
    own.
    """
    run, exact = example(12, 1, 1, mask=rg.causal())
    given = exact[0].astype(np.float32)
    given[0, 8, :5] = (np.nan, 1.5, 0, 0.2, 0.1)
    given[0, 8, 10] = 0.4
    figures = of_weights(given, np.zeros(12, bool), mask=run.calls[0].mask, start=0)
    seen = opened(fault(run, given=given, q=None, k=None, **figures), "#query=8")
    expected = {
        0: ("nan", "not a number"),
        1: ("out", "out of range"),
        2: ("zero", "exactly 0"),
        9: ("masked", "masked"),
        10: ("leak", "39 % where the mask forbids it"),  # such a weight has one byte
    }
    looks = set()
    for j, (name, words) in expected.items():
        assert name in seen.tab.get_attribute(f"#words-{j}", "class").split()
        assert seen.tab.get_attribute(f"#words-{j}", "aria-label").split(", ")[2] == words
        looks.add(*seen.each(f"#words-{j}", "getComputedStyle(node).background"))
    assert len(looks) == len(expected)


@pytest.mark.parametrize("words", [(), (" what", " is", " it")])
def test_a_picture_is_read_by_its_patches(opened, words):
    """Patches stand in place of a text, or beside the words of one: at full strength their colour is that of the
    weight, clicks and arrows choose them.
    """
    from PIL import Image

    file = io.BytesIO()
    Image.effect_noise((120, 120), 50).save(file, "PNG")
    tokens = ("[CLS]", *(f"patch {i}" for i in range(9)), *words)
    run, exact = example(len(tokens), 1, 2, tokens=tokens)
    among = (Segment(1, 10, "image"),) if words else ()
    picture = dataclasses.replace(run.axes["text"], grid=(3, 3), picture=file.getvalue(), segments=among)
    seen = opened(dataclasses.replace(run, axes={"text": picture}), "#head=0&query=5&scale=log")
    assert seen.each("#words .token") == (["[CLS]", *"▦" * 9, "what", "is", "it"] if words else [])
    assert f"Click a {'token' if words else 'patch'} to see" in seen.text("#reader-readout")
    side = seen.tab.locator("#patches-grid").bounding_box()["width"] / 3
    seen.click("#patches-grid", position={"x": 2.7 * side, "y": 0.3 * side})
    assert seen.state("query") == 3
    seen.tab.focus("#patches-grid")
    seen.press("ArrowDown", "ArrowLeft")
    assert seen.state("query") == 5
    strongest = "(range) => { range.value = 100; range.dispatchEvent(new Event('input')); }"
    seen.tab.eval_on_selector("#patches input", strongest)
    patches = exact[0][0, 5, 1:10]
    for place in (0, 8):
        (colour,) = seen.each(f"#patch-{place + 1}", "node.style.background.match(/\\d+/g).map(Number)")
        assert distance(colour, logarithmic(patches[place])) <= 1


def test_what_a_model_expected_stands_below_each_token(opened):
    """Marked where the token was met; the first token and runs that expect nothing have none."""
    run, _ = example(4, tokens=(" a", " b", " c", " d"))
    view = opened(dataclasses.replace(run, facts={"expected": [["x", 0.5], [" c", 0.25], ["", 0.1]]}))
    below = view.each("#words .token", "[getComputedStyle(node, '::after').content, node.dataset.met]")
    assert below == [['""', None], ['"x"', "false"], ['"c"', "true"], ['"␣"', "false"]]
    view.tab.hover("#words-1")
    assert "expected here: “x” (50 %)" in view.text("#reader-readout")


def test_no_two_scripts_declare_the_same_name():
    """The scripts of the page are joined into one: a function declared twice would quietly take the place of the
    other.
    """
    script = "".join(_part(f"{name}.js") for name in SCRIPTS)
    found = re.findall(r"^(?:async )?(?:function|class|const|let) (?:(\w+)|[\[{]([^=]*)[\]}] =)", script, re.MULTILINE)
    names = [name.strip() for one, several in found for name in (one or several).split(",")]
    assert len(names) > 100 and sorted({name for name in names if names.count(name) > 1}) == []


def test_the_list_shows_what_each_key_moves(opened):
    """The share of the key in Σ p‖v‖ of the whole row, also for the rows of a key; nothing for several keys."""
    q, k, v = normal(3, 2, 12, 8)
    run = rg.look(q, k=k, v=v * np.geomspace(0.1, 5, 12, dtype=np.float32)[:, None])
    view = opened(run, "#head=1&query=7")
    moved = run.calls[0].weights()[1] * run.calls[0].lengths[1]
    moved /= moved.sum(1, keepdims=True)
    answer = "[Number(node.dataset.token), node.querySelector('.moves').textContent]"
    for direction, wanted in (("to", moved[7]), ("from", moved[:, 7])):
        view.choose(direction=direction)
        listing = view.each("#strongest-list .entry[data-token]", answer)
        assert len(listing) >= 6
        for j, said in listing:
            assert share(said) == pytest.approx(wanted[j], rel=0.06, abs=1e-4)
    view.choose(pins=[3])
    assert set(view.each("#strongest-list .moves")) == {"—"}


def test_rows_of_a_long_text_move_what_the_model_computed(opened):
    """The share that a key moves is that of the whole row, and so is the number of keys with most of the weight; the
    other rows are those of the column. Only the lines of the text that are on the screen exist.
    """
    q, k, v = normal(3, 12, 900, 16)
    run = rg.look(6 * q, k=k, v=v * np.geomspace(0.1, 5, 900, dtype=np.float32)[:, None], mask=rg.causal())
    view = opened(run, "#call=0&head=3&query=700")
    row = run.calls[0].weights([700], None, [3])[0, 0]
    parts = row * run.calls[0].lengths[3]
    shown = [share(text) for text in view.each("#strongest-list .moves")[:5]]
    assert shown == pytest.approx(parts[[*listed(view)][:5]] / parts.sum(), rel=0.05, abs=1e-4)
    said = re.search(r"80 % of the weight is on (\d+) key", view.text("#strongest-note"))
    assert int(said[1]) == np.searchsorted(np.cumsum(np.sort(row)[::-1]), 0.8) + 1
    assert view.tab.is_visible("#words-700") and len(view.each("#words .token")) < 300
    view.choose(query=898)  # few rows may attend to its last keys
    column = run.calls[0].weights(None, None, [3])[0]
    answer = "[Number(node.dataset.token), node.lastChild.textContent]"
    for j, said in view.each("#strongest-list .entry[data-token]", answer):
        others = np.delete(column[j:, j], 898 - j)
        least = 0 if said[0] == "<" else 0.94
        assert said == "—" or least * share(said) <= others.mean() <= 1.06 * share(said)


# Lines between tokens in a real browser: their widths against the exact weights, and how rows and keys are chosen.

LEAST = 0.005  # the smallest weight that has a line
DRAWN = """() => [...document.querySelectorAll("#lines-svg line")]
    .filter((line) => getComputedStyle(line).display !== "none" && getComputedStyle(line.parentNode).display !== "none")
    .map((line) => [line.parentNode.dataset.row, line.dataset.key,
        line.getAttribute("stroke-width"), line.getAttribute("stroke-opacity")].map(Number))"""


@pytest.fixture
def home(home):
    """The page with the lines in sight, and its exact weights."""
    view, _, exact = home
    view.choose(query=5)
    view.reach("lines")
    return view, exact


def lines(view):
    """The visible lines: {(row, key): (width, opacity)}."""
    return {(int(i), int(j)): found for i, j, *found in view.tab.evaluate(DRAWN)}


def fits(found, p, rows=None, keys=None):
    """Fails unless the lines are those of the weights of these rows and keys, each as wide and opaque as said."""
    kept = np.zeros(p.shape, bool)
    kept[np.ix_(*(range(n) if part is None else part for part, n in zip((rows, keys), p.shape)))] = True
    assert sorted(found) == [*map(tuple, np.argwhere(kept & (p >= LEAST)).tolist())] and found
    for at, drawn in found.items():
        assert drawn == pytest.approx([0.5 + 4.5 * p[at], np.sqrt(p[at])], rel=FINE_ERROR)


def test_every_line_is_a_weight(home):
    """A line for each weight of 0.5 % or more, none where the mask forbids it."""
    view, exact = home
    view.choose(call=1, head=2)
    fits(lines(view), exact[1][2])
    assert "layer 1, head 2" in view.text("#lines-title")


def test_the_pointer_and_a_click_show_the_lines_of_one_row(home):
    """Under the pointer a row or a key shows only its lines and weights; a click chooses the row for the whole page."""
    view, exact = home
    p = exact[0][0]
    view.tab.hover("#lines-rows-8")
    fits(lines(view), p, rows=[8])
    shown = view.each("#lines-keys data")
    assert shown[9:] == ["masked"] * 3
    assert [share(text) for text in shown[:9]] == pytest.approx(p[8, :9], rel=0.006)
    view.tab.hover("#lines-keys-3")
    fits(lines(view), p, keys=[3])
    assert share(view.text("#lines-rows-8 data")) == pytest.approx(p[8, 3], rel=0.006)
    assert "“word3” (token 3) receives" in view.text("#lines-said")
    view.click("#lines-rows-8")
    view.click("#lines-rows-10", modifiers=["Shift"])
    view.click("#lines-keys-2")
    view.tab.mouse.move(0, 0)
    assert view.state("query", "pins", "key") == (8, [10], 2)
    fits(lines(view), p)
    assert sorted(view.each("#lines-svg .chosen", "Number(node.dataset.row)")) == [8, 10]


def test_a_long_text_shows_a_window_and_says_so(opened):
    """40 rows around the chosen one, the keys at their positions, the strongest others of the chosen row and of all;
    the rest is said.
    """
    run, exact = example(n=200, layers=1, heads=1, mask=rg.causal())
    view = opened(run, "#query=120")
    view.reach("lines")
    answer = "Number(node.dataset.token)"
    rows, keys = (view.each(f"#lines-{side} [data-token]", answer) for side in ("rows", "keys"))
    p = exact[0][0][rows]
    others = np.setdiff1d(np.arange(200), rows)
    assert rows == list(range(100, 140))
    own = others[np.argsort(-p[20, others])[:4]]
    more = np.setdiff1d(others, own)
    assert set(keys) == {*rows, *own.tolist(), *more[np.argsort(-p[:, more].sum(0))[:4]].tolist()}
    fits(lines(view), exact[0][0], rows, sorted(keys))
    said = view.text("#lines-note")
    assert "Rows 100 to 139 of 200" in said and "48 of 200 keys" in said
    assert share(said.split("keys: ")[1]) == pytest.approx(p[:, keys].sum() / p.sum(), abs=0.006)
    view.choose(query=160)
    assert view.each("#lines-rows [data-token]", answer) == list(range(140, 180))


def test_invalid_weights_have_lines_of_their_own(opened):
    """NaN and forbidden weights are dashed in the colours of the legend."""
    run, exact = example(n=60, layers=1, heads=1, mask=rg.causal())
    view = opened(spoiled(run, exact[0], {(0, 34, 2): np.nan, (0, 36, 39): 0.3}), "#query=30")
    view.reach("lines")
    kinds = view.each("#lines-svg line[class]", "[node.parentNode.dataset.row, node.className.baseVal]")
    assert sorted(kinds) == [["34", "nan"], ["36", "leak"]]
