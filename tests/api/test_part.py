"""Parts: attention over some of the keys, before the division. That they merge to the bits of a call is law 11
(tests/engines/jit/test_sums.py); here is what they take, give and refuse.
"""

import pickle

import numpy as np
import pytest
from hypothesis import given

import regard as rg
from regard import Refused
from tests.support.engines import DTYPES, normal, qkv, same_bits
from tests.support.lanes import examples
from tests.support.strategies import problems


@examples(40)
@given(problems())
def test_a_part_of_all_keys_is_the_call(case):
    """attention_part(…).result(sinks) has the bits of attention_with_lse, whatever the problem."""
    rules = {name: value for name, value in case.kwargs.items() if name != "sinks"}
    q, k, v = (rules.pop(name) for name in "qkv")
    part = rg.attention_part(q, k, v, **rules)
    assert part.maximum.shape == part.total.shape == part.values.shape[:-1]
    for one, other in zip(rg.attention_with_lse(**case.kwargs), part.result(case.kwargs.get("sinks")), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_the_numbers_are_what_they_are_called(dtype):
    """m is the largest score, l the sum of the exponentials relative to it, O the sum with the values."""
    q, k, v = qkv(dtype=dtype)
    part = rg.attention_part(q, k, v, mask=rg.key % 3 != 0)
    wide = [each.astype(np.float64) for each in (q, k, v)]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) / 4
    scores = np.where(np.arange(37) % 3 != 0, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    usual = {np.float32: 1e-5, np.float64: 1e-12}.get(dtype, 2e-2)
    np.testing.assert_allclose(part.maximum * part.unit, scores.max(-1), rtol=usual, atol=usual)
    np.testing.assert_allclose(part.total, powers.sum(-1), rtol=usual)
    np.testing.assert_allclose(part.values, powers @ wide[2], rtol=usual, atol=10 * usual)
    assert part.values.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert repr(part) == f"Part(rows [2, 2, 19], depth 16, {np.dtype(dtype).name})"


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 2, 3, 4), (2, 1, 2, 3, 4)])
def test_leading_axes(shape):
    """Parts have the axes of the caller's arrays, and so do their merge and their result."""
    q, k, v = (normal(*shape, seed=seed) for seed in range(3))
    parts = [rg.attention_part(q, k, v, mask=rg.key == key) for key in range(3)]
    merged = rg.merge(iter(parts))
    assert merged.values.shape == shape and merged.maximum.shape == shape[:-1]
    out, lse = merged.result()
    for found, expected in zip((out, lse), rg.attention_with_lse(q, k, v), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
def test_no_rows_or_no_keys(sizes):
    """Nothing to attend to is an empty part: −∞, 0 and 0."""
    Q, K = sizes
    q, k, v = normal(2, Q, 4), normal(2, K, 4), normal(2, K, 4)
    part = rg.merge([rg.attention_part(q, k, v)] * 2)
    same_bits(part.maximum, np.full((2, Q), -np.inf, np.float32))
    same_bits(part.total, np.zeros((2, Q), np.float32))
    for found, expected in zip(part.result(), rg.attention_with_lse(q, k, v), strict=True):
        same_bits(found, expected)


def test_parts_travel():
    """A part survives pickling, and its arrays may be copied by the caller; what was given does not change."""
    q, k, v = qkv()
    parts = [rg.attention_part(q, k, v, mask=rg.key % 2 == number) for number in range(2)]
    before = [part.values.copy() for part in parts]
    expected = rg.merge(parts)
    for part, values in zip(parts, before):
        same_bits(part.values, values)
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    rebuilt = [
        rg.Part(np.asfortranarray(part.maximum), part.total[...], part.values.copy(), part.unit, part.dtype)
        for part in sent
    ]
    for found in (rg.merge(sent), rg.merge(rebuilt)):
        for name in ("maximum", "total", "values"):
            same_bits(getattr(found, name), getattr(expected, name))


def test_tensors():
    """Tensors in, tensors out, in the dtypes of the call; inside a compiled program they split it."""
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(each).to(torch.bfloat16) for each in qkv())
    parts = [rg.attention_part(q, k, v, mask=rg.key % 2 == number) for number in range(2)]
    assert parts[0].values.dtype == torch.float32
    out, lse = rg.merge(parts).result(sinks=torch.zeros(2))
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    expected = rg.attention_with_lse(q, k, v, sinks=torch.zeros(2))
    torch.testing.assert_close(out, expected[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse, expected[1], rtol=1e-5, atol=1e-5)
    with pytest.raises(Refused, match="gradients"):
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


def message(call) -> str:
    with pytest.raises(Refused) as error:
        call()
    return str(error.value)


def test_refusals():
    """All reasons at once, word for word."""
    q, k, v = qkv()
    part = rg.attention_part(q, k, v)
    other = rg.attention_part(q[:, :, :3], k, v, score=rg.score * 2)
    assert message(lambda: rg.merge([part, other])) == DIFFERENT
    assert message(lambda: rg.Part(np.zeros(2), np.zeros(3), np.zeros((2, 4), np.float32), 1.0, "float16")) == BROKEN
    assert message(lambda: rg.merge([(q, q[..., 0]), part])) == MIXED
    assert message(lambda: rg.merge(part)) == NO_LIST
    assert "given     NoneType" in message(lambda: rg.merge(None))
    assert "sinks do not fit the heads" in message(lambda: part.result(sinks=np.zeros(3)))
    wide = rg.attention_part(*(each.astype(np.float64) for each in (q, k, v)))
    assert "differ in dtype" in message(lambda: rg.merge([part, wide]))
    assert message(lambda: rg.attention_part(q[..., :0], k[..., :0], v)) == NO_DEPTH


@pytest.mark.parametrize("unit", [0, -1.0, np.nan, np.inf, None, "0.25"])
def test_a_unit_is_a_positive_number(unit):
    """A unit that is no positive finite number is refused; any kind of number is read as what it is."""
    q, k, v = qkv()
    part = rg.attention_part(q, k, v, score=rg.score * 2)
    given = part.maximum, part.total, part.values
    assert f"unit {unit!r}" in message(lambda: rg.Part(*given, unit, part.dtype))
    for same in (1, np.float32(1), np.int64(1)):
        for found, expected in zip(rg.Part(*given, same, part.dtype).result(), part.result(), strict=True):
            same_bits(found, expected)


@pytest.mark.parametrize("broken", [[1.0], np.zeros(()), None])
def test_what_is_no_array_is_refused(broken):
    """A list, a single number, nothing; and a dtype that is no name."""
    part = rg.attention_part(*qkv())
    for arrays in ((broken, part.total, part.values), (part.maximum, part.total, broken)):
        assert "do not belong to one part" in message(lambda arrays=arrays: rg.Part(*arrays, 1.0, "float32"))
    assert "dtype ['a']" in message(lambda: rg.Part(part.maximum, part.total, part.values, 1.0, ["a"]))


def test_gradients_are_refused_and_not_lost():
    """Sinks and parts that require gradients, which no part computes; and arrays mixed with tensors."""
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(each) for each in qkv())
    part = rg.attention_part(q, k, v)
    learned = rg.Part(part.maximum.clone().requires_grad_(), part.total, part.values, part.unit, part.dtype)
    assert "sinks requires gradients" in message(lambda: part.result(sinks=torch.zeros(2, requires_grad=True)))
    assert "the part requires gradients" in message(learned.result)
    assert "part 1 requires gradients" in message(lambda: rg.merge([part, learned]))
    with torch.no_grad():
        rg.merge([part, learned])
    assert "differ in kind" in message(lambda: rg.merge([part, rg.attention_part(*qkv())]))
