"""Statistics as sums: their error, their memory, and law 11 over few and many keys."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.engines.jit import threads
from regard.engines.jit.code import build
from regard.engines.jit.tiling import NARROW, tiling
from regard.language.measures import checked_request
from tests.engines.jit.test_statistics import EVERYTHING
from tests.engines.jit.usual import parts, same_results
from tests.support.kernels import arrays
from tests.support.lanes import by_name
from tests.support.strategies import LAYOUTS, laid_out

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
