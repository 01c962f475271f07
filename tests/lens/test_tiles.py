"""Tiles: whatever part of a matrix is asked, at whatever level, it is the matrix pooled by hand.

The error budget of a case comes from the case: what the last bits of the queries, and of the scores, do to the exact
weights.
"""

import tracemalloc
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

import regard as rg
from regard.engines import choice
from regard.language.analysis import substituted
from regard.language.expr import batch, lift
from regard.language.problem import Problem
from regard.lens import Call
from regard.lens.heatmap import matrix_figure
from regard.lens.look import of_weights
from regard.lens.runs import codes, tiles
from regard.lens.runs import tiles as reach
from tests.support.engines import DTYPES, normal
from tests.support.lanes import examples
from tests.support.strategies import problems

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
EPS = 8 * float(np.finfo(np.float32).eps)


def recorded(q, k, entry=0, engine="reference", **rules):
    """One batch entry of a call, as a run keeps it."""
    problem = Problem.of(q, k, None, **rules)
    mask, score = (
        None if rule is None else substituted(rule, {batch: lift(entry)}) for rule in (problem.mask, problem.score)
    )
    lse = rg.attention_stats(q, k, of="lse", engine=engine, **rules).lse.reshape(problem.q.shape[:3])[entry]
    numbers = lse, problem.q[entry], problem.k[entry]
    start = int(problem.query_start[entry])
    return Call("a", 0, "rows", "keys", *numbers, mask, score, problem.scale, start, problem.sinks)


def exact(call, seed=None):
    """The weights from the law, in float64; with a seed, of queries whose last float32 bits are rounded at random."""
    q, k = call.q.astype(np.float64), call.k.astype(np.float64)
    if seed is not None:
        q = q * (1 + np.random.default_rng(seed).uniform(-EPS, EPS, q.shape))
    return rg.attention_weights(
        q, k, mask=call.mask, score=call.score, scale=call.scale, query_start=call.start, sinks=call.sinks
    )


@pytest.fixture(params=[0, 1 << 18], ids=["streamed", "small"])
def small(request, monkeypatch):
    """Up to how many pairs NumPy computes: none, or all of these tests."""
    monkeypatch.setattr(choice, "ONE_CALL", request.param)
    return request.param


POOLS = {"share": (np.mean, np.sum), "largest": (np.max, np.max)}
SOME = np.any, np.any


def boxes(p, rows, keys, pool):
    """One number for every box between these edges of a matrix: over its rows, then over its keys."""
    over_rows, over_keys = pool
    lines = np.stack([over_rows(p[..., i:j, :], -2) for i, j in pairwise(rows)], -2)
    return np.stack([over_keys(lines[..., i:j], -1) for i, j in pairwise(keys)], -1)


def pooled(found, p, rows, keys):
    """Fails unless a tile has the numbers of such boxes."""
    for name, pool in POOLS.items():
        np.testing.assert_allclose(getattr(found, name), boxes(p, rows, keys, pool), rtol=1e-5, atol=1e-7)


def cells(p, level, pool):
    """One number for every cell of 2^level × 2^level pairs."""
    return boxes(p, *([*range(0, size, 1 << level), size] for size in p.shape), pool)


def whole(call, head, level, size, **more):
    """All tiles of a level, put together."""
    step = size << level
    _, Q, K = call.shape
    found = [
        [tiles.tile(call, head, level, row, column, size, **more) for column in range(-(-K // step))]
        for row in range(-(-Q // step))
    ]
    return tiles.Tile(
        *(np.block([[tile[part] for tile in line] for line in found]) for part in range(4)), found[0][0].exact
    )


def judge(call, head, level, size=8):
    """The tiles of a level are the matrix, pooled by hand."""
    found = whole(call, head, level, size)
    right, *moved = (exact(call, seed)[head] for seed in (None, 1, 2))
    moved += [right * np.exp(EPS * np.nan_to_num(np.abs(call.scores()[head]), posinf=0))]
    for name, pool in POOLS.items():
        true, *others = (cells(p, level, pool) for p in (right, *moved))
        error, *budget = (np.abs(other - true).max() for other in (getattr(found, name), *others))
        assert error <= 4 * sum(budget) + EPS, (name, error, budget)
    np.testing.assert_array_equal(found.allowed, cells(call.allowed(heads=head)[0], level, SOME))
    assert found.exact == "exact"


@st.composite
def calls(draw, **sizes):
    """A call of any problem, and the head and level to look at."""
    kwargs = {name: value for name, value in draw(problems(**sizes)).kwargs.items() if name != "v"}
    shape = Problem.of(kwargs["q"], kwargs["k"], None).dims
    assume(shape["Q"] and shape["K"])
    call = recorded(**kwargs, entry=draw(st.integers(0, shape["B"] - 1)))
    return call, draw(st.integers(0, shape["H"] - 1)), draw(st.integers(0, 5))


@examples(80, suppress_health_check=SLOW)
@given(case=calls(dtypes=DTYPES), small=st.sampled_from([0, 1 << 18]))
def test_tiles_agree_with_the_law(case, small):
    """Any rule, shape, dtype, head and level: from the weights themselves, and through the compiled engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "ONE_CALL", small)
        judge(*case)


def test_streamed_tiles_of_usual_rules(monkeypatch):
    """Grouped heads, several tiles along both sides, and cells that reach beyond the matrix."""
    monkeypatch.setattr(choice, "ONE_CALL", 0)
    q, k, sinks = normal(4, 150, 24), normal(2, 190, 24, seed=1), normal(4, 1)
    judge(recorded(q, k, mask=rg.causal() & (rg.key % 4 != rg.head), score=rg.alibi(4), sinks=sinks), 3, 2, 16)


def test_what_is_not_a_number_is_seen_where_it_is_attended(small):
    """A row that attends a NaN is NaN in the cells where it attends; masked cells stay 0."""
    q, k = normal(2, 1, 40, 8)
    q[0, 20, 3], q[0, 21, 3] = np.nan, np.inf
    call = recorded(q, k, mask=rg.causal())
    wrong = np.isnan(exact(call)[0])
    assert wrong.any(1).nonzero()[0].tolist() == [20, 21]
    for level in (0, 3):
        np.testing.assert_array_equal(np.isnan(whole(call, 0, level, 8).largest), cells(wrong, level, SOME))


@pytest.mark.parametrize("boxes", [0, 1 << 16], ids=["looked at", "by bounds"])
def test_masked_is_told_from_zero(boxes, monkeypatch):
    """A pair whose weight is 0 because its score is low is allowed; one behind the mask is not, in any level."""
    monkeypatch.setattr(choice, "ONE_CALL", 0)
    monkeypatch.setattr(reach, "BOXES", boxes)
    q, some = np.full((1, 64, 4), 40, np.float32), np.random.default_rng(0).random((64, 64)) < 0.3
    mask = rg.causal() & (rg.table(some)[rg.query, rg.key] | (rg.key == 0))
    call = recorded(q, np.where(np.arange(64)[:, None] == 0, q, -q), mask=mask)
    for level in (0, 1, 2):
        found = whole(call, 0, level, 16)
        np.testing.assert_array_equal(found.allowed, cells(call.allowed()[0], level, SOME))
        assert (found.allowed & (found.largest == 0)).any()


@pytest.mark.parametrize(
    ("bad", "code", "at"),
    [
        (0.25, codes.LEAK, (10, 40)),
        (-0.5, codes.OUT, (40, 5)),
        (1.2, codes.OUT, (40, 5)),
        (-np.inf, codes.OUT, (40, 5)),
        (np.nan, codes.NAN, (40, 5)),
    ],
)
def test_what_is_wrong_shows_at_every_level_and_in_every_picture(bad, code, at, monkeypatch):
    """One weight behind the mask, below 0, above 1 or not a number among 2,000, looked at in several blocks: in tiles,
    regions, pictures of paper, page and server alike. All others are pooled as they are.
    """
    monkeypatch.setattr(tiles, "BLOCK", 100)
    p = exact(recorded(*normal(2, 2, 48, 8, seed=3), mask=rg.causal()))
    p[1, *at] = bad
    call = Call("a", 0, "rows", "keys", np.zeros(p.shape[:2]), given=p, mask=rg.causal())
    for level in range(6):
        tile = whole(call, 1, level, 8)
        np.testing.assert_allclose(tile.share, cells(p[1], level, POOLS["share"]), rtol=1e-6)
        np.testing.assert_allclose(tile.largest, np.maximum(0, cells(p[1], level, POOLS["largest"])), rtol=1e-6)
        np.testing.assert_array_equal(tile.allowed, cells(np.tri(48, dtype=bool), level, SOME))
        shown = codes.encode(tile.share, tile.allowed, tile.wrong)[0]
        assert np.argwhere(shown == code).tolist() == [[place >> level for place in at]]
        assert np.isin(shown, (codes.OUT, codes.NAN, codes.LEAK)).sum() == 1
    place = [each // 8 for each in at]
    assert np.argwhere(matrix_figure(call, 1, range(48), range(48), 6).codes == code).tolist() == [place]
    written = tiles.coded(call, tiles.overview(call, 6))
    assert np.argwhere(written == code).tolist() == [[1, *place]]


@pytest.mark.parametrize("size", [(50, 50), (7, 90), (90, 3)])
def test_an_overview_is_cut_as_maps_are(size, small):
    """Every head's matrix in cells that differ by one row and key at most, also with sinks; cells without an allowed
    pair are told from weights that are 0.
    """
    q, k = (normal(heads, n, 8, seed=heads) for heads, n in zip((4, 2), size))
    sinks = np.array([[-9.0], [1.0], [2.0], [0.0]], np.float32)
    call = recorded(q, k, mask=rg.key >= rg.query - 20, sinks=sinks)
    found, places = tiles.overview(call, 16), [np.arange(min(16, n) + 1) * n // min(16, n) for n in size]
    pooled(found, exact(call), *places)
    assert found.exact == "exact"
    np.testing.assert_array_equal(tiles.coded(call, found) != codes.MASKED, boxes(call.allowed(), *places, SOME))


def test_a_sampled_picture_says_so(small, monkeypatch):
    """What would take too long comes from some rows, evenly, with their true weights; and the answer says which share
    of them.
    """
    monkeypatch.setattr(tiles, "PATIENCE", 16 * 100 * 100 * (8 + 64) // 100)
    monkeypatch.setattr(tiles, "GIVEN", 1600)
    q, k = normal(2, 1, 100, 8)
    call = recorded(q, k, mask=rg.causal())
    p = exact(call)
    if small:
        call = Call("a", 0, "rows", "keys", call.lse, given=p, mask=rg.causal())
    found = tiles.tile(call, 0, 5, 0, 0, size=4)
    every = int(found.exact.removeprefix("sampled 1 row of "))
    rows = tiles.sampled(0, 100, every)
    assert every in (4, 8) and (rows // every == np.arange(-(-100 // every))).all()
    pooled(found, p[0, rows], [*range(0, len(rows), 32 // every), len(rows)], [0, 32, 64, 96, 100])
    np.testing.assert_array_equal(found.allowed, np.tri(4, dtype=bool))
    picture = tiles.overview(call, 10, sample=3)
    assert picture.exact == "sampled 1 row of 2"
    assert (picture.largest <= tiles.overview(call, 10).largest * (1 + 1e-5)).all()
    np.testing.assert_allclose(picture.share.sum(-1), 1, rtol=1e-5)


def test_a_region_is_any_part_of_a_head(small, monkeypatch):
    """Any rows and keys, in any number of cells, as `pooled` cuts them; sampled rows where it would take too long."""
    call = recorded(*normal(2, 2, 60, 8), mask=rg.causal())
    part = 1, range(7, 50), range(3, 44), 5, 6
    found, edges = tiles.region(call, *part), (np.arange(6) * 43 // 5, np.arange(7) * 41 // 6)
    pooled(found, exact(call)[1, 7:50, 3:44], *edges)
    np.testing.assert_array_equal(found.allowed, boxes(call.allowed()[1, 7:50, 3:44], *edges, SOME))
    assert found.exact == "exact"
    if not small:
        monkeypatch.setattr(tiles, "PATIENCE", 1)
        one = tiles.region(call, *part)
        assert one.exact == "sampled 1 row of 4"
        np.testing.assert_array_equal(one.allowed, found.allowed)
        assert (one.largest <= found.largest * (1 + 1e-5)).all()


@pytest.mark.parametrize(
    "where", [(2, 0, 0, 0), (0, 0, 3, 0), (0, 0, 0, 3), (0, -1, 0, 0), (0, 70, 0, 0), (-1, 0, 0, 0)]
)
def test_a_tile_outside_is_refused(where):
    """A head, level or place that is not there is named, with what there is."""
    with pytest.raises(rg.Refused, match=r"(?s)no such tile.*2 heads, 40 rows and 40 keys"):
        tiles.tile(recorded(*np.ones((2, 2, 40, 8), np.float32)), *where, size=16)


def test_a_long_call_is_never_unfolded():
    """Tiles of any level and a sampled overview of 20,000 tokens need a few megabytes, where the matrix would be 1.6
    GB.
    """
    q, k = normal(2, 1, 20_000, 8, dtype=ml_dtypes.bfloat16)
    call = recorded(q, k, mask=rg.causal() & rg.window(500), engine="auto")
    tracemalloc.start()
    for level, row in ((0, 60), (2, 10), (5, 1), (7, 0)):
        tiles.tile(call, 0, level, row, row)
    picture = tiles.overview(call, sample=16)
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()
    np.testing.assert_allclose(picture.share.sum(-1), 1, rtol=1e-3)


def test_sixteen_bit_weights_of_a_row_may_round_to_more_than_one():
    """A row of 255 even weights in bfloat16 sums to 1.004: no cell of sums is out of range for that; a weight above 1
    still is.
    """
    weights = np.full((255, 255), 1 / 255, ml_dtypes.bfloat16).astype(np.float32)
    assert weights[0].sum() > codes.ABOVE
    for code in (255, codes.OUT):
        found = tiles.tile(of_weights(weights).calls[0], 0, 8, 0, 0)
        assert codes.encode(found.share, found.allowed, found.wrong)[0].tolist() == [[code]]
        weights[3, 4] = 1.2
