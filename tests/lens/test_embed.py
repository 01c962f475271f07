"""The blocks of a page, read in Python: numbers that are none stay so, and nothing is left out that the page could not
compute.
"""

import base64
import zlib

import numpy as np
import pytest
import torch

import regard as rg
from regard.lens import look
from regard.lens.viewer import embed
from tests.lens.client import unframed
from tests.support.browser import example, fault


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
