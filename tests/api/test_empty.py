"""Arrays without elements: what torch's own attention gives, in every engine and direction."""

import itertools
import warnings

import numpy as np
import pytest
import torch

import regard as rg

SIZES = [
    [*sizes]
    for sizes in itertools.product((0, 2), (0, 2), (0, 3), (0, 4), (0, 1, 5), (0, 1, 6))  # B, H, Q, K, D, E
    if 0 in sizes
]
RULES = {"none": {}, "causal": {"mask": rg.causal(), "query_start": 0}, "softcap": {"score": rg.softcap(2.0)}}


def tensors(B, H, Q, K, D, E, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = (B, H, Q, D), (B, H, K, D), (B, H, K, E)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("rule", ["none", "causal"])
@pytest.mark.one_in(5)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_torch_says_the_same(sizes, rule):
    """Shapes, values and gradients of torch's SDPA for every combination of sizes with a 0 among them."""
    found = []
    for call in (
        lambda *given: rg.attention(*given, **RULES[rule]),
        lambda *given: torch.nn.functional.scaled_dot_product_attention(*given, is_causal=rule == "causal"),
    ):
        given = tensors(*sizes)
        out = call(*given)
        out.sum().backward()
        found.append([out.detach(), *(each.grad for each in given)])

    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("engine", ["auto", "reference", "sdpa"])
@pytest.mark.one_in(5)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_lse_and_statistics(sizes, engine):
    """lse counts the keys where scores are 0 because there is no depth, and is −∞ without keys."""
    _, _, _, K, D, _ = sizes
    given = [each.detach() for each in tensors(*sizes, dtype=torch.float64)]
    out, lse = rg.attention_with_lse(*given, engine=engine)

    assert out.shape == (*given[0].shape[:-1], sizes[-1]) and lse.shape == given[0].shape[:-1]
    if D == 0 or K == 0:
        expected = torch.full(lse.shape, np.log(K) if K else -np.inf, dtype=torch.float64)
        torch.testing.assert_close(lse, expected)
    if engine != "sdpa":
        entropy = rg.attention_stats(*given[:2], of=["entropy"], engine=engine)["entropy"]
        assert entropy.shape == lse.shape and (D or not K or torch.allclose(entropy, lse))
    assert rg.attention_weights(*given[:2]).shape == (*given[0].shape[:-1], K)


def test_the_compiled_engine_refuses_depth_0():
    """A named engine runs or refuses."""
    q = np.zeros((2, 3, 0), np.float32)

    with pytest.raises(rg.Refused, match="no kernels for arrays of depth 0"):
        rg.attention(q, q, q, engine="jit")


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused_by_name(layout):
    """Both layouts, in calls with and without gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a prototype, once in a process
        nested = torch.nested.nested_tensor([torch.randn(3, 4, 8), torch.randn(3, 5, 8)], layout=layout)
    plain = torch.randn(2, 3, 4, 8)

    every = r"q is a nested tensor; the same is true of k and v(.|\n)*to_padded_tensor\(q, 0.0\), mask=rg.lengths"
    some = r"k is a nested tensor(.|\n)*to_padded_tensor\(k, 0.0\), mask=rg.lengths"
    for given, text in (((nested, nested, nested), every), ((plain, nested, nested), some)):
        with pytest.raises(rg.Refused, match=text):
            rg.attention(*given)


def test_refused_is_what_torch_and_numpy_raise():
    """Code that catches the errors of torch's attention, or of NumPy, catches those of regard."""
    assert issubclass(rg.Refused, RuntimeError) and issubclass(rg.Refused, ValueError)
    for function in (torch.nn.functional.scaled_dot_product_attention, rg.attention):
        with pytest.raises(RuntimeError):
            function(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 5), torch.zeros(1, 2, 3, 4))
