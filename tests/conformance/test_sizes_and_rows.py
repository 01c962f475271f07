"""Faults that show only in calls of one row, at sizes of real models, or where two axes have the same size."""

import inspect

import numpy as np
import pytest

import regard as rg
from regard.conformance.cases.case import Limits
from regard.conformance.conventions.fields import Adapter
from tests.support.lanes import by_name

# What each argument is for rg.attention.
MEANS = {
    "scale": lambda scale: {"scale": scale},
    "softcap": lambda cap: {"score": rg.softcap(float(cap))},
    "bias": lambda bias: {"score": bias},
    "mask": lambda mask: {"mask": mask},
    "window": lambda size: {"mask": rg.window(int(size))},
    "sinks": lambda sinks: {"sinks": sinks},
}


def ignoring(role):
    """A function with one argument, which a call of one row ignores."""

    def function(*arrays, **given):
        value = given.pop(role, None)
        q, k, v = arrays or given.values()
        return rg.attention(q, k, v, **({} if value is None or q.shape[-2] == 1 else MEANS[role](value)))

    named = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = [inspect.Parameter(name, named) for name in "qkv"] + [inspect.Parameter(role, named, default=None)]
    function.__signature__ = inspect.Signature(listed)
    return function


def tiled(q, k, v):
    """Key heads are repeated as a whole in a call of one row."""
    if q.shape[-2] == 1 and k.shape[1] < q.shape[1]:
        k, v = (np.tile(each, (1, q.shape[1] // k.shape[1], 1, 1)) for each in (k, v))
    return rg.attention(q, k, v)


def grouped(q, k, v, mask=None):
    """A mask (B, 1, Q, K) meets scores (B, G, H / G, Q, K)."""
    if mask is not None:
        (B, H, Q, _), (_, G, K, _) = q.shape, k.shape
        mask = np.broadcast_to(mask, (B, G, H // G, Q, K)).reshape(B, H, Q, K)
    return rg.attention(q, k, v, mask=mask)


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
    "scale of one row": ignoring("scale"),
    "softcap of one row": ignoring("softcap"),
    "bias of one row": ignoring("bias"),
    "mask of one row": ignoring("mask"),
    "window of one row": ignoring("window"),
    "sinks of one row": ignoring("sinks"),
    "groups of one row": tiled,
    "a mask along key heads": grouped,
    "depth beyond 128": cut("depth", 128),
    "the ninth head": cut("heads", 8),
    "the fifth entry": cut("entries", 4),
    "keys beyond 1024": cut("keys", 1024),
}


@pytest.mark.one_in(3)
@by_name("fault", FAULTS)
def test_it_is_rejected(fault):
    """At level 2, with a counterexample that has the size or the row."""
    assert rg.conform(fault, level=2).findings


def test_packed_rows_have_several_entries_only_with_their_starts():
    """A function without them is judged with one entry."""
    for names, several in (({}, False), ({"cu_seqlens_q": "starts"}, True)):
        assert Limits(Adapter(layout="THD", parameters=names)).batch is several
