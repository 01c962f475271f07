"""When a number that is added to scores is a mask: one rule, its bounds in every dtype, and its users."""

import math
import re

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.language.added_masks import NOTHING, ORDINARY, hidden_beside, hides, range_of
from regard.torch.layers import MultiHeadAttention, SelfAttention
from tests.support.lanes import examples

DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in ("float64", "float32", "float16", "bfloat16")}


def lowest(dtype):
    return float(ml_dtypes.finfo(dtype).min)


def above(number, dtype):
    """The next larger number of the dtype."""
    return np.nextafter(dtype.type(number), dtype.type(0))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("known", ["nothing", "ordinary", "range", "zero"])
def test_the_bound_and_its_neighbour_in_every_dtype(name, known):
    """A number at the bound hides, the next larger one does not; arrays and tensors agree, and so do the numbers in
    float32.
    """
    dtype = DTYPES[name]
    scores = {"nothing": math.inf, "ordinary": ORDINARY, "range": range_of(dtype), "zero": 0.0}[known]
    bound = {"nothing": -math.inf, "ordinary": -9984.0, "range": lowest(dtype) / 2, "zero": -104.0}[known]
    at = np.array([bound, above(bound, dtype), 0, np.inf, np.nan, -np.inf], dtype)
    expected = [True, False, False, False, False, True]

    assert float(at[0]) == bound > -np.inf or known == "nothing"
    assert hides(at, scores).tolist() == expected
    tensor = torch.tensor(at.astype(np.float64), dtype=getattr(torch, name))
    assert hides(tensor, scores).tolist() == hides(tensor.double(), scores).tolist() == expected
    assert [bool(hides(float(number), scores)) for number in at] == expected


@pytest.mark.parametrize("name", DTYPES)
def test_what_libraries_add_hides_in_its_dtype(name):
    """The smallest number of every dtype, as transformers adds it, and −10⁴ as older models do, in the dtype's own
    rounding.
    """
    dtype = DTYPES[name]
    added = np.array([lowest(dtype), -1e4], dtype)

    assert range_of(dtype) == range_of(getattr(torch, name))
    assert hides(added, ORDINARY).all()
    assert hides(added, range_of(dtype)).tolist() == [True, False]
    assert not hides(added, math.inf).any()


@pytest.mark.parametrize("scores", [0.0, ORDINARY, math.inf])
def test_whole_numbers_truth_values_and_nothing_at_all(scores):
    """Whole numbers have no −∞ and no smallest number that means one; without numbers there is nothing to hide."""
    assert range_of(np.dtype(np.int64)) == range_of(torch.int32) == range_of(torch.bool) == math.inf
    assert hides(np.array([-20_000, 0, 1]), scores).tolist() == [scores < math.inf, False, False]
    assert not hides(np.array([True, False]), scores).any() and not hides(torch.tensor([True]), scores).any()
    assert hides(np.zeros((2, 0, 3)), scores).shape == tuple(hides(torch.zeros(2, 0, 3), scores).shape) == (2, 0, 3)
    assert hidden_beside(np.zeros((2, 3, 0)), np.ones((2, 3, 0), bool)).shape == (2, 3, 0)


@examples(100)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 1.0, 60.0, ORDINARY]), st.sampled_from([0.0, 0.5, 1e3, 1e30]))
def test_what_hides_leaves_no_weight(seed, scores, lower):
    """Beside a key to which nothing is added, the weight is 0 in float32, and the others are the same in every bit."""
    rng = np.random.default_rng(seed)
    row = rng.uniform(-scores, scores, 8)
    row[:2] = scores, -scores  # the worst case: the hidden key has the largest score, the only other the smallest
    hidden = np.arange(8) != 1
    hidden[2:] = rng.random(6) < 0.5
    added = np.where(hidden, -(NOTHING + 2 * scores) - lower, 0)
    assert hides(added, scores).tolist() == hidden.tolist()

    def weights(scores):
        powers = np.exp((scores - scores.max()).astype(np.float32))
        return powers / powers.sum()

    np.testing.assert_array_equal(weights(row + added), weights(np.where(hidden, -np.inf, row)))


def test_a_row_of_low_numbers_alone_hides_nothing():
    """Beside an allowed key that is higher they hide; alone, or beside keys that a mask rules out, they are scores."""
    added = np.array([[-1e9, 0.0, -2e4], [-1e9, -1e9, -2e4], [-1e9, 0.0, np.nan]])
    allowed = np.array([[True, True, True], [True, True, True], [True, False, False]])

    assert hidden_beside(added, allowed).tolist() == [[True, False, True], [False] * 3, [False] * 3]
    assert hidden_beside(added[2], np.ones(3, bool)).tolist() == [True, False, False]


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_transformers_masks_are_what_they_were_at_the_bound(name):
    """Rows of the smallest number attend nothing and give 0; rows of a number above its half have the weights that
    adding it gives, for the same mask.
    """
    hf = pytest.importorskip("regard.torch.hf")
    dtype = getattr(torch, name)
    half = torch.tensor(torch.finfo(dtype).min / 2, dtype=dtype)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 8, dtype=dtype) for _ in range(3))
    layer = torch.nn.Module().eval()
    for low, hidden in ((half, True), (torch.nextafter(half.float(), torch.tensor(0.0)).to(dtype) * 0.75, False)):
        mask = torch.zeros(1, 1, 3, 3, dtype=dtype)
        mask[:, :, 0] = low
        mask[:, :, 1, 1] = low
        out, weights = hf.attend(layer, q, k, v, mask, scaling=0.3, is_causal=False, output_attentions=True)
        assert bool((weights[:, :, 0] == 0).all()) is bool((out[:, 0] == 0).all()) is hidden
        if not hidden:
            added = ((q.float() @ k.float().mT * 0.3) + mask.float()).softmax(-1)
            torch.testing.assert_close(weights[:, :, 0].float(), added[:, :, 0], rtol=0, atol=2e-2)
        assert (weights[:, :, 1, 1] == 0).all() and (weights[:, :, 2] > 0).all()


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min, -math.inf])
def test_torchs_own_layers_add_every_finite_number(low):
    """A row to which a finite number is added throughout is the row without it; with −∞ it attends nothing."""
    from regard.torch import MultiHeadAttention

    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, 2, batch_first=True).eval(), torch.randn(1, 4, 8)
    mask = torch.zeros(4, 4)
    mask[1] = low
    with torch.no_grad():
        weights = layer(x, x, x, attn_mask=mask)[1][0]
    torch.testing.assert_close(weights.sum(-1), torch.tensor([1.0, float(low > -math.inf), 1.0, 1.0]))


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min / 2])
def test_an_observed_mask_is_a_rule_from_half_the_smallest_number_on(low):
    """What is said of a call of torch: lower numbers are a mask, and higher ones scores."""
    from regard.torch.observe.describe import problem_of
    from regard.torch.observe.observer import Observer

    problems = []

    class Describing(Observer):
        def called(self, seen):
            problems.append(problem_of(seen))

    mask, (q, k, v) = torch.zeros(3, 3), torch.randn(3, 1, 2, 3, 8)
    mask[0, 1] = low
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad(), Describing(attend, describing=True).watching():
        attend(q, k, v, attn_mask=mask)

    assert [(each.mask is not None, each.score is not None) for each in problems] == [(low < -1e30, low > -1e30)]


# ---- numbers that were passed as booleans ----------------------------------------------------------------------------

FIXES = re.compile(r"((?:score|mask)=[^,:]+?)(?= if |,|:|$)")


def followed(arrays, given) -> list:
    """The results of a call for every piece of code that the refusal of mask=given proposes."""
    with pytest.raises(rg.Refused, match="not an array of conditions") as caught:
        rg.attention(*arrays, mask=given)
    (reason,) = caught.value.reasons
    codes = FIXES.findall(reason.fix)
    assert codes, reason.fix
    return [
        eval(f"attention(*arrays, {code})", {"attention": rg.attention, "arrays": arrays, "mask": given})
        for code in codes
    ]


@examples(60)
@given(
    st.sampled_from([*DTYPES]),
    st.booleans(),
    st.sampled_from(["minus infinity", "smallest", -1e4, -3e4, "bias", "zeros"]),
    st.sampled_from([(6, 9), (1, 9), (2, 6, 9), (3, 1, 6, 9)]),
    st.integers(0, 99),
)
def test_the_fix_for_numbers_as_a_mask_means_what_torch_means(name, tensors, low, shape, seed):
    """Every call that the message proposes for an additive mask or a bias equals torch's attention with that
    attn_mask.
    """
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    arrays = rng.standard_normal((3, 3, 2, 9, 4))
    arrays = [arrays[0][:, :, :6], *arrays[1:]]
    hidden = rng.random(shape) < 0.4
    hidden[..., 0] = False
    numbers = {"minus infinity": -np.inf, "smallest": lowest(dtype), "bias": 0, "zeros": 0}.get(low, low)
    added = (rng.standard_normal(shape) if low == "bias" else np.where(hidden, numbers, 0.0)).astype(dtype)
    tensor = torch.tensor(added.astype(np.float64))
    wanted = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, arrays), attn_mask=tensor)
    for found in followed(arrays, tensor.to(getattr(torch, name)) if tensors else added):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int8, np.float32, np.float16])
def test_the_fix_for_zeros_and_ones_is_a_comparison(dtype):
    """0 and 1 mean false and true, first as regard reads booleans, then the other way round."""
    arrays = np.random.default_rng(0).standard_normal((3, 2, 9, 4))
    allowed = np.tri(9, dtype=bool)
    ours, theirs = followed(arrays, allowed.astype(dtype))
    np.testing.assert_array_equal(ours, rg.attention(*arrays, mask=allowed))
    np.testing.assert_array_equal(theirs, rg.attention(*arrays, mask=~allowed))


def test_other_functions_tell_numbers_apart_too():
    """The layer and the picture name a comparison that allows the pairs that the added mask allows."""
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    added = torch.zeros(5, 5).masked_fill(~allowed, torch.finfo(torch.float32).min)
    layer, x = SelfAttention(4), torch.randn(2, 5, 4)
    weights = rg.attention_weights(np.ones((1, 5, 4)), np.ones((1, 5, 4)), mask=rg.causal())
    for call in (lambda: layer(x, added[None]), lambda: rg.heatmap(weights, mask=added)):
        with pytest.raises(rg.Refused) as caught:
            call()
        (code,) = FIXES.findall(caught.value.reasons[0].fix)
        assert torch.equal(eval(code.removeprefix("mask="), {"mask": added}), allowed)


@pytest.mark.parametrize("name", ["key_padding_mask", "attn_mask"])
def test_a_layer_of_torch_names_both_meanings_of_integers(name):
    """A tokenizer's attention_mask is 1 where torch's key_padding_mask is false: `.bool()` would invert it."""
    x, real = torch.randn(2, 5, 8), torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    layer = MultiHeadAttention(8, 2, batch_first=True)
    given = real if name == "key_padding_mask" else torch.ones(5, 5, dtype=torch.int64).tril()
    with pytest.raises(rg.Refused) as caught:
        layer(x, x, x, **{name: given})
    fix = caught.value.reasons[0].fix
    code = re.search(rf'pass ({name} == 0) if 1 means "may attend"', fix)
    assert code and f'{name} != 0 if 1 means "may not attend"' in fix
    out = layer(x, x, x, **{name: eval(code[1], {name: given})})[0]
    torch.testing.assert_close(out, layer(x, x, x, **{name: ~given.bool()})[0])
