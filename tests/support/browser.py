"""A page open in a real browser, and the runs that the tests of the page look at; the fixtures come in through
conftest.py.
"""

import dataclasses
import re
import urllib.parse
from functools import partial

import numpy as np
import pytest

import regard as rg
from regard.language.problem import Problem
from regard.lens import Axis, Call, Run
from regard.lens.runs.figures import measured
from regard.lens.viewer import page
from tests.support.chromium import CHROMIUM

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOSTILE = (
    "</script><script>window.harmed=1</script>",
    '"><img src=x onerror="window.harmed=2">',
    "{{script}}",
    "'; window.harmed=3; '",
    " 🦊",
    "\u202egnp.exe",
    "\u2028",
    "&lt;b&gt;",
    "<!--<script>",
    "]]>",
    "\x1b[31m",
    "שלום",
    " " * 3,
    "",
    "x" * 10_000,
    "\ud800",
)

# What a part has once it is drawn.
DRAWN = {"walk": "#walk-steps .walk-what, #walk-note:not(:empty)", "lines": "#lines-svg line"}


def listened(tab) -> list[str]:
    """What a tab says from now on: the lines of its console, and errors."""
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    return said


class Opened:
    """A page open in the browser, with everything it said and asked for."""

    def __init__(self, browser, uri, address="", **context):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        self.tab = self.context.new_page()
        self.said, self.asked = listened(self.tab), []
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.uri = uri
        self.tab.goto(self.uri + address)
        self.settled()

    def reach(self, part):
        """Opens a part that is drawn once it is near the window, and waits for it."""
        self.tab.evaluate(
            "(part) => { $(part).scrollIntoView(); return choose({ open: [...state.open, part] }); }", part
        )
        self.tab.wait_for_selector(DRAWN[part], state="attached")
        self.settled()

    def each(self, selector, answer="node.textContent") -> list:
        """An answer about each element: its text, or what a script says of `node`."""
        return self.tab.eval_on_selector_all(selector, f"(nodes) => nodes.map((node) => {answer})")

    def fits(self, *widths):
        """Fails unless at each width everything lies within the window, or in something that scrolls."""
        for width in widths:
            self.tab.set_viewport_size({"width": width, "height": 900})
            self.settled()
            assert self.cut_off() == [], width
        self.tab.set_viewport_size({"width": 1280, "height": 900})
        self.settled()

    def settled(self):
        """Waits until every screen has drawn what was chosen last, in sight and near the window."""
        self.tab.wait_for_selector("html[data-ready]", state="attached")
        self.tab.evaluate(
            """async () => {
                const frame = () => new Promise(requestAnimationFrame);
                const drawn = () => document.documentElement.dataset.drawn === String(drawing);
                const following = () => typeof Lazily !== "undefined" && Lazily.following.size; // of the viewer
                do { await frame(); await frame(); } while (!drawn() || following());
            }"""
        )

    def press(self, *keys):
        for key in keys:
            self.tab.keyboard.press(key)
        self.settled()

    def unfold(self, selector):
        """Opens what an element is folded in."""
        self.tab.eval_on_selector(
            selector,
            """(node) => {
                const around = (each) => each.parentElement.closest("details:not([open])");
                const first = around(node.matches("summary") ? node.parentElement : node);
                for (let box = first; box; box = around(box)) box.open = true;
            }""",
        )

    def click(self, selector, **more):
        self.unfold(selector)
        self.tab.click(selector, **more)
        self.settled()

    def select(self, selector, *what, **more):
        """Chooses in a list."""
        self.unfold(selector)
        self.tab.select_option(selector, *what, **more)
        self.settled()

    def choose(self, **change):
        """Chooses as a screen would."""
        self.tab.evaluate("(change) => choose(change).then(() => null)", change)
        self.settled()

    def state(self, *names):
        """What is chosen: one value, or several in a tuple."""
        found = self.tab.evaluate("(names) => names.map((name) => state[name])", list(names))
        return found[0] if len(names) == 1 else tuple(found)

    def address(self) -> str:
        """The part behind # of the page as it is."""
        return self.tab.evaluate("address()")

    def text(self, selector) -> str:
        return self.tab.inner_text(selector)

    def asks(self, question, *arguments):
        """The answer of the page's source of numbers, typed arrays as lists: asks("row", n, call, head, i)."""
        return self.tab.evaluate(
            """async ([question, given]) => JSON.parse(JSON.stringify(await source[question](...given),
                (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value))""",
            [question, list(arguments)],
        )

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

    def cut_off(self) -> list[str]:
        """What reaches beyond the window to the right, and is not inside something that scrolls."""
        return self.tab.evaluate(
            """() => {
                const scrolls = (box) => box && ((/auto|scroll|hidden|clip/.test(getComputedStyle(box).overflowX)
                    && box.getBoundingClientRect().right <= innerWidth + 1) || scrolls(box.parentElement));
                return [...document.body.querySelectorAll("*")].filter((node) =>
                    node.checkVisibility() && !node.closest(".unseen")
                    && node.getBoundingClientRect().right > innerWidth + 1 && !scrolls(node.parentElement))
                    .map((node) => node.outerHTML.slice(0, 80));
            }"""
        )

    def silent(self):
        """Fails unless the page has said nothing and has asked for itself, and pictures within it, alone."""
        assert not self.said, self.said
        asked = {urllib.parse.urldefrag(url).url for url in self.asked if not url.startswith(("data:", "blob:"))}
        assert asked == {self.uri}, asked


@pytest.fixture(scope="module")
def chromium():
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


def _opening(browser, folder):
    """Yields a function that opens pages, or the page of a run; afterwards they must have been silent, and have asked
    for themselves alone.
    """
    found = []

    def opening(shown, address="", **context):
        file = folder / f"page-{len(found)}.html"
        file.write_text(shown if isinstance(shown, str) else page(shown), encoding="utf-8")
        found.append(Opened(browser, file.as_uri(), address, **context))
        return found[-1]

    yield opening
    for each in found:
        each.silent()
        each.context.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens pages for one test."""
    yield from _opening(chromium, tmp_path)


@pytest.fixture(scope="module")
def kept_open(chromium, tmp_path_factory):
    """As `opened`, for pages that several tests of a module share."""
    yield from _opening(chromium, tmp_path_factory.mktemp("pages"))


def words(n):
    """Tokens of a text of n: two that are special around words."""
    return ("[CLS]", *(f" word{i}" for i in range(1, n - 1)), "[SEP]")[:n]


def example(
    n=8, layers=2, heads=3, mask=None, tokens=None, *, keys=None, groups=None, depth=8, seed=0, poison=None, **rules
):
    """A run of random heads, and the exact weights of each call, (H, Q, K) each, as `attention_weights` gives them.

    keys: how many there are, where they are not the queries · poison(q, k): changes the numbers before they are used
    """
    tokens = tuple(tokens or words(n))
    axes = {"text": Axis("text", tokens, tuple(token in ("[CLS]", "[SEP]") for token in tokens))}
    if keys is not None:
        axes["source"] = Axis.of([f" key{j}" for j in range(keys)], name="source")
    target = axes["source" if keys else "text"]
    draw = partial(np.random.default_rng(seed).standard_normal, dtype=np.float32)
    calls, exact = [], []
    for layer in range(layers):
        q, k = 2 * draw((heads, n, depth)), 2 * draw((groups or heads, keys or n, depth))
        v, x = draw(k.shape), draw((n, heads * depth))
        if poison is not None:
            poison(q, k)
        problem = Problem.of(q[None], k[None], None, mask=mask, **rules)
        known = {name: getattr(problem, name) for name in ("mask", "score", "scale")}
        known["start"] = int(problem.query_start[0])
        p = rg.attention_weights(q, k, mask=mask, **rules)
        arrays = {"q": q, "k": k, "v": v, "x": x, "out": np.nan_to_num(p) @ v.repeat(heads // len(v), 0)}
        found = measured(q, k, np.array(target.special), **known)
        calls.append(Call(f"layers.{layer}.attention", layer, "text", target.name, **arrays, **known, **found))
        exact.append(p)
    return Run("toy", "".join(tokens), axes, tuple(calls)), exact


def fault(run, call=0, **change):
    """The run with one call changed."""
    calls = list(run.calls)
    calls[call] = dataclasses.replace(calls[call], **change)
    return dataclasses.replace(run, calls=tuple(calls))


def spoiled(run, exact, wrong):
    """The run of these weights alone, of which some are wrong: {(head, row, key): weight}."""
    given = np.array(exact, np.float32)
    for place, weight in wrong.items():
        given[place] = weight
    return fault(run, given=given, q=None, k=None)


def near(shown, exact, error):
    """Fails unless shown weights, by position, are within the relative error of the exact ones, or below what is shown
    at all.
    """
    for i, p in shown.items():
        assert abs(p - exact[i]) <= max(error * 1.001 * exact[i], 1e-6), (i, p, exact[i])


def share(text) -> float:
    """The first share in a text."""
    return float(re.search(r"([\d.]+(?:e-\d+)?) ?%", text)[1]) / 100
