"""When a number that is added to scores is a mask: one rule, its bounds in every dtype, and its users."""

import functools
import math
import re

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.language.added_masks import ORDINARY, hidden_beside, hides, range_of
from regard.observe.observed_call import problem_of
from regard.observe.observer import Observer
from regard.torch.layers import MultiHeadAttention, SelfAttention
from tests.support.lanes import examples
from tests.support.refusals import reasons_of, refusing

DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in ("float64", "float32", "float16", "bfloat16")}


def lowest(dtype):
    return float(ml_dtypes.finfo(dtype).min)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("known", ["nothing", "ordinary", "range", "zero"])
def test_the_bound_and_its_neighbour_in_every_dtype(name, known):
    """A number at the bound hides, the next larger one does not; arrays and tensors agree, and so do the numbers in
    float64. −10⁴, as older models add it, is beyond the ordinary bound in every dtype's own rounding.
    """
    dtype = DTYPES[name]
    scores = {"nothing": math.inf, "ordinary": ORDINARY, "range": range_of(dtype), "zero": 0.0}[known]
    bound = {"nothing": -math.inf, "ordinary": -9984.0, "range": lowest(dtype) / 2, "zero": -104.0}[known]
    at = np.array([bound, np.nextafter(dtype.type(bound), dtype.type(0)), 0, np.inf, np.nan, -np.inf, -1e4], dtype)
    tensor = torch.tensor(at.astype(np.float64), dtype=getattr(torch, name))
    expected = [True, False, False, False, False, True, known in ("ordinary", "zero")]

    assert float(at[0]) == bound and range_of(dtype) == range_of(tensor.dtype)
    assert [hides(each, scores).tolist() for each in (at, tensor, tensor.double())] == [expected] * 3


def test_whole_numbers_truth_values_and_nothing_at_all():
    """Whole numbers have no −∞ and no smallest number that means one; without numbers there is nothing to hide."""
    assert range_of(np.dtype(np.int64)) == range_of(torch.bool) == math.inf
    for scores in (0.0, ORDINARY, math.inf):
        assert hides(np.array([-20_000, 0, 1]), scores).tolist() == [scores < math.inf, False, False]
        assert not hides(np.array([True, False]), scores).any()
    assert hidden_beside(np.zeros((2, 3, 0)), np.ones((2, 3, 0), bool)).shape == (2, 3, 0)


def test_a_row_of_low_numbers_alone_hides_nothing():
    """Beside an allowed key that is higher they hide; alone, or beside keys that a mask rules out, they are scores."""
    for added, allowed, hidden in (
        ([-1e9, 0.0, -2e4], [True, True, True], [True, False, True]),
        ([-1e9, -1e9, -2e4], [True, True, True], [False, False, False]),
        ([-1e9, 0.0, np.nan], [True, False, False], [False, False, False]),
        ([-1e9, 0.0, np.nan], [True, True, True], [True, False, False]),
    ):
        assert hidden_beside(np.array(added), np.array(allowed)).tolist() == hidden


@pytest.mark.parametrize(("share", "weight"), [(1 / 2, 0), (3 / 8, 1 / 3)])
def test_transformers_masks_are_what_they_were_at_the_bound(share, weight):
    """Rows of half the smallest number attend nothing and give 0; rows of a number above it have the weights that
    adding it gives: equal ones, because it rounds the scores away.
    """
    from regard.torch import hf

    mask = torch.zeros(1, 1, 3, 3)
    mask[:, :, 0] = torch.finfo(torch.float32).min * share
    options = {"is_causal": False, "output_attentions": True}
    out, weights = hf.attend(torch.nn.Module().eval(), *torch.randn(3, 1, 2, 3, 8), mask, **options)
    torch.testing.assert_close(weights[:, :, 0], torch.full((1, 2, 3), float(weight)))
    assert out[:, 0].any() == (weight > 0) and out[:, 1:].all()


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min, -math.inf])
def test_torchs_own_layers_add_every_finite_number(low):
    """A row to which a finite number is added throughout is the row without it; with −∞ it attends nothing."""
    torch.manual_seed(0)
    layer, x, mask = MultiHeadAttention(8, 2, batch_first=True).eval(), torch.randn(1, 4, 8), torch.zeros(4, 4)
    mask[1] = low
    weights = layer(x, x, x, attn_mask=mask)[1][0]
    torch.testing.assert_close(weights.sum(-1), torch.tensor([1.0, float(low > -math.inf), 1.0, 1.0]))


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min / 2])
def test_an_observed_mask_is_a_rule_from_half_the_smallest_number_on(low):
    """What is said of a call of torch: lower numbers are a mask, and higher ones scores."""
    problems = []

    class Describing(Observer):
        def called(self, seen):
            problems.append(problem_of(seen))

    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad(), Describing(attend, describing=True).watching():
        attend(*torch.randn(3, 1, 2, 3, 8), attn_mask=torch.tensor([0, low, 0]).expand(3, 3))

    assert [(each.mask is not None, each.score is not None) for each in problems] == [(low < -1e30, low > -1e30)]


# ---- numbers that were passed as booleans ----------------------------------------------------------------------------

FIXES = re.compile(r"((?:score|mask)=[^,:]+?)(?= if |,|:|$)")


def followed(call, **given) -> list:
    """The results of a call with every piece of code that its refusal proposes instead of the argument."""
    (reason,) = reasons_of(call, **given)
    codes = FIXES.findall(reason.fix)
    assert codes, reason.fix
    return [eval(f"call({code})", {"call": call} | given) for code in codes]


@examples(60)
@given(
    st.sampled_from([*DTYPES]),
    st.booleans(),
    st.sampled_from([-math.inf, "smallest", -1e4, -3e4, "bias", 0.0]),
    st.sampled_from([(6, 9), (1, 9), (2, 6, 9), (3, 1, 6, 9)]),
    st.integers(0, 99),
)
def test_the_fix_for_numbers_as_a_mask_means_what_torch_means(name, tensors, low, shape, seed):
    """Every call that the message proposes for an additive mask or a bias equals torch's attention with that
    attn_mask.
    """
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    q, k, v = rng.standard_normal((3, 3, 2, 9, 4))
    added = rng.standard_normal(shape)
    if low != "bias":
        hidden = (rng.random(shape) < 0.4) & (np.arange(9) > 0)
        added = np.where(hidden, lowest(dtype) if low == "smallest" else low, 0.0)
    added, arrays = added.astype(dtype), (q[:, :, :6], k, v)
    tensor = torch.tensor(added.astype(np.float64))
    wanted = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, arrays), attn_mask=tensor)
    passed = tensor.to(getattr(torch, name)) if tensors else added
    for found in followed(functools.partial(rg.attention, *arrays, engine="reference"), mask=passed):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_fix_for_zeros_and_ones_is_a_comparison(dtype):
    """0 and 1 mean false and true, first as regard reads booleans, then the other way round."""
    call = functools.partial(rg.attention, *np.random.default_rng(0).standard_normal((3, 2, 9, 4)))
    allowed = np.tri(9, dtype=bool)
    for found, mask in zip(followed(call, mask=allowed.astype(dtype)), (allowed, ~allowed), strict=True):
        np.testing.assert_array_equal(found, call(mask=mask))


def test_other_functions_tell_numbers_apart_too():
    """The layer and the picture name a comparison that allows the pairs that the added mask allows."""
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    added = torch.zeros(5, 5).masked_fill(~allowed, torch.finfo(torch.float32).min)
    layer, x = SelfAttention(4), torch.randn(2, 5, 4)
    weights = rg.attention_weights(np.ones((1, 5, 4)), np.ones((1, 5, 4)), mask=rg.causal())
    (found,) = followed(lambda mask: layer(x, mask), mask=added[None])
    assert torch.equal(found, layer(x, allowed[None]))
    assert len(followed(lambda mask: rg.heatmap(weights, mask=mask), mask=added)) == 1


@pytest.mark.parametrize(
    ("name", "given_"),
    [
        ("key_padding_mask", torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])),
        ("attn_mask", torch.ones(5, 5, dtype=torch.int64).tril()),
    ],
)
def test_a_layer_of_torch_names_both_meanings_of_integers(name, given_):
    """A tokenizer's attention_mask is 1 where torch's key_padding_mask is false: `.bool()` would invert it."""
    x, layer = torch.randn(2, 5, 8), MultiHeadAttention(8, 2, batch_first=True)
    with refusing(f'pass {name} == 0 if 1 means "may attend".*{name} != 0 if 1 means "may not attend"'):
        layer(x, x, x, **{name: given_})
