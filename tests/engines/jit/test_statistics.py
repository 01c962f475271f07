"""Statistics from the compiled engine against their law, over random problems; their sums, memory and vector units.

The error budget of a measure comes from the case: what the usual computation (NumPy, the whole matrix, in the dtype of
its sums) makes on the same input, and what rounding the inputs' last bits does to the exact answer.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit import threads
from regard.engines.jit.code import build
from regard.engines.jit.code.target import limited
from regard.engines.jit.tiling import NARROW, tiling
from regard.engines.reference import attention as reference
from regard.engines.reference.statistics import statistics as law
from regard.language.analysis import evaluate
from regard.language.measures import Mass, Request, checked_request, edges
from tests.engines.jit.usual import large_examples, parts, same_results, shaken, softmax
from tests.support.engines import DTYPES, dtypes
from tests.support.kernels import arrays, fresh
from tests.support.lanes import by_name
from tests.support.machine import narrower_isas
from tests.support.strategies import LAYOUTS, Dims, laid_out, masks, problems

EVERYTHING = [
    "lse",
    "maximum",
    "entropy",
    "distance",
    "range",
    "counts",
    "received",
    rg.mass(rg.key % 3 == 0),
    rg.top(4),
]


def usual(request: Request) -> dict:
    """What one would write in NumPy with the matrix at hand, every step in float32 (float64 for float64)."""
    real, Q, K = request.problem.real.type, request.problem.dims["Q"], request.problem.dims["K"]
    *_, s, top, total, p, _, values = softmax(request.problem)
    with np.errstate(all="ignore"):
        away = (values["query"] - values["key"]).astype(real)
        alone = np.exp(s - reference.some_number(s.max(-1, keepdims=True, initial=-np.inf)))
        share = np.maximum(alone.sum(-1), np.finfo(real).tiny)
        mean = (alone * away).sum(-1) / share
        found = {
            "lse": [(top + np.log(total))[..., 0]],
            "maximum": [p.max(-1, initial=0)],
            "received": [p.sum(-2)],
            "entropy": [-(p * np.log(np.where(p > 0, p, 1))).sum(-1)],
            "distance": [mean, (alone * (away - mean[..., None]) ** 2).sum(-1) / share],
            "range": [np.where(np.isneginf(s), np.inf, s).min(-1, initial=np.inf), s.max(-1, initial=-np.inf)],
            "top": [np.pad(-np.sort(-p, -1), [(0, 0)] * 3 + [(0, 4)])[..., :4]],
        }
        for measure in request.measures:
            if isinstance(measure, Mass):
                found[measure.name] = [np.where(evaluate(measure.keys, values), p, 0).sum(-1)]
            if measure.kind == "pooled":
                rows, columns = edges(Q, measure.rows), edges(K, measure.columns)
                found[measure.name] = [
                    np.add.reduceat(np.add.reduceat(p, rows[:-1], -2), columns[:-1], -1)
                    / np.outer(np.diff(rows), np.diff(columns)),
                    np.maximum.reduceat(np.maximum.reduceat(p, rows[:-1], -2), columns[:-1], -1),
                ]
    return found


def numbers(kind: str, answer) -> list:
    """The floats of an answer, as arrays."""
    parts = [answer.weight] if kind in ("maximum", "top") else answer if isinstance(answer, tuple) else [answer]
    return [np.asarray(part) for part in parts]


def judge(kwargs, of, answer=None) -> None:
    """The answers are as exact as the input allows, and counts and keys are right. answer: another engine's, of a
    request.
    """
    kwargs = {name: value for name, value in kwargs.items() if name != "v"}
    request = checked_request(of=of, **kwargs)
    found = answer(request) if answer else rg.attention_stats(**kwargs, of=of, engine="jit")
    exact, plain = law(request), usual(request)
    moved = [law(request._replace(problem=shaken(request.problem, seed))) for seed in (1, 2)]
    eps, sizes = 8 * np.finfo(request.problem.real).eps, request.problem.dims
    for name, kind in ((measure.name, measure.kind) for measure in request.measures):
        if kind == "counts":
            for one, other in zip(found[name], exact[name], strict=True):
                np.testing.assert_array_equal(one, other.reshape(one.shape))
            continue
        for part, right in enumerate(numbers(kind, exact[name])):
            value = numbers(kind, found[name])[part].reshape(right.shape).astype(np.float64)
            finite = np.isfinite(right)
            np.testing.assert_array_equal(np.isfinite(value), finite, err_msg=name)
            np.testing.assert_array_equal(value[~finite], right[~finite], err_msg=name)
            others = [value, plain[name][part], *(numbers(kind, other[name])[part] for other in moved)]
            error, *allowed = (np.abs(other[finite] - right[finite]).max(initial=0) for other in others)
            allowed = 4 * (allowed[0] + max(allowed[1:]))
            # The sums of squared distances are float64: the squares, their sum over pieces of keys, the mean, its
            # square and the difference are each rounded like the largest distance squared.
            squares = 2e-15 * (sizes["Q"] + sizes["K"] + 64) ** 2 if kind == "distance" else 0
            budget = allowed + eps * np.abs(right[finite]).max(initial=1) + squares
            assert error <= budget, f"{name} {part}: error {error:.2e} over the budget of {budget:.2e}"
            if kind in ("maximum", "top"):
                check_keys(request, np.asarray(found[name].key), exact[name], allowed + eps)


def check_keys(request: Request, keys, exact, budget: float) -> None:
    """Every key has the reported weight, up to the budget; −1 marks a missing weight."""
    p = reference.weights(request.problem, *reference.everywhere(request.problem))
    keys = keys.reshape(exact.key.shape)
    keys, weight, expected = (part if part.ndim == 4 else part[..., None] for part in (keys, *exact))
    np.testing.assert_array_equal(keys < 0, expected < 0)
    if p.shape[-1]:
        there = np.where(keys < 0, 0, np.take_along_axis(p, np.maximum(keys, 0), -1))
        assert np.abs(there - weight)[~np.isnan(weight)].max(initial=0) <= budget


@st.composite
def questions(draw, **sizes):
    """A problem, and any selection of measures."""
    case = draw(problems(**sizes))
    request = checked_request(case.kwargs["q"], case.kwargs["k"], "lse", query_start=case.kwargs["query_start"])
    dims = Dims(**request.problem.dims)
    of = [*EVERYTHING[:-2], rg.mass(draw(masks(dims))), rg.top(4)]
    if dims.Q and dims.K:
        of.append(rg.pooled(draw(st.integers(1, dims.Q)), draw(st.integers(1, dims.K))))
    return case, draw(st.lists(st.sampled_from(of), min_size=1, unique=True)) if draw(st.booleans()) else of


@pytest.mark.slow
@large_examples(300, 5)
@given(question=questions(dtypes=DTYPES))
def test_statistics_agree_with_the_law(question):
    """Any valid problem, any selection of measures, on the widest vectors of this machine."""
    judge(question[0].kwargs, question[1])


@narrower_isas
@large_examples(8, 8)
@given(question=questions(dtypes=DTYPES, rows=30, depth=40))
def test_statistics_agree_with_the_law_on_narrower_machines(isa, question):
    """The same with fewer features, down to what any machine has."""
    with limited(isa):
        judge(question[0].kwargs, question[1])


MASKS = {
    "dense": None,
    "causal": rg.causal(),
    "window and global": rg.causal() & rg.window(40) | rg.global_tokens(5),
    "documents": rg.documents(ids=np.arange(7000) // 90),
}


@pytest.mark.spread
@by_name("mask", MASKS)
@pytest.mark.parametrize(("Q", "K"), [(40, 7000), (65, 2300), (300, 4097), (1, 700)])
def test_many_tiles(mask, Q, K):
    """Rows and keys of several tiles, blocks and pieces, and edges inside them; maps whose cells are smaller and larger
    than a block.
    """
    q, k, _ = arrays(Q=Q, K=K, D=24, H=2, G=1, B=1)
    maps = (1, 1), (Q, 3), (min(Q, 7), K), (min(Q, 50), 31)
    judge(
        {"q": q, "k": k, "mask": mask},
        [*EVERYTHING, *(rg.pooled(*cells, name=f"map{at}") for at, cells in enumerate(maps))],
    )


def test_the_columns_of_a_coarse_map():
    """A column of several thousand keys is put together from parts; its cells are what they would be in one."""
    q, k, _ = arrays(Q=40, K=5003, D=8, H=1, G=1, B=1)
    judge({"q": q, "k": k}, ["received", *(rg.pooled(3, width, name=f"by{width}") for width in (1, 2, 4))])


@pytest.mark.spread
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@dtypes
@pytest.mark.parametrize("mask", [rg.causal(), rg.key % 3 != rg.query % 3], ids=["causal", "thirds"])
@pytest.mark.parametrize(
    ("bad", "scale", "sinks"),
    [(np.nan, None, 1), (np.inf, None, 1), (-np.inf, None, 1), (0, 1e3, -1e3), (0, 1e3, 1e3), (0, -50.0, 1e3)],
)
def test_numbers_of_any_size(dtype, mask, bad, scale, sinks):
    """A query and a key that are not finite, scores of thousands, and sinks that take everything or nothing: NaN and
    infinities are in the same places of every result, and nowhere else.
    """
    q, k = (array.astype(dtype) for array in arrays(Q=70, K=1100, D=9, B=1)[:2])
    q[0, 1, 30, 4] = k[0, 0, 1040, 2] = k[0, 1, 20, 8] = bad
    sinks = np.full(4, sinks, np.float32)
    judge({"q": q, "k": k, "mask": mask, "scale": scale, "sinks": sinks}, [*EVERYTHING, rg.pooled(7, 15)])


# ---- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.slow
def test_memory_grows_with_rows_only():
    """Everything about 100,000 causal rows: at most 32 MB beyond the answers, where the matrix would be 40 GB."""
    script = """
        import resource, numpy as np, regard as rg
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        of = ["lse", "entropy", "distance", "received", rg.pooled(256, 256)]
        q, k = np.ones((2, 100_000, 8), np.float32)
        rg.attention_stats(q[:300], k[:300], of=of, mask=rg.causal(), engine="jit")
        before = peak()
        found = rg.attention_stats(q, k, of=of, mask=rg.causal(), engine="jit")
        rows = np.arange(1, 100_001)
        assert np.allclose(found.entropy, np.log(rows), atol=1e-3)
        assert np.allclose(found.distance.mean, (rows - 1) / 2, rtol=1e-5)
        assert np.allclose(found.distance.variance, (rows**2.0 - 1) / 12, rtol=1e-4, atol=1e-3)
        assert np.isclose(found.received.sum(), 100_000, rtol=1e-4)
        assert np.isclose(found.pooled.mean.mean() * 1e5, 1, rtol=1e-3)
        print(peak() - before)
    """
    assert int(fresh(script)) <= 32 * 1024


# ---- sums, and law 11 ------------------------------------------------------------------------------------------------

OF_ROWS = [measure for measure in EVERYTHING if measure != "received"]


def test_the_error_of_what_keys_receive_does_not_grow_with_the_rows():
    """100,000 rows: at most the error of NumPy, which sums in pairs along the last axis."""
    q, k, _ = arrays(Q=100_000, K=64, D=8, H=1, G=1, B=1)

    def received(q, k):
        return rg.attention_stats(q, k, of="received", query_start=0, engine="jit").received

    exact, weights = received(q.astype(np.float64), k.astype(np.float64)), rg.attention_weights(q, k, query_start=0)
    usual = np.ascontiguousarray(weights.swapaxes(-1, -2)).sum(-1)
    assert np.square(received(q, k) - exact).mean() <= np.square(usual - exact).mean()


def test_a_kernel_serves_any_number_of_keys():
    """The stack of partial sums is not part of a kernel: more keys need memory, and no compilation."""
    q, k, _ = arrays(Q=3, K=40_000, D=8)
    kernels = []
    for K in (900, 5000, 40_000):
        rg.attention_stats(q, k[:, :, :K], of=OF_ROWS, engine="jit")
        kernels.append(set(build._kernels))
    assert kernels[0] == kernels[1] == kernels[2]


# ---- law 11 ----------------------------------------------------------------------------------------------------------


CASES = {
    "plain": (200, 300, {}, np.float32),
    "window": (200, 300, {"mask": rg.causal() & rg.window(100), "score": rg.softcap(4.0)}, np.float32),
    "many keys": (130, 9000, {}, np.float32),
    "many causal": (130, 5000, {"mask": rg.causal()}, ml_dtypes.bfloat16),
    "empty pieces": (130, 9000, {"mask": rg.causal() & (rg.window(100) | rg.global_tokens(5))}, np.float32),
    "gaps": (130, 5000, {"mask": (rg.key // 700) % 4 == rg.query % 5, "score": rg.softcap(4.0)}, np.float32),
}
ALL = [*EVERYTHING, rg.pooled(9, 11)]


@by_name("Q, K, rules, dtype", CASES)
def test_law_11_what_changes_no_bit(Q, K, rules, dtype):
    """Repeated runs, threads, layouts, an entry of the batch or a head alone; of statistics of rows, what other rows
    hold and how many they are.
    """
    q, k, _ = (each.astype(dtype) for each in arrays(Q=Q, K=K, D=16))

    def answer(q, k, of=ALL, **more):
        return parts(rg.attention_stats(q, k, of=of, engine="jit", **rules, **more))

    whole, rows = answer(q, k), answer(q, k, OF_ROWS)
    for count in (1, 1, 2, 3, 5):
        with threads.limit(count):
            same_results(whole, answer(q, k))
    for layout in set(LAYOUTS) - {"broadcast"}:  # which repeats numbers, so it is no layout of these arrays
        same_results(whole, answer(*(laid_out(array, layout) for array in (q, k))))
    same_results([each[1:] for each in whole], answer(q[1:], k[1:]))
    for head in range(4):
        same_results([each[:, [head]] for each in whole], answer(q[:, [head]], k[:, [head // 2]]))
    disturbed = q.copy()
    disturbed[:, :, 1::2] *= 30
    disturbed[:, :, 5] = np.nan
    same_results(*([each[:, :, ::2] for each in found] for found in (rows, answer(disturbed, k, OF_ROWS))))
    for first, last in itertools.pairwise((0, 1, 8, 72, 99, Q)):
        some = answer(q[:, :, first:last], k, OF_ROWS, query_start=K - Q + first)
        same_results([each[:, :, first:last] for each in rows], some)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("Q", [1, 6, 20, 300, 2500])
def test_law_11_sums_over_rows_do_not_depend_on_tiles(Q):
    """What keys receive, and maps: an entry with a wide window has the same bits alone, where tiles are high, and next
    to one with a narrow window, where they are low; with a map or without.
    """
    q, k, _ = arrays(Q=Q, K=2500, D=8, H=2, G=1)
    columns = ["received", rg.pooled(1, 7)]
    high, heights = tiling(checked_request(*arrays(Q=500, K=500)[:2], "lse").problem).rows, set()

    def answer(q, k, width, of=columns):
        mask = rg.causal() & (rg.query - rg.key < width)
        heights.add(tiling(checked_request(q, k, of, mask=mask).problem).rows)
        return parts(rg.attention_stats(q, k, of=of, mask=mask, engine="jit"))

    widths = [NARROW * high * 3 // 2, 8]
    whole = answer(q, k, rg.table(np.array(widths), "width")[rg.batch])
    for entry, width in enumerate(widths):
        own, here = [each[[entry]] for each in whole], (q[[entry]], k[[entry]])
        same_results(own, answer(*here, width))
        same_results(own[:1], answer(*here, width, ["received"]))
    assert len(heights) > 1 or high > Q
