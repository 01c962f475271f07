"""The blocks of a page, read in Python: numbers that are none stay so, and nothing is left out that the page could not
compute.
"""

import base64
import functools
import zlib

import numpy as np
import pytest
import torch

import regard as rg
from regard.lens import look
from regard.lens.viewer import embed
from regard.lens.viewer.embed import unframed
from tests.support.browser import example, fault


def block(run, name):
    """(header, arrays) of a block of run 0."""
    return unframed(zlib.decompress(base64.b64decode(dict(embed.blocks(0, run))[name])))


def rows(x, *, empty=False, poison=False):
    """Attention of torch in which two rows may attend nothing, or v holds a NaN."""
    q = x.view(1, 1, 5, 4)
    v = q.clone()
    v[0, 0, 2] *= float("nan") if poison else 1
    bias = torch.where(torch.arange(5)[:, None] < 2, torch.finfo(x.dtype).min, 0.0).expand(5, 5) if empty else None
    return torch.nn.functional.scaled_dot_product_attention(q, q, v, attn_mask=bias)


X = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))


def test_an_output_that_is_no_number_is_kept():
    """Where the output is NaN there is no difference to speak of: the block is made, and holds the model's own
    output.
    """
    run = look(functools.partial(rows, poison=True), inputs=X)
    header, arrays = block(run, "walk-0-0")
    assert run.calls[0].notes["difference"] is None
    assert header["same"] is False and np.isnan(arrays["out"].view(np.float16)).any()


@pytest.mark.parametrize("said", [None, "small", {"float": "nan"}])
def test_a_difference_that_is_no_number_is_none(said):
    """Whatever a foreign run says its difference is, the output is left out only where it is a small number."""
    run, _ = example()
    run = fault(run, 0, out=run.calls[0].q, notes={"compared": "all rows", "difference": said})
    assert block(run, "walk-0-0")[0]["same"] is False


def test_rows_that_attend_nothing_keep_the_models_output():
    """A model that averages values where a row may attend nothing: the page keeps that output, and does not take it for
    Σ p v.
    """
    run = look(functools.partial(rows, empty=True), inputs=X)
    header, arrays = block(run, "walk-0-0")
    assert run.calls[0].notes["empty"] == "an average of values" and header["same"] is False
    kept = np.ldexp(arrays["out"].view(np.float16)[0, 0].astype(float), header["powers"]["out"])
    np.testing.assert_allclose(kept, X[0].mean(0), rtol=1e-3, atol=1e-6)
    header, arrays = block(look(rows, inputs=X), "walk-0-0")
    assert header["same"] is True and "out" not in arrays


def test_what_is_no_number_has_a_code_of_its_own():
    """65535 in the tracks is no number, in its row or key alone; all others are shares of the largest number, 65534
    steps to 1.
    """

    def poison(q, k):
        q[0, 2], q[1, 3] = np.nan, np.inf

    run, _ = example(8, 1, 2, mask=rg.causal(), poison=poison)
    call = run.calls[0]
    header, arrays = block(run, "tracks-0-0")
    figures = {**call.rows, "received": call.received, "readers": call.readers}
    exact = np.stack([figures[name] for name in header["names"]])
    found = arrays["tracks"].reshape(exact.shape)
    np.testing.assert_array_equal(found == 65535, ~np.isfinite(exact))
    most = np.array(header["most"])[:, None, None]
    shares = np.where(found == 65535, 0, found / 65534)
    assert (np.abs(shares * most - np.where(np.isfinite(exact), exact, 0)) <= most / 65534).all()
    assert np.isfinite(exact).any((1, 2)).all() and np.isfinite(most).all()
