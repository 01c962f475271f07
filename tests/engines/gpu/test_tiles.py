"""Attention, gradients, statistics and weights in tiles of torch operations, against the law."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard as rg
from regard.common.arrays import as_tensor
from regard.engines import gpu
from regard.engines.gpu import dropout
from regard.engines.gpu import tile_softmax as tiles
from regard.engines.gpu import tiles as streamed
from regard.engines.gpu.statistics import statistics, weights
from regard.engines.reference import attention as reference
from regard.engines.reference import statistics as reference_stats
from regard.language.checks.arguments import Arguments
from regard.language.dropout import Dropout
from regard.language.expr import tables_of
from regard.language.measures import checked_request
from regard.language.problem import Problem
from tests.engines import test_range
from tests.support.strategies import dropouts, problems
from tests.support.tensors import law, normal, qkv, tensors

random_problems = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles so small that a little problem has several, and parts of runs; one thread, because threads wait for each
    other longer than so little work takes."""
    monkeypatch.setattr(tiles, "ROWS", 16)
    monkeypatch.setattr(tiles, "KEYS", 8)
    monkeypatch.setattr(tiles, "WIDE", 16)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@random_problems
@given(problems(dtypes=(np.float64,), depth=8), st.none() | dropouts)
def test_tiles_mean_what_the_law_says(case, falling):
    """out and lse of any problem, with or without dropout, are the law's."""
    extra = falling or {}
    out, lse = streamed.attend(gpu.DeviceCall.of(**tensors(case), **extra))
    wanted = reference.forward(Problem.of(**case.kwargs, **extra))
    for found, its in zip((out, lse), wanted, strict=True):
        np.testing.assert_allclose(found, its, **CLOSE)


@random_problems
@given(problems(dtypes=(np.float64,), depth=8), st.none() | dropouts, st.integers(0, 99))
def test_gradients_are_those_of_the_law(case, falling, seed):
    """Gradients of q, k, v, sinks and every float table, through out and lse."""
    given_ = tensors(case) | (falling or {})
    call = gpu.DeviceCall.of(**given_)
    asking = gpu.DeviceCall(
        call.problem,
        *(x if x is None else x.detach().requires_grad_() for x in (call.q, call.k, call.v, call.sinks)),
        {table: x.clone().requires_grad_() if x.is_floating_point() else x for table, x in call.tables.items()},
    )
    out, lse = streamed.attend(asking)
    dout, dlse = (
        normal(*out.shape, seed=seed, dtype=torch.float64),
        normal(*lse.shape, seed=seed + 1, dtype=torch.float64),
    )
    ((out * dout).sum() + (torch.where(lse.isfinite(), lse, 0) * dlse).sum()).backward()
    wanted = reference.backward(
        Problem.of(**case.kwargs, **(falling or {})), dout.numpy(), np.where(lse.detach().isfinite(), dlse, 0)
    )
    scale = max(1.0, *(np.abs(array).max(initial=0) for array in wanted[:3]))
    for name, its in (("q", wanted.q), ("k", wanted.k), ("v", wanted.v), ("sinks", wanted.sinks)):
        tensor = getattr(asking, name)
        if tensor is not None:
            np.testing.assert_allclose(tensor.grad / scale, its / scale, **CLOSE)
    for table, its in wanted.tables.items():
        found, rounding = asking.tables[table].grad, 4 * torch.finfo(asking.tables[table].dtype).eps
        np.testing.assert_allclose(
            found.double() / scale, its / scale, rtol=max(1e-9, rounding), atol=max(1e-9, rounding)
        )


@random_problems
@given(test_range.rules(), st.sampled_from([np.float32, np.float16, np.float64]), st.integers(0, 9))
def test_the_range_of_a_score_is_that_of_the_law(rule, dtype, seed):
    """Law 10: constants, elements and results beyond the dtype of sums are infinite, as in the law."""
    problem, exact, budget = test_range.expected(rule, dtype, seed)
    q, k, v = (as_tensor(np.array(part)) for part in (problem.q, problem.k, problem.v))
    out, lse = streamed.attend(gpu.DeviceCall.of(q, k, v, score=rule))
    test_range.exact_within(out, exact["out"], budget["out"], "output")
    test_range.exact_within(lse, exact["lse"], budget["lse"], "lse")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mask", [rg.causal(), rg.window(5), rg.documents(lengths=[7, 6, 7]), rg.key > 30])
def test_what_may_not_be_attended_cannot_leak(mask, bad):
    """Law 6: NaN and infinities among queries, keys, values and incoming gradients reach what the law lets them reach,
    and no more.
    """
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, 20, 4)) for _ in range(4)]
    for which in range(len(arrays)):
        q, k, v, dout = (
            np.where((rng.random(x.shape) < 0.03) & (number == which), bad, x) for number, x in enumerate(arrays)
        )
        tensor = [as_tensor(x).requires_grad_() for x in (q, k, v)]
        out, _ = streamed.attend(gpu.DeviceCall.of(*tensor, gradients=True, mask=mask))
        out.backward(as_tensor(dout))
        problem = Problem.of(q, k, v, mask=mask)
        np.testing.assert_allclose(out.detach(), reference.forward(problem)[0], **CLOSE)
        for x, its in zip(tensor, reference.backward(problem, dout)[:3], strict=True):
            np.testing.assert_array_equal(x.grad.isfinite().numpy(), np.isfinite(its))
            np.testing.assert_allclose(
                np.where(np.isfinite(its), x.grad, 0), np.where(np.isfinite(its), its, 0), **CLOSE
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_errors_are_at_most_those_of_the_usual_computation(dtype, monkeypatch):
    """Law 10: against float64, at most 1.2 times those of torch's attention, in the same dtype, on the same input."""
    monkeypatch.setattr(tiles, "WIDE", 2048)
    q, k, v = qkv(H=2, G=2, Q=200, K=200, D=32, E=32, B=1, dtype=dtype)
    out = streamed.attend(gpu.DeviceCall.of(q, k, v, mask=rg.causal()))[0]
    wide = law(*(x.double() for x in (q, k, v)), mask=rg.causal())[0]
    usual = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert out.dtype == dtype
    for measure in (np.max, np.mean):
        own, its = (measure(abs(found.double().numpy() - wide)) for found in (out, usual))
        assert own <= 1.2 * its


@pytest.mark.parametrize("seed", [0, 5, 2**64 - 1])
def test_the_same_pairs_fall_out(seed):
    """Law 9: torch's 64-bit integers count what NumPy's count, bit for bit."""
    falling = Dropout(0.3, seed)
    places = np.ix_([0, 7], [0, 3, 2**31], np.arange(-9, 40), np.arange(-5, 60))
    found = dropout.factors(falling, torch.float64, *(torch.from_numpy(part) for part in places))
    np.testing.assert_array_equal(found, falling.factors(*places))


def test_memory_grows_with_the_rows():
    """The largest block of scores in a causal call is one tile by the keys taken at once, however many rows there
    are.
    """
    seen = []
    whole = tiles.shares

    def noted(s, below):
        seen.append(s.shape[2] * s.shape[3])
        return whole(s, below)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamed, "shares", noted)
        streamed.attend(gpu.DeviceCall.of(*qkv(Q=300, K=300, B=1), mask=rg.causal()))
    assert max(seen) == 16 * 16
    assert sum(seen) <= 300 * 300 / 2 + 300 * 32


# ---- statistics and weights ------------------------------------------------------------------------------------------

MEASURES = ["lse", "entropy", "maximum", "distance", "range", "counts", "received", rg.mass(rg.key % 3 == 0), rg.top(3)]


def alike(found, wanted, request):
    """Results of both kinds, part by part. Of keys with nearly equal weights either may be reported."""
    K = request.problem.dims["K"]
    P = reference.weights(request.problem, np.arange(request.problem.dims["Q"]), np.arange(K))
    for name, its in wanted.items():
        if hasattr(its, "key"):
            key = found[name].key.numpy()
            np.testing.assert_array_equal(key < 0, its.key < 0)
            shaped = key if key.ndim == 4 else key[..., None]
            if K:
                named = np.where(shaped < 0, 0, np.take_along_axis(P, np.maximum(shaped, 0), -1)).reshape(key.shape)
                np.testing.assert_allclose(named, np.where(its.key < 0, 0, its.weight), rtol=1e-7, atol=1e-9)
            found[name], its = found[name].weight, its.weight
        parts = found[name] if isinstance(its, tuple) else (found[name],)
        for part, other in zip(parts, its if isinstance(its, tuple) else (its,), strict=True):
            np.testing.assert_allclose(part, other, rtol=1e-7, atol=1e-7, err_msg=name)


@random_problems
@given(problems(dtypes=(np.float64,), depth=8), st.integers(1, 4))
def test_statistics_are_those_of_the_law(case, cells):
    """Every measure of any problem, rows that attend nothing and sinks among them."""
    asking = {name: value for name, value in tensors(case).items() if name != "v"}
    given_ = {name: value for name, value in case.kwargs.items() if name != "v"}
    Q, K = case.kwargs["q"].shape[-2], case.kwargs["k"].shape[-2]
    of = [*MEASURES, *([rg.pooled(min(cells, Q), min(cells, K))] if Q and K else [])]
    request = checked_request(**given_, of=of)
    found = statistics(request, gpu.DeviceCall.of(asking.pop("q"), asking.pop("k"), None, **asking))
    alike(found, reference_stats.statistics(request), request)


def test_statistics_show_what_is_not_finite():
    """A row that attends NaN or an infinity is NaN but in counts and range, as are the keys and cells that it
    attends.
    """
    q, k, _ = qkv(Q=20, K=20, B=1, dtype=torch.float64)
    k[0, 0, 12], q[0, 3, 15] = torch.nan, torch.inf
    request = checked_request(q, k, [*MEASURES, rg.pooled(4, 5)], mask=rg.window(6))
    alike(
        statistics(request, gpu.DeviceCall.of(q, k, None, mask=rg.window(6))),
        reference_stats.statistics(request),
        request,
    )


@random_problems
@given(problems(dtypes=(np.float64,), depth=8), st.data())
def test_weights_of_a_rectangle_are_those_of_the_law(case, data):
    """Any rows and keys, in any order and more than once, with dropout fallen on them."""
    asking = {name: value for name, value in tensors(case).items() if name != "v"}
    Q, K = case.kwargs["q"].shape[-2], case.kwargs["k"].shape[-2]
    rows, keys = (
        np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=9) if size else st.just([])), np.int64)
        for size in (Q, K)
    )
    call = gpu.DeviceCall.of(asking.pop("q"), asking.pop("k"), None, **asking, dropout=0.25, seed=3)
    problem = Problem.of(
        case.kwargs["q"],
        case.kwargs["k"],
        None,
        dropout=0.25,
        seed=3,
        **{name: value for name, value in case.kwargs.items() if name not in "qkv"},
    )
    found = weights(call, torch.from_numpy(rows), torch.from_numpy(keys))
    np.testing.assert_allclose(found, reference.weights(problem, rows, keys), **CLOSE)


def test_a_table_given_elsewhere_learns():
    """A parameter that a score reads gets its gradient in its own dtype, summed over all that read it."""
    slope = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
    q, k, v = qkv(Q=30, K=30, B=1)
    (out,) = gpu.attend(q, k, v, Arguments(rg.causal(), rg.alibi(slope)), "tiles")
    out.square().sum().backward()
    problem = Problem.of(q, k, v, mask=rg.causal(), score=rg.alibi(slope.detach().float()))
    dout = 2 * reference.forward(problem)[0]
    (wanted,) = [reference.backward(problem, dout).tables[table] for table in tables_of(problem.score).values()]
    assert slope.grad.dtype == torch.bfloat16
    np.testing.assert_allclose(slope.grad.float(), wanted, rtol=2**-8)


@pytest.mark.parametrize("name", ["forward", "backward", "statistics", "weights"])
def test_tiles_are_not_captured_in_a_cuda_graph(name, monkeypatch):
    """On a GPU torch ends the capture with "Cannot copy between CPU and CUDA tensors": said before, in words."""
    q, k, v = (each.requires_grad_() for each in qkv(12, 12, 4))
    call = gpu.DeviceCall.of(q, k, v)
    out, _ = streamed.attend(call)
    request = checked_request(q.detach().numpy(), k.detach().numpy(), ["entropy"])
    rows = torch.arange(3)
    run = {
        "forward": lambda: streamed.attend(call),
        "backward": lambda: out.sum().backward(),
        "statistics": lambda: statistics(request, call),
        "weights": lambda: weights(call, rows, rows),
    }
    monkeypatch.setattr(tiles, "capturing", lambda device: True)
    with pytest.raises(rg.Refused, match="tiles cannot be captured in a CUDA graph") as refused:
        run[name]()
    assert "make it outside the graph" in str(refused.value)
    monkeypatch.undo()
    run[name]()
