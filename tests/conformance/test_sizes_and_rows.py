"""Faults that show only in calls of one row, at sizes of real models, or where two axes have the same size."""

import numpy as np
import pytest

import regard as rg


def scaled(q, k, v, scale=None):
    return rg.attention(q, k, v, scale=None if q.shape[-2] == 1 else scale)


def capped(q, k, v, softcap=None):
    used = softcap is not None and q.shape[-2] > 1
    return rg.attention(q, k, v, score=rg.softcap(float(softcap)) if used else None)


def biased(q, k, v, bias=None):
    return rg.attention(q, k, v, score=None if q.shape[-2] == 1 else bias)


def masked(q, k, v, mask=None):
    return rg.attention(q, k, v, mask=None if q.shape[-2] == 1 else mask)


def windowed(q, k, v, window=None):
    left = None if window is None else int(window) + (q.shape[-2] == 1)
    return rg.attention(q, k, v, mask=None if left is None else rg.window(left))


def with_sinks(q, k, v, sinks=None):
    return rg.attention(q, k, v, sinks=None if q.shape[-2] == 1 else sinks)


def tiled(q, k, v):
    """Key heads are repeated as a whole in a call of one row."""
    if q.shape[-2] == 1 and k.shape[1] < q.shape[1]:
        k, v = (np.tile(each, (1, q.shape[1] // k.shape[1], 1, 1)) for each in (k, v))
    return rg.attention(q, k, v)


def grouped(q, k, v, mask=None):
    """A mask (B, 1, Q, K) meets scores (B, G, H / G, Q, K)."""
    B, H, Q, _ = q.shape
    G = k.shape[1]
    scores = q.reshape(B, G, H // G, Q, -1) @ k[:, :, None].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return (powers / np.where(total == 0, 1, total) @ v[:, :, None]).reshape(B, H, Q, -1).astype(q.dtype)


def cut(axis, first):
    """Wrong from an element of one axis on."""

    def function(q, k, v):
        q = q.copy()
        if axis == "keys":
            return rg.attention(q, k[..., :first, :], v[..., :first, :])
        if axis == "depth":
            return rg.attention(q[..., :first], k[..., :first], v, scale=q.shape[-1] ** -0.5)
        q[(slice(None),) * (axis == "heads") + (slice(first, None),)] *= 2
        return rg.attention(q, k, v)

    return function


FAULTS = {
    "scale of one row": scaled,
    "softcap of one row": capped,
    "bias of one row": biased,
    "mask of one row": masked,
    "window of one row": windowed,
    "sinks of one row": with_sinks,
    "groups of one row": tiled,
    "a mask along key heads": grouped,
    "depth beyond 128": cut("depth", 128),
    "the ninth head": cut("heads", 8),
    "the fifth entry": cut("entries", 4),
    "keys beyond 1024": cut("keys", 1024),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_rejected(fault):
    """At level 2, with a counterexample that has the size or the row."""
    report = rg.conform(FAULTS[fault], level=2)
    assert {each.case.name for each in report.results if each.status == "fail"}
    assert report.findings


def test_the_law_is_accepted():
    """The same cases fail no function that is right."""

    def law(q, k, v, mask=None, scale=None):
        return rg.attention(q, k, v, mask=mask, scale=scale)

    report = rg.conform(law, level=2)
    assert [each.case.name for each in report.results if each.status == "fail"] == []
