"""Functions as people write them: parameters without a default, built-in ALiBi, arrays of other axes, and faults that
one argument or one dtype hides. They are judged in this process, where nobody finds a `partial` by its name.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import regard as rg
import regard.conformance as rc

pytestmark = pytest.mark.slow

# The law's engine, because each case of a function would compile a kernel.
attention, with_lse = (partial(function, engine="reference") for function in (rg.attention, rg.attention_with_lse))


def needs_softcap(q, k, v, softcap):
    return attention(q, k, v, score=rg.softcap(float(softcap)))


def needs_window_and_scale(q, k, v, window, scale):
    return attention(q, k, v, mask=rg.window(int(window)), scale=scale)


def with_alibi(q, k, v, causal=False):
    return attention(q, k, v, mask=rg.causal() if causal else None, score=rg.alibi(q.shape[1]))


def always_causal_alibi(q, k, v):
    return with_alibi(q, k, v, causal=True)


def steeper(q, k, v):
    return attention(q, k, v, mask=rg.causal(), score=rg.alibi(2 * rg.alibi_slopes(q.shape[1])))


def lse_of_products(q, k, v, scale=None):
    return attention(q, k, v, scale=scale), with_lse(q, k, v, scale=1.0)[1]


def between_heads(q, k, v):
    return attention(*(each.swapaxes(1, 2) for each in (q, k, v))).swapaxes(1, 2)


def scaled_in_place(q, k, v, scale=None):
    if scale is not None:
        q *= scale * q.shape[-1] ** 0.5
    return attention(q, k, v)


def minus_a_billion(q, k, v, mask=None):
    import torch

    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return torch.softmax(scores, -1) @ v


def causal_without_its_own_key(q, k, v, causal=False):
    return attention(q, k, v, mask=rg.key < rg.query if causal else None)


def mean_of_no_keys(q, k, v, mask=True):
    out = attention(q, k, v, mask=mask)
    mean = np.repeat(v, q.shape[1] // v.shape[1], 1).mean(-2, keepdims=True)
    return np.where(np.any(mask, -1, keepdims=True), out, mean).astype(q.dtype)


def sums_in_16_bits(q, k, v):
    scores = q.astype(np.float32) @ k.astype(np.float32).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True)).astype(q.dtype)
    terms = np.moveaxis(powers[..., None] * v[:, :, None], 3, 0)
    return sum(terms) / sum(np.moveaxis(powers, 3, 0))[..., None]


@pytest.mark.parametrize(
    ("function", "adapter"), [(needs_softcap, None), (needs_window_and_scale, rc.Adapter(always=("causal",)))]
)
def test_arguments_without_a_default_are_right(function, adapter):
    assert rc.conform(partial(function), adapter=adapter, level=2).findings == ()


@pytest.mark.parametrize(
    ("function", "declared"),
    [
        (with_alibi, {"always": ("alibi",)}),
        (always_causal_alibi, {"always": ("causal", "alibi")}),
        (lse_of_products, {"lse": "natural-unscaled", "returns": ("out", "lse")}),
        (between_heads, {"layout": "BSHD"}),
    ],
)
def test_what_is_not_declared_is_the_only_finding(function, declared):
    """The finding says what to declare, and after that nothing is wrong."""
    name, value = next(iter(declared.items()))
    (found,) = rc.conform(partial(function), level=2).findings
    assert found.kind == "convention" and found.declares == f"{name}={value!r}"
    assert rc.conform(partial(function), adapter=rc.Adapter(**declared), level=2).findings == ()


def test_the_report_says_under_which_conventions():
    """And that heads attend to each other, if that is what it means."""
    report = rc.conform(partial(between_heads), level=1)
    assert report.findings[0].mistake == "attention-between-heads"
    assert report.measured.startswith("layout BSHD, scale 1/√D") and "nothing is declared" in report.measured
    assert "declared, and measured" in replace(report, declared=rc.Adapter(layout="BSHD")).measured


def test_a_convention_is_the_mistake_of_its_name():
    """Not one that gives the same in the cases that fail."""
    (found,) = rc.conform(partial(mean_of_no_keys), level=2).findings
    assert (found.declares, found.mistake) == ("empty_row='mean'", "empty-row-mean")


@pytest.mark.parametrize(
    ("function", "adapter", "words"),
    [
        (steeper, rc.Adapter(always=("causal", "alibi")), "times the bound"),
        (scaled_in_place, None, "changed its input q"),
        (minus_a_billion, None, "float16 runs without a mask, and raises with one: RuntimeError"),
        (sums_in_16_bits, rc.Adapter(dtypes=("float16",)), "times the bound"),
    ],
)
def test_faults_are_found(function, adapter, words):
    assert words in " ".join(each.measured for each in rc.conform(partial(function), adapter=adapter, level=2).findings)


def test_a_mask_of_neither_alignment_is_not_confirmed():
    found = rc.infer(partial(causal_without_its_own_key))
    assert found.adapter.confirmed is False
    assert any(note.startswith("causal: not measured: neither bottom-right nor top-left") for note in found.notes)
