"""Arrays without elements: what torch's own attention gives, in every engine and direction."""

import itertools
import warnings

import numpy as np
import pytest
import torch

import regard as rg
from tests.support.refusals import refusing
from tests.support.tensors import qkv

SIZES = [
    [*sizes]
    for sizes in itertools.product((0, 2), (0, 2), (0, 3), (0, 4), (0, 1, 5), (0, 1, 6))  # B, H, Q, K, D, E
    if 0 in sizes
]


def tensors(B, H, Q, K, D, E):
    return [each.requires_grad_() for each in qkv(H=H, Q=Q, K=K, D=D, E=E, B=B, G=H, dtype=torch.float64)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.one_in(5)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_torch_says_the_same(sizes, causal):
    """Shapes, values and gradients of torch's SDPA for every combination of sizes with a 0 among them."""
    found = []
    for call, rules in (
        (rg.attention, {"mask": rg.causal() if causal else None, "query_start": 0}),
        (torch.nn.functional.scaled_dot_product_attention, {"is_causal": causal}),
    ):
        given = tensors(*sizes)
        out = call(*given, **rules)
        out.sum().backward()
        found.append([out.detach(), *(each.grad for each in given)])

    torch.testing.assert_close(*found)


@pytest.mark.parametrize("engine", ["auto", "reference", "sdpa"])
@pytest.mark.one_in(5)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_lse_and_statistics(sizes, engine):
    """lse counts the keys where scores are 0 because there is no depth, and is −∞ without keys."""
    *rows, K, D, E = sizes
    q, k, v = (each.detach() for each in tensors(*sizes))
    out, lse = rg.attention_with_lse(q, k, v, engine=engine)

    assert (out.shape, lse.shape) == ((*rows, E), (*rows,))
    if D == 0 or K == 0:
        torch.testing.assert_close(lse, torch.full_like(lse, np.log(K) if K else -np.inf))
    assert K or not out.any()
    if engine != "sdpa":
        entropy = rg.attention_stats(q, k, of=["entropy"], engine=engine)["entropy"]
        assert entropy.shape == lse.shape and (D or not K or torch.allclose(entropy, lse))
    assert rg.attention_weights(q, k).shape == (*rows, K)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused_by_name(layout):
    """Both layouts, in calls with and without gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a prototype, once in a process
        nested = torch.nested.nested_tensor([torch.randn(3, 4, 8), torch.randn(3, 5, 8)], layout=layout)

    for q, name in ((nested, "q"), (torch.randn(2, 3, 4, 8), "k")):
        with refusing(rf"{name} is a nested tensor(.|\n)*_tensor\({name}, 0.0\), mask=rg.lengths"):
            rg.attention(q, nested, nested)


def test_refused_is_what_torch_and_numpy_raise():
    """Code that catches the errors of torch's attention, or of NumPy, catches those of regard."""
    assert issubclass(rg.Refused, RuntimeError) and issubclass(rg.Refused, ValueError)
