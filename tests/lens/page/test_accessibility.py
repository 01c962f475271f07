"""The page for everyone: no violation that axe-core knows in any section, and text that has contrast on every color."""

import numpy as np
import pytest

import regard as rg
from regard.lens.open_model import OpenModel
from regard.lens.viewer import page
from regard.lens.viewer.server import Server
from tests.lens.minilm import with_minilm
from tests.support.axe import violations
from tests.support.browser import Opened, example

pytestmark = pytest.mark.slow

TOKENS = ("[CLS]", " he", " said", " של", "ום", " to", " 👩🏽\u200d🚀", " ⟨F0⟩⟨9F⟩", " people", "[SEP]")


def with_faults():
    """Findings of the audit, invalid weights, warnings, tokens in two directions and bytes."""

    def poisoned(q, k):
        q[0, 3], k[0, 2] = np.nan, np.inf

    run, _ = example(len(TOKENS), tokens=TOKENS, mask=rg.causal(), poison=poisoned)
    findings = [found.to_json() for found in rg.audit(run).findings]
    assert {found["severity"] for found in findings} & {"fault", "warning"}
    return page(run, findings=findings)


def of_two_runs():
    """The comparison of two runs, one of which has other tokens."""
    return page(*(example(tokens=["[CLS]", *(f" {word}{i}" for i in range(7))])[0] for word in ("word", "term")))


def no_violation(view):
    """Fails if there is one as the page is, with every section used, or with the help open."""
    assert violations(view.tab) == []
    view.reach("walk")
    view.tab.evaluate(
        """() => {
            for (const step of document.querySelectorAll('#walk-steps details')) step.open = true;
            headTable.turn();
            for (const each of document.querySelectorAll("details")) each.open = true;
        }"""
    )
    view.choose(key=2, pins=[4, 5], metric="sink", head=1)
    assert violations(view.tab) == []
    view.tab.evaluate("headTable.turn(); help()")
    assert violations(view.tab) == []


def window(theme, width):
    return {"viewport": {"width": width, "height": 900}, "color_scheme": theme, "reduced_motion": "reduce"}


@pytest.mark.spread
@pytest.mark.parametrize("written", [with_faults, of_two_runs])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_no_violation_is_found(opened, written, theme, width):
    """In pages with faults, and of two runs."""
    view = opened(written(), **window(theme, width), bypass_csp=True)
    view.tab.locator(".alarm:visible, #compare").first.scroll_into_view_if_needed()
    no_violation(view)


@with_minilm
def test_a_served_page_has_no_violation(chromium):
    """With the section in which rules are changed and other texts are typed, after a change."""
    run = rg.look(None, "It was too tired 𓀀.", layers=[0, 3])
    with Server(run, record=OpenModel.of(run)) as running:
        view = Opened(chromium, running.address, **window("light", 360), bypass_csp=True)
        assert view.tab.is_visible("#live")
        view.choose(temperature=2, open=["live"])
        view.tab.wait_for_selector("#live-said:not(:empty)")
        no_violation(view)
        view.context.close()


def test_a_violation_would_be_found(opened):
    """A button without a name and a gray text on white are found."""
    view = opened(example()[0], **window("light", 1280), bypass_csp=True)
    view.unfold("#copy-link")
    view.tab.evaluate("$('copy-link').textContent = ''; $('atlas-note').style.color = '#cccccc'")
    said = " ".join(violations(view.tab))
    assert "button-name" in said and "color-contrast" in said


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
        ground(node, { hidden: () => false, attended: 12, ...line }, 0);
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
    found = opened(example()[0]).tab.evaluate(CONTRAST, theme)
    assert len(found) == 5 * 2001 + 6
    worst = min(found, key=lambda each: each[1])
    assert worst[1] >= 4.5, worst
    assert max(ratio for _, ratio in found) > 12  # the ends of the scales are measured, too
