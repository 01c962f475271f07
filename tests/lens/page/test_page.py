"""The page in a real browser: its legend and sentence, the keys, findings, and what it lets through: nothing."""

import dataclasses
import re

import numpy as np
import pytest

import regard as rg
from regard.language.measures import edges
from regard.lens import Run
from regard.lens.drawing.ramp import ramp
from regard.lens.runs.codes import FINE_ERROR, LEAK, NAN, OUT, decode
from regard.lens.runs.labels import visible
from regard.lens.viewer import embed, page
from tests.support.browser import HOSTILE, example, fault, near, share


def test_the_sentence_says_what_the_row_does(home):
    """It names the three keys with the largest weights, the weights to three figures, next to the mean of the other
    rows, and how many keys make 80 %.
    """
    view, _, exact = home
    i = int((exact[1][2] ** 2).sum(1).argmin())  # the row that looks widest
    view.choose(call=1, head=2, query=i)
    row = exact[1][2, i]
    said = view.text("#sentence")
    first, second, third = np.argsort(-row)[:3]
    found = re.findall(
        r"([\d.]+) % (?:of its weight )?on (itself|“[^”]+”) \((?:token (\d+))?(?:; )?(?:other rows: ([\d.]+) %)?\)",
        said,
    )
    assert said.startswith(f"Layer 1, head 2: “word{i}” (token {i}) puts")
    assert [i if name == "itself" else int(token) for _, name, token, _ in found] == [first, second, third]
    for (told, *_), key in zip(found, (first, second, third), strict=True):
        assert (
            abs(float(told) / 100 - row[key])
            <= 0.00051 * 10 ** np.floor(np.log10(100 * row[key])) + FINE_ERROR * row[key]
        )
    for (*_, told), key in zip(found, (first, second, third), strict=True):
        others = np.delete(exact[1][2, key:, key], i - key)  # the rows that may attend to the key
        assert not told if not len(others) else float(told) / 100 == pytest.approx(others.mean(), rel=0.06, abs=2e-5)
    assert int(re.search(r"is on (\d+) keys", said)[1]) == np.searchsorted(np.cumsum(np.sort(row)[::-1]), 0.8) + 1
    assert view.tab.get_attribute("#sentence", "aria-live") == "polite"


def test_without_special_tokens_says_that_it_is_not_the_model(home):
    """The others are counted as 100 %, and the sentence warns of it."""
    view, run, exact = home
    view.choose(query=9)
    view.click("#hide-special")
    row = np.where(run.axes["text"].special, 0, exact[0][0, 9])
    said = view.text("#sentence")
    assert abs(share(said) - row.max() / row.sum()) < 0.0006
    assert "not the model’s own numbers" in said


def test_the_legend_shows_the_ramp_and_its_domain(home):
    """The ramp is the table of colours, its ticks are those of the scale, and they do not depend on the head."""
    view, *_ = home
    for scale, ends in (
        ("near", ("≤ 0.1 %", "100 %")),
        ("log", ("≤ 10⁻⁶", "100 %")),
        ("linear", ("0 %", "100 %")),
        ("lift", ("1/64", "64×")),
        ("others", ("1/64", "64×")),
        ("row", ("0 %", "100 %")),
    ):
        view.tab.select_option("#scale", scale)
        view.settled()
        name = "diverging-light" if scale in ("lift", "others") else "light"
        for at in (0, 100, 255):
            assert view.pixel("#ramp", at, 0)[:3] == ramp(name)[at].tolist()
        ticks = view.tab.eval_on_selector_all("#ticks span", "nodes => nodes.map((node) => node.textContent)")
        assert (ticks[0], ticks[-1]) == ends
        view.choose(head=view.state("head") + 1)
        assert ticks == view.tab.eval_on_selector_all("#ticks span", "nodes => nodes.map((node) => node.textContent)")
    names = view.tab.eval_on_selector_all("#swatches li", "nodes => nodes.map((node) => node.textContent)")
    assert names == ["masked", "exactly 0", "not a number", "out of range", "forbidden weight"]


def test_short_texts_begin_on_three_decades(opened):
    """Up to 256 keys the usual scale begins at 0.1 %, longer ones at 10⁻⁶; the address names a scale only where it is
    another.
    """
    for n, usual, other in ((8, "near", "log"), (257, "log", "near")):
        view = opened(page(example(n=n, layers=1, heads=1)[0]))
        assert view.state("scale") == usual
        assert view.text("#ticks span").strip() == {"near": "≤ 0.1 %", "log": "≤ 10⁻⁶"}[usual]
        assert "scale" not in view.tab.evaluate("address()")
        view.choose(scale=other)
        assert f"scale={other}" in view.tab.evaluate("address()")


def test_the_keyboard_reaches_everything(home):
    """Arrows and letters move row and key, brackets the layer, comma and full stop the head; others change scale, pool,
    direction.
    """
    view, *_ = home
    steps = (
        ("ArrowDown", (0, 0, 1, None)),
        ("s", (0, 0, 2, None)),
        ("w", (0, 0, 1, None)),
        ("ArrowUp", (0, 0, 0, None)),
        ("ArrowUp", (0, 0, 0, None)),
        ("End", (0, 0, 11, None)),
        ("ArrowLeft", (0, 0, 11, 10)),
        ("d", (0, 0, 11, 11)),
        ("]", (1, 0, 11, 11)),
        ("]", (0, 0, 11, 11)),
        ("[", (1, 0, 11, 11)),
        (".", (1, 1, 11, 11)),
        (",", (1, 0, 11, 11)),
        (",", (1, 2, 11, 11)),
        ("Home", (1, 2, 0, 11)),
        ("Escape", (1, 2, 0, None)),
    )
    for pressed, expected in steps:
        view.press(pressed)
        assert view.state("call", "head", "query", "key") == expected, pressed
    view.press("l", "p", "t")
    assert view.state("scale", "pool", "direction") == ("linear", "largest", "from")


def test_n_goes_down_the_list_of_the_strongest(home):
    """Each n chooses the key with the next smaller weight of the row, beginning with the largest."""
    view, _, exact = home
    view.choose(query=8, head=1)
    order = [int(key) for key in np.argsort(-exact[0][1, 8]) if exact[0][1, 8, key] > 1e-6]
    for expected in order[:3]:
        view.press("n")
        assert view.state("key") == expected
    view.press("N")
    assert view.state("key") == order[1]


def test_keys_do_not_steal_from_inputs(home):
    """In a list of choices and in a range the letters and arrows are the control's own."""
    view, *_ = home
    view.choose(filter={"metric": "sink", "low": 0, "high": 0.5})
    before = view.state("query", "head", "scale")
    for control in ("#metric", "#filter-low"):
        view.tab.focus(control)
        view.press("l", ".", "ArrowDown")
    assert view.state("query", "head", "scale") == before


def test_help_lists_every_key(home):
    """The dialog has a line for every key of the table, opens by ? and closes by Escape, which then does nothing
    else.
    """
    view, *_ = home
    view.choose(key=3)
    view.press("?")
    lines = view.tab.eval_on_selector_all("#keys li", "nodes => nodes.map((node) => node.textContent)")
    table = view.tab.evaluate("keys.map(({ label, what }) => label.replaceAll(' ', '') + what)")
    assert lines == table
    size = view.tab.viewport_size
    for width in (390, 1440):
        view.tab.set_viewport_size({"width": width, "height": 900})
        over = """nodes => nodes.filter(({ children: [caps, words] }) =>
            caps.lastElementChild.getBoundingClientRect().right >= words.getBoundingClientRect().left)
            .map((node) => node.textContent)"""
        assert view.tab.eval_on_selector_all("#keys li", over) == []
    view.tab.set_viewport_size(size)
    assert len(
        {key for keys in view.tab.evaluate("keys.map(({ keys }) => keys)") for key in keys}
    ) == view.tab.evaluate("keys.reduce((sum, { keys }) => sum + keys.length, 0)")
    view.press("Escape")
    assert not view.tab.is_visible("#keys")
    assert view.state("key") == 3


def test_every_control_has_a_name(home):
    """Everything that can have the focus says what it is."""
    view, *_ = home
    nameless = view.tab.evaluate(
        """[...document.querySelectorAll('button, select, input, [tabindex="0"]')].filter((node) =>
            node.checkVisibility() && !(
                node.ariaLabel || node.textContent.trim() || node.getAttribute('aria-labelledby')
                || node.labels?.length || node.title || node.placeholder
            )).map((node) => node.outerHTML)"""
    )
    assert nameless == []


def test_an_address_leads_to_its_view(opened):
    """The part behind # opens a whole view, also when it changes later; nonsense in it does no harm."""
    run, _ = example(mask=rg.causal())
    address = "#call=1&head=2&query=6&key=2&scale=linear&pool=largest&direction=from&pins=1,3"
    address += "&metric=spread&sort=heads&filter=sink,0,0.9"
    view = opened(page(run), address)
    wanted = (
        1,
        2,
        6,
        2,
        "linear",
        "largest",
        "from",
        [1, 3],
        "spread",
        "heads",
        {"metric": "sink", "low": 0, "high": 0.9},
    )
    names = ("call", "head", "query", "key", "scale", "pool", "direction", "pins", "metric", "sort", "filter")
    assert view.state(*names) == wanted
    view.choose(call=0)
    view.tab.wait_for_timeout(250)
    assert view.tab.evaluate("location.hash").startswith("#call=0&head=2&query=6&key=2&scale=linear")
    view.tab.evaluate("location.hash = '#call=1&head=1&query=4'")
    view.settled()
    assert view.state("call", "head", "query", "key") == (1, 1, 4, None)
    foreign = "#call=99&head=__proto__&query=999999&metric=constructor&filter=__proto__,0,1"
    foreign += "&scale=toString&x=<img src=x onerror=alert(1)>"
    view.tab.evaluate("(hash) => { location.hash = hash; }", foreign)
    view.settled()
    assert view.state("call", "head", "query", "metric") == (1, 1, 7, "spread")


def test_light_and_dark(opened):
    """The page takes the reader's theme, follows when it changes, and m turns it over."""
    view = opened(page(example(n=4, layers=1, heads=1)[0]), color_scheme="light")
    grounds = []
    for theme in ("light", "dark"):
        view.tab.emulate_media(color_scheme=theme)
        view.settled()
        grounds.append(view.tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert view.pixel("#ramp", 200, 0)[:3] == ramp(theme)[200].tolist()
    view.press("m")
    assert view.tab.evaluate("getComputedStyle(document.body).backgroundColor") == grounds[0]
    assert grounds[0] != grounds[1]


def test_nothing_is_cut_off(home):
    """At every usual width everything lies within the window or in something that scrolls."""
    view, *_ = home
    view.fits(390, 1024, 1280, 1900)


def finding(severity="fault", **more):
    """A finding as the audits write it."""
    return {
        "check": "future-leak",
        "severity": severity,
        "where": "layer 1, head 2",
        "measured": "0.3",
        "cause": "no mask",
        "fix": "pass one",
        "call": 1,
        "head": 2,
        "row": 5,
        "numbers": {},
    } | more


def test_findings_stand_on_top_and_lead_to_their_place(opened):
    """Each finding says what was measured, why and what to do; a click shows its head and row, whose cell is marked."""
    view = opened(page(example()[0], findings=[finding("note", head=None, row=None), finding()]))
    assert view.tab.eval_on_selector_all("#findings li", "nodes => nodes.map((node) => node.dataset.severity)") == [
        "fault",
        "note",
    ]
    told = view.text("#findings li")
    assert all(part in told for part in ("future leak", "0.3", "no mask", "pass one"))
    view.click("#findings li button")
    assert view.state("call", "head", "query") == (1, 2, 5)
    assert "fault: future-leak" in view.tab.get_attribute("#grid button[data-call='1'][data-head='2']", "aria-label")
    x, y = view.tab.evaluate("(({ x, y }) => [x + atlas.size - 4, y + 3])(atlas.cells[5])")
    assert view.pixel("#atlas-canvas", x, y)[:3] == [0xFF, 0x1F, 0x1F]
    view.tab.select_option("#filter", "findings")
    view.settled()
    assert view.tab.evaluate("metrics.all()") == [[1, 2]]


def test_a_finding_about_several_heads_stands_at_each_of_them(opened):
    """It marks its heads, not the whole call, and leads to the first; one that counts heads is about the call."""
    several = finding("warning", head=None, row=None, numbers={"heads": [1, 2]})
    view = opened(page(example()[0], findings=[several, finding("note", head=None, numbers={"heads": 3})]))
    found = view.tab.evaluate("[null, 0, 1, 2].map((head) => badges.at(1, head).map(({ severity }) => severity))")
    assert found == [["note"], [], ["warning"], ["warning"]]
    view.click("#findings li button")
    assert view.state("call", "head") == (1, 1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("first", "=+-@")
def test_a_name_in_a_copied_table_is_no_formula(opened, first):
    """A spreadsheet computes what begins with one of these; the copy puts an apostrophe before it."""
    run = fault(example(layers=1)[0], name=f'{first}HYPERLINK("x")', layer=None)
    view = opened(page(run))
    assert all(line.startswith(f"'{first}HYPER") for line in view.tab.evaluate("headTable.text()").splitlines()[1:])


def test_notes_alone_are_folded_away(opened):
    """Where the audit found no fault and no warning its notes are there, but closed."""
    view = opened(page(example()[0], findings=[finding("note")]))
    assert view.tab.is_visible("#findings summary")
    assert not view.tab.is_visible("#findings li")


def test_a_figure_that_is_no_number_stays_none(opened):
    """The figures of a row of NaN are NaN on the page as they are in Python, the others keep theirs, and words show a
    dash.
    """

    def poison(q, k):
        q[0, 2] = np.nan

    run, _ = example(layers=1, mask=rg.causal(), poison=poison)
    call, view = run.calls[0], opened(page(run))
    for name in ("entropy", "spread", "maximum", "special", "received"):
        exact = call.received[0] if name == "received" else call.rows[name][0]
        shown = view.tab.evaluate(
            "(name) => source.tracks(0, 0, 0).then((found) => [...found[name]].map(String))", name
        )
        np.testing.assert_allclose(np.array(shown, float), exact, atol=1e-4 * np.nanmax(exact, initial=1))
        assert np.isnan(exact).any()
    told = view.tab.evaluate("tracksOf(0, { call: 0, head: 0 }).then((tracks) => rowWords(tracks, 2))")
    assert told == "entropy — of the maximum possible, — on special tokens"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["whole", "part"])
def test_what_is_wrong_is_never_hidden(opened, monkeypatch, kind):
    """NaN, weights out of range and forbidden weights, however many in a row, keep their codes in rows and in the
    atlas.
    """
    run, exact = example(n=90, layers=1, heads=4, mask=rg.causal())
    given = np.array(exact[0], np.float32)
    given[1, 5] = np.where(np.arange(90) <= 5, np.nan, 0)
    given[1, 80] = np.nan
    given[2, 40] = 1 / 90  # more than half of it forbidden
    given[3, 60, 3] = -0.5
    run = fault(run, given=given, q=None, k=None)
    if kind == "part":
        monkeypatch.setattr(embed, "WHOLE", 1)
        monkeypatch.setattr(embed, "FULLEST", 6)
    view = opened(page(run))
    codes = [[np.array(view.asks("row", 0, 0, head, row)["coarse"]) for row in (5, 80, 40, 60)] for head in range(4)]
    assert not set(np.concatenate([np.ravel(each) for each in codes[0]])) & {NAN, OUT, LEAK}
    assert (codes[1][0][:6] == NAN).all()
    assert (codes[1][1] == NAN).all()
    assert (codes[2][2][41:] == LEAK).all()
    assert not (codes[2][2][:41] == LEAK).any()
    assert codes[3][3][3] == OUT
    pictures = np.reshape(view.asks("overview", 0, 0)["codes"], (4, -1))
    assert [{NAN, OUT, LEAK} & set(picture.tolist()) for picture in pictures] == [set(), {NAN}, {LEAK}, {OUT}]
    view.choose(head=2, query=40)
    assert "49 weights are where the mask forbids them" in view.text("#sentence")


def test_a_page_in_part_says_what_is_exact(opened, monkeypatch):
    """The strongest keys of each row are as exact as said, the others the mean of their block; the page says how many
    are which.
    """
    monkeypatch.setattr(embed, "WHOLE", 1)
    monkeypatch.setattr(embed, "FULLEST", 8)
    run, exact = example(n=100, layers=1, heads=1, mask=rg.causal())
    view = opened(page(run))
    assert "The 8 strongest keys of each row are exact" in view.text("#exactness")
    assert "Tokens in italics have the mean of their neighborhood" in view.text("#reader-pins")
    cuts = edges(100, embed.REST)
    for i in (3, 50, 99):
        found = view.asks("row", 0, 0, 0, i)
        p, sure = decode(np.uint8(found["coarse"]), np.uint8(found["fine"])), np.array(found["sure"], bool)
        strongest = np.argsort(-exact[0][0, i])[: min(8, i + 1)]
        assert sure[strongest].all()
        assert (sure[: i + 1].sum(), sure[i + 1 :].all()) == (min(8, i + 1), True)
        near(dict(zip(np.flatnonzero(sure), p[sure], strict=True)), exact[0][0, i], FINE_ERROR)
        for j in np.flatnonzero(~sure):
            r, c = np.searchsorted(cuts, [i, j], "right") - 1
            rows, keys = np.mgrid[cuts[r] : cuts[r + 1], cuts[c] : cuts[c + 1]]
            ranks = np.argsort(np.argsort(-exact[0][0], 1), 1)[rows, keys]
            others = (keys <= rows) & (ranks >= np.minimum(8, rows + 1))
            assert abs(p[j] - exact[0][0][rows, keys][others].mean()) <= max(0.03 * p[j], 1e-6)


def test_hostile_tokens_are_only_text(opened):
    """Tokens, names and findings that look like markup, script, template or control marks are shown as they are and run
    nothing.
    """
    run, _ = example(n=len(HOSTILE), tokens=HOSTILE)
    run = fault(
        dataclasses.replace(run, model=HOSTILE[0], text="".join(HOSTILE), facts={HOSTILE[1]: [HOSTILE[2]]}),
        name=HOSTILE[0],
        layer=None,
    )
    html = page(run, findings=[finding(**dict.fromkeys(("check", "where", "measured", "cause", "fix"), HOSTILE[1]))])
    view = opened(html)
    for token in range(len(HOSTILE)):
        view.choose(query=token, key=token)
    view.click("#atlas-as-table")
    assert view.text("#findings dd") == HOSTILE[1]  # its spaces are plain, so it reads as it is
    assert view.tab.evaluate("axis('text').tokens") == [visible(token) for token in HOSTILE]
    assert view.tab.evaluate("window.harmed") is None
    assert view.tab.evaluate("document.querySelectorAll('img').length") == 0
    assert view.tab.evaluate("document.scripts.length") == html.count("<script")
    assert view.cut_off() == []


def test_the_policy_of_the_page_blocks_foreign_script(kept_open, chromium, tmp_path):
    """Even a script that got into the page would not run, and nothing can be sent or fetched."""
    from tests.support.browser import Opened

    file = tmp_path / "page.html"
    file.write_text(
        page(example()[0]).replace("</header>", "</header><script>window.harmed = 1</script>", 1), encoding="utf-8"
    )
    view = Opened(chromium, file.as_uri())
    assert view.tab.evaluate("window.harmed") is None
    assert any("Content Security Policy" in line for line in view.said)
    assert view.tab.evaluate("fetch('https://example.org').then(() => 'sent', () => 'blocked')") == "blocked"
    view.context.close()


def test_an_old_browser_is_told(kept_open, chromium, tmp_path):
    """The script of the page is held deflated: a browser that cannot inflate it says so instead of staying empty."""
    file = tmp_path / "page.html"
    file.write_text(page(example()[0]), encoding="utf-8")
    context = chromium.new_context(bypass_csp=True)
    context.add_init_script("delete window.DecompressionStream")
    tab = context.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_selector("#problem:not([hidden])")
    assert "This browser cannot open the page: DecompressionStream is not defined." in tab.inner_text("#problem")
    context.close()


def test_one_token_is_enough(opened):
    """A text of one token and a model of one head have a page on which every key works."""
    run, _ = example(n=1, layers=1, heads=1)
    view = opened(page(run))
    assert "puts 100 % of its weight on itself" in view.text("#sentence")
    view.press(*"wasd[],.nNlptm+-0", "ArrowRight", "End", "Escape")
    assert view.state("call", "head", "query") == (0, 0, 0)


def test_a_row_that_may_attend_to_one_key_says_so(home):
    """Its 100 % tell nothing about the model."""
    view, *_ = home
    assert view.text("#sentence").endswith("The mask allows it no other key.")
    view.choose(query=1)
    assert "no other key" not in view.text("#sentence")


def test_the_ring_of_a_token_is_above_its_neighbors(home):
    """The background of the next token does not cover it, where no space is between them."""
    view, *_ = home
    view.choose(query=3, pins=[5], key=2)
    for token in (2, 3, 5):
        style = "node => [getComputedStyle(node).position, getComputedStyle(node).zIndex]"
        assert view.tab.eval_on_selector(f"#words-{token}", style) == ["relative", "1"]


def test_calls_of_several_kinds_stand_apart(opened):
    """Encoder, decoder and cross-attention have a heading each, and names that tell them apart."""
    run, _ = example(n=6, layers=1, heads=2)
    cross, _ = example(n=6, layers=1, heads=4, keys=9)
    both = Run("toy", "", {**run.axes, **cross.axes}, (*run.calls, *cross.calls))
    view = opened(page(both, start={}))
    assert view.tab.eval_on_selector_all("#grid .kind", "nodes => nodes.map((node) => node.textContent)") == [
        "text",
        "text → source",
    ]
    view.click("#grid button[data-call='1'][data-head='3']")
    assert view.text("#sentence").startswith("Text → source, layer 0, head 3: “[CLS]” (token 0) puts")
    assert "“key" in view.text("#sentence")
    assert not view.tab.is_visible("#hide-special-box")  # its keys are all words
