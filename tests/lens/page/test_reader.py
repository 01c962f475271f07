"""The reader in a real browser: the text on the ground of its weights, the strongest tokens, search, pins, pictures."""

import dataclasses
import io
import re

import numpy as np
import pytest

import regard as rg
from regard.language.problem import Problem
from regard.lens import Axis, Call, Run
from regard.lens.runs import figures
from regard.lens.runs.codes import COARSE_ERROR, FINE_ERROR
from regard.lens.runs.figures import of_weights
from regard.lens.runs.labels import visible
from regard.lens.viewer.html import SCRIPTS, _part, page
from regard.lens.viewer.routes import Responder
from tests.support.browser import HOSTILE, example, near

SENTENCE = (
    "[CLS]",
    " The",
    " animal",
    " did",
    "n",
    "'",
    "t",
    " cross",
    " the",
    " street",
    ".",
    "\n",
    " It",
    " was",
    " too",
    " tired",
    ".",
    "[SEP]",
)
SPECIAL = np.array([token[0] == "[" for token in SENTENCE])


@pytest.fixture(scope="module")
def seen(kept_open):
    """A page of two causal layers of three heads over a sentence, and the exact weights of each."""
    run, exact = example(len(SENTENCE), 2, 3, tokens=SENTENCE, mask=rg.causal())
    return kept_open(page(run)), exact


@pytest.fixture(scope="module")
def across(kept_open):
    """A page of cross-attention from eight tokens to eleven keys."""
    run, exact = example(8, 1, 2, keys=11)
    return kept_open(page(run)), exact


def listed(opened) -> dict[int, float]:
    """The weights in the list of the strongest, by token, in the order of the list."""
    return {
        int(row.get_attribute("data-token")): float(row.query_selector("data").get_attribute("value"))
        for row in opened.tab.query_selector_all("#strongest-list .entry[data-token]")
    }


def grounds(opened, box="#words") -> dict[str, str]:
    """The ground of every token that is on the screen."""
    return opened.tab.evaluate(
        "(box) => Object.fromEntries([...document.querySelectorAll(`${box} .token`)].map((node) => [node.dataset.token,"
        "  node.style.background || node.className]))",
        box,
    )


def fresh(opened, **change):
    opened.choose(
        **{
            "call": 0,
            "head": 0,
            "query": 9,
            "key": None,
            "pins": [],
            "direction": "to",
            "scale": "log",
            "hideSpecial": False,
        }
        | change
    )


def test_the_list_holds_the_strongest_keys_with_their_weights(seen):
    """In falling order, each within the error that the codes state; and so it is for another head and layer."""
    opened, exact = seen
    for call, head, query in ((0, 0, 9), (1, 2, 15)):
        fresh(opened, call=call, head=head, query=query)
        shown, row = listed(opened), exact[call][head, query]
        assert list(shown) == list(np.argsort(-row, kind="stable")[: len(shown)]) and len(shown) >= 8
        near(shown, row, FINE_ERROR)


def test_the_list_shows_the_mean_of_the_other_rows(seen):
    """Next to each weight, and as a mark on its bar; of rows that attend to a key, too; a key of one row has none."""
    opened, exact = seen
    for query, direction in ((9, "to"), (17, "to"), (9, "from")):
        fresh(opened, query=query, direction=direction)
        p = exact[0][0]
        shown = opened.tab.evaluate(
            """() => [...document.querySelectorAll("#strongest-list .entry[data-token]")].map((row) =>
                [Number(row.dataset.token), row.querySelectorAll("data")[2].textContent,
                 row.querySelector(".others").hidden ? null : parseFloat(row.querySelector(".others").style.left)])"""
        )
        assert len(shown) >= 6
        for at, said, mark in shown:
            row, key = (query, at) if direction == "to" else (at, query)
            others = np.delete(p[key:, key], row - key)
            if len(others):
                assert float(said.split()[0]) / 100 == pytest.approx(others.mean(), rel=0.06, abs=2e-5)
                assert mark == pytest.approx(
                    100 * others.mean() / max(1, p[:, query].max() if direction == "from" else 1), abs=0.1
                )
            else:
                assert said == "—" and mark is None
    assert "other rows" in opened.tab.inner_text("#strongest .columns")


def test_a_token_lies_on_the_colour_of_its_weight(seen):
    """The ground is the colour of the legend for the exact weight; masked tokens have none, and are said to be
    masked.
    """
    opened, exact = seen
    for scale in ("log", "linear", "lift", "row"):
        fresh(opened, scale=scale)
        row = exact[0][0, 9]
        found = grounds(opened)
        at = {"attended": 10, "maximum": float(row.max())}
        # A step of 1/255 beside: the weight is known to 0.011 %.
        near_by = opened.tab.evaluate(
            """([row, scale, at]) => row.map((p) => [-1, 0, 1].map((by) => {
                const probe = document.createElement("i");
                probe.style.background = color(clamp(step(p, scale, at) + by, 0, 255), scale);
                return probe.style.background;
            }))""",
            [row[:10].tolist(), scale, at],
        )
        assert all(found[str(j)] in near_by[j] for j in range(10)), scale
        assert all("masked" in found[str(j)] for j in range(10, len(row)))
    assert opened.tab.get_attribute("#words-12", "aria-label") == "It, 12, masked"


def test_lines_break_where_the_text_does(seen):
    """A line ends after a line break, and a space stands only where one stands in the text."""
    opened, _ = seen
    fresh(opened)
    lines = opened.tab.evaluate(
        """() => [...document.querySelectorAll('#words .line')].map(
            (line) => [...line.querySelectorAll('.token')].map((node) => Number(node.dataset.token)))"""
    )
    assert [j for line in lines for j in line] == list(range(len(SENTENCE)))
    assert any(line[0] == 12 for line in lines if line)
    spaced = opened.tab.evaluate(
        "[...document.querySelectorAll('#words .token')].map((node) => node.classList.contains('gap'))"
    )
    assert spaced[2] and not spaced[4] and not spaced[5]


def test_clicks_choose_row_pin_and_key(seen):
    """A click is the row, with Shift one more row or one less, with Alt the key."""
    opened, _ = seen
    fresh(opened)
    opened.click("#words-6")
    assert opened.state("query", "pins", "key") == (6, [], None)
    opened.click("#words-8", modifiers=["Shift"])
    opened.click("#words-2", modifiers=["Shift"])
    assert opened.state("query", "pins") == (6, [8, 2])
    opened.click("#words-8", modifiers=["Shift"])
    opened.click("#words-3", modifiers=["Alt"])
    assert opened.state("query", "pins", "key") == (6, [2], 3)
    assert "key" in opened.tab.get_attribute("#words-3", "class").split()
    opened.click("#reader-pins button")
    assert opened.state("pins") == []


def test_keys_move_row_pins_and_key(seen):
    """Arrows move the row, with Shift they leave it pinned and take it back, with Alt they move the key; ends are
    ends.
    """
    opened, _ = seen
    fresh(opened)
    opened.tab.focus("#words")
    opened.press("ArrowRight")
    assert opened.state("query") == 10
    opened.press("Shift+ArrowRight")
    assert opened.state("query", "pins") == (11, [10])
    opened.press("Shift+ArrowLeft")
    assert opened.state("query", "pins") == (10, [])
    opened.press("Alt+ArrowLeft")
    assert opened.state("query", "key") == (10, 9)
    opened.press("Home", "ArrowLeft")
    assert opened.state("query") == 0
    assert opened.tab.get_attribute("#words", "aria-activedescendant") == "words-0"
    opened.press("End")
    assert opened.state("query") == len(SENTENCE) - 1


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


def test_the_other_direction_shows_what_attends(seen):
    """The column of attention_weights; a click in its list leads to the pair, seen from its row."""
    opened, exact = seen
    fresh(opened)
    opened.click("#reader-from")
    shown = listed(opened)
    near(shown, exact[0][0][:, 9], FINE_ERROR)
    opened.click("#strongest-list .entry >> nth=1")
    assert opened.state("query", "key", "direction") == (list(shown)[1], 9, "to")


def test_without_special_tokens_the_others_make_up_the_whole(seen):
    """p / Σ p of the ordinary keys, and the page says that these are not the model's numbers."""
    opened, exact = seen
    fresh(opened, hideSpecial=True)
    row = np.where(SPECIAL, 0, exact[0][0, 9])
    shown = listed(opened)
    assert not SPECIAL[list(shown)].any()
    near(shown, row / row.sum(), 2.1 * FINE_ERROR)  # of the weight, and of the sum
    assert "not the model's own numbers" in opened.text("#reader-pins")
    fresh(opened)
    assert not opened.tab.is_visible("#reader-pins")


def test_how_many_keys_hold_the_weight(seen):
    """The least number of keys whose weights reach the share; arrows on the curve change the share."""
    opened, exact = seen
    for query in (6, 15):
        fresh(opened, query=query)
        sums = np.cumsum(np.sort(exact[0][0, query])[::-1])
        opened.tab.focus("#strongest-curve")
        for share in (80, 90):
            count = int(np.searchsorted(sums, share / 100) + 1)
            said = f"{share} % of the weight is on {count} key{'s' if count > 1 else ''}"
            assert (
                opened.text("#strongest-note") == opened.tab.get_attribute("#strongest-curve", "aria-valuetext") == said
            )
            opened.press("ArrowRight" if share == 80 else "ArrowLeft")


def test_next_and_previous_strongest(seen):
    """They go down and up the list, and the list and the text mark where they are."""
    opened, exact = seen
    fresh(opened)
    order = list(np.argsort(-exact[0][0, 9], kind="stable"))
    for place, button in ((0, "next weaker"), (1, "next weaker"), (2, "next weaker"), (1, "next stronger")):
        opened.click(f"#strongest button[aria-label='{button}']")
        assert opened.state("key") == order[place]
        assert opened.tab.get_attribute(f"#strongest-{place}", "aria-selected") == "true"
        assert "key" in opened.tab.get_attribute(f"#words-{order[place]}", "class").split()
    opened.tab.focus("#strongest-list")
    opened.press("ArrowDown")
    assert opened.state("key") == order[2]


def test_search_finds_words_of_several_tokens_and_positions(seen):
    """“didn't” lies over four tokens; hits are marked, Enter goes from one to the next and chooses it, a number is a
    position.
    """
    opened, _ = seen
    fresh(opened, query=0)
    opened.press("/")
    opened.tab.keyboard.type("didn't")
    opened.settled()
    assert opened.text("#find-count") == "1 of 1"
    assert "found" in opened.tab.get_attribute("#words-3", "class").split()
    opened.press("Enter")
    assert opened.state("query") == 3
    opened.tab.fill("#find", "the")
    assert opened.text("#find-count") == "2 of 2"  # the first at or after the row
    opened.press("Enter", "Enter")
    assert opened.state("query") == 1
    opened.tab.fill("#find", "13")
    opened.press("Enter")
    assert opened.state("query") == 13
    opened.tab.fill("#find", "zebra")
    assert opened.text("#find-count") == "not found"
    opened.press("Escape")
    assert opened.tab.input_value("#find") == ""


def test_cross_attention_has_two_texts(across):
    """Rows are chosen in the upper text, keys in the lower, which is coloured; the other way round it is the rows that
    are coloured.
    """
    opened, exact = across
    opened.choose(query=3, key=None)
    near(listed(opened), exact[0][0, 3], FINE_ERROR)
    opened.click("#other-words-5")
    opened.click("#words-10")
    assert opened.state("query", "key") == (5, 10)
    near(listed(opened), exact[0][0, 5], FINE_ERROR)
    opened.choose(direction="from")
    assert len(grounds(opened)) == 8 and len(grounds(opened, "#other-words")) == 11
    near(listed(opened), exact[0][0][:, 10], FINE_ERROR)
    opened.click("#other-words-2")
    near(listed(opened), exact[0][0][:, 2], FINE_ERROR)
    opened.choose(direction="to")


def test_what_is_no_plain_weight_looks_and_reads_so(opened):
    """NaN, a weight out of range, a plain zero and a weight where the mask forbids it: each has a look and words of its
    own.
    """
    run, exact = example(12, 1, 1, mask=rg.causal())
    given = exact[0].astype(np.float32)
    given[0, 8, :5] = (np.nan, 1.5, 0, 0.2, 0.1)
    given[0, 8, 10] = 0.4
    figures = of_weights(given, np.zeros(12, bool), mask=run.calls[0].mask, start=0)
    call = Call("given", 0, "text", "text", mask=run.calls[0].mask, given=given, **figures)
    seen = opened(page(dataclasses.replace(run, calls=(call,))), "#query=8")
    expected = {
        0: ("nan", "not a number"),
        1: ("out", "out of range"),
        2: ("zero", "exactly 0"),
        9: ("masked", "masked"),
        10: ("leak", "39 % where the mask forbids it"),
    }
    assert abs(0.39 / 0.4 - 1) <= COARSE_ERROR  # such a weight has one byte
    looks = set()
    for j, (name, words) in expected.items():
        assert name in seen.tab.get_attribute(f"#words-{j}", "class").split()
        assert seen.tab.get_attribute(f"#words-{j}", "aria-label").split(", ")[2] == words
        looks.add(seen.tab.evaluate(f"getComputedStyle(document.querySelector('#words-{j}')).background"))
    assert len(looks) == len(expected)


def test_hostile_tokens_are_text(opened):
    """Every token stands in the reader as it should be read, and nothing of it becomes a part of the page."""
    run, _ = example(len(HOSTILE), 1, 1, tokens=HOSTILE)
    seen = opened(page(run))
    shown = seen.tab.evaluate(
        "[...document.querySelectorAll('#words .token')].map((node) => [node.textContent, node.children.length])"
    )
    expected = [visible(token) for token in HOSTILE]
    assert [text for text, _ in shown] == [text if len(text) <= 80 else text[:79] + "…" for text in expected]
    assert not any(count for _, count in shown) and not seen.tab.evaluate("window.harmed")
    assert seen.cut_off() == []


def test_a_picture_is_read_by_its_patches(opened):
    """Patches stand in place of a text: at full strength their colour is that of the weight, and clicks and arrows
    choose them.
    """
    from PIL import Image

    side, size = 3, 40
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (side * size, side * size, 3)).astype(np.uint8)).save(
        file, "PNG"
    )
    tokens = ("[CLS]", *(f"patch {i}" for i in range(side * side)))
    run, exact = example(len(tokens), 1, 2, tokens=tokens)
    picture = Axis("text", tokens, (True, *[False] * side**2), grid=(side, side), picture=file.getvalue())
    seen = opened(page(dataclasses.replace(run, axes={"text": picture})), "#query=5")
    assert not seen.tab.is_visible("#words")
    box = seen.tab.query_selector("#patches-canvas").bounding_box()
    seen.tab.click("#patches-canvas", position={"x": box["width"] * 0.9, "y": box["height"] * 0.1})
    seen.settled()
    assert seen.state("query") == 3
    seen.press("ArrowDown", "ArrowLeft")
    assert seen.state("query") == 5
    seen.tab.evaluate("patches.slider.value = 100; patches.slider.dispatchEvent(new Event('input'))")
    for place in (0, 8):
        x, y = ((place % side + 0.5) * box["width"] / side, (place // side + 0.5) * box["height"] / side)
        want = seen.tab.evaluate("(p) => [...rgb(step(p, state.scale), state.scale)]", float(exact[0][0, 5, 1 + place]))
        assert np.abs(np.array(seen.pixel("#patches-canvas", int(x), int(y))[:3]) - want).max() <= 4
    near(listed(seen), exact[0][0, 5], FINE_ERROR)


@pytest.mark.sweep
def test_a_hundred_thousand_tokens_scroll(chromium):
    """Served: only the lines on the screen exist, wherever one goes; a row far down has the weights of its formula."""
    n, window = 100_000, 48
    random = np.random.default_rng(0)
    q, k = random.standard_normal((2, 1, n, 4), dtype=np.float32)
    mask = Problem.of(q[None, :, -1:], k[None], None, mask=rg.window(window) & rg.causal()).mask
    words = Axis.of([f" word{i % 977}" for i in range(n)], name="text")
    rows = {name: np.ones((1, n), np.float32) for name in figures.ROWS}
    call = Call(
        "layer",
        0,
        "text",
        "text",
        np.zeros((1, n), np.float32),
        q,
        k,
        mask=mask,
        scale=0.5,
        rows=rows,
        received=np.ones((1, n), np.float32),
    )
    at = 98_765
    scores = 0.5 * k[0, at - window + 1 : at + 1].astype(float) @ q[0, at].astype(float)
    call.lse[0, at] = np.log(np.exp(scores).sum())
    run = Run("long", "", {"text": words}, (call,))
    desk, uri = Responder([run]), "http://lens.example/"

    def answer(route):
        question = route.request.url.removeprefix(uri).split("/")
        if question == [""]:
            route.fulfill(body=page(run, start={}, served=True), content_type="text/html")
        elif question[0] in ("tile", "overview"):
            route.fulfill(status=503, body='{"error": "not in this test"}', content_type="application/json")
        else:
            made = desk.answer(*question)
            route.fulfill(
                body=made, content_type="application/json" if question[0] == "walk" else "application/octet-stream"
            )

    tab = chromium.new_page(viewport={"width": 1280, "height": 900})
    tab.route("**/*", answer)
    tab.goto(uri)
    tab.wait_for_selector("#words-0")

    def there():
        return tab.evaluate("[...document.querySelectorAll('#words .token')].map((node) => Number(node.dataset.token))")

    assert len(there()) < 300
    tab.evaluate("$('words').scrollTop = 1e9")
    tab.wait_for_selector(f"#words-{n - 1}")
    assert len(there()) < 300
    tab.fill("#find", str(at))
    tab.press("#find", "Enter")
    tab.wait_for_selector(f"#strongest-list .entry[data-token='{at - int(np.argmax(scores[::-1]))}']")
    assert at in there() and len(there()) < 300
    tab.set_viewport_size({"width": 1000, "height": 700})
    tab.evaluate(
        "$('reader').hidden = true; new Promise(requestAnimationFrame).then(() => { $('reader').hidden = false; })"
    )
    tab.wait_for_selector(f"#words-{at}")  # the place is kept when the room changes, and over being hidden
    shown = {
        int(row.get_attribute("data-token")): float(row.query_selector("data").get_attribute("value"))
        for row in tab.query_selector_all("#strongest-list .entry[data-token]")
    }
    exact = np.zeros(n)
    exact[at - window + 1 : at + 1] = np.exp(scores - call.lse[0, at])
    near(shown, exact, FINE_ERROR + 1e-6)
    tab.close()


def test_no_two_scripts_declare_the_same_name():
    """The scripts of the page are joined into one: a function declared twice would quietly take the place of the
    other.
    """
    script = "".join(_part(f"{name}.js") for name in SCRIPTS)
    found = re.findall(r"^(?:async )?(?:function|class|const|let) (?:(\w+)|[\[{]([^=]*)[\]}] =)", script, re.MULTILINE)
    names = [name.strip() for one, several in found for name in (one or several).split(",")]
    assert len(names) > 100 and sorted({name for name in names if names.count(name) > 1}) == []


def test_nothing_is_cut_off(seen):
    """At every width nothing of the page reaches beyond the window, pins, hits and notes included."""
    opened, _ = seen
    fresh(opened, pins=[2, 3, 4], hideSpecial=True)
    opened.tab.fill("#find", "the")
    opened.fits(390, 1024, 1280, 1900)


def test_the_list_shows_what_each_key_moves(kept_open):
    """The share of the key in Σ p‖v‖ of the row, also for the rows of a key; nothing for several keys."""
    random = np.random.default_rng(0)
    q, k, v = random.standard_normal((3, 2, 12, 8), dtype=np.float32)
    run = rg.look(q, k=k, v=v * np.geomspace(0.1, 5, 12, dtype=np.float32)[:, None])
    opened = kept_open(page(run))
    opened.choose(call=0, head=1, query=7, scale="log")
    parts = run.calls[0].weights()[1, 7] * run.calls[0].lengths[1]

    def said():
        lines = opened.tab.evaluate(
            """() => [...document.querySelectorAll("#strongest-list .entry[data-token]")].map((row) => (
            {token: row.dataset.token, moves: row.querySelector(".moves").textContent}))"""
        )
        assert len(lines) >= 6
        return {int(row["token"]): float(row["moves"].lstrip("<").split()[0]) / 100 for row in lines}

    for key, share in said().items():
        assert share == pytest.approx(parts[key] / parts.sum(), rel=0.06, abs=1e-4)
    opened.choose(direction="from")
    moved = run.calls[0].weights()[1] * run.calls[0].lengths[1]
    for row, share in said().items():
        assert share == pytest.approx(moved[row, 7] / moved[row].sum(), rel=0.06, abs=1e-4)
    opened.choose(pins=[3])
    assert set(
        opened.tab.eval_on_selector_all("#strongest-list .moves", "nodes => nodes.map((n) => n.textContent)")
    ) == {"—"}


def test_partly_stored_rows_move_what_the_model_computed(kept_open):
    """The share that a key moves is that of the whole row, and a number of keys that may be too large says so."""
    random = np.random.default_rng(0)
    q, k, v = random.standard_normal((3, 12, 900, 16), dtype=np.float32)
    run = rg.look(6 * q, k=k, v=v * np.geomspace(0.1, 5, 900, dtype=np.float32)[:, None], mask=rg.causal())
    opened = kept_open(page(run))
    opened.choose(call=0, head=3, query=700)
    row = run.calls[0].weights([700], None, [3])[0, 0]
    parts = row * run.calls[0].lengths[3]

    script = "rows => rows.slice(0, 5).map((row) => [row.dataset.token, row.querySelector('.moves').textContent])"
    for key, moves in opened.tab.eval_on_selector_all("#strongest-list .entry[data-token]", script):
        assert float(moves.split()[0]) / 100 == pytest.approx(parts[int(key)] / parts.sum(), rel=0.05, abs=1e-4)
    said = re.search(r"80 % of the weight is on (at most )?(\d+) key", opened.text("#strongest-note"))
    assert said and said[1] and int(said[2]) >= np.searchsorted(np.cumsum(np.sort(row)[::-1]), 0.8) + 1
