"""What autograd keeps of a call: tensors only, and only as long, and where, as torch is told."""

import contextlib
import gc
import weakref

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import regard as rg
from regard.language.expr import lift
from tests.support.engines import normal

B, H, G, Q, K, D = 2, 4, 2, 5, 9, 8


def learned(*shape):
    return torch.randn(*shape).requires_grad_()


def qkv():
    return learned(H, Q, D), learned(H, K, D), learned(H, K, D)


# Each builds a rule from one learned tensor, as a layer does in its forward pass.
RULES = {
    "none": ((H,), lambda t: {"sinks": t}),
    "bias made in the step": ((H, 1, K), lambda t: {"score": t.tanh().expand(H, Q, K)}),
    "gate and bias of one tensor": ((K,), lambda t: {"score": rg.gate(t, rg.bias(t))}),
    "mask and score of one tensor": (
        (K,),
        lambda t: {"mask": rg.table(t)[rg.key] < 1.0, "score": rg.score + rg.table(t)[rg.key]},
    ),
    "documents too": (
        (H, Q, K),
        lambda t: {"score": t, "mask": rg.table(torch.arange(K) // 4)[rg.key] <= rg.query // 4},
    ),
}
WAYS = {
    "checkpoint": lambda step, *given: checkpoint(step, *given, use_reentrant=False),
    "reentrant checkpoint": lambda step, *given: checkpoint(step, *given, use_reentrant=True),
    "on the CPU": lambda step, *given: _within(torch.autograd.graph.save_on_cpu(), step, *given),
    "through NumPy": lambda step, *given: _within(
        _hooks(lambda t: t.double().numpy(), lambda a: torch.from_numpy(a)), step, *given
    ),
}


def _hooks(pack, unpack):
    def kept(tensor):
        return pack(tensor.detach()), tensor.dtype

    return torch.autograd.graph.saved_tensors_hooks(kept, lambda held: unpack(held[0]).to(held[1]))


def _within(context, step, *given):
    with context:
        return step(*given)


def gradients(way, make, given):
    """Of a step that runs in this way: the gradients of q, k, v and the tensor of the rule."""

    def step(q, k, v, table):
        return rg.attention(q, k, v, **make(table)).square()

    leaves = [each.clone().requires_grad_() for each in given]
    out = way(step, *leaves)
    out.sum().backward()
    return [out, *(leaf.grad for leaf in leaves)]


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", RULES)
def test_hooks_of_saved_tensors(rule, way, dtype):
    """Checkpointing, offloading and any other hook of saved tensors: the gradients of a plain step, bit for bit."""
    torch.manual_seed(len(rule))
    shape, make = RULES[rule]
    given = [torch.randn(*each, dtype=dtype) for each in ((B, H, Q, D), (B, G, K, D), (B, G, K, D), shape)]
    plain = gradients(lambda step, *given: step(*given), make, given)

    assert plain[-1].abs().sum() > 0
    assert all(map(torch.equal, gradients(WAYS[way], make, given), plain))


def test_gradients_are_those_of_what_the_hooks_return():
    """The backward pass reads the tensors that the hooks unpack, as torch's own operators do, and no kept arrays."""
    (q, k, v), bias = qkv(), learned(H, Q, K)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, torch.zeros_like):
        out = rg.attention(q, k, v, score=bias)
    out.sum().backward()

    assert all(torch.equal(part.grad, torch.zeros_like(part)) for part in (q, k, bias))


@pytest.mark.parametrize("hooked", [False, True])
def test_what_is_kept(hooked):
    """Keys, values and tables made in a step die with it if a hook keeps something else instead of them."""
    q, weight = learned(H, Q, D), learned(D, D)
    made = []

    def step():
        x = torch.randn(H, K, D)
        k, v, bias = x @ weight, x @ weight.mT, (x @ weight).sum(-1)
        made.extend(map(weakref.ref, (k, v, bias)))
        return rg.attention(q, k, v, score=rg.table(bias)[rg.head, rg.key] + rg.score)

    with _hooks(lambda t: t.numpy().copy(), torch.from_numpy) if hooked else contextlib.nullcontext():
        out = step()
    gc.collect()

    assert [ref() is None for ref in made] == [hooked] * 3
    out.sum().backward()
    del out
    gc.collect()
    assert all(ref() is None for ref in made) and weight.grad.isfinite().all()


@pytest.mark.parametrize("what", ["table", "bias", "mask", "sinks", "q", "k"])
def test_an_array_that_changes_before_the_backward_pass(what):
    """Torch cannot notice that a NumPy array changes; the gradients are still those of the forward pass."""
    v, own = learned(H, K, D), learned(H, Q, K)
    shapes = {"q": (H, Q, D), "k": (H, K, D), "bias": (H, Q, K), "table": (K,), "sinks": (H,)}
    arrays = {name: normal(*shape, seed=len(name)) for name, shape in shapes.items()} | {"mask": normal(Q, K) > 0}
    score = rg.bias(own, rg.score + rg.table(arrays["table"])[rg.key] + rg.bias(arrays["bias"], lift(0.0)))
    given = [arrays[name] if name == what else torch.tensor(arrays[name]) for name in "qk"]
    call = {"mask": rg.dense(arrays["mask"]), "score": score, "sinks": arrays["sinks"]}
    before, out = (rg.attention(*given, v, **call).square().sum() for _ in range(2))
    expected = torch.autograd.grad(before, (v, own))
    arrays[what][...] = np.roll(arrays[what], 1)

    assert all(map(torch.equal, torch.autograd.grad(out, (v, own)), expected))


@pytest.mark.parametrize("number", range(6))
def test_a_tensor_that_changes_before_the_backward_pass(number):
    """Torch notices it for its own tensors, those that rules read and the output included, and raises."""
    *first, bias, sinks = given = [*qkv(), learned(H, Q, K), learned(H)]
    out = rg.attention(*first, score=bias, sinks=sinks)
    doubled = out * 2
    with torch.no_grad():
        (*given, out)[number].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        doubled.sum().backward()
