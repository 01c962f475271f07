"""Whatever looks at torch's operators sees attention as one: traces compute it again, and no derivative is lost."""

import contextlib
import functools
import gc
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import regard as rg
import regard.torch as rt
from tests.support.kernels import fresh
from tests.support.lanes import by_name, sweep
from tests.support.refusals import refused_in
from tests.support.tensors import Wrapped, compiled, qkv

CAUSAL = rg.causal()

B, H, Q, K, D = 2, 4, 5, 9, 8
SLOPES = torch.rand(H)
DOCUMENTS = torch.arange(K) // 4
SEEN = torch.rand(Q, K) > 0.2

CALLS = {
    "plain": {},
    "starts": {"mask": CAUSAL, "query_start": [0, 2]},
    "documents": {"mask": rg.documents(DOCUMENTS)},
    "booleans": {"mask": SEEN},
    "callable": {"mask": lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j]},
    "numbers of callables": {"mask": lambda b, h, i, j: True, "score": lambda s, b, h, i, j: 0.5},
    "slopes": {"score": rg.alibi(SLOPES), "mask": rg.window(3)},
    "softcap": {"score": rg.softcap(2.0), "scale": 0.5},
    "floats": {"score": torch.randn(H, Q, K)},
    "dropout": {"sinks": torch.randn(H, 2), "dropout": 0.3, "seed": 5},
    "NumPy": {"sinks": torch.randn(H).numpy(), "score": torch.randn(Q, K).numpy(), "query_start": 3},
}
ENTRIES = {"regard": rg.attention_with_lse, "regard.torch": rt.attention_with_lse}
calls = pytest.mark.parametrize("call", CALLS)
entries = pytest.mark.parametrize("entry", ENTRIES)


tensors = functools.partial(qkv, Q=Q, K=K, D=D, E=3)


def traced(function, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(function, given)


TRACERS = {
    "make_fx": lambda function, given: make_fx(function)(*given),
    "make_fx, symbolic": lambda function, given: make_fx(function, tracing_mode="symbolic")(*given),
    "functionalize": lambda function, given: torch.func.functionalize(function),
    "make_fx of functionalize": lambda function, given: make_fx(torch.func.functionalize(function))(*given),
    "jit.trace": traced,
    "export": lambda function, given: torch.export.export(Wrapped(function), tuple(given)).module(),
    "strict export": lambda function, given: torch.export.export(Wrapped(function), tuple(given), strict=True).module(),
    "compile": lambda function, given: compiled(function),
}


@pytest.mark.spread
@entries
@calls
@pytest.mark.parametrize("tracer", TRACERS)
def test_a_trace_computes_attention_again(tracer, call, entry):
    """The recorded program gives for other numbers what the call gives, out and lse, bit for bit."""
    tensor = any(isinstance(each, torch.Tensor) or callable(each) for each in CALLS[call].values())
    if tracer == "make_fx, symbolic" and (tensor or "score" in CALLS[call]):
        pytest.skip("torch does not accept tensors from outside in symbolic tracing")
    if tracer == "strict export" and call == "NumPy":
        pytest.skip("torch exports NumPy arrays without their numbers, x + torch.as_tensor(array) too")

    def both(q, k, v):
        return ENTRIES[entry](q, k, v, **CALLS[call])

    program = TRACERS[tracer](both, tensors())
    others = tensors(seed=1)

    assert all(map(torch.equal, program(*others), both(*others)))


@pytest.mark.spread
@entries
@calls
def test_forward_mode(call, entry):
    """Tangents of q, k, v through out and lse are the slopes of finite differences, along random directions."""
    given = [each.requires_grad_() for each in tensors(dtype=torch.float64)]
    arguments = {
        name: each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for name, each in CALLS[call].items()
    }
    function = functools.partial(ENTRIES[entry], **arguments)

    assert torch.autograd.gradcheck(function, given, check_forward_ad=True, check_backward_ad=False, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, *sweep(torch.float16)])
def test_tangents_of_every_dtype(dtype):
    """The tangent is the float64 one, rounded to the dtype of q."""

    def tangent(change):
        given, directions = (tuple(change(each) for each in tensors(seed=seed, dtype=dtype)) for seed in (0, 2))
        return torch.func.linearize(lambda *qkv: rg.attention(*qkv, mask=CAUSAL), *given)[1](*directions)

    found = tangent(torch.Tensor.clone)
    assert found.dtype == dtype and torch.equal(found, tangent(torch.Tensor.double).to(dtype))


def test_jacobians():
    """Column by column (forward) and row by row (reverse) they are the same, also under vmap over samples."""
    given = [each[:, : each.shape[1] // 2, :3] for each in tensors(dtype=torch.float64)]

    def call(q, k, v):
        return rg.attention(q, k, v, mask=CAUSAL, score=rg.softcap(2.0)).sum(-1)

    forward = torch.func.vmap(torch.func.jacfwd(call, (0, 1, 2)))(*given)
    for sample in range(B):
        reverse = torch.func.jacrev(call, (0, 1, 2))(*(each[sample] for each in given))
        torch.testing.assert_close([each[sample] for each in forward], [*reverse], rtol=1e-10, atol=1e-12)


def _twice(f, q):
    q = q.clone().requires_grad_()
    (slope,) = torch.autograd.grad(f(q), q, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), q)[0]


SECOND = {
    "hessian": lambda f, q: torch.func.hessian(f)(q),
    "reverse of forward": lambda f, q: torch.func.grad(lambda q: torch.func.jvp(f, (q,), (q * 0 + 2,))[1])(q),
    "forward of reverse": lambda f, q: torch.func.jvp(torch.func.grad(f), (q,), (q,))[1],
    "reverse of reverse": lambda f, q: torch.func.grad(lambda q: torch.func.grad(f)(q).square().sum())(q),
    "create_graph": _twice,
    "hvp": lambda f, q: torch.autograd.functional.hvp(f, q, q * 2)[1],
}


@by_name("way", SECOND)
def test_second_derivatives(way):
    """Those of the same computation by operations of torch."""
    q, k, v = (each[:1, :2, :3] for each in tensors(dtype=torch.float64))
    allowed = torch.ones(3, k.shape[2], dtype=torch.bool).tril(k.shape[2] - 3)

    def ours(q):
        return rg.attention(q, k, v, mask=rg.causal(), score=rg.softcap(2.0)).square().sum()

    def theirs(q):
        scores = 2 * torch.tanh(q @ k.mT / D**0.5 / 2)
        return (scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v).square().sum()

    torch.testing.assert_close(way(ours, q), way(theirs, q), rtol=1e-8, atol=1e-10)


SMALL = {
    "plain": rg.attention,
    "grouped heads, and lse": lambda *qkv: rg.attention_with_lse(*qkv, mask=rg.window(3), sinks=np.ones(2)),
    "a bias": lambda *qkv: rg.attention(*qkv, score=np.linspace(-1, 1, 12).reshape(3, 4)),
}


@by_name("call", SMALL)
def test_gradients_of_gradients_are_slopes(call):
    """torch.autograd.gradgradcheck: of q, k, v and of the gradient of the output, also in repeated calls."""
    given = (
        torch.randn(1, heads, rows, 2, dtype=torch.float64, requires_grad=True)
        for heads, rows in ((2, 3), (1, 4), (1, 4))
    )
    given = tuple(given)
    for _ in range(2):
        assert torch.autograd.gradgradcheck(call, given)


REFUSED = {
    "of sinks, or of tensors that rules read": lambda q, k, v: _twice(
        lambda bias: rg.attention(q, k, v, score=bias).square().sum(), torch.ones(q.shape[2], k.shape[2])
    ),
    "a forward-mode derivative in forward mode": lambda q, k, v: torch.func.jvp(
        lambda q: torch.func.jvp(lambda q: rg.attention(q, k, v), (q,), (q,))[1], (q,), (q,)
    ),
    "engine 'jit' has no forward-mode derivative": lambda q, k, v: torch.func.jvp(
        lambda q: rg.attention(q, k, v, engine="jit"), (q,), (q,)
    ),
    "third derivatives are not supported": lambda q, k, v: _twice(
        lambda q: torch.autograd.grad(rg.attention(q, k, v).square().sum(), q, create_graph=True)[0].square().sum(), q
    ),
}


# And are never zeros.
test_other_derivatives_are_refused = refused_in(
    {words: functools.partial(call, *tensors()) for words, call in REFUSED.items()}
)


def test_the_old_exporter_to_onnx_raises(tmp_path):
    """The one that traces TorchScript has no standard operator: it says so."""
    pytest.importorskip("onnx")

    with pytest.raises(Exception, match="regard"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Wrapped(rg.attention), tuple(tensors()), tmp_path / "model.onnx", dynamo=False)


def decoded(q):
    cache = rg.KVCache(H, D, batch=B)
    cache.append(q, q)
    return cache.attend(q)


OTHERS = {
    "attention_stats": lambda q: rg.attention_stats(q, q, of="entropy").entropy,
    "attention_weights": lambda q: rg.attention_weights(q, q, rows=0),
    "attention_backward": lambda q: rg.attention_backward(q, q, q, q).q,
    "explain": lambda q: q + len(str(rg.explain(q, q, q))),
    "merge": lambda q: rg.merge([rg.attention_with_lse(q, q, q)] * 2)[0],
    "KVCache": decoded,
}
LOSING = {
    "make_fx": lambda call, q: make_fx(call)(q),
    "jit.trace": lambda call, q: traced(call, (q,)),
    "a tangent": lambda call, q: _dual(call, q),
    "jvp": lambda call, q: torch.func.jvp(call, (q,), (q,)),
    "grad": lambda call, q: torch.func.grad(lambda q: call(q).sum())(q),
    "vmap": lambda call, q: torch.func.vmap(call)(torch.stack([q, q])),
}


def _dual(call, q):
    with forward_ad.dual_level():
        return call(forward_ad.make_dual(q, q))


@pytest.mark.parametrize("way", LOSING)
@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_operator_raises_where_it_would_be_lost(other, way):
    """What a trace would keep as a constant, and what would lose a derivative, raises an error; torch's own operations,
    such as those of `merge`, are traced.
    """
    traced = other == "merge" and way != "jit.trace"

    with contextlib.nullcontext() if traced else pytest.raises(rg.Refused):
        assert LOSING[way](OTHERS[other], tensors()[0]) is not None


def test_programs_hold_their_rules_and_nothing_else_does():
    """A recorded program owns the arrays of its rules: they live as long as it does, and no longer."""

    def recorded():
        array = torch.rand(H, Q, K)
        program = make_fx(lambda q, k, v: rg.attention(q, k, v, score=rg.bias(array)))(*tensors())
        return program, weakref.ref(array)

    program, array = recorded()
    gc.collect()
    assert torch.equal(program(*tensors(seed=3)), rg.attention(*tensors(seed=3), score=rg.bias(array())))
    del program
    gc.collect()
    assert array() is None


@pytest.mark.slow
def test_a_saved_program(tmp_path):
    """An exported program with its rules, saved and loaded in another process, computes the same; rules have the names
    there that they have here.
    """
    given = tensors()
    rule = {"mask": rg.documents(DOCUMENTS) & CAUSAL, "score": rg.alibi(SLOPES)}
    program = torch.export.export(Wrapped(lambda *qkv: rg.attention(*qkv, **rule)), tuple(given))
    torch.export.save(program, tmp_path / "program.pt2")
    torch.save(given, tmp_path / "given.pt")
    printed = fresh(f"""
        import torch, regard as rg, regard.torch
        program = torch.export.load({str(tmp_path / "program.pt2")!r}).module()
        torch.save(program(*torch.load({str(tmp_path / "given.pt")!r})), {str(tmp_path / "out.pt")!r})
        print((rg.causal() & rg.window(4)).digest, rg.alibi(8).digest)
        """)

    assert torch.equal(torch.load(tmp_path / "out.pt"), rg.attention(*given, **rule))
    assert printed.split() == [(CAUSAL & rg.window(4)).digest, rg.alibi(8).digest]
