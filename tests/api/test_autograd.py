"""Attention in torch's autograd: the gradients are those of finite differences and of torch itself, and none is lost in
silence.
"""

import pytest
import torch

import regard as rg

B, H, G, Q, K, D, E = 2, 4, 2, 5, 7, 6, 3
engines = pytest.mark.parametrize("engine", ["jit", "reference"])


def tensors(dtype=torch.float64, wanting=True, batch=B):
    torch.manual_seed(0)
    shapes = (B, H, Q, D), (batch, G, K, D), (batch, G, K, E)
    return [torch.randn(shape, dtype=dtype, requires_grad=wanting) for shape in shapes]


@pytest.mark.spread
@engines
@pytest.mark.parametrize("batch", [B, 1], ids=["each", "shared"])
def test_gradcheck(engine, batch):
    """q, k, v, a bias, slopes, a gate and sinks, through out and lse: the slopes that finite differences measure."""
    bias, slope, gate, sinks = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((H, Q, K), H, K, (H, 2))
    )

    def call(q, k, v, bias, slope, gate, sinks):
        score = rg.bias(bias, rg.gate(gate, rg.softcap(3.0, rg.alibi(slope))))
        return rg.attention_with_lse(q, k, v, mask=rg.causal(), score=score, sinks=sinks, engine=engine)

    assert torch.autograd.gradcheck(call, (*tensors(batch=batch), bias, slope, gate, sinks))


@engines
def test_gradcheck_with_dropout(engine):
    """The weights that fell out of the forward pass pass nothing back."""
    assert torch.autograd.gradcheck(lambda *qkv: rg.attention(*qkv, dropout=0.4, seed=3, engine=engine), tensors())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_torch_says_the_same(dtype):
    """In training dtypes the gradients are those of torch's own attention, in the same dtype and for grouped heads."""
    q, k, v = tensors(dtype)
    dout = torch.randn(B, H, Q, E).to(dtype)
    rg.attention(q, k, v, mask=rg.causal(), query_start=0).backward(dout)
    found = [part.grad for part in (q, k, v)]
    exact = [part.detach().double().requires_grad_() for part in (q, k, v)]
    torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=True, enable_gqa=True).backward(dout.double())

    for mine, theirs in zip(found, exact):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), theirs.grad, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_a_traced_rule_learns():
    """A captured tensor of a FlexAttention rule gets its gradient, and a second backward pass adds to it."""
    q, k, v = tensors(torch.float32, wanting=False)
    bias = torch.zeros(K, requires_grad=True)
    for _ in range(2):
        rg.attention(q, k, v, score=lambda s, b, h, i, j: s + bias[j], engine="jit").square().sum().backward()
    added = torch.zeros(K, requires_grad=True)
    scores = q @ k.repeat_interleave(2, 1).mT / D**0.5 + added
    (2 * (scores.softmax(-1) @ v.repeat_interleave(2, 1)).square().sum()).backward()

    torch.testing.assert_close(bias.grad, added.grad, rtol=1e-4, atol=1e-5)


def test_only_what_wants_a_gradient_gets_one():
    """A tensor without requires_grad stays without a gradient; under no_grad nothing is recorded."""
    q, k, v = tensors()
    k.requires_grad_(False)
    rg.attention(q, k, v).sum().backward()
    assert q.grad is not None and k.grad is None and v.grad is not None
    with torch.no_grad():
        assert not rg.attention(q, k, v).requires_grad
    assert not rg.attention(*tensors(wanting=False)).requires_grad


def test_views_and_any_strides():
    """Projections are (B, rows, heads, depth) in memory and dout is often an expanded scalar: same gradients."""
    q, k, v = tensors()
    laid = [part.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for part in (q, k, v)]
    rg.attention(q, k, v).sum().backward()
    rg.attention(*laid).sum().backward()
    for plain, other in zip((q, k, v), laid):
        assert torch.equal(plain.grad, other.grad)


def test_a_second_derivative_is_refused():
    """create_graph=True gives first derivatives; differentiating those raises `Refused`."""
    q, k, v = tensors()
    (first,) = torch.autograd.grad(rg.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(rg.Refused) as caught:
        first.sum().backward()

    (reason,) = caught.value.reasons
    assert reason.what == "second derivatives are not supported"
    assert reason.fix == "differentiate once (create_graph=False), or use torch's own attention for this step"


def test_what_has_no_gradient_is_refused():
    """A scale or a mask that requires gradients, or an engine without a backward pass, is rejected, not
    ignored.
    """
    q, k, v = tensors()
    limit = torch.ones(K, dtype=torch.float64, requires_grad=True)
    with pytest.raises(rg.Refused, match="scale requires gradients"):
        rg.attention(q, k, v, scale=torch.tensor(0.5, requires_grad=True))
    with pytest.raises(rg.Refused, match="table 'limit' requires gradients"):
        rg.attention(q, k, v, mask=rg.table(limit, "limit")[rg.key] > 0)
    with pytest.raises(rg.Refused, match="engine 'sdpa' has no backward pass"):
        rg.attention(q, k, v, engine="sdpa")


def test_a_tiny_model_learns():
    """Gradient descent through attention, slopes included, brings the loss down."""
    torch.manual_seed(0)
    x, y = torch.randn(1, 2, 12, 8), torch.randn(1, 2, 12, 8)
    weights = [torch.nn.Parameter(torch.randn(8, 8) / 3) for _ in range(3)] + [torch.nn.Parameter(torch.zeros(2))]
    optimizer, losses = torch.optim.Adam(weights, lr=0.05), []
    for _ in range(30):
        q, k, v = (x @ weight for weight in weights[:3])
        loss = (rg.attention(q, k, v, mask=rg.causal(), score=rg.alibi(weights[3])) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < 0.7 * losses[0]
    assert weights[3].grad.abs().max() > 0
