"""The page as a file: it is small, stands alone, and is refused for what it cannot show."""

import base64
import dataclasses
import json
import re
import zlib
from html import unescape
from importlib.resources import files

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.common.web import visuals
from regard.common.web.html_page import hashed, json_for_html, stripped
from regard.lens import look
from regard.lens.runs import figures
from regard.lens.viewer import embed, page
from regard.lens.viewer.html import SCRIPTS, SHARED
from tests.lens.client import unframed
from tests.support.browser import example, fault
from tests.support.refusals import refusing


def test_a_page_is_small_and_stands_alone():
    """20 tokens of 72 heads of 32 fit in 450 kB; no address of another place is in the file; the same run gives the
    same page. Every file of the viewer is in it, without comments, after functions of the course; the policy names its
    hash.
    """
    run, _ = example(n=20, layers=6, heads=12, depth=32)
    html = page(run)
    assert html == page(run) and len(html.encode()) < 450_000
    held = re.search(r'<script type="text/plain" id="script">(.*?)</script>', html)
    script = zlib.decompress(base64.b64decode(held[1], validate=True)).decode()
    own = re.sub(r"<script type.*?</script>|sha256-[\w+/=]+", "", html, flags=re.S) + script
    assert not re.search(r"(?:https?:)?//\w", own.replace("http://www.w3.org/2000/svg", ""))
    folder = files("regard.lens.viewer").joinpath("web")
    own = "\n".join(stripped(folder.joinpath(f"{name}.js").read_text(encoding="utf-8")) for name in SCRIPTS)
    assert script == f'"use strict";\n{visuals.script((), SHARED)}\n{own}'
    assert hashed(script) in unescape(html.split("</title>")[0])


def test_a_long_run_stays_below_eight_megabytes(monkeypatch):
    """6 layers × 12 heads of 32 × 400 tokens fit in 8 MB, measured on one of the layers."""
    monkeypatch.setattr(embed, "WHOLE", 1)
    monkeypatch.setattr(embed, "WALKED", 1)
    run, _ = example(n=400, layers=1, heads=12, depth=32)
    assert 6 * (len(page(run)) - len(page(run, served=True))) < 7.5e6


def test_more_than_fits_is_refused():
    """A run of too many weights for one page is refused, and told to be served; served it has a page."""
    run, _ = example(n=512, layers=1, heads=4)
    run = dataclasses.replace(run, calls=run.calls * 400)
    with refusing(r"too many weights for one page.*1600 heads.* of 512 × 512.*serve it"):
        page(run)
    assert page(run, served=True).startswith("<!doctype html>")


def test_a_place_that_is_not_there_is_refused():
    """A call, head or row outside the run is refused by name, and so is what is none of these."""
    run, _ = example()
    with refusing("unknown name 'token' in start"):
        page(run, start={"token": 1})
    for name, value in (("call", 2), ("head", 3), ("query", 8), ("query", -1)):
        with refusing(f"no such {name}"):
            page(run, start={name: value})


def test_a_run_without_figures_is_refused():
    """A call that was put together by hand, without the figures of its rows, is refused by name, and the mend works."""
    run, _ = example()
    bare = fault(run, 1, rows={}, v=None)
    with refusing(r"calls without figures.*layers.1.attention.*figures.with_figures"):
        page(bare)
    mended = figures.with_figures(bare.calls[1], run.axes["text"].special)
    np.testing.assert_equal(mended.rows, run.calls[1].rows)


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


# The blocks of a page, read in Python: numbers that are none stay so, and nothing is left out that the page could not


def block(run, name):
    """(header, arrays) of a block of run 0."""
    return unframed(zlib.decompress(base64.b64decode(dict(embed.blocks(0, run, 0))[name])))


X = torch.randn(1, 1, 5, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("said", [np.nan, None, "small", {"float": "nan"}])
def test_an_output_that_cannot_be_compared_is_kept(said):
    """Whatever a foreign run says its difference is, the model's own output is left out only where it is a small
    number; where the output is NaN there is no difference to speak of.
    """
    run, _ = example()
    run = fault(run, out=run.calls[0].q * np.nan, notes={"compared": "all rows", "difference": said})
    header, arrays = block(run, "walk-0-0")
    assert header["same"] is False and np.isnan(arrays["out"]).all()
    (call,) = look(torch.nn.functional.scaled_dot_product_attention, inputs=(X, X, X * np.nan)).calls
    assert call.notes["difference"] is None


def test_rows_that_attend_nothing_keep_the_models_output():
    """A model that averages values where a row may attend nothing: the page keeps that output, and does not take it for
    Σ p v.
    """
    attend, bias = torch.nn.functional.scaled_dot_product_attention, torch.zeros(5, 5)
    header, arrays = block(look(attend, inputs=(X, X, X, bias)), "walk-0-0")
    assert header["same"] is True and "out" not in arrays
    bias[:2] = torch.finfo(X.dtype).min
    run = look(attend, inputs=(X, X, X, bias))
    header, arrays = block(run, "walk-0-0")
    assert run.calls[0].notes["empty"] == "an average of values" and header["same"] is False
    np.testing.assert_allclose(arrays["out"][0, 0], X[0, 0].mean(0), rtol=1e-3, atol=1e-6)


def test_figures_along_the_axes_are_kept_to_five_digits():
    """Also small ones beside large ones; what is not a number stays so, in its row or key alone."""

    def poison(q, k):
        q[0, 2], q[1, 3] = np.nan, np.inf

    run, _ = example(8, 1, 2, mask=rg.causal(), poison=poison)
    call = run.calls[0]
    call.received[0, 5] = 1e-9
    _, arrays = block(run, "tracks-0-0")
    figures = {**call.rows, "received": call.received, "readers": call.readers}
    for name, found in arrays.items():
        np.testing.assert_allclose(found, figures[name], rtol=1e-5)
