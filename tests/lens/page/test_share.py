"""What the page hands on: addresses, Python, pictures; and the page in a notebook."""

import dataclasses
import html
import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.runs.first_view import choose
from regard.lens.runs.labels import visible
from regard.lens.viewer import embed
from regard.lens.viewer.html import frame_of
from regard.lens.viewer.queries import origin
from tests.lens.page.colors import distance, logarithmic
from tests.support.browser import HOSTILE, example, fault, listened, share

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def shown(kept_open):
    """One page for many tests: (the page, its run, the exact weights)."""
    run, exact = example(n=20, mask=rg.causal())
    return kept_open(run, permissions=["clipboard-read", "clipboard-write"]), run, exact


def saved(view, button):
    """The file that a button saves."""
    with view.tab.expect_download() as download:
        view.click(button)
    assert re.fullmatch(r"regard-[\w.-]+\.(svg|png)", download.value.suggested_filename)
    return download.value.path().read_bytes()


def test_a_link_opens_the_same_view(shown):
    """The address that is copied is that of the page with all that is chosen."""
    view, *_ = shown
    view.choose(call=1, head=2, query=7, key=3, scale="linear")
    view.click("#copy-link")
    assert view.tab.evaluate("navigator.clipboard.readText()") == view.uri + view.address()
    assert "copied" in view.text("#status")


def test_the_address_holds_everything_that_is_chosen(shown):
    """What a view can choose is written into the address, and read back as it was; what is unreadable is left alone."""
    chosen = {"call": 1, "head": 2, "query": 7, "key": 3, "step": 4, "pins": [2, 5]}
    chosen |= {"scale": "linear", "pool": "largest", "direction": "from", "compare": "difference"}
    chosen |= {"second": {"call": 1, "head": "mean"}, "metric": "first"}
    chosen |= {"original": True}
    chosen |= {"text": "a & b=c #1", "temperature": 0.5, "factor": -0.25, "mask": "window", "width": 7}
    chosen |= {"without": "1.2.7.3"}
    chosen |= {"followed": 3, "open": ["walk", "lines"]}
    chosen |= {"view": {"row": 1.5, "column": 2, "span": 7.25}}
    tab = shown[0].tab
    # A page of one run has no other to choose.
    assert set(tab.evaluate("choices.map(({ name }) => name)")) == {*chosen, "run"}
    before = tab.evaluate("({ ...state })")
    address = tab.evaluate("(chosen) => { Object.assign(state, chosen); return address(); }", chosen)
    tab.evaluate("(before) => { Object.assign(state, before); }", before)
    assert tab.evaluate("readAddress", address) == chosen
    foreign = "#run=1&call=-1&scale=red&pins=a&metric=no&view=1,2,0&colour=red"
    assert tab.evaluate("readAddress", foreign) == {}


def test_the_python_computes_the_numbers(opened, tmp_path):
    """The copied lines run, and give the weight of the pair, the row, or the column, exactly; of means, too."""
    run, exact = example()
    run.save(tmp_path / "it's a run")
    view = opened(dataclasses.replace(run, facts={"folder": str(tmp_path / "it's a run")}))
    view.choose(call=1, query=6)
    for head, p, name in (
        (2, exact[1][2], "layer 1, head 2"),
        ("all", np.concatenate(exact).mean(0), "mean of all 6 heads"),
    ):
        for key, direction, expected in ((3, "to", p[6, 3]), (None, "to", p[6]), (None, "from", p[:, 6])):
            view.choose(head=head, key=key, direction=direction)
            code = view.tab.evaluate("share.python()")
            expression = code.splitlines()[-1]
            found: dict = {}
            exec(code.replace(expression, f"found = {expression}"), found)
            np.testing.assert_allclose(found["found"], expected, atol=1e-6)
            assert name in expression


def test_python_names_how_a_run_was_made():
    """The folder where it is known, otherwise the call of look, in ASCII whatever the text holds; what neither can say
    is to be saved.
    """
    run, _ = example()
    made = {"text": 'a "b" \u202e🦊', "facts": {"made": {"what": "toy", "layers": [0], "os": "system"}}}
    unsaid = 'rg.Run.open("run")  # save it first: run.save("run")'
    for change, expected in (
        (made, "rg.look('toy', text='a \"b\" \\u202e\\U0001f98a', layers=[0])"),
        ({"facts": {"folder": "x'y"}}, 'rg.Run.open("x\'y")'),
        ({}, unsaid),
        (made | {"text": "a" * 3000}, unsaid),
        ({"facts": {"made": "os.system()"}}, unsaid),
    ):
        assert origin(dataclasses.replace(run, **change)) == expected


def drawing(view):
    """The saved drawing, the colours of its cells by row and column, and the texts in it."""
    root, found = ElementTree.fromstring(saved(view, "#save-svg")), {}
    group = next(node for node in root.iter(f"{SVG}g") if node.get("shape-rendering"))
    for rect in group:
        row, first, count = (int(rect.get(name)) for name in ("y", "x", "width"))
        found |= {(row, first + at): [*bytes.fromhex(rect.get("fill")[1:])] for at in range(count)}
    return root, found, [node.text for node in root.iter(f"{SVG}text")]


def test_the_svg_holds_the_weights_as_colours(shown):
    """It is XML; every weight has the colour of the ramp on the fixed domain, masked cells have none; tokens and domain
    are text. The PNG has its colours, and is twice as large; zoomed in it has the rows and keys on the screen.
    """
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    view, _, exact = shown
    view.choose(call=0, head=1, query=0, key=None, scale="log", view=None)
    root, cells, texts = drawing(view)
    assert sorted(cells) == [(i, j) for i, j in np.ndindex(20, 20) if j <= i]
    for cell, color in cells.items():
        assert distance(color, logarithmic(max(exact[0][1][cell], 1e-6))) == 0
    assert texts.count("word7") == 2
    assert {"≤ 10⁻⁶", "100 %", "masked", "toy · layer 0, head 1"} <= set(texts)
    assert any("each cell is one weight; exact" in text for text in texts)
    picture = image.open(io.BytesIO(saved(view, "#save-png"))).convert("RGB")
    assert picture.size == (2 * int(root.get("width")), 2 * int(root.get("height")))
    colors = np.unique(np.asarray(picture).reshape(-1, 3), axis=0).tolist()
    assert all(color in colors for color in cells.values())
    view.choose(view={"row": 10, "column": 4, "span": 5})
    texts = {*drawing(view)[2]}
    assert {"word10", "word4", "word8"} <= texts and not {"word2", "word19"} & texts


def test_every_view_is_a_picture_and_a_column_of_a_paper(shown):
    """Of what is open, each part has its words as text inside the drawing; one column wide, it is 88 mm."""
    view, *_ = shown
    view.choose(call=0, head=1, query=7, key=3, scale="near", view=None)
    view.reach("lines")
    words = {"map": "word7", "reader": "strongest keys", "atlas": "All heads", "lines": "rows: text"}
    for part, word in words.items():
        view.select("#figure-of", part)
        view.tab.set_checked("#figure-narrow", part != "atlas")
        root = ElementTree.fromstring(saved(view, "#save-svg"))
        assert word in {node.text for node in root.iter(f"{SVG}text")}
        wide = float(root.get("viewBox").split()[2])
        assert part == "atlas" or (wide, root.get("width")) == (364, "88mm")
        assert all(0 < float(node.get("x")) < wide for node in root.findall(f"{SVG}text"))
        assert view.tab.evaluate(f"!$('{part}').style.width && !$('{part}').dataset.figure")


def test_hostile_tokens_in_a_drawing_are_text(opened):
    """Whatever tokens hold, the SVG is XML whose only elements are those of the drawing, and the tokens are its
    text.
    """
    run, _ = example(n=len(HOSTILE), tokens=HOSTILE, layers=1)
    view = opened(fault(dataclasses.replace(run, model=HOSTILE[0]), name=HOSTILE[1], layer=None))
    roots = [drawing(view)[0]]
    view.select("#figure-of", "reader")
    roots.append(ElementTree.fromstring(saved(view, "#save-svg")))
    names = "svg title defs pattern clipPath path rect text g"
    assert {node.tag.removeprefix(SVG) for root in roots for node in root.iter()} <= {*names.split()}
    shown = tuple((node.text or "").rstrip("…") for root in roots for node in root.iter(f"{SVG}text"))
    for token in map(visible, HOSTILE):
        assert any(text and token.startswith(text) for text in shown), token
    assert view.tab.evaluate("window.harmed") is None


def test_a_notebook_shows_the_page_in_a_closed_frame(chromium, tmp_path):
    """The page works inside the frame, cannot reach what is around it, and asks for nothing; copying falls back to a
    box.
    """
    run, exact = example()
    first = choose(run)
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><p id=outside>secret</p>{run._repr_html_()}", encoding="utf-8")
    tab = chromium.new_page()
    said, asked = listened(tab), []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(file.as_uri())
    inside = tab.frames[1]
    inside.wait_for_selector("html[data-ready]", state="attached")
    assert inside.evaluate("[state.call, state.head, state.query]") == [first.call, first.head, first.query]
    row = exact[first.call][first.head, first.query]
    assert share(inside.inner_text("#sentence")) == pytest.approx(row.max(), abs=0.00051 + FINE_ERROR)
    reached = "(() => { try { return parent.document.body.innerText; } catch (error) { return error.name; } })()"
    assert inside.evaluate(reached) == "SecurityError"
    inside.click("summary:text('share')")
    inside.click("#copy-python")
    inside.wait_for_selector("#copying[open]")
    assert "import regard" in inside.input_value("#copying textarea")
    tab.wait_for_timeout(200)
    assert all("clipboard" in line.lower() for line in said)
    assert {url for url in asked if not url.startswith(("blob:", "about:"))} == {file.as_uri()}
    tab.close()


def test_a_notebook_says_what_is_too_long(monkeypatch):
    """A run that no page holds is a sentence that says what to do, with the model's name as text."""
    run, _ = example()
    monkeypatch.setattr(embed, "LARGEST", 10)
    said = frame_of(dataclasses.replace(run, model="<b>"))
    assert "&lt;b&gt; is too long for one page" in said
    assert "--serve" in html.unescape(said)
