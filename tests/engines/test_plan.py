"""The plan: sound against brute force on random masks, exact where the mask has a shape that bounds can follow."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.engines.plan import STEP, Plan, _planned, plan, plan_step
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.support.lanes import by_name, examples
from tests.support.strategies import Dims, masks


def problem(Q, K, mask, *, B=1, H=1, query_start=None) -> Problem:
    """A problem of these sizes whose arrays take no memory."""
    q, k = (np.broadcast_to(np.zeros((), np.float32), (B, H, rows, 2)) for rows in (Q, K))
    return Problem.of(q, k, k, mask=mask, query_start=query_start)


def allowed(call: Problem) -> np.ndarray:
    """The whole mask (B, H, Q, K), by the law."""
    with np.errstate(all="ignore"):
        return reference.logits(call, *reference.everywhere(call))[0] != -np.inf


EMPTY, FULL, MIXED = range(3)


def kinds_of(found: Plan, b: int, h: int, K: int) -> np.ndarray:
    """(Q, K) what the plan calls each pair of one batch entry and head, straight from the arrays that engines read."""
    group = (b * found.per_batch) * (found.dims["H"] if found.per_head else 1) + h * found.per_head
    kinds = np.full((found.dims["Q"], K), EMPTY)
    tiles = range(0, len(kinds), found.rows)
    for tile, top in enumerate(tiles, group * len(tiles)):
        before = (-1, 0)
        for first, last, mixed in found.runs[slice(*found.offsets[tile : tile + 2])].tolist():
            assert 0 <= first < last <= K and first % found.keys == 0 and (last % found.keys == 0 or last == K)
            assert first >= before[0] and (first, mixed) != before, "sorted, disjoint, joined"
            before = (last, mixed)
            kinds[top : top + found.rows, first:last] = MIXED if mixed else FULL
    return kinds


def check_pairs(kinds: np.ndarray, truth: np.ndarray) -> None:
    """A full run holds allowed pairs only, and what no run visits is not allowed."""
    assert truth[kinds == FULL].all() and not truth[kinds == EMPTY].any()


def check(call: Problem, rows: int, keys: int, *, exact: bool = False, plan=plan) -> Plan:
    """Checks all properties of a plan; with `exact`, also that full and empty tiles are never called mixed."""
    found, truth = plan(call, rows, keys), allowed(call)
    assert found.runs.dtype == np.int32 and found.runs.flags.c_contiguous
    assert found.offsets.dtype == np.int64 and found.order.dtype == np.int32
    for b, h in np.ndindex(truth.shape[:2]):
        kinds, part = kinds_of(found, b, h, truth.shape[3]), truth[b, h]
        check_pairs(kinds, part)
        if exact:
            tops, lefts = (range(0, size, step) for size, step in zip(part.shape, (rows, keys)))
            every, some = (of.reduceat(of.reduceat(part, tops, 0), lefts, 1) for of in (np.logical_and, np.logical_or))
            np.testing.assert_array_equal(kinds[::rows, ::keys], np.where(every, FULL, np.where(some, MIXED, EMPTY)))
    return found


SIMPLE = [
    None,
    rg.causal(),
    ~rg.causal(),
    rg.causal() & rg.window(7),
    rg.window(9, 30),
    rg.prefix(33),
    rg.window(None, 5),
    rg.lengths(keys=50, queries=70),
    rg.documents(lengths=[30, 1, 0, 44, 25]),
    rg.documents(lengths=[2] * 50),
    rg.global_tokens(3),
    rg.causal() & rg.documents(lengths=[30, 1, 0, 44, 25]),
    rg.global_tokens([0, 63]),
    rg.key < 0,
]


@pytest.mark.spread
@pytest.mark.parametrize("tile", [(16, 16), (8, 4), (64, 32), (32, 64), (1, 1), (7, 3)], ids=str)
@pytest.mark.parametrize("sizes", [(100, 100), (37, 100), (1, 100), (100, 37), (1, 1)], ids=str)
@pytest.mark.parametrize("mask", SIMPLE, ids=str)
def test_simple_masks_are_planned_exactly(mask, sizes, tile, monkeypatch):
    """A mask with a simple boundary has no needless mixed tile, at any size, ragged edges included; nor where the grid
    is too large to be evaluated in one step, and is planned through the levels.
    """
    check(problem(*sizes, mask), *tile, exact=True)
    monkeypatch.setattr("regard.engines.plan.FINE", 64)
    monkeypatch.setattr("regard.engines.plan.COARSE", 4)
    check(problem(100, 100, mask), 2, 2, exact=True, plan=lambda *call: _planned(*call, None, 0, None))


random = np.random.default_rng(0)
DENSE, BLOCKS = random.random((90, 70)) < np.linspace(0, 1, 70) ** 8, random.random((3, 4, 4)) < 0.5
BLOCK = rg.query // 16 - rg.key // 16
IDS = np.repeat([5, 1, 9, 0, 7], [32, 16, 16, 48, 16])
USUAL, SQUARE = [(16, 16), (32, 8)], [(16, 16)]
EXACT = {
    "booleans": (problem(90, 70, DENSE), USUAL),
    "booleans of each": (problem(90, 70, DENSE & (random.random((2, 3, 1, 1)) < 0.5), B=2, H=3), USUAL),
    "blocks of each head": (problem(128, 128, rg.blocks(BLOCKS, 32), H=3), USUAL),
    "oblong blocks": (problem(100, 100, rg.blocks(BLOCKS[0], (48, 16))), USUAL),
    # Steps that span tiles are followed through // and %.
    "dilated blocks": (problem(160, 160, BLOCK % 4 == 0), SQUARE),
    "strided blocks": (problem(160, 160, rg.causal() & ((BLOCK < 2) | (rg.key // 16 % 4 == 3))), SQUARE),
    # Ids in any order are distinguished by their extremes over ranges.
    "ids": (problem(128, 128, rg.documents(IDS)), SQUARE),
    "ids of each entry": (problem(128, 128, rg.documents(np.stack([IDS, IDS[::-1]])), B=2), SQUARE),
}


@by_name("call, tiles", EXACT)
def test_arrays_and_blocks_are_planned_exactly(call, tiles):
    """They have no needless mixed tile either, for each head and batch entry."""
    for tile in tiles:
        check(call, *tile, exact=True)


# Of floats, and of divisors that depend on positions, which random masks have not.
ODD = [
    rg.to_int(rg.sqrt(rg.query - rg.key)) * 3 != rg.where(rg.head < 1, rg.key, rg.batch),
    rg.key // (rg.query - 30) < rg.key % (rg.batch - rg.head),
    rg.key / (rg.query - 20) < 1.5,
    rg.table([0.5, -1.0, np.nan, np.inf])[rg.key // 7] < rg.sin(rg.query * 1.0),
]
TILES = st.sampled_from([(16, 16), (8, 4), (64, 32), (3, 5), (1, 1)])
STARTS = st.integers(-30, 199)
OF_EACH = st.lists(STARTS, min_size=2, max_size=2)


@st.composite
def any_mask(draw, Q, K):
    """A mask of two batch entries and three heads, or none."""
    mask, odd = draw(masks(Dims(2, 3, 3, Q, K, 2, 2))), draw(st.sampled_from(ODD))
    return draw(st.sampled_from((mask, mask, None, odd, mask & odd, mask ^ odd)))


@examples(300)
@given(st.data(), st.integers(1, 69), st.integers(1, 149), TILES)
def test_random_masks_are_planned_soundly(data, Q, K, tile):
    """Whatever the mask, sizes, heads and positions: a full run is all allowed, and nothing outside the runs is; so too
    in plans that positions of decoding share.
    """
    mask, start = data.draw(any_mask(Q, K + 40)), data.draw(st.sampled_from((None, 0, K - Q + 2)) | STARTS | OF_EACH)
    check(problem(Q, K, mask, B=2, H=3, query_start=start), *tile)
    for more in (0, 40):
        check(problem(Q, K + more, mask, B=2, H=3, query_start=start), 8, 16, plan=plan_step)


@examples(150)
@given(any_mask(130, 290), OF_EACH)
def test_large_random_masks_are_planned_soundly(mask, start):
    """The same through the levels of the descent."""
    check(problem(130, 290, mask, B=2, H=3, query_start=start), 2, 4)


@examples(60)
@given(st.data(), st.integers(1, 19), st.integers(0, 39), TILES)
def test_a_plan_with_ahead_stays_valid(data, Q, ahead, tile):
    """While each entry gets up to `ahead` keys more and its rows move on, full stays full, and what is not visited not
    allowed.
    """
    mask, ends = data.draw(any_mask(Q, 100)), np.array(data.draw(st.lists(st.integers(0, 59), min_size=2, max_size=2)))
    first, K = data.draw(STARTS | st.just(ends - Q)), int(ends.max())
    found = plan(problem(Q, K, mask, B=2, H=3, query_start=first), *tile, ends, ahead)
    for step in range(ahead + 1):
        truth = allowed(problem(Q, K + ahead, mask, B=2, H=3, query_start=first + step))
        for b, h in np.ndindex(2, 3):
            there = np.s_[:, : ends[b] + step]
            check_pairs(kinds_of(found, b, h, ends[b] + ahead)[there], truth[b, h][there])


def test_ahead_costs_the_boundary_only():
    """For a causal row, the keys before it stay full; without a mask all keys do, to the end of each entry."""
    call = problem(1, 1000, rg.causal())
    assert plan(call, 16, 16, ahead=63).runs.tolist() == [[0, 992, 0], [992, 1063, 1]]
    call = problem(1, 1000, None, B=2)
    found = plan(call, 16, 16, np.array([1000, 300]), 63)
    assert found.per_batch and found.runs.tolist() == [[0, 1063, 0], [0, 363, 0]]


def test_steps_share_a_plan(monkeypatch):
    """Decoding plans once in STEP tokens, and reads no key that is not there."""
    made = []
    monkeypatch.setattr(
        "regard.engines.plan._planned", lambda *args, made=made, planned=_planned: made.append(1) or planned(*args)
    )
    mask = rg.window(100) & (rg.key % 7 < 6)
    for K in range(1000, 1000 + 3 * STEP):
        runs = plan_step(problem(1, K, mask, B=2), 16, 16).runs
        assert runs[:, 1].max() == K and (runs[:, 0] < runs[:, 1]).all()
    assert len(made) <= 7  # where the row enters another stretch of STEP positions, and where the keys do


def test_a_boundary_everywhere_stops_the_descent(monkeypatch):
    """Where everything is mixed the plan stays small: boxes stay whole once a level would have too many."""
    monkeypatch.setattr("regard.engines.plan.LIMIT", 500)
    monkeypatch.setattr("regard.engines.plan.FINE", 100)
    for mask in (rg.dilated(3), rg.strided(5), rg.causal(), rg.causal() & rg.documents(lengths=[50] * 6)):
        check(problem(210, 300, mask, H=2), 4, 2)


@pytest.mark.parametrize(
    ("mask", "more", "per_batch", "per_head"),
    [
        (rg.causal(), {}, False, False),
        (rg.causal() & (rg.head < 2), {}, False, True),
        (rg.lengths(keys=[10, 20]), {}, True, False),
        (rg.lengths(keys=[10, 20]) & (rg.head < 2), {}, True, True),
        (rg.causal(), {"query_start": [0, 5]}, True, False),
        (rg.key < 5, {"query_start": [0, 5]}, False, False),
    ],
)
def test_plans_are_shared_where_nothing_differs(mask, more, per_batch, per_head):
    """Batch entries and heads get plans of their own only where the mask, or the position of the rows, makes them
    differ.
    """
    found = check(problem(32, 32, mask, B=2, H=3, **more), 8, 8, exact=True)
    groups = (2 if per_batch else 1) * (3 if per_head else 1)
    assert (found.per_batch, found.per_head, found.groups, found.copies) == (per_batch, per_head, groups, 6 // groups)


def test_plans_are_remembered():
    """Equal problems share a plan; arrays that may still change are planned again, and no plan keeps an array alive."""
    call = problem(100, 100, rg.causal() & rg.documents(lengths=[40, 60]))
    found, same = plan(call, 16, 16), problem(100, 100, call.mask)
    assert plan(same, 16, 16) is found and not found.runs.flags.writeable
    for other in (plan(call, 16, 8), plan(problem(100, 100, call.mask, query_start=1), 16, 16)):
        assert other is not found
    allowed = np.ones((100, 100), np.bool_)
    call = problem(100, 100, allowed)
    for end, mixed in ((100, 0), (40, 7)):
        allowed[:, end:] = False
        assert plan(call, 16, 16).counts["mixed"] == mixed
    call = problem(10, 10, rg.table(np.arange(10) < 4, "first")[rg.key])
    plan(call, 16, 16)
    mask = weakref.ref(call.mask)
    del call
    gc.collect()
    assert mask() is None


def test_order_is_most_work_first():
    """The tiles of each group come in the order of their keys, equals in their own order."""
    found = plan(problem(64, 64, rg.causal() & ((rg.head < 1) | (rg.key < 16)), H=2), 16, 16)
    assert found.order.tolist() == [[3, 2, 1, 0], [0, 1, 2, 3]]


def test_counts_and_pairs():
    """Counts are of tiles and pairs of positions over all batch entries and heads; ragged edges count as they are."""
    found = plan(problem(40, 40, rg.causal(), B=2, H=3), 16, 16)
    assert found.counts == {"full": 3 * 6, "mixed": 3 * 6, "empty": 3 * 6}
    assert found.pairs == {"full": (16 * 16 + 8 * 32) * 6, "mixed": (16 * 16 * 2 + 8 * 8) * 6}
    assert "shared by all" in str(found) and "full 18 (33.3 %)" in str(found)


def test_diagram():
    """The diagram shows full, mixed and empty places, and is never wider than requested."""
    found = plan(problem(64, 64, rg.causal() & rg.window(9)), 8, 8)
    assert found.diagram().splitlines() == ["▒▒······", "·▒▒▒····", "···▒▒▒··", "·····▒▒▒"]
    assert plan(problem(64, 64, rg.key < 32), 8, 8).diagram(4).splitlines() == ["██··", "██··"]
    wide = plan(problem(1000, 3000, rg.causal()), 8, 8).diagram(20).splitlines()
    assert {len(line) for line in wide} == {20} and len(wide) <= 20


@pytest.mark.parametrize(
    "mask",
    [
        rg.causal(),
        rg.causal() & rg.window(256),
        rg.documents(lengths=[1000] * 1000),
        rg.causal() & rg.documents(lengths=[999, 1001] * 500),
    ],
    ids=str,
)
def test_a_million_rows(mask):
    """A million rows are planned in so few boxes that the visited share is right and the work stays with the
    boundary.
    """
    n = 1_000_000
    found = plan(problem(n, n, mask), 64, 32)
    assert len(found.runs) < 4 * n / 64
    assert found.pairs["mixed"] < n * 64 * 8
