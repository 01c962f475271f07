"""The page in a real browser: its legend and sentence, the keys, findings, what it lets through: nothing; links to its
parts, the map that fills the window, and where a page opens.
"""

import dataclasses
import re

import numpy as np
import pytest

import regard as rg
from regard.lens.heatmap import ramp
from regard.lens.runs.codes import LEAK, NAN, OUT, decode
from regard.lens.runs.first_view import choose
from regard.lens.runs.labels import visible
from regard.lens.viewer import embed, page
from tests.support.browser import HOSTILE, Opened, example, fault, near
from tests.support.engines import normal


def test_the_sentence_says_what_the_row_and_the_head_do(home):
    """It names the key with the largest weight next to the mean of the other rows, what the head does on average, and
    of the head that is shown first why.
    """
    view, run, exact = home
    p = exact[1][2]
    view.choose(call=1, head=2, query=8)
    key = int(p[8].argmax())
    told, others = p[8, key], np.delete(p[key:, key], 8 - key).mean()  # of the rows that may attend to the key
    name = "itself" if key == 8 else f"“word{key}” (token {key}"
    said = view.text("#sentence")
    found = re.fullmatch(
        rf"Layer 1, head 2: “word8” \(token 8\) puts ([\d.]+) % of its weight on {re.escape(name)}\W+"
        r"other rows: ([\d.]+) %\)\. On average, this head puts ([\d.]+) % of its weight on (.*?)\.(.*)",
        said,
    )
    assert [float(part) / 100 for part in found.groups()[:2]] == pytest.approx([told, others], rel=0.06)
    of_head = {name: run.calls[1].figures[name][2] for name in ("special", "first", "previous", "itself", "distant")}
    assert float(found[3]) / 100 == pytest.approx(max(of_head.values()), rel=0.06)
    assert view.tab.get_attribute("#sentence", "aria-live") == "polite"
    first = choose(run)
    for head in (first.head, (first.head + 1) % 3):
        view.choose(call=first.call, head=head)
        assert (f"Shown first: {first.why}." in view.text("#sentence")) == (head == first.head)
    for query in (0, 1):  # all of its weight on the only key says nothing about the model
        view.choose(query=query)
        assert ("The mask allows it no other key." in view.text("#sentence")) == (query == 0)


CONTROLS = """() => [...document.querySelectorAll("button, select, input, summary, [tabindex='0']")].filter((node) => {
    const { top, bottom, width } = node.getBoundingClientRect();
    return node.checkVisibility({ visibilityProperty: true }) && width && top < innerHeight && bottom > 0
        && !node.closest("#grid");
}).length"""


def test_the_first_screen_has_few_controls_and_what_was_opened_stays_open(opened):
    """At most 12 beside the grid of heads, above what is folded; after a part is opened, the address and the next page
    open it, too. On a phone the text begins on the first screen.
    """
    for n, other in ((12, True), (400, False), (12, False)):  # a long text has a search field, too
        run, _ = example(n=n, layers=1)
        two = (run, example(n=n, layers=1, seed=1)[0]) if other else (run,)
        view = opened(page(*two, findings=[finding("note")]), viewport={"width": 1440, "height": 900})
        assert view.tab.evaluate(CONTROLS) <= 12 and not view.tab.is_visible("#lines-body")
    view.click("#lines-fold summary")
    view.tab.wait_for_function("address().endsWith('open=lines')")
    for address in (view.tab.evaluate("location.href"), view.uri):
        view.tab.goto("about:blank")
        view.tab.goto(address)
        view.settled()
        assert view.tab.is_visible("#lines-body")
    view.tab.set_viewport_size({"width": 390, "height": 800})
    view.settled()
    assert view.tab.evaluate("$('words').getBoundingClientRect().bottom") < 400


def test_the_legend_shows_the_ramp_and_its_domain(home):
    """The ramp is the table of colours, its ticks are those of the scale, and they do not depend on the head."""
    view, *_ = home
    for scale, ends in (
        ("near", ["≤ 0.1 %", "100 %"]),
        ("log", ["≤ 10⁻⁶", "100 %"]),
        ("linear", ["0 %", "100 %"]),
        ("lift", ["1/64", "64×"]),
    ):
        view.select("#scale", scale)
        view.choose(head=(view.state("head") + 1) % 3)
        name = "diverging-light" if scale == "lift" else "light"
        assert [view.pixel("#ramp-box canvas", at, 0)[:3] for at in (0, 100, 255)] == ramp(name)[[0, 100, 255]].tolist()
        assert view.each("#ramp-box span")[:: len(view.each("#ramp-box span")) - 1] == ends
    assert view.each("#swatches li") == ["masked"]  # what is not on the map has no swatch


def test_short_texts_begin_on_three_decades(opened):
    """Up to 256 keys the usual scale, which the address does not name, begins at 0.1 %, longer ones at 10⁻⁶."""
    for n, usual in ((256, "near"), (257, "log")):
        view = opened(example(n=n, layers=1, heads=1)[0])
        assert view.state("scale") == usual and "scale" not in view.address()


def test_the_keyboard_reaches_everything(home):
    """Arrows and letters move row and key, brackets the layer, comma and full stop the head; others change scale, pool,
    direction.
    """
    view, *_ = home
    for pressed, expected in (
        ("ArrowDown s s w", (0, 0, 2, None)),
        ("ArrowUp End ArrowLeft a d", (0, 0, 11, 10)),
        ("[", (1, 0, 11, 10)),
        ("]", (0, 0, 11, 10)),
        (". , ,", (0, 2, 11, 10)),
        ("Home Escape", (0, 2, 0, None)),
    ):
        view.press(*pressed.split())
        assert view.state("call", "head", "query", "key") == expected, pressed
    view.press("l", "p", "t")
    assert view.state("scale", "pool", "direction") == ("linear", "largest", "from")


def test_keys_do_not_steal_from_inputs(home):
    """In a list of choices the letters and arrows are the control's own."""
    view, *_ = home
    before = view.state("query", "head", "scale")
    view.unfold("#metric")
    view.tab.focus("#metric")
    view.press("l", ".", "ArrowDown")
    assert view.state("query", "head", "scale") == before


def test_help_lists_every_key(home):
    """The dialog has a line for every key of the table, each key once; it opens by ? and closes by Escape, which then
    does nothing else.
    """
    view, *_ = home
    view.choose(key=3)
    view.press("?")
    assert view.each("#keys li") == view.tab.evaluate("keys.map(({ label, what }) => label.replaceAll(' ', '') + what)")
    names = view.tab.evaluate("keys.flatMap(({ keys }) => keys)")
    assert len(set(names)) == len(names)
    view.press("Escape")
    assert not view.tab.is_visible("#keys") and view.state("key") == 3


def test_an_address_leads_to_its_view(opened):
    """The part behind # opens a whole view, also when it changes later; nonsense in it does no harm."""
    run, _ = example(mask=rg.causal())
    view = opened(run, "#call=1&head=2&query=6&key=2&pins=1,3&metric=sink")
    assert view.state("call", "head", "query", "key", "pins") == (1, 2, 6, 2, [1, 3])
    assert view.state("metric") == "sink"
    view.choose(call=0)
    view.tab.wait_for_function("() => location.hash.startsWith('#call=0&head=2&query=6&key=2&pins=1,3')")
    foreign = "#call=99&head=__proto__&query=999999&metric=constructor&second=__proto__"
    foreign += "&scale=toString&x=<img src=x onerror=alert(1)>"
    for address, place in (("#call=1&head=1&query=4", (1, 1, 4, None)), (foreign, (1, 1, 7, None))):
        view.tab.evaluate("(hash) => { location.hash = hash; }", address)
        view.settled()
        assert view.state("call", "head", "query", "key") == place


def test_light_and_dark(opened):
    """The page takes the reader's theme, follows when it changes, and m turns it over."""
    view = opened(example(n=4, layers=1, heads=1)[0], color_scheme="light")
    grounds = []
    for theme in ("light", "dark"):
        view.tab.emulate_media(color_scheme=theme)
        view.settled()
        grounds.append(view.tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert view.pixel("#ramp-box canvas", 200, 0)[:3] == ramp(theme)[200].tolist()
    view.press("m")
    assert view.tab.evaluate("getComputedStyle(document.body).backgroundColor") == grounds[0]
    assert grounds[0] != grounds[1]


def finding(severity="fault", **more):
    """A finding as the audits write it."""
    words = {
        "check": "future-leak",
        "where": "layer 1, head 2",
        "measured": "0.3",
        "cause": "no mask",
        "fix": "pass one",
    }
    return words | {"severity": severity, "call": 1, "head": 2, "row": 5, "numbers": {}} | more


def test_findings_stand_on_top_and_lead_to_their_place(opened):
    """Each finding says what was measured, why and what to do; a click shows its head and row;
    one about several heads stands at each of them and leads to the first; one that counts heads is about the call.
    Notes alone are folded away.
    """
    several = finding("warning", head=None, row=None, numbers={"heads": [0, 1]})
    notes = finding("note", head=None, row=None, numbers={"heads": 3})
    run, _ = example()
    view = opened(page(run, findings=[notes, several, finding()]))
    assert view.each("#findings li", "node.dataset.severity") == ["fault", "warning", "note"]
    told = view.text("#findings li")
    assert all(part in told for part in ("future leak", "0.3", "no mask", "pass one"))
    for number, expected in ((1, (1, 0)), (0, (1, 2))):
        view.click(f"#findings li >> nth={number} >> button")
        assert view.state("call", "head") == expected
    assert view.state("query") == 5
    at = view.tab.evaluate("[null, 0, 1, 2].map((head) => badges.at(1, head).map(({ severity }) => severity))")
    assert at == [["note"], ["warning"], ["warning"], ["fault"]]
    assert "fault: future-leak" in view.tab.get_attribute("#grid button[data-call='1'][data-head='2']", "aria-label")
    view = opened(page(run, findings=[notes]))
    assert view.tab.is_visible("#findings summary") and not view.tab.is_visible("#findings li")


def test_what_is_wrong_is_never_hidden(opened, monkeypatch):
    """NaN, weights out of range and forbidden weights, however many in a row, keep their codes in rows. (In
    pictures: test_tiles.)
    """
    run, exact = example(n=90, layers=1, heads=4, mask=rg.causal())
    given = np.array(exact[0], np.float32)
    given[1, 5] = np.where(np.arange(90) <= 5, np.nan, 0)
    given[1, 80] = np.nan
    given[2, 40] = 1 / 90  # more than half of it forbidden
    given[3, 60, 3] = -0.5
    monkeypatch.setattr(embed, "WHOLE", 1)  # what cannot be computed has all its weights in the file
    view = opened(fault(run, given=given, q=None, k=None), "#head=2&query=40")

    def row(head, i):
        return np.array(view.asks("row", 0, 0, head, i)["coarse"])

    assert not any({NAN, OUT, LEAK} & {*row(0, i)} for i in (5, 80, 40, 60))
    assert (row(1, 5)[:6] == NAN).all() and (row(1, 80) == NAN).all() and row(3, 60)[3] == OUT
    assert ((row(2, 40) == LEAK) == (np.arange(90) > 40)).all()
    assert "49 weights are where the mask forbids them" in view.text("#sentence")


def test_a_page_computes_the_weights_of_a_long_text(opened, monkeypatch):
    """From q, k and lse, for each head, row and key, as exact as it says, also with shared keys, sinks, and
    masks and biases by head.
    """
    monkeypatch.setattr(embed, "WHOLE", 1)
    rules = {"mask": rg.window(20) | (rg.head == 1), "sinks": np.ones(4), "score": rg.alibi(4)}
    q, k = 2 * normal(4, 100, 16), 2 * normal(2, 100, 16, seed=1)
    run, exact = rg.look(q, k=k, **rules), rg.attention_weights(q, k, **rules)
    view = opened(run)
    said = view.text("#exactness")
    error = float(re.search(r"every weight is computed from q, k and lse .* at most ([\d.]+) %,", said)[1]) / 100
    assert error < 2e-3
    for head, weights in enumerate(exact):
        found = view.asks("head", 0, 0, head)
        shown = decode(np.uint8(found["coarse"]), np.uint8(found["fine"]))
        near(dict(enumerate(shown)), weights.ravel(), error)
        np.testing.assert_array_equal(np.reshape(found["coarse"], (100, 100)) == 0, ~run.calls[0].allowed()[head])


def test_hostile_tokens_are_only_text(opened):
    """Tokens, names and findings that look like markup, script, template or control marks are shown as they are and run
    nothing.
    """
    run, _ = example(n=len(HOSTILE), tokens=HOSTILE)
    facts = {HOSTILE[1]: [HOSTILE[2]], "predicted": [[HOSTILE[1], 0.625]]}
    run = dataclasses.replace(run, model=HOSTILE[0], text="".join(HOSTILE), facts=facts)
    words = dict.fromkeys(("check", "where", "measured", "cause", "fix"), HOSTILE[1])
    html = page(fault(run, name=HOSTILE[0], layer=None), findings=[finding(**words)])
    view = opened(html)
    tokens = [visible(token) for token in HOSTILE]
    for token in range(len(HOSTILE)):
        view.choose(query=token, key=token)
    view.click("#atlas-as-table")
    assert view.text("#findings dd") == HOSTILE[1]  # its spaces are plain, so it reads as it is
    assert f"predicts {HOSTILE[1]} (62.5 %)" in view.text("#about")
    assert view.tab.evaluate("axis('text').tokens") == tokens
    shown = view.each("#words .token", "[node.textContent, node.children.length]")
    assert shown == [[text if len(text) <= 80 else text[:79] + "…", 0] for text in tokens]
    assert view.tab.evaluate("[window.harmed, document.images.length]") == [None, 0]
    assert view.tab.evaluate("document.scripts.length") == html.count("<script")
    view.fits(390, 1900)


def test_the_policy_of_the_page_blocks_foreign_script(chromium, tmp_path):
    """Even a script that got into the page would not run, and nothing can be sent or fetched."""
    file = tmp_path / "page.html"
    file.write_text(
        page(example()[0]).replace("</header>", "</header><script>window.harmed = 1</script>", 1), encoding="utf-8"
    )
    view = Opened(chromium, file.as_uri())
    assert view.tab.evaluate("window.harmed") is None
    assert any("Content Security Policy" in line for line in view.said)
    assert view.tab.evaluate("fetch('https://example.org').then(() => 'sent', () => 'blocked')") == "blocked"
    view.context.close()


def test_a_page_opens_on_a_fault(opened):
    """In the head, and the row if it is known, of the first fault; of warnings and notes only if nothing is wrong, nor
    of faults in layers that a run does not have.
    """
    run, _ = example(n=12)
    first = choose(run)
    call, head = (first.call + 1) % 2, (first.head + 1) % 3
    warning, one = finding("warning", call=call, head=first.head, row=0), finding(call=call, head=head, row=6)
    several = one | {"head": None, "row": None, "numbers": {"heads": [head, 0]}}
    for start, about, expected in ((None, one, (call, head, 6)), ({}, one, (0, 0, 0))):
        assert opened(page(run, start=start, findings=[warning, about])).state("call", "head", "query") == expected
    chosen = choose(run, findings=[warning, several])
    assert (chosen.call, chosen.head) == (call, head)
    assert choose(run, findings=[warning]) == choose(run, findings=[one | {"call": 7}]) == first
    alone, _ = example(layers=1)
    rows = alone.calls[0].rows | {"maximum": np.zeros((3, 8), np.float32)}
    assert choose(fault(alone, rows=rows)).why.startswith("the first of all heads")
