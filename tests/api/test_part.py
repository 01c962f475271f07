"""Parts: attention over some of the keys, before the division. That they merge to the bits of a call is law 11
(tests/engines/jit/test_sums.py); here is what they take, give and refuse.
"""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given

import regard as rg
from tests.api.caches import same_arrays
from tests.support.engines import DTYPES, qkv
from tests.support.lanes import examples
from tests.support.refusals import refusal, refusing
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
