"""Attention in torch's autograd: the gradients are those of finite differences and of torch itself, and none is lost in
silence.
"""

import pytest
import torch

import regard as rg
from tests.support.refusals import refusing

B, H, G, Q, K, D, E = 2, 4, 2, 3, 5, 3, 2
engines = pytest.mark.parametrize("engine", ["auto", "reference"])


def tensors(batch=B):
    torch.manual_seed(0)
    shapes = (B, H, Q, D), (batch, G, K, D), (batch, G, K, E)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.spread
@engines
@pytest.mark.parametrize("batch", [B, 1], ids=["each", "shared"])
def test_gradcheck(engine, batch):
    """q, k, v, a bias, slopes, a gate and sinks, through out and lse: the slopes that finite differences measure, in
    reverse and in forward mode.
    """
    bias, slope, gate, sinks = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((H, Q, K), H, K, (H, 2))
    )

    def call(q, k, v, bias, slope, gate, sinks):
        score = rg.bias(bias, rg.gate(gate, rg.softcap(3.0, rg.alibi(slope))))
        return rg.attention_with_lse(q, k, v, mask=rg.causal(), score=score, sinks=sinks, engine=engine)

    given = *tensors(batch=batch), bias, slope, gate, sinks
    assert torch.autograd.gradcheck(call, given, check_forward_ad=engine == "auto", fast_mode=True)


def test_a_traced_rule_learns():
    """A captured tensor of a FlexAttention rule gets its gradient, and a second backward pass adds to it."""
    bias, added = torch.zeros(K, requires_grad=True), torch.zeros(K, requires_grad=True)
    for score in (lambda s, b, h, i, j: s + bias[j], rg.bias(added), rg.bias(added)):
        rg.attention(*tensors(), score=score, engine="jit").square().sum().backward()

    torch.testing.assert_close(2 * bias.grad, added.grad)


def test_what_has_no_gradient_is_refused():
    """A mask that requires gradients, or an engine without a backward pass, is rejected, not ignored; under no_grad
    neither matters.
    """
    limit = torch.ones(K, dtype=torch.float64, requires_grad=True)
    for given, words in (
        ({"mask": rg.table(limit, "limit")[rg.key] > 0}, "table 'limit' requires gradients"),
        ({"engine": "sdpa"}, "engine 'sdpa' has no backward pass"),
    ):
        with refusing(words):
            rg.attention(*tensors(), **given)
        with torch.no_grad():
            assert not rg.attention(*tensors(), **given).requires_grad
