"""batch_start and head_start of tensors: autograd, compiled programs, and the operations of other devices."""

import numpy as np
import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend

import regard as rg
import regard.torch as rt
from regard.engines import gpu
from regard.engines.gpu import flex
from regard.engines.gpu import tiles as streamed
from regard.engines.gpu.statistics import statistics as tiled_statistics
from regard.engines.gpu.statistics import weights as tiled_weights
from regard.language.measures import checked_request
from tests.support.engines import qkv
from tests.support.parts import four, parts
from tests.support.refusals import refusing
from tests.support.strategies import Case, dropouts, problems
from tests.support.tensors import compiled, normal, tensors

random_problems = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

SLOPES = torch.nn.Parameter(normal(8))
RULES = {"mask": rg.causal() & (rg.key > rg.head + rg.batch), "score": rg.alibi(SLOPES), "dropout": 0.5, "seed": 3}


def learned(function, *given_):
    """The output, and the gradients of tensors and slopes."""
    leaves = [part.detach().clone().requires_grad_() for part in given_]
    out = function(*leaves)
    return [out, *torch.autograd.grad(out.square().sum(), [*leaves, SLOPES])]


def test_autograd_and_compiled_programs():
    """With a mask, a learned table and dropout, autograd, torch.compile in one graph and torch.func give the bits of
    the part of the whole.
    """
    q, k, v = map(torch.from_numpy, qkv(B=3, H=8, G=4, Q=9, K=9, D=8))
    some, few = (slice(1, 3), slice(4, 8)), (slice(1, 3), slice(2, 4))
    pieces = q[some], k[few], v[few]

    def call(q, k, v, batch_start=1, head_start=4):
        return rt.attention(q, k, v, **RULES, batch_start=batch_start, head_start=head_start)

    whole = learned(lambda *each: rt.attention(*each, **RULES), q, k, v)
    eager = learned(call, *pieces)
    assert all(torch.equal(old[place], mine) for old, mine, place in zip(whole, eager, (some, some, few, few)))
    torch.testing.assert_close(learned(compiled(call), *pieces), eager, rtol=0, atol=0)
    graded = torch.func.grad(lambda *each: call(*each).square().sum(), argnums=(0, 1, 2))(*pieces)
    assert all(map(torch.equal, graded, eager[1:4]))


@pytest.mark.parametrize("name", ["query_start", "batch_start", "head_start"])
def test_a_compiled_program_takes_any_start(name):
    """After two starts, another one needs no other program, and computes with that start."""
    q, k, v = map(torch.from_numpy, qkv(Q=5, K=9, D=8))
    rule = rg.key < rg.query + rg.head + 2 * rg.batch

    def call(start):
        return rt.attention(q, k, v, mask=rule, **{name: start})

    count, frames = CompileCounterWithBackend("aot_eager"), []
    program = compiled(call, backend=count)
    for start in (3, 5, 2, 4):
        assert torch.equal(program(start), call(start))
        frames.append(count.frame_count)
    assert frames[1:] == [frames[1]] * 3


def test_compiled_programs_refuse_what_is_no_start():
    """A float, a truth value, or a table that is too short is refused when the program runs."""
    q, k, v = map(torch.from_numpy, qkv(Q=5, K=5, D=8))
    for first in (1.0, True, -1):
        with refusing("head_start is not the number of a query head"):
            compiled(rt.attention, fullgraph=False)(q, k, v, head_start=first)


@random_problems
@given(st.data(), problems(dtypes=(np.float64,), depth=8), st.none() | dropouts)
def test_rules_in_torch_operations(data, case, falling):
    """Tiles, FlexAttention's own evaluation, weights and statistics of other devices, on tensors of the CPU."""
    kwargs, part = four(case.kwargs), data.draw(parts(case))
    if 0 in (kwargs["q"].shape[2], kwargs["k"].shape[2]):
        return
    whole, some = (gpu.DeviceCall.of(**tensors(Case(each)), **falling or {}) for each in (kwargs, part.kwargs))
    close = {"rtol": 1e-9, "atol": 1e-9}
    for old, mine in zip(streamed.attend(whole), streamed.attend(some), strict=True):
        np.testing.assert_allclose(part.of(old), mine, **close)
    every = [torch.arange(each) for each in (kwargs["q"].shape[2], kwargs["k"].shape[2])]
    np.testing.assert_allclose(part.of(tiled_weights(whole, *every)), tiled_weights(some, *every), **close)
    if falling:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        for old, mine in zip(*(flex.attend(each, torch_flex.flex_attention) for each in (whole, some)), strict=True):
            np.testing.assert_allclose(part.of(old), mine, **close)


def test_masses_in_torch_operations():
    """The set of keys of a mass counts from the starts as well."""
    q, k, _ = (part.astype(np.float64) for part in qkv())
    measure = rg.mass(rg.key < 3 * rg.head + rg.batch, "some")
    call = gpu.DeviceCall.of(torch.from_numpy(q), torch.from_numpy(k), None, batch_start=5, head_start=4)
    found = tiled_statistics(checked_request(q, k, measure, batch_start=5, head_start=4), call)
    expected = rg.attention_stats(q, k, of=measure, batch_start=5, head_start=4, engine="reference")
    np.testing.assert_allclose(found["some"], expected["some"], rtol=1e-9)


def test_observed_calls_know_their_starts():
    """A profile describes a call, also over a cache, by what it computed."""
    cache = rg.KVCache(heads=2, depth=8)
    q, k, v = map(torch.from_numpy, qkv(B=1, Q=9, K=9, D=8, E=8))
    cache.append(k, v)

    def model(q):
        rg.attention(q, k, v, mask=rg.key > rg.head, head_start=3)
        return cache.attend(q, mask=rg.key > rg.head, head_start=4)

    assert [call.mask for call in rt.profile(model, q).calls] == ["key > head + 3", "key > head + 4"]
