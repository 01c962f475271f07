"""The page in a real browser: what it shows, what it lets through (nothing), and how it is driven."""

import re
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.lens import Layer, Run, page
from regard.lens.codes import COARSE_ERROR, FINE_ERROR
from regard.lens.labels import visible
from regard.lens.page import json_for_html
from regard.lens.ramp import ramp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip
HOSTILE = (
    "</script><script>window.harmed=1</script>", '"><img src=x onerror="window.harmed=2">', "{{script}}", "'; window.harmed=3; '",
    " 🦊", "\u202egnp.exe", "\u2028", "&lt;b&gt;", "<!--<script>", "]]>", "\x1b[31m", "שלום", " " * 3, "",
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Opened:
    """A page open in the browser, with everything it said and asked for."""

    def __init__(self, browser, file, address="", **context):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context})
        self.tab = self.context.new_page()
        self.said, self.asked = [], []
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.uri = file.as_uri()
        self.tab.goto(self.uri + address)
        self.settled()

    def settled(self):
        self.tab.wait_for_selector("html[data-ready]")
        self.tab.wait_for_timeout(60)

    def press(self, key):
        self.tab.keyboard.press(key)
        self.settled()

    def click(self, selector, **more):
        self.tab.click(selector, **more)
        self.settled()

    def at(self) -> tuple[int, ...]:
        """(layer, head, token) as the address says."""
        return tuple(map(int, re.findall(r"\d+", self.tab.evaluate("location.hash"))))

    def listed(self, direction) -> dict[int, float]:
        """The weights in a list, by token."""
        rows = self.tab.query_selector_all(f"#{direction}-list li[data-token]")
        return {int(row.get_attribute("data-token")): float(row.query_selector("data").get_attribute("value")) for row in rows}

    def pixel(self, selector, x, y) -> list[int]:
        """The colour of a canvas at a place, read from a copy so that the page's own canvas is left as it is."""
        return self.tab.evaluate(
            """([selector, x, y]) => {
                const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
                copy.drawImage(document.querySelector(selector), -x, -y);
                return [...copy.getImageData(0, 0, 1, 1).data];
            }""",
            [selector, x, y],
        )


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page; afterwards it must have been silent, and have asked for itself alone."""
    found = []

    def opening(html, address="", **context):
        file = tmp_path / "attention.html"
        file.write_text(html, encoding="utf-8")
        found.append(Opened(chromium, file, address, **context))
        return found[-1]

    yield opening
    for each in found:
        assert each.said == []
        assert {url.split("#")[0] for url in each.asked} == {each.uri}
        each.context.close()


def example(n=8, layers=2, heads=3, mask=None, tokens=None):
    """A run of random heads, and its exact weights (layers, heads, n, n)."""
    q, k = 2 * np.random.default_rng(n).standard_normal((2, layers, heads, n, 8))
    exact = rg.attention_weights(q, k, mask=mask)
    allowed = None if mask is None else rg.attention_weights(0 * q[0], k[0], mask=mask) > 0
    tokens = tokens or ("[CLS]", *(f" word{i}" for i in range(1, n - 1)), "[SEP]")[:n]
    special = tuple(token in ("[CLS]", "[SEP]") for token in tokens)
    parts = tuple(Layer.of(exact[i], allowed, f"layers.{i}") for i in range(layers))
    return Run("toy", "".join(tokens), tokens, special, parts), exact


def near(shown, exact, error):
    """Shown weights are within the relative error of the exact ones, or below what is shown at all."""
    for i, p in shown.items():
        assert abs(p - exact[i]) <= max(error * 1.001 * exact[i], 1e-6), (i, p, exact[i])


def test_a_click_shows_what_a_token_attends_to_and_what_attends_to_it(opened):
    """The two lists hold the exact row and column of the chosen head, largest first; the sentence says the same in words."""
    run, exact = example()
    view = opened(page(run))
    view.click("#text [data-token='5']")
    row, column = exact[0, 0, 5], exact[0, 0, :, 5]
    assert sorted(view.listed("to")) == sorted(view.listed("from")) == list(range(8))
    near(view.listed("to"), row, FINE_ERROR)
    near(view.listed("from"), column, FINE_ERROR)
    assert next(iter(view.listed("to"))) == row.argmax()
    first = view.tab.inner_text("#to-list li data")
    assert abs(float(first.split()[0]) - 100 * row.max()) < 0.051
    sentence = view.tab.inner_text("#sentence")
    assert "“word5” (token 5) gives" in sentence
    assert first in sentence
    assert view.tab.get_attribute("#sentence", "aria-live") == "polite"


def test_a_click_in_the_matrix_or_on_its_axes_chooses_a_token(opened):
    """A cell and a row name choose the query; a column name chooses the key and turns the colours to what attends to it."""
    run, exact = example(n=4)
    view = opened(page(run))
    box = view.tab.evaluate("(() => { const s = $('cells').style; return [parseFloat(s.left), parseFloat(s.width)]; })()")
    margin, cell = box[0], box[1] / 4

    def at(row, column):
        return {"x": margin + column * cell + cell / 2 if column is not None else margin / 2,
                "y": margin + row * cell + cell / 2 if row is not None else margin / 2}  # fmt: skip

    view.tab.hover("#axes", position=at(2, 1))
    told = view.tab.inner_text("#readout")
    assert told.startswith("“word2” (2) → “word1” (1): ")
    assert abs(float(told.split()[-2]) - 100 * exact[0, 0, 2, 1]) < 0.06
    view.click("#axes", position=at(2, 1))
    assert view.at() == (0, 0, 2)
    view.click("#axes", position=at(3, None))
    assert view.at() == (0, 0, 3)
    assert view.tab.get_attribute("#to", "aria-checked") == "true"
    view.click("#axes", position=at(None, 1))
    assert view.at() == (0, 0, 1)
    assert view.tab.get_attribute("#from", "aria-checked") == "true"


def test_every_head_of_the_atlas_opens(opened):
    """A click on a head shows that head; its weights are those of that layer and head."""
    run, exact = example()
    view = opened(page(run, layer=1, head=2, token=3))
    assert view.at() == (1, 2, 3)
    for layer in range(2):
        for head in range(3):
            view.click(f"#grid button[data-layer='{layer}'][data-head='{head}']")
            assert view.at() == (layer, head, 3)
            assert view.tab.inner_text("#map-title") == f"Layer {layer}, head {head}"
            near(view.listed("to"), exact[layer, head, 3], FINE_ERROR)


def test_the_keyboard_reaches_everything(opened):
    """Arrows choose the token, brackets the layer, comma and full stop the head, + − the zoom, l the scale, t the direction."""
    view = opened(page(example(n=30)[0]))
    for key, expected in (("ArrowRight", (0, 0, 1)), ("ArrowDown", (0, 0, 2)), ("ArrowLeft", (0, 0, 1)), ("ArrowUp", (0, 0, 0)),
                          ("ArrowUp", (0, 0, 0)), ("End", (0, 0, 29)), ("ArrowRight", (0, 0, 29)), ("]", (1, 0, 29)), ("]", (0, 0, 29)),
                          ("[", (1, 0, 29)), (".", (1, 1, 29)), (",", (1, 0, 29)), (",", (1, 2, 29)), ("Home", (1, 2, 0))):  # fmt: skip
        view.press(key)
        assert view.at() == expected, key
    view.press("+")
    assert view.tab.evaluate("$('cells').width") == 15
    view.press("End")
    assert view.tab.evaluate("state.view.row") == 15  # the view follows the token
    view.press("0")
    assert view.tab.evaluate("$('cells').width") == 30
    view.press("l")
    assert "0.001 %" in view.tab.inner_text("#ticks")
    view.press("l")
    assert view.tab.inner_text("#ticks").split()[:2] == ["0", "%"]
    view.press("t")
    assert view.tab.get_attribute("#from", "aria-checked") == "true"


def test_focus_follows_the_keyboard_through_the_text(opened):
    """Tab reaches the chosen token; the arrows then move focus and choice together; every control has a name."""
    view = opened(page(example()[0], token=2))
    view.tab.focus("#text [aria-selected='true']")
    view.press("ArrowRight")
    assert view.tab.evaluate("document.activeElement.dataset.token") == "3"
    names = view.tab.evaluate("[...document.querySelectorAll('button, select, [tabindex=\"0\"]')].map(e => "
                              "e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim())")  # fmt: skip
    assert all(names)
    assert "layer 1, head 2: entropy" in view.tab.get_attribute("#grid button[data-layer='1'][data-head='2']", "aria-label")
    assert "rows are queries, columns are keys" in view.tab.get_attribute("#axes", "aria-label")


def test_an_address_leads_to_its_cell(opened):
    """The part behind # opens a layer, head and token, also when it changes later; nonsense in it does no harm."""
    run, exact = example()
    view = opened(page(run), "#layer=1&head=2&token=6")
    assert view.tab.inner_text("#map-title") == "Layer 1, head 2"
    near(view.listed("to"), exact[1, 2, 6], FINE_ERROR)
    view.tab.evaluate("location.hash = '#layer=0&head=1&token=4'")
    view.settled()
    near(view.listed("to"), exact[0, 1, 4], FINE_ERROR)
    view.tab.evaluate("location.hash = '#layer=99&head=__proto__&token=999999&x=<img src=x onerror=alert(1)>'")
    view.settled()
    assert view.at() == (1, 1, 7)


def test_hostile_tokens_are_only_text(opened):
    """Tokens that look like markup, script, template or control marks are shown as they are and run nothing."""
    run, _ = example(n=len(HOSTILE), tokens=HOSTILE)
    html = page(Run(HOSTILE[0], "".join(HOSTILE), HOSTILE, run.special, run.layers))
    view = opened(html)
    assert [node.text_content() for node in view.tab.query_selector_all("#text span")] == [visible(token) for token in HOSTILE]
    for token in range(len(HOSTILE)):
        view.click(f"#text [data-token='{token}']")
    view.tab.hover("#axes")
    assert view.tab.evaluate("window.harmed") is None
    assert view.tab.evaluate("document.querySelectorAll('img').length") == 0
    assert view.tab.evaluate("document.scripts.length") == html.count("<script")


def test_the_policy_of_the_page_blocks_foreign_script(chromium, tmp_path):
    """Even a script that got into the page would not run, and nothing can be sent or fetched."""
    file = tmp_path / "page.html"
    file.write_text(page(example()[0]).replace("</header>", "</header><script>window.harmed = 1</script>", 1), encoding="utf-8")
    view = Opened(chromium, file)
    assert view.tab.evaluate("window.harmed") is None
    assert any("Content Security Policy" in line for line in view.said)
    sent = view.tab.evaluate("fetch('https://example.org').then(() => 'sent', () => 'blocked')")
    assert sent == "blocked"
    view.context.close()


def test_masked_is_not_zero(opened):
    """A masked cell stays clear for the hatching behind it; a visible one has a colour; the text and lists leave masked ones out."""
    run, exact = example(mask=rg.causal())
    view = opened(page(run, token=3))
    assert view.pixel("#cells", 5, 3)[3] == 0
    assert view.pixel("#cells", 3, 5)[3] == 255
    assert sorted(view.listed("to")) == [0, 1, 2, 3]
    assert sorted(view.listed("from")) == [3, 4, 5, 6, 7]
    near(view.listed("from"), exact[0, 0, :, 3], FINE_ERROR)
    assert view.tab.get_attribute("#text [data-token='4']", "title").endswith("masked")
    assert view.tab.evaluate("getComputedStyle($('cells')).backgroundImage").startswith("repeating-linear-gradient")


def test_not_a_number_is_shown_as_such(opened):
    """A NaN among the weights has a colour outside the ramp, stands first in the list, and is in the legend."""
    weights = np.full((1, 3, 3), 1 / 3)
    weights[0, 1, 2] = np.nan
    view = opened(page(Run("toy", "abc", ("a", "b", "c"), (False,) * 3, (Layer.of(weights),)), token=1))
    assert view.tab.inner_text("#to-list li data") == "not a number"
    assert view.tab.is_visible("#nan")
    assert view.pixel("#cells", 2, 1)[:3] not in ramp("light").tolist()


def test_light_and_dark(opened):
    """The page takes the reader's theme, follows when it changes, and each theme draws with its own ramp."""
    run = Run("toy", "ab", ("a", "b"), (False,) * 2, (Layer.of(np.eye(2)[None]),))
    view = opened(page(run), color_scheme="light")
    grounds = []
    for theme in ("light", "dark"):
        view.tab.emulate_media(color_scheme=theme)
        view.settled()
        grounds.append(view.tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert view.pixel("#cells", 0, 0)[:3] == ramp(theme)[255].tolist()
        assert view.pixel("#cells", 1, 0)[:3] == ramp(theme)[0].tolist()
        assert view.pixel("#ramp", 128, 0)[:3] == ramp(theme)[128].tolist()
    assert grounds[0] != grounds[1]


def test_figures_can_take_the_place_of_pictures(opened):
    """Each figure of the atlas is the statistic of its head."""
    run = Run("toy", "abc", ("a", "b", "c"), (True, False, False), (Layer.of(np.stack([np.eye(3), np.full((3, 3), 1 / 3)])),))
    view = opened(page(run))
    for metric, expected in (
        ("spread", ["0", "100"]),
        ("special", ["33", "33"]),
        ("itself", ["100", "33"]),
        ("distance", ["0.0", "0.9"]),
    ):
        view.tab.select_option("#metric", metric)
        view.settled()
        assert [node.text_content() for node in view.tab.query_selector_all("#grid em")] == expected


def test_a_long_text_opens_and_says_how_exact_it_is(opened):
    """512 tokens: one byte per weight, within the error that the page states; the list names the rest."""
    run, exact = example(n=512, layers=1, heads=16)
    view = opened(page(run, token=300))
    near(view.listed("to"), exact[0, 0, 300], COARSE_ERROR)
    assert len(view.listed("to")) == 60
    assert view.tab.inner_text("#to-list li.rest").startswith("452 others")
    assert "within 3 %" in view.tab.inner_text("#exactness")


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_nothing_is_cut_off_at_any_width(opened, width):
    """The page never scrolls sideways, from a wide screen to a telephone."""
    view = opened(page(example(n=40, heads=12)[0]), viewport={"width": width, "height": 844})
    assert view.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert view.tab.evaluate("$('matrix').getBoundingClientRect().right") <= width


def test_one_token_is_enough(opened):
    """A text of one token makes a page like any other."""
    view = opened(page(Run("toy", "a", ("a",), (False,), (Layer.of(np.ones((1, 1, 1))),))))
    assert view.listed("to") == {0: 1}
    for key in ("ArrowRight", "]", ".", "+", "0"):
        view.press(key)
    assert view.at() == (0, 0, 0)


def test_a_page_is_small_and_stands_alone():
    """20 tokens of 72 heads fit in a megabyte; no address of another place is in the file; the same run gives the same page."""
    run, _ = example(n=20, layers=6, heads=12)
    html = page(run)
    assert len(html.encode()) < 1_000_000
    assert not re.search(r"(?:https?:)?//\w", re.sub(r"<script type.*?</script>|// .*", "", html, flags=re.S | re.M))
    assert html == page(run)


def test_a_place_that_is_not_there_is_refused():
    """A layer, head or token outside the run is refused by name."""
    run, _ = example()
    for name, value in (("layer", 2), ("head", 3), ("token", 8), ("token", -1)):
        with pytest.raises(rg.Refused, match=f"no such {name}"):
            page(run, **{name: value})


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda parts: st.lists(parts), max_leaves=5))
def test_json_in_the_page_cannot_leave_its_element(data):
    """Escaped JSON holds none of < > & and no line separator, and reads back as it was."""
    import json

    text = json_for_html(data)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == data
