"""Statistics from the compiled engine against their law, over random problems; their memory, threads and vector units.

The error budget of a measure comes from the case: what the usual computation (NumPy, the whole matrix, in the dtype of
its sums) makes on the same input, and what rounding the inputs' last bits does to the exact answer.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit.code.target import ISAS, host, limited
from regard.engines.reference.statistics import statistics as law
from regard.language import analysis as readings
from regard.language.measures import Mass, Request, checked_request, edges
from tests.support.engines import DTYPES
from tests.support.kernels import arrays, fresh, guarded
from tests.support.lanes import examples
from tests.support.machine import narrower_isas, on
from tests.support.strategies import Dims, masks, problems

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
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
    problem, real = request.problem, request.problem.real.type
    B, H, G, Q, K = (problem.dims[axis] for axis in "BHGQK")
    q, k = problem.q.astype(real), np.repeat(problem.k.astype(real), H // max(G, 1), axis=1)
    positions = {
        "batch": np.arange(B)[:, None, None, None],
        "head": np.arange(H)[:, None, None],
        "key": np.arange(K),
        "query": problem.query_start[:, None, None, None] + np.arange(Q)[:, None],
        "score": (q @ k.swapaxes(-1, -2)) * real(problem.scale),
    }
    with np.errstate(all="ignore"):
        s = positions["score"] if problem.score is None else readings.evaluate(problem.score, positions)
        s = np.broadcast_to(s, (B, H, Q, K)).astype(real)
        if problem.mask is not None:
            s = np.where(readings.evaluate(problem.mask, positions), s, real(-np.inf))
        sinks = np.zeros((H, 0)) if problem.sinks is None else problem.sinks
        columns = np.concatenate([s, np.broadcast_to(sinks.astype(real)[:, None], (B, H, Q, sinks.shape[1]))], -1)
        top = columns.max(-1, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        total = np.exp(columns - top).sum(-1, keepdims=True)
        p = np.divide(np.exp(s - top), total, out=np.zeros_like(s), where=total > 0)
        away = (positions["query"] - positions["key"]).astype(real)
        own = s.max(-1, keepdims=True, initial=-np.inf)
        alone = np.exp(s - np.where(np.isfinite(own), own, 0))
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
                found[measure.name] = [np.where(readings.evaluate(measure.keys, positions), p, 0).sum(-1)]
            if measure.kind == "pooled":
                rows, columns = edges(Q, measure.rows), edges(K, measure.columns)
                area = np.outer(np.diff(rows), np.diff(columns))
                found[measure.name] = [
                    np.add.reduceat(np.add.reduceat(p, rows[:-1], -2), columns[:-1], -1) / area,
                    np.maximum.reduceat(np.maximum.reduceat(p, rows[:-1], -2), columns[:-1], -1),
                ]
    return found


def numbers(kind: str, answer) -> list:
    """The floats of an answer, as arrays."""
    if kind in ("maximum", "top"):
        return [answer.weight]
    return list(answer) if isinstance(answer, tuple) else [answer]


def judge(kwargs, of) -> None:
    """The answers are as exact as the input allows, and counts and keys are right."""
    kwargs = {name: value for name, value in kwargs.items() if name != "v"}
    found = rg.attention_stats(**kwargs, of=of, engine="jit")
    rest = {name: kwargs[name] for name in kwargs if name not in ("q", "k")}
    request = checked_request(kwargs["q"], kwargs["k"], of, **rest)
    exact, plain = law(request), usual(request)
    eps = 8 * np.finfo(request.problem.real).eps
    shaken = []
    for seed in (1, 2):
        noise = np.random.default_rng(seed).uniform(-eps, eps, request.problem.q.shape)
        moved = {**kwargs, "q": request.problem.q * (1 + noise), "k": request.problem.k.astype(np.float64)}
        shaken.append(law(checked_request(moved.pop("q"), moved.pop("k"), request.measures, **moved)))
    for measure in request.measures:
        name, kind = measure.name, measure.kind
        if kind == "counts":
            for one, other in zip(found.counts, exact["counts"], strict=True):
                np.testing.assert_array_equal(one, other.reshape(one.shape))
            continue
        for part, value in enumerate(numbers(kind, found[name])):
            right = numbers(kind, exact[name])[part]
            value = value.reshape(right.shape).astype(np.float64)
            np.testing.assert_array_equal(np.isfinite(value), np.isfinite(right), err_msg=name)
            finite = np.isfinite(right)
            np.testing.assert_array_equal(value[~finite], right[~finite], err_msg=name)
            size = np.abs(right[finite]).max(initial=1)
            others = [plain[name][part], *(numbers(kind, other[name])[part] for other in shaken), value]
            made, *moves, error = (np.abs(other[finite] - right[finite]).max(initial=0) for other in others)
            moved = max(moves)
            # The sums of squared distances are float64: one as large as the largest distance squared is rounded like
            # it.
            squares = (
                1e-15 * (request.problem.dims["Q"] + request.problem.dims["K"] + 64) ** 2 if kind == "distance" else 0
            )
            budget = 4 * (made + moved) + eps * size + squares
            assert error <= budget, (
                f"{name} {part}: error {error:.2e}, usual {made:.2e}, input rounding {moved:.2e}, size {size:.2e}"
            )
            if kind in ("maximum", "top"):
                check_keys(request, found[name].key, exact[name], 4 * (made + moved) + eps)


def check_keys(request: Request, keys, exact, budget: float) -> None:
    """Every key has the reported weight, up to the budget; −1 marks a missing weight."""
    p = rg.attention_weights(
        request.problem.q.astype(np.float64),
        request.problem.k.astype(np.float64),
        **{name: getattr(request.problem, name) for name in ("mask", "score", "scale", "query_start", "sinks")},
    )
    keys, weight = keys.reshape(exact.key.shape), exact.weight
    if keys.ndim == 3:
        keys, weight = keys[..., None], weight[..., None]
    expected = exact.key.reshape(keys.shape)
    np.testing.assert_array_equal(keys < 0, expected < 0)
    if p.shape[-1]:
        there = np.take_along_axis(p, np.maximum(keys, 0), -1)
        there = np.where(keys < 0, 0, there)
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
@examples(15, suppress_health_check=SLOW)
@given(question=questions(dtypes=DTYPES))
def test_statistics_agree_with_the_law(question):
    """Any valid problem, any selection of measures, on the widest vectors of this machine."""
    judge(question[0].kwargs, question[1])


@pytest.mark.sweep
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(question=questions(dtypes=DTYPES))
def test_statistics_agree_with_the_law_on_many_problems(question):
    """The same, on more problems than CI has time to compile kernels for."""
    judge(question[0].kwargs, question[1])


@narrower_isas
@settings(max_examples=8, deadline=None, suppress_health_check=SLOW)
@given(question=questions(dtypes=DTYPES, rows=30, depth=40))
def test_statistics_agree_with_the_law_on_narrower_machines(isa, question):
    """The same with fewer features, down to what any machine has."""
    with limited(isa):
        judge(question[0].kwargs, question[1])


MASKS = {
    "dense": None,
    "causal": rg.causal(),
    "window and global": rg.causal() & rg.window(40) | rg.global_tokens(5),
    "documents": rg.documents(ids=np.arange(700) // 90),
}


@pytest.mark.spread
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("Q", "K"), [(1, 700), (65, 129), (300, 513)])
def test_many_tiles(mask, Q, K):
    """Rows and keys of several tiles and blocks, and edges inside them; maps whose cells are smaller and larger than a
    block.
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
@pytest.mark.parametrize(
    ("isa", "Q", "K", "D"),
    [  # in a sweep, every shape on every instruction set
        on(isa, *shape, sweep=isa != host().isa and shape != (70, 141, 33))
        for isa in ISAS
        for shape in ((1, 1, 1), (70, 141, 33), (64, 128, 64), (17, 300, 16))
    ],
)
@pytest.mark.parametrize("at_end", [True, False], ids=["end", "start"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_nothing_outside_of_the_arrays_is_touched(isa, at_end, dtype, Q, K, D):
    """q, k, sinks and tables are adjacent to a page that cannot be read; a stray access would end the process."""
    q, k = (guarded(array.astype(dtype), at_end) for array in arrays(Q, K, D)[:2])
    document = rg.table(guarded(np.arange(K) // 9, at_end))
    height = rg.table(guarded(np.linspace(-1, 1, 7, dtype=np.float32), at_end))
    kwargs = {
        "q": q,
        "k": k,
        "mask": document[rg.query] >= document[rg.key + 5],
        "score": rg.score + height[rg.key - rg.query],
        "sinks": guarded(np.ones(4, np.float32), at_end),
    }
    with limited(isa):
        judge(kwargs, [*EVERYTHING[:-2], rg.mass(document[rg.query] == document[rg.key]), rg.top(4), rg.pooled(1, 1)])


@pytest.mark.spread
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("mask", [rg.causal(), rg.key % 3 != rg.query % 3], ids=["causal", "thirds"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_goes_where_the_law_sends_it(dtype, mask, bad):
    """A query and a key that are not finite: NaN and infinities are in the same places of every result, and nowhere
    else.
    """
    q, k = (array.astype(dtype) for array in arrays(Q=70, K=150, D=9, B=1)[:2])
    q[0, 1, 30, 4] = k[0, 0, 140, 2] = k[0, 1, 20, 8] = bad
    judge({"q": q, "k": k, "mask": mask, "sinks": np.ones(4, np.float32)}, [*EVERYTHING, rg.pooled(7, 15)])


@pytest.mark.spread
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("scale", [1e3, -50.0])
@pytest.mark.parametrize("sinks", [-1e3, 1e3])
def test_scores_of_any_size(dtype, scale, sinks):
    """Scores of thousands, and sinks that take everything or nothing."""
    q, k = (array.astype(dtype) for array in arrays(Q=70, K=150, D=9, B=1)[:2])
    judge(
        {"q": q, "k": k, "mask": rg.causal(), "scale": scale, "sinks": np.full(4, sinks, np.float32)},
        [*EVERYTHING, rg.pooled(7, 15)],
    )


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
