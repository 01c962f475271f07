"""The plan: sound against brute force on random masks, exact where the mask has a shape that bounds can follow."""

from __future__ import annotations

import numpy as np
import pytest

import regard as rg
from regard.plan import Plan, plan
from regard.problem import Problem
from regard.readings import evaluate


def problem(Q, K, mask, *, B=1, H=1, query_start=None) -> Problem:
    """A problem of these sizes whose arrays take no memory."""
    q, k = (np.broadcast_to(np.zeros((), np.float32), (B, H, rows, 2)) for rows in (Q, K))
    return Problem.of(q, k, k, mask=mask, query_start=query_start)


def allowed(asked: Problem, b: int, h: int) -> np.ndarray:
    """The whole mask of one batch entry and head, (Q, K), by evaluation."""
    Q, K = asked.dims["Q"], asked.dims["K"]
    query, key = asked.query_start[b] + np.arange(Q)[:, None], np.arange(K)[None, :]
    if asked.mask is None:
        return np.ones((Q, K), np.bool_)
    values = {"batch": np.array(b), "head": np.array(h), "query": query, "key": key}
    return np.broadcast_to(evaluate(asked.mask, values), (Q, K))


def tiles_of(found: Plan, b: int, h: int):
    """(first row, last row, runs) per tile of one batch entry and head, straight from the arrays that engines read."""
    H, Q = found.dims["H"], found.dims["Q"]
    T = -(-Q // found.rows)
    group = (b if found.per_batch else 0) * (H if found.per_head else 1) + (h if found.per_head else 0)
    for tile in range(T):
        begin, end = found.offsets[group * T + tile : group * T + tile + 2]
        yield tile * found.rows, min(Q, (tile + 1) * found.rows), found.runs[begin:end].tolist()


def check(asked: Problem, rows: int, keys: int, *, exact: bool = False) -> Plan:
    """Every law of a plan at once; with `exact`, no tile that brute force finds full or empty is called mixed."""
    found = plan(asked, rows, keys)
    B, H, K = (asked.dims[name] for name in "BHK")
    assert found.runs.dtype == np.int32 and found.runs.flags.c_contiguous
    assert found.offsets.dtype == np.int64 and found.order.dtype == np.int32
    for b in range(B):
        for h in range(H):
            truth = allowed(asked, b, h)
            for top, bottom, runs in tiles_of(found, b, h):
                verdict = np.zeros(K, np.int64)
                before = (-1, 0)
                for first, last, mixed in runs:
                    assert 0 <= first < last <= K and first % keys == 0 and (last % keys == 0 or last == K)
                    assert first >= before[0] and (first, mixed) != before, "sorted, disjoint, joined"
                    before = (last, mixed)
                    verdict[first:last] = 1 + mixed
                part = truth[top:bottom]
                assert part[:, verdict == 1].all(), "a full run holds allowed pairs only"
                assert not part[:, verdict == 0].any(), "what no run visits is not allowed"
                if exact:
                    for first in range(0, K, keys):
                        box = part[:, first : first + keys]
                        assert verdict[first] == (1 if box.all() else 2 if box.any() else 0), (top, first)
    return found


@pytest.mark.parametrize("mask", [
    None, rg.everything(), rg.causal(), rg.window(40), rg.causal() & rg.window(7), rg.window(9, 30), rg.prefix(33),
    rg.lengths(keys=50), rg.lengths(keys=50, queries=70), rg.documents(lengths=[30, 1, 0, 44, 25]), rg.global_tokens(3),
    rg.causal() & rg.documents(lengths=[30, 1, 0, 44, 25]), rg.causal() & rg.query - rg.key < 3 if False else ~rg.causal(),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("sizes", [(100, 100), (37, 100), (1, 100), (100, 37)], ids=str)
@pytest.mark.parametrize("tile", [(16, 16), (8, 4), (64, 32), (32, 64)], ids=str)
def test_exact(mask, sizes, tile):
    """A mask with a simple boundary is planned exactly: no needless mixed tile."""
    check(problem(*sizes, mask), *tile, exact=True)
