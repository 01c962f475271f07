"""Statistics of rows as partial sums: the tree over pieces of keys, and law 11 over few and many keys."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit.code import build
from regard.engines.jit.kernels.forward import PIECE
from regard.engines.jit.run import threads
from regard.engines.jit.statistics import RowSums, Runner, statistics
from regard.engines.jit.tiling import NARROW, tiling
from regard.language.measures import checked_request
from tests.engines.jit.test_statistics import EVERYTHING, judge
from tests.engines.jit.test_sums import tree
from tests.support.engines import DTYPES, same_bits
from tests.support.kernels import arrays
from tests.support.lanes import SWEEP
from tests.support.strategies import LAYOUTS, Dims, laid_out, masks

hostile = st.sampled_from((None, None, np.nan, np.inf, -np.inf))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
OF_ROWS = [measure for measure in EVERYTHING if measure != "received"]
ROUNDED = ["maximum", "total", "surprise", "moments", "sets"]


@st.composite
def rules_with_gaps(draw, dims: Dims):
    """A random mask; on top of it often whole pieces, parts of pieces and rows without keys."""
    mask = draw(masks(dims))
    if draw(st.booleans()):
        size = draw(st.sampled_from((PIECE, 2 * PIECE, 128, 300, 17)))
        rng = np.random.default_rng(draw(st.integers(0, 999)))
        share = draw(st.sampled_from((0.1, 0.5, 0.9)))
        kept = rg.table(rng.random((dims.Q, -(-dims.K // size))) < share, "kept")
        mask = mask & kept[(rg.query - (dims.K - dims.Q)) % dims.Q, rg.key // size]
    return mask


# ---- the tree --------------------------------------------------------------------------------------------------------


def sums_of(q, k, of=OF_ROWS, **rules) -> dict[str, np.ndarray]:
    """What the kernel stores: by name, (B, H, count, Q)."""
    request = checked_request(q, k, of, **rules)
    runner = Runner.of(request.problem, tiling(request.problem))
    with np.errstate(all="ignore"):
        return RowSums(runner, request).sums


def joined(left: dict | None, right: dict | None) -> dict | None:
    """Two partial sums merged, for scores that are integers in base 2, so every factor is a power of two."""
    if left is None or right is None:
        return right if left is None else left
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


def restricted(mask, begin: int):
    """The mask within a piece."""
    piece = (rg.key >= begin) & (rg.key < begin + PIECE)
    return piece if mask is None else mask & piece


def pieces_of(call: dict, mask) -> list:
    return [sums_of(**call, mask=restricted(mask, begin)) for begin in range(0, call["k"].shape[2], PIECE)]


def check_tree(whole: dict, expected: dict) -> None:
    """The sums are those of the tree; what a fused multiply-add rounds differently may differ in the last bits."""
    for name in ("maximum", "total", "sets"):
        np.testing.assert_array_equal(whole[name], expected[name], err_msg=name)
        np.testing.assert_array_equal(np.signbit(whole[name]), np.signbit(expected[name]), err_msg=name)
    np.testing.assert_allclose(whole["moments"], expected["moments"], rtol=1e-14)
    np.testing.assert_allclose(whole["surprise"], expected["surprise"], rtol=1e-6)


@pytest.mark.parametrize("K", [PIECE, PIECE + 1, 5000, 9000])
def test_pieces_merge_as_a_tree(K):
    """The sums over all keys are those over each piece alone, merged in a tree, and not one after another."""
    call = in_base_2(9, K, 5, K)
    whole, pieces = sums_of(**call), pieces_of(call, None)
    check_tree(whole, tree(pieces, joined))
    if K >= 4 * PIECE:  # fewer pieces have one order
        assert (functools.reduce(joined, pieces)["total"] != whole["total"]).any()


@settings(max_examples=8 if SWEEP else 4, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), Q=st.integers(1, 40), K=st.integers(5000, 9000), spread=st.sampled_from((0, 5, 150)))
def test_pieces_merge_as_a_tree_under_any_mask(data, Q, K, spread):
    """The same for random masks: with gaps, empty pieces and empty rows; some keys may be NaN or infinite."""
    mask = data.draw(rules_with_gaps(Dims(1, 1, 2, Q, K, 1, 1)))
    call = in_base_2(Q, K, spread, data.draw(st.integers(0, 99)))
    bad = data.draw(hostile)
    if bad is not None:
        call["k"][0, 0, data.draw(st.integers(0, K - 1)), 0] = bad
    whole = sums_of(**call, mask=mask)
    with np.errstate(all="ignore"):
        expected = tree(pieces_of(call, mask), joined)
    nan = np.isnan(expected["total"]) | np.isnan(whole["total"])
    np.testing.assert_array_equal(np.isnan(whole["total"]), nan)
    np.testing.assert_array_equal(np.isnan(expected["total"]), nan)
    every = [{name: np.where(nan, 0, sums[name]) for name in ROUNDED} for sums in (whole, expected)]
    check_tree(*every)


def test_the_error_of_what_keys_receive_does_not_grow_with_the_rows():
    """100,000 rows: at most the error of NumPy, which sums in pairs along the last axis."""
    q, k = (np.random.default_rng(0).standard_normal((1, 1, rows, 8), dtype=np.float32) for rows in (100_000, 64))
    request = checked_request(q, k, ["received"], query_start=0)
    exact = statistics(checked_request(q.astype(np.float64), k.astype(np.float64), ["received"], query_start=0))
    weights = rg.attention_weights(q, k, query_start=0)
    made, error = (
        np.sqrt(np.mean((found - exact["received"]) ** 2))
        for found in (np.ascontiguousarray(weights.swapaxes(-1, -2)).sum(-1), statistics(request)["received"])
    )
    assert error <= made, f"error {error:.1e}, usual {made:.1e}"


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
    "plain": (200, 300, {}),
    "window": (200, 300, {"mask": rg.causal() & rg.window(100), "score": rg.softcap(4.0)}),
    "documents": (200, 300, {"mask": rg.documents(lengths=[30, 1, 250, 60, 400])}),
    "many keys": (130, 9000, {}),
    "many causal": (130, 5000, {"mask": rg.causal()}),
    "empty pieces": (130, 9000, {"mask": rg.causal() & (rg.window(100) | rg.global_tokens(5))}),
    "gaps": (130, 5000, {"mask": (rg.key // 700) % 4 == rg.query % 5, "score": rg.softcap(4.0)}),
}
cases = pytest.mark.parametrize(("Q", "K", "rules"), CASES.values(), ids=CASES)
ALL = [*EVERYTHING, rg.pooled(9, 11)]


def parts(found, entry=slice(None), heads=slice(None), rows=slice(None)) -> dict:
    """The arrays of an answer, or of its parts, by name, for a choice of batch entries, heads and rows."""
    several = {name: found[name] if isinstance(found[name], tuple | list) else [found[name]] for name in found}
    return {name: [part[entry, heads, rows] for part in arrays] for name, arrays in several.items()}


def same(one: dict, other: dict) -> None:
    """The same bits, of zeros too; NaN is equal to NaN."""
    assert one.keys() == other.keys()
    for name in one:
        for x, y in zip(one[name], other[name], strict=True):
            same_bits(np.nan_to_num(x), np.nan_to_num(y))


@cases
def test_law_11_what_changes_no_bit(Q, K, rules):
    """Repeated runs, threads, layouts, an entry of the batch or a head alone; of statistics of rows, what other rows
    hold and how many they are.
    """
    q, k, _ = arrays(Q=Q, K=K, D=16)

    def answer(q, k, of=ALL, **more):
        return parts(rg.attention_stats(q, k, of=of, engine="jit", **rules, **more))

    whole, rows = answer(q, k), answer(q, k, OF_ROWS)
    same(whole, answer(q, k))
    for count in (1, 2, 3, 5):
        with threads.limit(count):
            same(whole, answer(q, k))
    for layout in set(LAYOUTS) - {"broadcast"}:  # which repeats numbers, so it is no layout of these arrays
        same(whole, answer(*(laid_out(array, layout) for array in (q, k))))
    same(parts(whole, entry=slice(1, None)), answer(q[1:], k[1:]))
    for head in range(4):
        same(parts(whole, heads=slice(head, head + 1)), answer(q[:, [head]], k[:, [head // 2]]))
    disturbed = q.copy()
    disturbed[:, :, 1::2] *= 30
    disturbed[:, :, 5] = np.nan
    others = slice(None, None, 2)
    same(parts(rows, rows=others), parts(answer(disturbed, k, OF_ROWS), rows=others))
    for first, last in itertools.pairwise((0, 1, 8, 72, 99, Q)):
        some = answer(q[:, :, first:last], k, OF_ROWS, query_start=K - Q + first)
        same(parts(rows, rows=slice(first, last)), some)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("Q", [1, 6, 20, 300, 2500])
def test_law_11_sums_over_rows_do_not_depend_on_tiles(Q):
    """What keys receive, and maps: an entry with a wide window has the same bits alone, where tiles are high, and next
    to one with a narrow window, where they are low; with one of its heads or all; with a map or without.
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
        own, here = parts(whole, slice(entry, entry + 1)), (q[[entry]], k[[entry]])
        same(own, answer(*here, width))
        same({"received": own["received"]}, answer(*here, width, ["received"]))
        for head in range(2):
            same(parts(own, heads=slice(head, head + 1)), answer(here[0][:, [head]], here[1], width))
    assert len(heights) > 1 or high > Q


@settings(max_examples=8 if SWEEP else 5, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), Q=st.integers(1, 40), K=st.integers(5000, 9000), dtype=st.sampled_from(DTYPES))
def test_law_11_under_any_mask(data, Q, K, dtype):
    """Random masks with gaps, over several pieces, sinks and hostile keys: every measure is that of the law; a row
    alone, and any number of threads, give the same bits.
    """
    mask = data.draw(rules_with_gaps(Dims(1, 1, 2, Q, K, 8, 1)))
    q, k = (part.astype(dtype) for part in arrays(Q=Q, K=K, D=8, H=2, G=1, B=1, seed=data.draw(st.integers(0, 99)))[:2])
    bad = data.draw(hostile)
    if bad is not None:
        k[0, 0, data.draw(st.integers(0, K - 1)), 3] = bad
    rules = {"mask": mask, "sinks": np.ones(2, np.float32) if data.draw(st.booleans()) else None}
    judge({"q": q, "k": k, **rules}, [*EVERYTHING, rg.mass(rg.key // PIECE == 2, "third")])
    whole = parts(rg.attention_stats(q, k, of=OF_ROWS, **rules, engine="jit"))
    for count in (1, 3):
        with threads.limit(count):
            same(whole, parts(rg.attention_stats(q, k, of=OF_ROWS, **rules, engine="jit")))
    row = data.draw(st.integers(0, Q - 1))
    alone = rg.attention_stats(q[:, :, [row]], k, of=OF_ROWS, **rules, query_start=K - Q + row, engine="jit")
    same(parts(whole, rows=slice(row, row + 1)), parts(alone))
