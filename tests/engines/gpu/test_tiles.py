"""Attention, gradients, statistics and weights in tiles of torch operations, against the law."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.common.arrays import as_tensor
from regard.engines import gpu
from regard.engines.gpu import tiles
from regard.engines.gpu.statistics import statistics, weights
from regard.engines.reference import attention as reference
from regard.language.checks.arguments import Arguments
from regard.language.dropout import Dropout
from regard.language.measures import checked_request
from regard.language.problem import Problem
from tests.engines import test_range
from tests.engines.jit import test_statistics
from tests.engines.jit.usual import large_examples, slopes
from tests.support.refusals import refusing
from tests.support.strategies import Case, dropouts, problems
from tests.support.tensors import law, normal, qkv, tensors

random_problems = large_examples(15, 15)
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles so small that a little problem has several, and parts of runs."""
    monkeypatch.setattr(tiles, "ROWS", 16)
    monkeypatch.setattr(tiles, "KEYS", 8)
    monkeypatch.setattr(tiles, "WIDE", 16)


@random_problems
@given(problems(dtypes=(np.float64,), depth=8), st.none() | dropouts, st.integers(0, 99))
def test_tiles_mean_what_the_law_says(case, falling, seed):
    """out and lse of any problem, with or without dropout, and the gradients of q, k, v, sinks and every float table
    through them.
    """
    falling = falling or {}
    call, law = gpu.DeviceCall.of(**tensors(case), **falling), Problem.of(**case.kwargs, **falling)
    leaves = [x if x is None else x.detach().requires_grad_() for x in (call.q, call.k, call.v, call.sinks)]
    tables = {table: x.clone().requires_grad_(x.is_floating_point()) for table, x in call.tables.items()}
    out, lse = tiles.attend(gpu.DeviceCall(call.problem, *leaves, tables))
    for found, its in zip((out, lse), reference.forward(law), strict=True):
        np.testing.assert_allclose(found.detach(), its, **CLOSE)

    dout, dlse = (normal(*x.shape, seed=seed + n, dtype=torch.float64) for n, x in enumerate((out, lse)))
    ((out * dout).sum() + (torch.where(lse.isfinite(), lse, 0) * dlse).sum()).backward()
    wanted = reference.backward(law, dout.numpy(), np.where(lse.detach().isfinite(), dlse, 0))
    scale = max(1.0, *(np.abs(array).max(initial=0) for array in wanted[:3]))
    *qkv, sinks = leaves
    every = [*qkv, *(tables[table] for table in wanted.tables), *([] if sinks is None else [sinks])]
    for leaf, its in zip(every, slopes(wanted), strict=True):
        most = max(1e-9, 4 * torch.finfo(leaf.dtype).eps)
        np.testing.assert_allclose(leaf.grad.double() / scale, its / scale, rtol=most, atol=most)


@random_problems
@given(test_range.rules(), st.sampled_from([np.float32, np.float16, np.float64]), st.integers(0, 9))
def test_the_range_of_a_score_is_that_of_the_law(rule, dtype, seed):
    """Law 10: constants, elements and results beyond the dtype of sums are infinite, as in the law."""
    problem, exact, budget = test_range.expected(rule, dtype, seed)
    q, k, v = (as_tensor(np.array(part)) for part in (problem.q, problem.k, problem.v))
    out, lse = tiles.attend(gpu.DeviceCall.of(q, k, v, score=rule))
    test_range.check({"out": out, "lse": lse}, exact, budget, "tiles")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mask", [rg.causal(), rg.window(5), rg.documents(lengths=[7, 6, 7]), rg.key > 30])
def test_what_may_not_be_attended_cannot_leak(mask, bad):
    """Law 6: NaN and infinities among queries, keys, values and incoming gradients reach what the law lets them reach,
    and no more.
    """
    rng = np.random.default_rng(0)
    clean = rng.standard_normal((4, 1, 2, 20, 4))
    for which in range(4):
        arrays = clean.copy()
        arrays[which][rng.random(arrays[which].shape) < 0.03] = bad
        leaves, dout = [as_tensor(x).requires_grad_() for x in arrays[:3]], arrays[3]
        out, _ = tiles.attend(gpu.DeviceCall.of(*leaves, gradients=True, mask=mask))
        out.backward(as_tensor(dout))
        problem = Problem.of(*arrays[:3], mask=mask)
        np.testing.assert_allclose(out.detach(), reference.forward(problem)[0], **CLOSE)
        for x, its in zip(leaves, reference.backward(problem, dout)[:3], strict=True):
            finite = np.isfinite(its)
            np.testing.assert_array_equal(x.grad.isfinite().numpy(), finite)
            np.testing.assert_allclose(x.grad[finite], its[finite], **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_errors_are_at_most_those_of_the_usual_computation(dtype, monkeypatch):
    """Law 10: against float64, at most 1.2 times those of torch's attention, in the same dtype, on the same input."""
    monkeypatch.setattr(tiles, "WIDE", 2048)
    given = qkv(H=2, G=2, Q=200, K=200, D=32, E=32, B=1, dtype=dtype)
    out = tiles.attend(gpu.DeviceCall.of(*given, mask=rg.causal()))[0]
    usual = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=True)
    wide = law(*(x.double() for x in given), mask=rg.causal())[0]
    own, its = (abs(found.double().numpy() - wide) for found in (out, usual))
    assert out.dtype == dtype
    assert own.max() <= 1.2 * its.max() and own.mean() <= 1.2 * its.mean()


@pytest.mark.parametrize("seed", [0, 5, 2**64 - 1])
def test_the_same_pairs_fall_out(seed):
    """Law 9: torch's 64-bit integers count what NumPy's count, bit for bit."""
    falling = Dropout(0.3, seed)
    places = np.ix_([0, 7], [0, 3, 2**31], np.arange(-9, 40), np.arange(-5, 60))
    found = tiles.dropout_factors(falling, torch.float64, *(torch.from_numpy(part) for part in places))
    np.testing.assert_array_equal(found, falling.factors(*places))


def test_memory_grows_with_the_rows(monkeypatch):
    """The largest block of scores in a causal call is one tile by the keys taken at once, however many rows there
    are.
    """
    seen = []
    whole = tiles.shares

    def noted(s, below):
        seen.append(s.shape[2] * s.shape[3])
        return whole(s, below)

    monkeypatch.setattr(tiles, "shares", noted)
    tiles.attend(gpu.DeviceCall.of(*qkv(Q=300, K=300, B=1), mask=rg.causal()))
    assert max(seen) == 16 * 16
    assert sum(seen) <= 300 * 300 / 2 + 300 * 32


# ---- statistics and weights ------------------------------------------------------------------------------------------


def judge(case, *maps) -> None:
    """Statistics of a case are those of the law, part by part."""
    call, of = gpu.DeviceCall.of(**tensors(case) | {"v": None}), [*test_statistics.EVERYTHING, *maps]
    test_statistics.judge(case.kwargs, of, lambda request: statistics(request, call))


@random_problems
@given(problems(dtypes=(np.float64,), depth=8), st.integers(1, 4))
def test_statistics_are_those_of_the_law(case, cells):
    """Every measure of any problem, rows that attend nothing and sinks among them."""
    Q, K = case.kwargs["q"].shape[-2], case.kwargs["k"].shape[-2]
    judge(case, *([rg.pooled(min(cells, Q), min(cells, K))] if Q and K else []))


def test_statistics_show_what_is_not_finite():
    """A row that attends NaN or an infinity is NaN but in counts and range, as are the keys and cells that it
    attends.
    """
    q, k, _ = (part.numpy() for part in qkv(Q=20, K=20, B=1, dtype=torch.float64))
    k[0, 0, 12], q[0, 3, 15] = np.nan, np.inf
    judge(Case({"q": q, "k": k, "mask": rg.window(6)}), rg.pooled(4, 5))


@random_problems
@given(problems(dtypes=(np.float64,), depth=8), st.integers(0, 9))
def test_weights_of_a_rectangle_are_those_of_the_law(case, count):
    """Any rows and keys, in any order and more than once, with dropout fallen on them."""
    rules = {"dropout": 0.25, "seed": 3, "v": None}
    problem, call = Problem.of(**case.kwargs | rules), gpu.DeviceCall.of(**tensors(case) | rules)
    rng, sizes = np.random.default_rng(count), (problem.dims["Q"], problem.dims["K"])
    rows, keys = (rng.integers(0, size, count if size else 0) for size in sizes)
    found = weights(call, torch.from_numpy(rows), torch.from_numpy(keys))
    np.testing.assert_allclose(found, reference.weights(problem, rows, keys), **CLOSE)


def test_a_table_given_elsewhere_learns():
    """A parameter that a score reads gets its gradient in its own dtype, summed over all that read it."""
    slope = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
    q, k, v = qkv(Q=30, K=30, B=1)
    (out,) = gpu.attend(q, k, v, Arguments(rg.causal(), rg.alibi(slope)), "tiles")
    out.square().sum().backward()
    problem = Problem.of(q, k, v, mask=rg.causal(), score=rg.alibi(slope.detach().float()))
    (wanted,) = reference.backward(problem, 2 * reference.forward(problem)[0]).tables.values()
    assert slope.grad.dtype == torch.bfloat16
    np.testing.assert_allclose(slope.grad.float(), wanted, rtol=2**-8)


def test_tiles_are_not_captured_in_a_cuda_graph(monkeypatch):
    """On a GPU torch ends the capture with "Cannot copy between CPU and CUDA tensors": said before, in words."""
    q, k, v = (each.requires_grad_() for each in qkv(H=12, G=12, Q=4))
    call, rows = gpu.DeviceCall.of(q, k, v), torch.arange(3)
    out, _ = tiles.attend(call)
    request = checked_request(q.detach().numpy(), k.detach().numpy(), ["entropy"])
    monkeypatch.setattr(tiles, "capturing", lambda device: True)
    for run in (
        lambda: tiles.attend(call),
        lambda: out.sum().backward(),
        lambda: statistics(request, call),
        lambda: weights(call, rows, rows),
    ):
        with refusing("tiles cannot be captured in a CUDA graph.*make it outside the graph"):
            run()
