"""Attention as an operator of torch, checked with torch's own tools."""

import pytest
import torch

import regard as rg
import regard.torch as rt
from regard.language.tree.writing import write
from tests.support.lanes import sweep
from tests.support.refusals import refusing
from tests.support.tensors import compiled, qkv

B, H = 2, 4
LOCAL = rg.causal() & rg.window(4)
SLOPE = torch.nn.Parameter(torch.rand(H))
LEARNED = rg.alibi(SLOPE)


def tensors(dtype=torch.float32):
    return [part.requires_grad_() for part in qkv(Q=6, K=9, D=8, E=8, dtype=dtype)]


def operands(dtype):
    """Every operand of the operator; sinks and tables require gradients as q, k and v do."""
    number = (torch.tensor(each) for each in (5, 0, 3))
    sinks, starts = torch.randn(H, requires_grad=True), torch.zeros(B, dtype=torch.int64)
    return (*tensors(dtype), sinks, [SLOPE], starts, *number, write(LOCAL, []), write(LEARNED, []), 0.3, 0.25, "auto")


@pytest.mark.parametrize("dtype", [torch.float32, *sweep(torch.bfloat16)], ids=str)
def test_opcheck(dtype):
    """torch's own check of both operators: schema, fake tensors, autograd, and ahead-of-time compilation with changing
    sizes.
    """
    given, operators = operands(dtype), torch.ops.regard
    detached = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, given)
    out, sums, lost = operators.attention(*detached)
    for operator, arguments in (
        (operators.attention, given),
        (operators.attention_backward, (out, None, out, sums, lost, [True] * 5, *detached)),  # has no gradients
    ):
        assert set(torch.library.opcheck(operator.default, arguments).values()) == {"SUCCESS"}


def test_autocast():
    """Under autocast attention runs in the dtype that torch's own would run in; float64 is not cast."""
    given = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        found = rt.attention(*given)
        theirs = torch.nn.functional.scaled_dot_product_attention(*given, enable_gqa=True)
        exact = rt.attention(*tensors(torch.float64))
    found.sum().backward()

    assert found.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(found, rt.attention(*(part.bfloat16() for part in given)))
    assert exact.dtype == torch.float64 and given[0].grad.dtype == torch.float32


def test_what_the_mask_reads_gets_no_slope():
    """A learned table that both the mask and the score read gets the gradient of the score, once."""
    learned = torch.linspace(-1, 1, 9, requires_grad=True)
    read, found = rg.table(learned)[rg.key], []
    for mask in (read < 0.7, rg.table(learned.detach() < 0.7)[rg.key]):
        out = rt.attention(*tensors(), mask=mask, score=rg.score + read)
        found += torch.autograd.grad(out.square().sum(), learned)

    assert torch.equal(*found)


def test_the_same_operator_on_a_device(monkeypatch):
    """What the operator does for tensors on a card, tried on the CPU: numbers and gradients of the operator here, also
    inside an operator, where torch's autograd is off, and where not all are needed.
    """
    from regard.api.torch_operator import operator as autograd
    from regard.engines import dispatch

    learned = [each.detach().double().requires_grad_() for each in (torch.randn(H), SLOPE)]
    given = *tensors(torch.float64), learned[0], learned[1:]
    rest = None, None, None, None, write(LOCAL, []), write(LEARNED, []), 0.3, 0.0
    here = autograd._on_cpu(*given, *rest, "auto")
    dout, dlse = torch.randn_like(here[0]), torch.randn_like(here[1][0])
    monkeypatch.setattr(dispatch, "elsewhere", lambda _: True)
    there = autograd._on_gpu(*given, *rest, "tiles")
    torch.testing.assert_close([here[0], here[1][0]], [there[0].detach(), there[1][0].detach()])
    for needed, dsums in (
        ([True] * 5, torch.stack([dlse, *torch.zeros(2, *dlse.shape)])),
        ([True, True, True, False, True], None),
    ):
        with torch._C._AutoDispatchBelowAutograd():
            theirs = autograd._backward_on_gpu(dout, dsums, *there, needed, *given, *rest, "tiles")
        mine = autograd._backward_on_cpu(dout, dsums, *here, needed, *given, *rest, "auto")
        torch.testing.assert_close(mine, theirs)
        assert len(mine) == sum(needed)


@pytest.mark.parametrize("start", ["fork", *sweep("spawn")])
def test_in_workers_of_a_data_loader(start):
    """Attention in the processes of a DataLoader gives the numbers that it gives here, also after it was used here."""
    x = torch.linspace(-2, 2, 6 * 2 * 40 * 8).reshape(6, 2, 40, 8)
    here = rt.attention(x, x, x)
    loader = torch.utils.data.DataLoader(x, 3, collate_fn=attended, num_workers=2, multiprocessing_context=start)

    assert torch.equal(torch.cat(list(loader)), here)


def attended(samples):
    """Attention of the samples of a batch, in the worker."""
    return rt.attention(*[torch.stack(samples)] * 3)


def test_a_parameter_that_was_given_other_memory():
    """A rule over a tensor with new memory, as after module.to(…), reads the new ones, compiled or
    not.
    """
    q, k, v = (part.detach() for part in tensors())
    slope = torch.rand(H)
    rule = rg.alibi(slope)

    def call():
        return rt.attention(q, k, v, score=rule)

    program = compiled(call)
    program()
    for scale in (1, 5):
        slope.data = slope * scale
        expected = rt.attention(q, k, v, score=rg.alibi(slope.clone()))
        assert torch.equal(call(), expected) and torch.equal(program(), expected)
    slope.data = torch.ones(H, dtype=torch.int64)
    with refusing("the slope table changed its dtype kind or number of axes"):
        call()
