"""Attention as an operator of torch, checked with torch's own tools."""

import copy
import pickle

import pytest
import torch

import regard as rg
import regard.torch as rt
from regard.language.tree.interning import known
from regard.language.tree.writing import write
from tests.support.lanes import sweep

B, H, G, Q, K, D = 2, 4, 2, 6, 9, 8
LOCAL = rg.causal() & rg.window(4)
SLOPE = torch.nn.Parameter(torch.rand(H))
LEARNED = rg.alibi(SLOPE)
BIAS = torch.randn(H, Q, K, generator=torch.Generator().manual_seed(0)).requires_grad_()
SEEN = torch.rand(Q, K, generator=torch.Generator().manual_seed(1)) > 0.3


def tensors(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((B, H, Q, D), (B, G, K, D), (B, G, K, D))]


def learn(function, given):
    """The gradients of everything that can learn."""
    for leaf in (*given, SLOPE, BIAS):
        leaf.grad = None
    function(*given).square().sum().backward()
    return [leaf.grad for leaf in (*given, SLOPE, BIAS)]


RULES = {
    "plain": dict,
    "rule from outside": lambda: {"mask": LOCAL},
    "rule built inside": lambda: {"mask": rg.causal() & rg.window(4)},
    "rule written inside": lambda: {"mask": (rg.key <= rg.query) & (rg.query - rg.key < 5)},
    "callable": lambda: {"mask": lambda b, h, i, j: j <= i},
    "softcap": lambda: {"score": rg.softcap(5.0), "mask": rg.causal()},
    "learned slopes": lambda: {"score": LEARNED},
    "mask of truth values": lambda: {"mask": SEEN},
    "learned bias": lambda: {"score": BIAS},
    "dropout": lambda: {"dropout": 0.5, "seed": 3},
    "seed in a tensor": lambda: {"dropout": 0.5, "seed": torch.tensor(3)},
    "rows at other positions": lambda: {"mask": rg.causal(), "query_start": 1},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_compiled_whole(rules):
    """torch.compile captures the call in one graph, bit-identical to the eager call, forward and backward."""

    def program(q, k, v):
        out, lse = rt.attention_with_lse(q, k, v, **rules())
        return torch.cat([out, lse[..., None]], -1)

    eager = learn(program, tensors())
    torch._dynamo.reset()
    compiled = learn(torch.compile(program, fullgraph=True, backend="aot_eager"), tensors())

    for mine, theirs in zip(compiled, eager):
        assert (mine is None) == (theirs is None)
        assert mine is None or torch.equal(mine, theirs)


def test_another_rule_is_another_program():
    """A compiled function that is given another window computes with that window, and sizes may change."""

    def call(q, k, v, rule):
        return rt.attention(q, k, v, mask=rule)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for width in (2, 5):
        for size in (K, K - 2):
            q, k, v = (part.detach() for part in tensors())
            given = q, k[:, :, :size], v[:, :, :size], rg.window(width)
            assert torch.equal(compiled(*given), call(*given))


CALLS = {
    "plain": lambda: (*tensors(), None, [], None, None, None, None, "", "", None, 0.0, "auto"),
    "everything": lambda: (
        *tensors(),
        torch.randn(H, requires_grad=True),
        [SLOPE],
        torch.zeros(B, dtype=torch.int64),
        torch.tensor(5),
        torch.tensor(0),
        torch.tensor(3),
        write(LOCAL, []),
        write(LEARNED, []),
        0.3,
        0.25,
        "auto",
    ),
    "16 bit": lambda: (
        *tensors(torch.bfloat16),
        None,
        [],
        None,
        None,
        None,
        None,
        write(LOCAL, []),
        "",
        None,
        0.0,
        "jit",
    ),
}


@pytest.mark.parametrize("step", ["forward", "backward"])
@pytest.mark.parametrize("call", ["everything", *sweep("plain", "16 bit")])
def test_opcheck(call, step):
    """torch's own check of an operator: schema, fake tensors, autograd, and ahead-of-time compilation with changing
    sizes.
    """
    given = CALLS[call]()
    if step == "forward":
        found = torch.library.opcheck(torch.ops.regard.attention.default, given)
    else:  # which has no gradients of its own
        given = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, given)
        out, sums, lost = (part.detach() for part in torch.ops.regard.attention(*given))
        needs = [True] * 3 + [given[3] is not None] + [True] * len(given[4])
        found = torch.library.opcheck(
            torch.ops.regard.attention_backward.default, (out, None, out, sums, lost, needs, *given)
        )

    assert set(found.values()) == {"SUCCESS"}


def test_func_grad():
    """torch.func.grad gives the gradients of backward(), those of slopes and sinks included."""
    sinks = torch.randn(H, requires_grad=True)

    def loss(q, k, v, sinks):
        return rt.attention(q, k, v, mask=LOCAL, score=LEARNED, sinks=sinks).square().sum()

    given = *tensors(), sinks
    loss(*given).backward()
    found = torch.func.grad(loss, argnums=(0, 1, 2, 3))(*(part.detach() for part in given))

    assert all(torch.equal(mine, leaf.grad) for mine, leaf in zip(found, given))


def test_vmap():
    """Gradients per sample are the gradients of each sample by itself."""

    def loss(weight, x):
        return rt.attention(x @ weight, x, x, mask=LOCAL).square().sum()

    weight, samples = torch.randn(D, D), torch.randn(3, H, Q, D)
    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, samples)

    assert torch.equal(found, torch.stack([torch.func.grad(loss)(weight, x) for x in samples]))


def test_autocast():
    """Under autocast attention runs in the dtype that torch's own would run in; float64 is not cast."""
    q, k, v = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        found = rt.attention(q, k, v)
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        exact = rt.attention(*tensors(torch.float64))
    found.sum().backward()

    assert found.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(found, rt.attention(*(part.bfloat16() for part in (q, k, v))))
    assert exact.dtype == torch.float64 and q.grad.dtype == torch.float32


def test_checkpointing():
    """A checkpointed step draws its seed again from torch's generator, and drops the same weights."""

    def step(q, k, v):
        return rt.attention(q, k, v, dropout=0.5, seed=torch.randint(2**62, ()))

    plain = learn(step, tensors())  # which also seeds the generator
    again = learn(lambda *given: torch.utils.checkpoint.checkpoint(step, *given, use_reentrant=False), tensors())

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(again[:3], plain[:3]))


def test_a_name_is_a_structure():
    """Rules of the same structure have one digest, which leads back to the rule; a table that may change has its
    own.
    """
    mutable = torch.zeros(K)

    assert (rg.causal() & rg.window(4)).digest == LOCAL.digest and known(LOCAL.digest) is LOCAL
    assert rg.window(4).digest != rg.window(5).digest
    assert rg.lengths([3, 4]).digest == rg.lengths([3, 4]).digest != rg.lengths([3, 5]).digest
    assert (rg.table(mutable)[rg.key]).digest != (rg.table(mutable.clone())[rg.key]).digest
    assert pickle.loads(pickle.dumps(LOCAL)) is LOCAL and copy.deepcopy(LOCAL) is LOCAL


def test_what_the_mask_reads_gets_no_slope():
    """A learned table that both the mask and the score read gets the gradient of the score, once."""
    q, k, v = (part.detach() for part in tensors())
    learned = torch.linspace(-1, 1, K, requires_grad=True)
    shown = rg.table(learned, "learned")
    mask, score = shown[rg.key] < 0.7, rg.score + shown[rg.key]
    rt.attention(q, k, v, mask=mask, score=score).square().sum().backward()
    both = learned.grad
    learned.grad = None
    rt.attention(q, k, v, mask=rg.table(learned.detach() < 0.7)[rg.key], score=score).square().sum().backward()

    assert torch.equal(both, learned.grad)


def test_the_same_operator_on_a_device(monkeypatch):
    """What the operator does for tensors on a card, tried on the CPU: numbers and gradients of the operator here."""
    from regard.api.torch_operator import operator as autograd
    from regard.engines import dispatch

    sinks = torch.randn(H, requires_grad=True)
    given = (
        *tensors(torch.float64),
        sinks.detach().double().requires_grad_(),
        [SLOPE.detach().double().requires_grad_()],
    )
    rest = None, None, None, None, write(LOCAL, []), write(LEARNED, []), 0.3, 0.0
    out, sums, lost = autograd._on_cpu(*given, *rest, "auto")
    monkeypatch.setattr(dispatch, "elsewhere", lambda _: True)
    other, others, none = autograd._on_gpu(*given, *rest, "tiles")
    slopes = torch.randn_like(out), torch.stack([torch.randn_like(sums[0]), *torch.zeros_like(sums[:2])])
    theirs = autograd._backward_on_gpu(*slopes, other, others, none, [True] * 5, *given, *rest, "tiles")
    monkeypatch.undo()
    mine = autograd._backward_on_cpu(*slopes, out, sums, lost, [True] * 5, *given, *rest, "auto")

    torch.testing.assert_close(out, other.detach())
    torch.testing.assert_close(sums[0], others[0].detach())
    assert len(mine) == len(theirs) == 5
    for here, there in zip(mine, theirs):
        torch.testing.assert_close(here, there)


class Attended(torch.utils.data.Dataset):
    """Samples that are made by attention, in the worker."""

    def __len__(self):
        return 6

    def __getitem__(self, number):
        x = torch.full((2, 40, 8), 0.1 * number)
        return rt.attention(x, x.cumsum(-1), x.cumsum(-2), mask=LOCAL)


@pytest.mark.parametrize("start", ["fork", *sweep("spawn")])
def test_in_workers_of_a_data_loader(start):
    """Attention in the processes of a DataLoader gives the numbers that it gives here, also after it was used here."""
    data = Attended()
    here = torch.stack([data[number] for number in range(len(data))])
    loader = torch.utils.data.DataLoader(data, batch_size=3, num_workers=2, multiprocessing_context=start)

    assert torch.equal(torch.cat(list(loader)), here)


def test_a_parameter_that_was_given_other_memory():
    """A rule over a tensor with new memory, as after module.to(…), reads the new ones, compiled or
    not.
    """
    q, k, v = (part.detach() for part in tensors())
    slope = torch.rand(H)
    rule = rg.alibi(slope)
    call = torch.compile(lambda: rt.attention(q, k, v, score=rule), fullgraph=True, backend="aot_eager")
    before, plain = call(), rt.attention(q, k, v, score=rule)
    slope.data = slope * 5

    assert not torch.equal(call(), before) and torch.equal(plain, before)
    assert torch.equal(rt.attention(q, k, v, score=rule), call())
    assert torch.equal(call(), rt.attention(q, k, v, score=rg.alibi(slope)))
    slope.data = torch.ones(H, dtype=torch.int64)
    with pytest.raises(rg.Refused, match="the slope table changed its dtype kind or number of axes"):
        rt.attention(q, k, v, score=rule)
