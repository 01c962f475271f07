"""Cost: every number against a count by brute force, on masks of all kinds."""

from __future__ import annotations

import numpy as np
import pytest

import regard as rg
from regard.engines.cost import cost
from regard.engines.plan import plan
from regard.language.problem import Problem
from tests.engines.test_plan import EMPTY, allowed, kinds_of
from tests.support.engines import qkv
from tests.support.lanes import by_name

MASKS = {
    "none": None,
    "causal": rg.causal(),
    "window": rg.causal() & rg.window(9),
    "documents": rg.documents(lengths=[20, 7, 40]),
    "per head": rg.causal() & ((rg.head < 1) | (rg.key < 16)),
    "per batch entry": rg.lengths(keys=[20, 40], queries=[50, 10]),
    "scattered": rg.dilated(3) & (rg.query % 5 != 2),
    "nothing": rg.key < 0,
}


def problem(mask, query_start=None, **sizes) -> Problem:
    arrays = qkv(**{"Q": 50, "K": 67, "B": 2, "H": 4, "G": 2, "D": 3, "E": 5} | sizes)
    return Problem.of(*arrays, mask=mask, query_start=query_start)


@pytest.mark.parametrize("tile", [(16, 16), (7, 3), (64, 32)], ids=str)
@pytest.mark.parametrize("start", [None, 0, [3, 30]], ids=str)
@by_name("mask", MASKS)
def test_pairs_are_counted_exactly(mask, start, tile):
    """Allowed pairs are those of the mask; visited pairs are those of the plan's runs; FLOPs are 2 · (D + E) per
    pair.
    """
    call = problem(mask, query_start=start)
    found = plan(call, *tile)
    counted = cost(call, found)
    pairs = int(allowed(call).sum())
    visited = sum((kinds_of(found, b, h, 67) != EMPTY).sum() for b, h in np.ndindex(2, 4))
    assert counted.allowed == pairs and counted.exact
    assert counted.visited == counted.exponentials == visited
    assert counted.flops == 2 * (3 + 5) * counted.visited and counted.useful == 2 * (3 + 5) * pairs
    assert pairs <= counted.visited <= counted.matrix == 2 * 4 * 50 * 67


def test_a_large_count_is_a_bound(monkeypatch):
    """If mixed tiles have too many pairs to evaluate, the count is an upper bound and marked as such."""
    call = problem(rg.dilated(3))
    found = plan(call, 16, 16)
    monkeypatch.setattr("regard.engines.cost.CAP", 100)
    counted = cost(call, found)
    assert not counted.exact and counted.allowed == counted.visited >= allowed(call).sum()
    assert "at most" in str(counted)


def test_steps_are_bounded(monkeypatch):
    """The pairs of mixed tiles are evaluated in small portions, with the same count."""
    call = problem(MASKS["scattered"])
    expected = cost(call, plan(call, 8, 8)).allowed
    monkeypatch.setattr("regard.engines.cost.CHUNK", 100)
    assert cost(call, plan(call, 8, 8)).allowed == expected == allowed(call).sum()


def test_bytes():
    """Every array counts once, and an axis that memory does not repeat counts once however often it is read."""
    call = problem(None)
    counted = cost(call, plan(call, 16, 16))
    assert counted.read == {"q": 2 * 4 * 50 * 3 * 4, "k": 2 * 2 * 67 * 3 * 4, "v": 2 * 2 * 67 * 5 * 4}
    assert counted.written == 2 * 4 * 50 * 5 * 4 and counted.weights == 2 * 4 * 50 * 67 * 4
    one = np.zeros((1, 1, 67, 3), np.float32)
    shared = Problem.of(np.zeros((2, 4, 50, 3), np.float32), one, one, mask=None)
    assert cost(shared, plan(shared, 16, 16)).read["k"] == 67 * 3 * 4


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("mask", [None, rg.causal()], ids=str)
def test_nothing_costs_nothing(mask, sizes):
    """Without rows or keys no pair is visited, and the plan and the cost still print."""
    call = problem(mask, Q=sizes[0], K=sizes[1])
    found = plan(call, 16, 16)
    assert len(found.runs) == 0 and not found.offsets.any() and len(found.offsets) == found.order.size + 1
    assert "0 % of the matrix" in str(found) and found.diagram() == ""
    counted = cost(call, found)
    assert counted.visited == counted.allowed == counted.flops == 0
    assert "0 allowed (0 % of the matrix)" in str(counted)


def test_text():
    """The summary is three lines that say how much is allowed, how much is done, and what it takes."""
    call = problem(rg.causal(), Q=64, K=64, B=1, H=1, G=1, D=64, E=64)
    assert str(cost(call, plan(call, 16, 16))) == (
        "pairs   2,080 allowed (50.8 % of the matrix), 2,560 visited\n"
        "work    655 kFLOP in the two products, 81.2 % of it useful; 2.56 k exponentials\n"
        "bytes   q 16.4 kB · k 16.4 kB · v 16.4 kB · out 16.4 kB · extra 396 B (the matrix of weights would "
        "take 16.4 kB)"
    )
