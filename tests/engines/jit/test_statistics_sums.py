"""Statistics of rows as partial sums: the tree over pieces of keys, and law 11 over few and many keys."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit import threads
from regard.engines.jit.code import build
from regard.engines.jit.kernels.forward import PIECE
from regard.engines.jit.statistics import RowSums, Runner
from regard.engines.jit.tiling import NARROW, tiling
from regard.language.measures import checked_request
from tests.engines.jit.test_statistics import EVERYTHING
from tests.engines.jit.usual import large_examples, parts, rules_with_gaps, same_results, tree
from tests.support.kernels import arrays
from tests.support.lanes import by_name
from tests.support.strategies import LAYOUTS, Dims, laid_out

hostile = st.sampled_from((None, None, np.nan, np.inf, -np.inf))
OF_ROWS = [measure for measure in EVERYTHING if measure != "received"]
ROUNDED = ["maximum", "total", "surprise", "moments", "sets"]


# ---- the tree --------------------------------------------------------------------------------------------------------


def sums_of(q, k, of=OF_ROWS, **rules) -> dict[str, np.ndarray]:
    """What the kernel stores: by name, (B, H, count, Q)."""
    request = checked_request(q, k, of, **rules)
    runner = Runner.of(request.problem, tiling(request.problem))
    with np.errstate(all="ignore"):
        return RowSums(runner, request).sums


def joined(left: dict, right: dict) -> dict:
    """Two partial sums merged, for scores that are integers in base 2, so every factor is a power of two."""
    a, b = left["maximum"], right["maximum"]
    top = np.where(a > b, a, b)
    some = np.where(np.isneginf(top), 0, top)
    factors = [np.where(part - some <= -127, 0, np.exp2(part - some)).astype(np.float32) for part in (a, b)]
    decreases = [np.maximum(np.where(np.isneginf(part), 0, part) - some, -127) for part in (a, b)]
    found = {"maximum": top}
    for name in ("total", "moments", "sets"):
        found[name] = left[name] * factors[0] + right[name] * factors[1]
    found["surprise"] = sum(
        part["surprise"] * factor + decrease * (part["total"] * factor)
        for part, factor, decrease in zip((left, right), factors, decreases)
    )
    return found


def in_base_2(Q: int, K: int, spread: int, seed: int) -> dict:
    """A call whose scores are integers in base 2: powers and factors are exact, and only sums are rounded."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, spread + 1, -(-K // 100)).repeat(100)[:K, None]  # of the scores, so that pieces differ
    q = np.eye(16, dtype=np.float32)[rng.integers(0, 16, (1, 2, Q))]  # rows read different columns of k
    k = (level - rng.integers(0, 21, (1, 1, K, 16))).astype(np.float32)
    return {"q": q, "k": k, "scale": np.log(2)}


def check_tree(whole: dict, expected: dict) -> None:
    """The sums are those of the tree; what a fused multiply-add rounds differently may differ in the last bits."""
    for name in ("maximum", "total", "sets"):
        np.testing.assert_array_equal(whole[name], expected[name], err_msg=name)
        np.testing.assert_array_equal(np.signbit(whole[name]), np.signbit(expected[name]), err_msg=name)
    np.testing.assert_allclose(whole["moments"], expected["moments"], rtol=1e-14)
    np.testing.assert_allclose(whole["surprise"], expected["surprise"], rtol=1e-6)


@pytest.mark.parametrize("K", [PIECE, PIECE + 1, 5000, 9000])
@large_examples(4, 2)
@given(data=st.data(), Q=st.integers(1, 40), spread=st.sampled_from((5, 0, 150)))
def test_pieces_merge_as_a_tree(data, Q, K, spread):
    """The sums over all keys are those over each piece alone, merged in a tree: under random masks too, with gaps,
    empty pieces and empty rows; some keys may be NaN or infinite.
    """
    mask = data.draw(st.just(rg.everything()) | rules_with_gaps(Dims(1, 1, 2, Q, K, 1, 1)))
    call = in_base_2(Q, K, spread, data.draw(st.integers(0, 99)))
    bad = data.draw(hostile)
    if bad is not None:
        call["k"][0, 0, data.draw(st.integers(0, K - 1)), 0] = bad
    whole = sums_of(**call, mask=mask)
    with np.errstate(all="ignore"):
        pieces = {n: sums_of(**call, mask=mask & (rg.key // PIECE == n)) for n in range(-(-K // PIECE))}
        expected = tree(pieces, joined)
    nan = np.isnan(expected["total"])
    np.testing.assert_array_equal(np.isnan(whole["total"]), nan)
    every = [{name: np.where(nan, 0, sums[name]) for name in ROUNDED} for sums in (whole, expected)]
    check_tree(*every)


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
    call = in_base_2(3, 40_000, 5, 0)
    sums_of(call["q"], call["k"][:, :, :900], scale=call["scale"])
    before = set(build._kernels)
    for K in (5000, 40_000):
        sums_of(call["q"], call["k"][:, :, :K], scale=call["scale"])
    assert set(build._kernels) == before


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
