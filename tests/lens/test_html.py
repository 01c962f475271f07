"""The page as a file: it is small, stands alone, and is refused for what it cannot show."""

import base64
import dataclasses
import json
import re
import zlib
from html import unescape
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.common.web import visuals
from regard.common.web.html_page import hashed
from regard.lens.runs import figures
from regard.lens.viewer import embed, json_for_html, page
from regard.lens.viewer.views import SCRIPTS, VISUALS
from tests.support.browser import example, fault


def test_a_page_is_small_and_stands_alone():
    """20 tokens of 72 heads of 32 fit in 1.1 MB; no address of another place is in the file; the same run gives the
    same page.
    """
    run, _ = example(n=20, layers=6, heads=12, depth=32)
    html = page(run)
    assert len(html.encode()) < 950_000
    own = re.sub(r"<script type.*?</script>|sha256-[\w+/=]+", "", html, flags=re.S) + script(html)
    assert not re.search(r"(?:https?:)?//\w", own.replace("http://www.w3.org/2000/svg", ""))
    assert html == page(run)


def script(html):
    """The script that a page holds deflated."""
    held = re.search(r'<script type="text/plain" id="script">(.*?)</script>', html)
    return zlib.decompress(base64.b64decode(held[1], validate=True)).decode()


def test_the_script_of_a_page_is_as_it_was_written():
    """Every file of the viewer is in the page byte for byte, after the visuals; and the policy names its hash."""
    html = page(example()[0])
    folder = files("regard.lens.viewer").joinpath("web")
    own = "\n".join(folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    assert script(html) == f'"use strict";\n{visuals.script(VISUALS)}\n{own}'
    assert hashed(script(html)) in unescape(html.split("</title>")[0])


def test_a_long_run_stays_below_eight_megabytes(monkeypatch):
    """12 layers × 12 heads × 512 tokens fit in 8 MB, measured on one of the layers with its part of the room."""
    monkeypatch.setattr(embed, "WHOLE", 1)
    monkeypatch.setattr(embed, "ROOM", embed.ROOM / 12)
    monkeypatch.setattr(embed, "WALKED", embed.WALKED / 12)
    run, _ = example(n=512, layers=1, heads=12)
    alone = len(page(run, served=True))
    assert alone + 12 * (len(page(run)) - alone) < 8e6


def test_more_than_fits_is_refused():
    """A run of too many weights for one page is refused, and told to be served; served it has a page."""
    run, _ = example(n=512, layers=1, heads=4)
    run = dataclasses.replace(run, calls=run.calls * 80)
    with pytest.raises(
        rg.Refused, match=r"too many weights for one page(.|\n)*320 heads, the largest of 512 × 512(.|\n)*serve it"
    ):
        page(run)
    assert '"kept": null' in page(run, served=True)


def test_a_place_that_is_not_there_is_refused():
    """A call, head or row outside the run is refused by name, and so is what is none of these."""
    run, _ = example()
    with pytest.raises(rg.Refused, match="unknown name 'token' in start"):
        page(run, start={"token": 1})
    for name, value in (("call", 2), ("head", 3), ("query", 8), ("query", -1)):
        with pytest.raises(rg.Refused, match=f"no such {name}"):
            page(run, start={name: value})


def test_a_run_without_figures_is_refused():
    """A call that was put together by hand, without the figures of its rows, is refused by name, and the mend works."""
    run, _ = example()
    with pytest.raises(rg.Refused, match=r"calls without figures(.|\n)*layers.1.attention(.|\n)*figures.with_figures"):
        page(fault(run, 1, rows={}))
    call = run.calls[1]
    measured = figures.measured(call.q, call.k, run.axes["text"].special, scale=call.scale)
    bare = fault(fault(run, 1, rows={}, v=None), 0, v=None)
    mended = figures.with_figures(bare.calls[1], run.axes["text"].special)
    assert page(dataclasses.replace(bare, calls=(bare.calls[0], mended))) == page(fault(bare, 1, **measured))


def test_runs_of_other_sizes_are_in_one_page():
    """Two runs need not have the same tokens, calls or heads: each is in the page with its own."""
    html = page(example()[0], example(n=9, heads=2, layers=1)[0])
    runs = json.loads(html.split('id="data">')[1].split("</script>")[0])["runs"]
    assert [[(call["heads"], call["Q"]) for call in run["calls"]] for run in runs] == [[(3, 8), (3, 8)], [(2, 9)]]


@given(
    st.recursive(
        st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda parts: st.lists(parts), max_leaves=5
    )
)
def test_json_in_the_page_cannot_leave_its_element(data):
    """Escaped JSON holds none of < > & and no line separator, and reads back as it was."""
    text = json_for_html(data)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == data
