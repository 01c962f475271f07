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


def skipping_causal_tiles(q, k, v, causal=False):
    """The last tile of 16 keys is counted from the first row."""
    visited = rg.key < -(-q.shape[-2] // 16) * 16
    return rg.attention(q, k, v, mask=rg.causal() & visited if causal else None)


def skipping_window_tiles(q, k, v, window=None):
    """The first tile of 16 keys is rounded up."""
    if window is None:
        return rg.attention(q, k, v)
    first = (rg.query // 16 * 16 - int(window) + 15) // 16 * 16
    return rg.attention(q, k, v, mask=rg.window(int(window)) & (rg.key >= first))


def skipping_tiles_of_lengths(q, k, v, seq_lens=None):
    """The lengths of long entries are rounded down to whole tiles of 16 keys."""
    if seq_lens is None:
        return rg.attention(q, k, v)
    lengths = np.asarray(seq_lens)
    return rg.attention(q, k, v, mask=rg.lengths(np.where(lengths > 16, lengths // 16 * 16, lengths)))


def sinks_in_every_tile(q, k, v, sinks=None):
    """The sinks are added to the sum of each tile of 16 keys."""
    tiles = -(-k.shape[-2] // 16)
    return rg.attention(q, k, v, sinks=None if sinks is None else sinks + np.log(tiles, dtype=np.float32))


def lse_of_the_last_tile(q, k, v):
    """The lse holds the tiles of 128 keys but the first ones."""
    out, lse = rg.attention(q, k, v, return_lse=True)
    last = (k.shape[-2] - 1) // 128 * 128
    return out, lse if last <= 0 else rg.attention(q, k[..., last:, :], v[..., last:, :], return_lse=True)[1]


def gradients_of_whole_tiles(q, k, v):
    """The gradients of the keys after the last whole tile of 16 are 0."""
    import torch

    keys = k.shape[-2]
    whole = keys // 16 * 16 or keys
    end = [each[..., whole:, :].detach() for each in (k, v)]
    k, v = (torch.cat([each[..., :whole, :], tail], -2) for each, tail in zip((k, v), end))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


FAULTS = {
    "tiles of a causal mask": skipping_causal_tiles,
    "tiles of a window": skipping_window_tiles,
    "tiles of lengths": skipping_tiles_of_lengths,
    "sinks in every tile": sinks_in_every_tile,
    "the lse of the last tile": lse_of_the_last_tile,
    "gradients of whole tiles": gradients_of_whole_tiles,
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
    """At level 3, with a counterexample that has the size or the row."""
    assert rg.conform(fault, level=3).findings


def test_packed_rows_have_several_entries_only_with_their_starts():
    """A function without them is judged with one entry."""
    for names, several in (({}, False), ({"cu_seqlens_q": "starts"}, True)):
        assert Limits(Adapter(layout="THD", parameters=names)).batch is several
