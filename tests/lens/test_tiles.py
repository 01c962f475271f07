"""Tiles: whatever part of a matrix is asked, at whatever level, it is the matrix pooled by hand.

The error budget of a case comes from the case: what the usual float32 computation makes of the same q, k and lse, and
what rounding the inputs' last bits does to the exact weights.
"""

import tracemalloc
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

import regard as rg
from regard.language.analysis import substituted
from regard.language.expr import batch, lift
from regard.language.problem import Problem
from regard.lens import Call
from regard.lens.drawing.figure import matrix_figure
from regard.lens.look import of_weights
from regard.lens.runs import codes, tiles
from regard.lens.runs import mask_reach as reach
from regard.lens.viewer import embed
from tests.support.engines import DTYPES
from tests.support.lanes import examples
from tests.support.strategies import problems

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
EPS = 8 * float(np.finfo(np.float32).eps)


def recorded(q, k, entry=0, engine="reference", **rules) -> Call:
    """One batch entry of a call, as a run keeps it."""
    problem = Problem.of(q, k, None, **rules)
    mask, score = (
        None if rule is None else substituted(rule, {batch: lift(entry)}) for rule in (problem.mask, problem.score)
    )
    lse = rg.attention_stats(q, k, of="lse", engine=engine, **rules).lse.reshape(problem.q.shape[:3])[entry]
    return Call(
        "a",
        0,
        "rows",
        "keys",
        lse,
        problem.q[entry],
        problem.k[entry],
        mask,
        score,
        problem.scale,
        int(problem.query_start[entry]),
        problem.sinks,
    )


def exact(call: Call, seed=None) -> np.ndarray:
    """The weights from the law, in float64; with a seed, of queries whose last float32 bits are rounded at random."""
    q, k = call.q.astype(np.float64), call.k.astype(np.float64)
    if seed is not None:
        q = q * (1 + np.random.default_rng(seed).uniform(-EPS, EPS, q.shape))
    return rg.attention_weights(
        q, k, mask=call.mask, score=call.score, scale=call.scale, query_start=call.start, sinks=call.sinks
    )


def usual(call: Call) -> np.ndarray:
    """exp(score − lse) with every step in float32."""
    k = np.repeat(call.k.astype(np.float32), len(call.q) // len(call.k), 0)
    logits = (call.q.astype(np.float32) @ k.swapaxes(1, 2) * np.float32(call.scale)).astype(np.float64)
    shaken = np.where(np.isfinite(call.scores()), call.scores() + (logits - call.logits()), call.scores())
    with np.errstate(all="ignore"):
        lse = np.where(np.isneginf(call.lse), 0, call.lse).astype(np.float32)
        p = np.exp(shaken.astype(np.float32) - lse[..., None])
    return np.where(call.allowed(), p, 0).astype(np.float64)


POOLS = {"share": (np.mean, np.sum), "largest": (np.max, np.max)}
SOME = np.any, np.any


def cells(p, level, pool) -> np.ndarray:
    """One number for every cell of 2^level × 2^level pairs of a matrix: over its rows, then over its keys."""
    step, (over_rows, over_keys) = 1 << level, pool
    lines = np.stack([over_rows(p[i : i + step], 0) for i in range(0, p.shape[0], step)])
    return np.stack([over_keys(lines[:, j : j + step], 1) for j in range(0, p.shape[1], step)], 1)


def whole(call, head, level, size, **more) -> tiles.Tile:
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


def judge(call: Call, head: int, level: int, size: int = 8) -> None:
    """The tiles of a level are the matrix, pooled by hand."""
    found = whole(call, head, level, size)
    right, made, *moved = (p[head] for p in (exact(call), usual(call), exact(call, 1), exact(call, 2)))
    for name, pool in POOLS.items():
        value = getattr(found, name).astype(np.float64)
        true, *others = (cells(p, level, pool) for p in (right, made, *moved))
        error, *budget = (np.abs(other - true).max() for other in (value, *others))
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


@examples(60, suppress_health_check=SLOW)
@given(case=calls(dtypes=DTYPES))
def test_small_tiles_agree_with_the_law(case):
    """Any rule, shape, dtype, head and level, computed from the weights themselves."""
    judge(*case)


@examples(16, suppress_health_check=SLOW)
@given(case=calls(dtypes=DTYPES))
def test_streamed_tiles_agree_with_the_law(case):
    """The same through the compiled engine, which large tiles take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "SMALL", 0)
        judge(*case)


RULES = {
    "dense": {},
    "causal": {"mask": rg.causal()},
    "window, softcap": {"mask": rg.causal() & rg.window(30), "score": rg.softcap(2.0)},
    "heads differ": {"mask": rg.key % 4 != rg.head, "score": rg.alibi(4)},
    "a few pairs": {"mask": rg.table(np.random.default_rng(0).random((200, 200)) < 0.01)[rg.query, rg.key]},
    "sinks": {"mask": rg.causal(), "sinks": np.array([[2.0], [-1.0], [0.0], [5.0]], np.float32)},
    "chunk": {"mask": rg.causal(), "query_start": 7},
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_streamed_tiles_of_usual_rules(rules, monkeypatch):
    """Grouped heads, several tiles along both sides, and cells that reach beyond the matrix."""
    monkeypatch.setattr(tiles, "SMALL", 0)
    rng = np.random.default_rng(1)
    call = recorded(
        rng.standard_normal((4, 150, 24), np.float32), rng.standard_normal((2, 190, 24), np.float32), **rules
    )
    for head, level, size in ((0, 0, 100), (3, 2, 16), (1, 6, 2)):
        judge(call, head, level, size)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("small", [0, 1 << 18], ids=["streamed", "small"])
def test_what_is_not_a_number_is_seen_where_it_is_attended(small, level, monkeypatch):
    """A row that attends a NaN is NaN in the cells where it attends; masked cells stay 0."""
    monkeypatch.setattr(tiles, "SMALL", small)
    q, k = np.random.default_rng(0).standard_normal((2, 1, 40, 8), np.float32)
    for bad in (np.nan, np.inf):
        q[0, 21, 3] = bad
        call = recorded(q, k, mask=rg.causal())
        right = exact(call)[0]
        found = whole(call, 0, level, 8)
        np.testing.assert_array_equal(np.isnan(found.largest), cells(np.isnan(right), level, SOME))
        assert np.isnan(right[21, :22]).any() and not np.isnan(np.delete(right, 21, 0)).any()


@pytest.mark.parametrize("boxes", [0, 1 << 16], ids=["looked at", "by bounds"])
def test_masked_is_told_from_zero(boxes, monkeypatch):
    """A pair whose weight is 0 because its score is low is allowed; one behind the mask is not, in any level."""
    monkeypatch.setattr(tiles, "SMALL", 0)
    monkeypatch.setattr(reach, "BOXES", boxes)
    q = np.full((1, 64, 4), 40, np.float32)
    k = np.where(np.arange(64)[:, None] == 0, np.float32(1), np.float32(-1)) * np.full((1, 64, 4), 40, np.float32)
    random = rg.table(np.random.default_rng(0).random((64, 64)) < 0.3)[rg.query, rg.key] | (rg.key == 0)
    for mask in (rg.causal(), random):
        call = recorded(q, k, mask=mask)
        for level in (0, 1, 2):
            found = whole(call, 0, level, 16)
            np.testing.assert_array_equal(found.allowed, cells(call.allowed()[0], level, SOME))
            assert (found.allowed & (found.largest == 0)).any()


def given_weights(n=48, **change):
    """Causal weights that are known as they are."""
    p = exact(recorded(*np.random.default_rng(3).standard_normal((2, 2, n, 8), np.float32), mask=rg.causal()))
    return Call("a", 0, "rows", "keys", np.zeros(p.shape[:2]), given=p, mask=rg.causal()), p


def test_a_leak_shows_at_every_level(monkeypatch):
    """Given weights are pooled as they are, and a cell with weight where the mask forbids it is never taken for an
    allowed one.
    """
    monkeypatch.setattr(tiles, "BLOCK", 100)
    call, p = given_weights()
    call.given[1, 10, 11] = 0.25
    for level in range(6):
        for head in (0, 1):
            found = whole(call, head, level, 8)
            for name, pool in POOLS.items():
                np.testing.assert_allclose(getattr(found, name), cells(p[head], level, pool), rtol=1e-6)
            np.testing.assert_array_equal(found.allowed, cells(np.tri(48, dtype=bool), level, SOME))
            leaks = np.zeros((48, 48), bool)
            leaks[10, 11] = head == 1
            np.testing.assert_array_equal(found.wrong == codes.LEAK, cells(leaks, level, SOME))


@pytest.mark.parametrize(
    ("bad", "code"), [(-0.5, codes.OUT), (1.2, codes.OUT), (-np.inf, codes.OUT), (np.nan, codes.NAN)]
)
def test_what_is_wrong_shows_at_every_level_and_in_every_picture(bad, code, monkeypatch):
    """One weight below 0, above 1 or not a number among 2,000: in tiles, regions, pictures of paper, page and server
    alike.
    """
    monkeypatch.setattr(tiles, "BLOCK", 100)
    call, _ = given_weights()
    call.given[1, 40, 5] = bad
    for level in range(6):
        shown = codes.encode(*(lambda tile: (tile.share, tile.allowed, tile.wrong))(whole(call, 1, level, 8)))[0]
        assert (
            shown[40 >> level, 5 >> level] == code and (np.isin(shown, (codes.OUT, codes.NAN, codes.LEAK))).sum() == 1
        )
    found = matrix_figure(call, 1, range(48), range(48), 6).codes
    assert found[5, 0] == code and (found != code).sum() == 35
    for head, count in ((0, 0), (1, 1)):
        p, allowed = call.weights(heads=head)[0], call.allowed(heads=head)[0]
        monkeypatch.setattr(embed, "THUMBNAIL", 6)
        written = embed._thumbnail(p, allowed, codes.wrong(p, allowed))
        np.testing.assert_array_equal(written, tiles.coded(call, tiles.overview(call, 6))[head])
        assert (written == code).sum() == count


@pytest.mark.parametrize("small", [0, 1 << 18], ids=["streamed", "small"])
def test_rows_sum_to_one_at_every_level(small, monkeypatch):
    """The shares along a line of cells sum to what a row sums to: 1, or less by what sinks take."""
    monkeypatch.setattr(tiles, "SMALL", small)
    q, k = np.random.default_rng(0).standard_normal((2, 2, 70, 8), np.float32)
    sinks = np.array([-1e9, 1.0], np.float32)
    call = recorded(q, k, mask=rg.causal(), sinks=sinks)
    lines = exact(call).sum(-1)
    np.testing.assert_allclose(lines[0], 1)
    for level in (0, 2, 7):
        for head in (0, 1):
            means = [lines[head, i : i + (1 << level)].mean() for i in range(0, 70, 1 << level)]
            np.testing.assert_allclose(whole(call, head, level, 16).share.sum(1), means, rtol=1e-5)
    np.testing.assert_allclose(tiles.overview(call, 16).share.sum(-1)[0], 1, rtol=1e-5)


@pytest.mark.parametrize("small", [0, 1 << 18], ids=["streamed", "small"])
@pytest.mark.parametrize("size", [(50, 50), (7, 90), (90, 3)])
@pytest.mark.spread
def test_an_overview_is_cut_as_maps_are(size, small, monkeypatch):
    """Every head's matrix in cells that differ by one row and key at most, as `pooled` has them."""
    monkeypatch.setattr(tiles, "SMALL", small)
    rng = np.random.default_rng(2)
    q, k = (rng.standard_normal((heads, n, 8), np.float32) for heads, n in zip((4, 2), size, strict=True))
    call = recorded(q, k, mask=rg.key >= rg.query - 60)
    found = tiles.overview(call, 16)
    lines, columns = min(16, size[0]), min(16, size[1])
    right = rg.attention_stats(
        q.astype(float), k.astype(float), mask=call.mask, of=rg.pooled(lines, columns), engine="reference"
    ).pooled
    wide = np.diff(np.arange(columns + 1) * size[1] // columns)
    np.testing.assert_allclose(found.share, right.mean * wide, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.largest, right.maximum, rtol=1e-5, atol=1e-7)
    some = tiles.overview(call, 16, heads=range(2, 4))
    np.testing.assert_allclose(some.share, found.share[2:], rtol=1e-5, atol=1e-7)
    assert found.exact == "exact"


@pytest.mark.parametrize("heads", [range(1, 5), range(3, 6)])
def test_heads_that_share_keys_unevenly_are_refused(heads, monkeypatch):
    """Some heads of an overview are one head, whole groups, or as many of each group."""
    monkeypatch.setattr(tiles, "SMALL", 0)
    call = recorded(np.ones((8, 9, 4), np.float32), np.ones((2, 9, 4), np.float32))
    with pytest.raises(rg.Refused, match="heads that share keys unevenly"):
        tiles.overview(call, heads=heads)


@pytest.mark.parametrize("small", [0, 1 << 18], ids=["streamed", "small"])
def test_a_sampled_picture_says_so(small, monkeypatch):
    """What would take too long comes from some rows, evenly, with their true weights; and the answer says which share
    of them.
    """
    monkeypatch.setattr(tiles, "SMALL", small)
    monkeypatch.setattr(tiles, "PATIENCE", 16 * 100 * 100 * (8 + 64) // 100)
    monkeypatch.setattr(tiles, "GIVEN", 1600)
    q, k = np.random.default_rng(5).standard_normal((2, 1, 100, 8), np.float32)
    call = recorded(q, k, mask=rg.causal())
    p = exact(call)
    if small:
        call = Call("a", 0, "rows", "keys", call.lse, given=p, mask=rg.causal())
    found = tiles.tile(call, 0, 5, 0, 0, size=4)
    every = int(found.exact.removeprefix("sampled 1 row of "))
    rows = tiles.sampled(0, 100, every)
    assert every in (4, 8)
    assert len(rows) == -(-100 // every)
    assert (rows // every == np.arange(len(rows))).all()
    lines = [p[0, rows[first : first + 32 // every]] for first in range(0, len(rows), 32 // every)]
    shares = [[line[:, j : j + 32].sum(1).mean() for j in range(0, 100, 32)] for line in lines]
    largest = [[line[:, j : j + 32].max() for j in range(0, 100, 32)] for line in lines]
    np.testing.assert_allclose(found.share, shares, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.largest, largest, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found.allowed, np.tri(4, dtype=bool))
    picture, true = (tiles.overview(call, 10, sample=sample) for sample in (3, None))
    assert (picture.exact, true.exact) == ("sampled 1 row of 2", "exact")
    assert (picture.largest <= true.largest * (1 + 1e-5)).all()
    np.testing.assert_allclose(picture.share.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("small", [0, 1 << 18], ids=["streamed", "small"])
def test_a_region_is_any_part_of_a_head(small, monkeypatch):
    """Any rows and keys, in any number of cells, as `pooled` cuts them; sampled rows where it would take too long."""
    monkeypatch.setattr(tiles, "SMALL", small)
    q, k = np.random.default_rng(6).standard_normal((2, 2, 60, 8), np.float32)
    call = recorded(q, k, mask=rg.causal())
    p = exact(call)[1, 7:50, 3:44]
    found = tiles.region(call, 1, range(7, 50), range(3, 44), 5, 6)
    rows, keys = (np.arange(cells + 1) * size // cells for cells, size in ((5, 43), (6, 41)))
    boxes = [[p[i:j, m:n] for m, n in pairwise(keys)] for i, j in pairwise(rows)]
    np.testing.assert_allclose(
        found.share, [[box.sum(1).mean() for box in line] for line in boxes], rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(found.largest, [[box.max() for box in line] for line in boxes], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found.allowed, [[box.any() for box in line] for line in boxes])
    assert found.exact == "exact"
    if not small:
        monkeypatch.setattr(tiles, "PATIENCE", 1)
        one = tiles.region(call, 1, range(7, 50), range(3, 44), 5, 6)
        assert one.exact == "sampled 1 row of 4"
        np.testing.assert_array_equal(one.allowed, found.allowed)
        assert (one.largest <= found.largest * (1 + 1e-5)).all()


def test_a_picture_knows_what_is_masked():
    """In an overview the cells without any allowed pair are told from those with weights that are 0."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 40, 8), np.float32)
    call = recorded(q, k, mask=rg.causal())
    picture = tiles.overview(call, 10)
    np.testing.assert_array_equal(
        tiles.coded(call, picture) != codes.MASKED, np.broadcast_to(np.tri(10, dtype=bool), (2, 10, 10))
    )
    call, _ = given_weights(40)
    call.given[1, 3, 39] = 0.5
    found = tiles.coded(call, tiles.overview(call, 10))
    expected = np.stack([np.tri(10, dtype=bool)] * 2)
    expected[1, 0, 9] = True
    np.testing.assert_array_equal(found != codes.MASKED, expected)
    assert np.argwhere(found == codes.LEAK).tolist() == [[1, 0, 9]]


@pytest.mark.parametrize(
    "where", [(2, 0, 0, 0), (0, 0, 3, 0), (0, 0, 0, 3), (0, -1, 0, 0), (0, 70, 0, 0), (0, 5, 1, 0), (-1, 0, 0, 0)]
)
def test_a_tile_outside_is_refused(where):
    """A head, level or place that is not there is named, with what there is."""
    call = recorded(*np.ones((2, 2, 40, 8), np.float32))
    with pytest.raises(rg.Refused, match=r"(?s)no such tile.*2 heads, 40 rows and 40 keys"):
        tiles.tile(call, *where, size=16)


def test_a_long_call_is_never_unfolded():
    """Tiles of any level and a sampled overview of 20,000 tokens need a few megabytes, where the matrix would be 1.6
    GB.
    """
    n = 20_000
    q, k = np.random.default_rng(0).standard_normal((2, 1, n, 8), np.float32).astype(ml_dtypes.bfloat16)
    mask = rg.causal() & rg.window(500)
    call = recorded(q, k, mask=mask, engine="auto")
    tracemalloc.start()
    found = [tiles.tile(call, 0, level, row, row) for level, row in ((0, 60), (2, 10), (5, 1), (7, 0))]
    picture = tiles.overview(call, sample=16)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 32 << 20
    np.testing.assert_allclose(picture.share.sum(-1), 1, rtol=1e-3)
    rows = np.arange(60 * 256, 61 * 256)
    right = rg.attention_weights(q.astype(float), k.astype(float), mask=mask, rows=rows)[0][:, rows]
    np.testing.assert_allclose(found[0].share, right, rtol=1e-3)


def test_sixteen_bit_weights_of_a_row_may_round_to_more_than_one():
    """A row of 255 even weights in bfloat16 sums to 1.004: no cell of sums is out of range for that; a weight above 1
    still is.
    """
    weights = np.full((255, 255), 1 / 255, ml_dtypes.bfloat16).astype(np.float32)
    assert weights[0].sum() > codes.ABOVE
    call = of_weights(weights).calls[0]
    found = tiles.tile(call, 0, 8, 0, 0)
    assert codes.encode(found.share, found.allowed, found.wrong)[0].tolist() == [[255]]
    weights[3, 4] = 1.2
    found = tiles.tile(of_weights(weights).calls[0], 0, 8, 0, 0)
    assert codes.encode(found.share, found.allowed, found.wrong)[0].tolist() == [[codes.OUT]]
