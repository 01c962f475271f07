"""Merging parts: the whole from disjoint sets of keys, a monoid up to rounding."""

import functools

import numpy as np
import pytest

import regard as rg
from tests.api.caches import same_arrays
from tests.support.engines import normal, same_bits
from tests.support.refusals import refusal, refusing, whats

APART = """\
merge: the parts differ in shape
  given     (2, 2, 4), (2, 3, 4)
  expected  the same rows of the same heads
  fix       broadcast the shared parts: np.broadcast_to(out, …)
merge: the parts differ in dtype or kind
  given     out an array of float32, lse an array of float32; out an array of float64, lse an array of float32
  expected  the same for all parts
  fix       convert them first"""
EPS = float(np.finfo(np.float32).eps)


def test_merging_rounds_once():
    """The merge of float32 parts is the exact merge of those numbers, rounded to float32; every order and grouping
    agrees to a rounding of each merge.
    """
    parts = [(normal(3, 7, 5, seed=n), 40 * normal(3, 7, seed=9 + n)) for n in range(6)]
    found = rg.merge(parts)
    outs, lses = (np.stack(arrays).astype(np.longdouble) for arrays in zip(*parts))
    shares = np.exp(lses - lses.max(0))
    out, lse = (shares[..., None] * outs).sum(0) / shares.sum(0)[..., None], lses.max(0) + np.log(shares.sum(0))
    same_arrays(found, (out.astype(np.float32), lse.astype(np.float32)))
    for other in (rg.merge(parts[::-1]), functools.reduce(lambda one, part: rg.merge([one, part]), parts)):
        for x, y in zip(found, other):
            np.testing.assert_allclose(x, y, rtol=0, atol=6 * EPS * float(np.abs(x).max()))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_parts_that_saw_nothing_are_neutral(library):
    """lse −∞ changes no bit of the others, even where its out holds NaN; nothing but such parts is an empty row: 0 and
    −∞.
    """
    convert = np.asarray if library == "numpy" else pytest.importorskip("torch").from_numpy
    part = normal(2, 3, 4), normal(2, 3)
    nothing = np.full_like(part[0], np.nan), np.full_like(part[1], -np.inf)
    empty = np.zeros_like(part[0]), nothing[1]
    for parts, expected in (
        ([part], part),
        ([nothing, part], part),
        ([part, nothing, nothing], part),
        ([nothing, nothing], empty),
    ):
        same_arrays(map(np.asarray, rg.merge([tuple(map(convert, each)) for each in parts])), expected)


@pytest.mark.parametrize("poison", [np.inf, np.nan])
def test_what_was_attended_shows(poison):
    """A NaN or infinity in a part's out shows in its column, however small its share; one in its lse makes the row
    NaN.
    """
    plain = np.ones((2, 3), np.float32), np.zeros(2, np.float32)
    poisoned = np.float32([[1, poison, 1], [1, 1, 1]]), np.float32([-5000, 0])
    out, lse = rg.merge([plain, poisoned])
    same_bits(out, poisoned[0])
    assert np.isfinite(lse).all()
    poisoned[1][1] = poison
    out, lse = rg.merge([plain, poisoned])
    assert np.isnan(out).tolist() == [[False, poison != poison, False], [True, True, True]]
    assert np.isnan(lse).tolist() == [False, True]


def test_tensors_and_their_gradients():
    """Tensors give what arrays give, in any float dtype, and gradients flow through, past rows that some part did not
    see.
    """
    import torch

    arrays = [(normal(4, 3, seed=n), normal(4, seed=9 + n)) for n in range(3)]
    tensors = [tuple(map(torch.tensor, part)) for part in arrays]
    arrays[0][1][2] = -np.inf

    def merged(*flat):
        first = flat[0], torch.where(torch.arange(4) == 2, -torch.inf, flat[1])
        return rg.merge([first, flat[2:4], flat[4:6]])

    flat, expected = [each for part in tensors for each in part], rg.merge(arrays)
    for x, y in zip(expected, merged(*flat)):
        np.testing.assert_allclose(x, y, rtol=EPS, atol=0)
    out, lse = merged(*(each.bfloat16() if each.ndim > 1 else each for each in flat))
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    np.testing.assert_allclose(out.float(), expected[0], rtol=0, atol=2**-7)
    assert torch.autograd.gradcheck(merged, [each.double().requires_grad_() for each in flat])


def test_a_row_that_no_part_saw_has_gradient_zero():
    """The gradients of an empty row are 0, not NaN."""
    import torch

    part = torch.zeros(1, 2, requires_grad=True), torch.full((1,), -torch.inf, requires_grad=True)
    rg.merge([part, part])[0].sum().backward()
    assert [each.grad.tolist() for each in part] == [[[0, 0]], [0]]


def test_wrong_parts_are_refused_with_all_reasons():
    """Every part that cannot be merged is named, and what differs between the others."""
    out, lse = np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), np.float32)
    assert whats(rg.merge, [(out, lse), out, (out, lse[0]), (out.astype(int), lse)]) == [
        "part 1 is not a pair of arrays",
        "part 2: lse does not fit out",
        "part 3 is not floating-point",
        "the parts differ in dtype or kind",
    ]
    assert refusal(rg.merge, [(out, lse), (out[:, :2], lse[:, :2]), (out.astype(np.float64), lse)]) == APART
    with refusing("parts is empty"):
        rg.merge([])
