"""Parts: attention over some of the keys, before the division. That they merge to the bits of a call is law 11
(tests/engines/jit/test_sums.py); here is what they take, give and refuse,
and that they merge.
"""

import dataclasses
import functools
import pickle

import numpy as np
import pytest
from hypothesis import given

import regard as rg
from tests.api.caches import same_arrays
from tests.support.engines import DTYPES, normal, qkv, same_bits
from tests.support.lanes import examples
from tests.support.refusals import refusal, refusing, whats
from tests.support.strategies import problems


@examples(40)
@given(problems())
def test_a_part_of_all_keys_is_the_call(case):
    """attention_part(…).result(sinks) has the bits of attention_with_lse, whatever the problem."""
    part = rg.attention_part(**{name: value for name, value in case.kwargs.items() if name != "sinks"})
    assert part.maximum.shape == part.total.shape == part.values.shape[:-1]
    for one, other in zip(rg.attention_with_lse(**case.kwargs), part.result(case.kwargs.get("sinks")), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_the_numbers_are_what_they_are_called(dtype):
    """m is the largest score, l the sum of the exponentials relative to it, O the sum with the values."""
    given_ = qkv(dtype=dtype)
    part = rg.attention_part(*given_, mask=rg.key % 3 != 0)
    q, k, v = (each.astype(np.float64) for each in given_)
    scores = np.where(np.arange(37) % 3 != 0, q @ k.swapaxes(-1, -2) / 4, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    usual = {np.float32: 1e-5, np.float64: 1e-12}.get(dtype, 2e-2)
    np.testing.assert_allclose(part.maximum * part.unit, scores.max(-1), rtol=usual, atol=usual)
    np.testing.assert_allclose(part.total, powers.sum(-1), rtol=usual)
    np.testing.assert_allclose(part.values, powers @ v, rtol=usual, atol=10 * usual)
    assert part.values.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert repr(part) == f"Part(rows [2, 2, 19], depth 16, {np.dtype(dtype).name})"


def test_parts_travel():
    """A part survives pickling, and its arrays may be copied by the caller; what was given does not change."""
    parts = [rg.attention_part(*qkv(), mask=rg.key % 2 == number) for number in range(2)]
    sent = pickle.loads(pickle.dumps(parts))
    rebuilt = [
        rg.Part(np.asfortranarray(part.maximum), part.total[...], part.values.copy(), part.unit, part.dtype)
        for part in sent
    ]
    merged = [rg.merge(each) for each in (sent, rebuilt, parts)]
    for one, other in zip([*merged[:2], *sent], [merged[2]] * 2 + parts):
        same_arrays((one.maximum, one.total, one.values), (other.maximum, other.total, other.values))


def test_tensors():
    """Tensors in, tensors out, in the dtypes of the call."""
    import torch

    q, k, v = (torch.from_numpy(each).bfloat16() for each in qkv())
    nothing, part = (rg.attention_part(q, k, v, mask=rg.key < size) for size in (0, 99))
    assert part.values.dtype == torch.float32
    found, expected = (
        rg.merge([nothing, part]).result(torch.zeros(2)),
        rg.attention_with_lse(q, k, v, sinks=np.zeros(2)),
    )
    assert all(map(torch.equal, found, expected))
    with refusing("gradients"):
        rg.attention_part(q.requires_grad_(), k, v)


# ---- what is refused -------------------------------------------------------------------------------------------------

DIFFERENT = """\
merge: the parts differ in shape
  given     (2, 2, 19, 16), (2, 2, 3, 16)
  expected  the same rows of the same heads
  fix       compute every part with the same arguments, except for its mask, k and v
merge: the parts differ in unit of their scores
  given     0.25, 1.0
  expected  parts with the same scale, all or none with a score
  fix       compute every part with the same arguments, except for its mask, k and v"""

BROKEN = """\
Part: these do not belong to one part
  given     maximum [2], total [3], values [2, 4], dtypes float32, float64; unit 1.0, dtype 'float16'
  expected  arrays (…, H, Q), (…, H, Q) and (…, H, Q, E) of float32; a positive unit; dtype one of float32, float64, \
float16, bfloat16
  fix       keep what attention_part returned as it is, also when it is sent to another process"""

MIXED = """\
merge: parts and pairs (out, lse) cannot be merged with each other
  given     results of attention_part at 1 of 2
  expected  one kind
  fix       merge the parts first, and pass the pair that Part.result returns"""

NO_DEPTH = """\
attention_part: only the compiled engine has parts
  given     the compiled engine has no kernels for arrays of depth 0
  expected  a problem that it supports
  fix       use attention_with_lse, and merge its pairs (out, lse)"""

NO_LIST = """\
merge: this is not a list of parts
  given     Part
  expected  one or more pairs (out, lse), or results of attention_part
  fix       put them in a list"""


def test_refusals():
    """All reasons at once, word for word."""
    q, k, v = qkv()
    part = rg.attention_part(q, k, v)
    other = rg.attention_part(q[:, :, :3], k, v, score=rg.score * 2)
    wide = rg.attention_part(*(each.astype(np.float64) for each in (q, k, v)))
    for call, words in (
        (lambda: rg.merge([part, other]), DIFFERENT),
        (lambda: rg.Part(np.zeros(2), np.zeros(3), np.zeros((2, 4), np.float32), 1.0, "float16"), BROKEN),
        (lambda: rg.merge([(q, q[..., 0]), part]), MIXED),
        (lambda: rg.merge(part), NO_LIST),
        (lambda: rg.attention_part(q[..., :0], k[..., :0], v), NO_DEPTH),
    ):
        assert refusal(call) == words
    assert "sinks do not fit the heads" in refusal(lambda: part.result(sinks=np.zeros(3)))
    assert "differ in dtype" in refusal(lambda: rg.merge([part, wide]))


BROKEN_PARTS = [
    *(({"unit": unit}, f"unit {unit!r}") for unit in (0, -1.0, np.nan, np.inf, None, "0.25")),
    *(({"maximum": array}, "do not belong to one part") for array in ([1.0], np.zeros(()), None)),
    ({"values": [1.0]}, "do not belong to one part"),
    ({"dtype": ["a"]}, "dtype ['a']"),
]


@pytest.mark.parametrize(("changed", "words"), BROKEN_PARTS)
def test_what_is_no_part_is_refused(changed, words):
    """A unit that is no positive finite number; a list, a single number, nothing; and a dtype that is no name."""
    part = rg.attention_part(*qkv())
    assert words in refusal(lambda: dataclasses.replace(part, **changed))


def test_any_kind_of_number_is_a_unit():
    """It is read as what it is."""
    part = rg.attention_part(*qkv(), score=rg.score * 2)
    for unit in (1, np.float32(1), np.int64(1)):
        same_arrays(dataclasses.replace(part, unit=unit).result(), part.result())


def test_gradients_are_refused_and_not_lost():
    """Sinks and parts that require gradients, which no part computes; and arrays mixed with tensors."""
    import torch

    part = rg.attention_part(*map(torch.from_numpy, qkv()))
    learned = dataclasses.replace(part, maximum=part.maximum.clone().requires_grad_())
    assert "sinks requires gradients" in refusal(lambda: part.result(sinks=torch.zeros(2, requires_grad=True)))
    assert "the part requires gradients" in refusal(learned.result)
    assert "part 1 requires gradients" in refusal(lambda: rg.merge([part, learned]))
    with torch.no_grad():
        rg.merge([part, learned])
    assert "differ in kind" in refusal(lambda: rg.merge([part, rg.attention_part(*qkv())]))


# ---- merging ---------------------------------------------------------------------------------------------------------

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
