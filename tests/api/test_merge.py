"""Merging parts: the whole from disjoint sets of keys, a monoid up to rounding."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard import Refused
from tests.support.engines import normal, same_bits
from tests.support.lanes import examples

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


def parts_of(q, k, v, borders, sinks=None, mask=None, **rules):
    """(out, lse) over each set of keys between two borders; positions stay those of the whole. Sinks go to the first
    part.
    """
    found = []
    for number, (first, last) in enumerate(itertools.pairwise(borders)):
        here = (rg.key >= first) & (rg.key < last)
        allowed = here if mask is None else here & mask
        found.append(rg.attention_with_lse(q, k, v, mask=allowed, sinks=None if number else sinks, **rules))
    return found


def case(dtype=np.float32, Q=23, K=90):
    shapes = (2, 4, Q, 16), (2, 2, K, 16), (2, 2, K, 8)
    return tuple(normal(*shape, seed=number, dtype=dtype) for number, shape in enumerate(shapes, 1))


@examples(40)
@given(st.lists(st.integers(0, 90), max_size=5), st.booleans())
def test_the_whole_from_its_parts(cuts, with_sinks):
    """Parts between any borders, empty ones among them, give the attention over all keys; sinks count once, in one
    part.
    """
    q, k, v = case()
    sinks = normal(4, seed=5) if with_sinks else None
    rules = {"score": rg.softcap(5.0)}
    whole = rg.attention_with_lse(q, k, v, sinks=sinks, **rules)
    merged = rg.merge(parts_of(q, k, v, [0, *sorted(cuts), 90], sinks, **rules))
    for one, other in zip(whole, merged):
        assert one.dtype == other.dtype == np.float32
        # Either is a few roundings of float32 away from the truth; merging adds one.
        np.testing.assert_allclose(one, other, rtol=0, atol=8 * EPS * max(1.0, float(np.abs(one).max())))


def test_float64_parts_merge_to_float64():
    """Parts in float64 lose no more than float64 rounds."""
    q, k, v = case(np.float64)
    whole = rg.attention_with_lse(q, k, v, mask=rg.causal())
    for one, other in zip(whole, rg.merge(parts_of(q, k, v, [0, 10, 64, 70, 90], mask=rg.causal()))):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_merging_rounds_once():
    """The merge of float32 parts is the exact merge of those numbers, rounded to float32."""
    parts = [(normal(3, 7, 5, seed=n), 40 * normal(3, 7, seed=9 + n)) for n in range(6)]
    out, lse = rg.merge(parts)
    outs, lses = (np.stack(arrays).astype(np.longdouble) for arrays in zip(*parts))
    shares = np.exp(lses - lses.max(0))
    same_bits(lse, (lses.max(0) + np.log(shares.sum(0))).astype(np.float32))
    same_bits(out, ((shares[..., None] * outs).sum(0) / shares.sum(0)[..., None]).astype(np.float32))


def test_order_and_grouping_change_the_rounding_only():
    """Associative and commutative: every order and every grouping agrees to a rounding of each merge."""
    parts = [(normal(3, 7, 5, seed=n), 3 * normal(3, 7, seed=9 + n)) for n in range(4)]
    at_once = rg.merge(parts)
    one_by_one = parts[0]
    for part in parts[1:]:
        one_by_one = rg.merge([one_by_one, part])
    for other in (rg.merge(parts[::-1]), one_by_one, rg.merge([rg.merge(parts[:2]), rg.merge(parts[2:])])):
        for x, y in zip(at_once, other):
            np.testing.assert_allclose(x, y, rtol=0, atol=4 * EPS * float(np.abs(x).max()))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_parts_that_saw_nothing_are_neutral(library):
    """lse −∞ changes no bit of the others, even where its out holds NaN; nothing but such parts is an empty row: 0 and
    −∞.
    """
    convert = np.asarray if library == "numpy" else pytest.importorskip("torch").from_numpy
    part = tuple(map(convert, (normal(2, 3, 4), normal(2, 3))))
    nothing = tuple(map(convert, (np.full((2, 3, 4), np.nan, np.float32), np.full((2, 3), -np.inf, np.float32))))
    for merged in (rg.merge([part]), rg.merge([nothing, part]), rg.merge([part, nothing, nothing])):
        for x, y in zip(merged, part):
            same_bits(np.asarray(x), np.asarray(y))
    out, lse = rg.merge([nothing, nothing])
    same_bits(np.asarray(out), np.zeros((2, 3, 4), np.float32))
    same_bits(np.asarray(lse), np.full((2, 3), -np.inf, np.float32))


@pytest.mark.parametrize("poison", [np.inf, np.nan])
def test_what_was_attended_shows(poison):
    """A NaN or infinity in a part's out shows in its column, however small its share; one in its lse makes the row
    NaN.
    """
    parts = [
        (np.ones((2, 3), np.float32), np.array([0.0, 0.0], np.float32)),
        (np.ones((2, 3), np.float32), np.array([-5000.0, 0.0], np.float32)),
    ]
    parts[1][0][0, 1] = poison
    out, lse = rg.merge(parts)
    same_bits(out, np.array([[1, poison, 1], [1, 1, 1]], np.float32))
    assert np.isfinite(lse).all()
    parts[1][1][1] = poison
    out, lse = rg.merge(parts)
    same_bits(np.isnan(out), np.array([[False, poison != poison, False], [True, True, True]]))
    same_bits(np.isnan(lse), np.array([False, True]))


def test_tensors_and_their_gradients():
    """Tensors give what arrays give, in any float dtype, and gradients flow through, past rows that some part did not
    see.
    """
    torch = pytest.importorskip("torch")
    arrays = [(normal(4, 3, seed=n), normal(4, seed=9 + n)) for n in range(3)]
    arrays[0][1][2] = -np.inf
    expected = rg.merge(arrays)
    for x, y in zip(expected, rg.merge([tuple(map(torch.from_numpy, part)) for part in arrays])):
        np.testing.assert_allclose(x, y.numpy(), rtol=EPS, atol=0)
    halves = [(torch.from_numpy(out).bfloat16(), torch.from_numpy(lse)) for out, lse in arrays]
    out, lse = rg.merge(halves)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    np.testing.assert_allclose(out.float().numpy(), expected[0], rtol=0, atol=2**-7)

    finite = [
        torch.from_numpy(np.where(np.isfinite(array), array, 0).astype(np.float64)) for part in arrays for array in part
    ]
    empty = torch.tensor([False, False, True, False])

    def merged(*flat):
        first = (flat[0], torch.where(empty, -torch.inf, flat[1]))
        return rg.merge([first, flat[2:4], flat[4:6]])

    assert torch.autograd.gradcheck(merged, [array.requires_grad_() for array in finite])


def test_a_row_that_no_part_saw_has_gradient_zero():
    """The gradients of an empty row are 0, not NaN."""
    torch = pytest.importorskip("torch")
    out, lse = torch.zeros(1, 2, requires_grad=True), torch.full((1,), -torch.inf, requires_grad=True)
    rg.merge([(out, lse), (out, lse)])[0].sum().backward()
    assert out.grad.tolist() == [[0, 0]]
    assert lse.grad.tolist() == [0]


def test_wrong_parts_are_refused_with_all_reasons():
    """Every part that cannot be merged is named, and what differs between the others."""
    out, lse = np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), np.float32)
    with pytest.raises(Refused) as caught:
        rg.merge([(out, lse), out, (out, lse[0]), (out.astype(int), lse)])
    assert [reason.what for reason in caught.value.reasons] == [
        "part 1 is not a pair of arrays",
        "part 2: lse does not fit out",
        "part 3 is not floating-point",
        "the parts differ in dtype or kind",
    ]
    with pytest.raises(Refused) as caught:
        rg.merge([(out, lse), (out[:, :2], lse[:, :2]), (out.astype(np.float64), lse)])
    assert str(caught.value) == APART
    with pytest.raises(Refused, match="parts is empty"):
        rg.merge([])
