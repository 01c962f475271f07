"""Gradients are sums over blocks of 1024 query positions, merged in a tree: the same bits in one call or in several, in
tiles of any height, on any threads, in any layout, in any company.
"""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard as rg
from regard.api.backward import learned
from regard.common.caching import Memo
from regard.engines import dispatch as engines
from regard.engines.jit import gradients
from regard.engines.jit.gradient_sums import merged
from regard.engines.jit.kernels.parts.row_sums import stack_entries
from regard.engines.jit.run import threads
from regard.engines.reference import attention as reference
from regard.language.problem import Gradients, Problem
from tests.support.engines import normal, same_bits
from tests.support.lanes import SWEEP
from tests.support.strategies import LAYOUTS, dropouts, laid_out, problems

BLOCK = 1024
HEADS, GROUPS = 4, 2
near, slope, far = normal(9, seed=6), normal(HEADS, seed=7), normal(40, 50, seed=8)

# Rules of positions, so that they mean the same in every call.
RULES = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "window": {"mask": rg.causal() & rg.window(20), "score": rg.softcap(4.0)},
    "gaps": {"mask": (rg.query // 64 + rg.key // 16) % 9 == 0},
    "empty blocks": {"mask": (rg.query // BLOCK) % 2 == 1},
    "empty rows": {"mask": (rg.query % 5 != 0) & (rg.query // 600 != 2), "scale": -0.3},
    "heads": {"mask": rg.key % (rg.head + 2) == 0, "score": rg.score * rg.table(slope)[rg.head]},
    "tables": {"score": rg.relative(near) + rg.alibi(slope)},
    "direct": {"score": rg.score + rg.table(normal(4700, 300, seed=9))[rg.query + 1600, rg.key]},
    "clamped": {"score": rg.score + rg.table(far)[rg.clip(rg.query // 50, 0, 39), rg.clip(rg.key, 0, 49)]},
    "sinks": {"sinks": normal(HEADS, 3, seed=10), "mask": rg.causal()},
    "dropout": {"dropout": 0.3, "seed": 5},
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
dtypes = pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.sweep)])
# The first position and the number of rows: on borders and off them, before position 0, many blocks.
PLACES = {"on": (0, 3 * BLOCK), "off": (700, 2300), "before": (-1500, 2900), "across": (1023, 2), "one": (37, 50)}


def problem_of(
    start, rows, dtype=np.float32, B=1, keys=140, groups=GROUPS, **rule
) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A call, dout and dlse."""
    q, dout = (normal(B, HEADS, rows, 8, seed=seed).astype(dtype) for seed in (1, 2))
    k, v = (normal(B, groups, keys, 8, seed=seed).astype(dtype) for seed in (3, 4))
    problem = Problem.of(q, k, v, query_start=start, **rule)
    return problem, dout, normal(B, HEADS, rows, seed=5).astype(problem.real)


def gradients_of(problem: Problem, dout, dlse=None) -> Gradients:
    tables = [table for table in learned(problem) if not table.frozen]
    return engines.pull_back(problem, engines.keep(problem, "jit"), dout, dlse, tables)


def some_rows(problem: Problem, first: int, last: int) -> Problem:
    return replace(problem, q=problem.q[:, :, first:last], query_start=problem.query_start + first)


def summed(found: Gradients) -> list[np.ndarray]:
    """The gradients that are sums over rows."""
    return [found.k, found.v, *found.tables.values(), *([] if found.sinks is None else [found.sinks])]


def same(x: Gradients, y: Gradients) -> None:
    for old, new in zip((x.q, *summed(x)), (y.q, *summed(y)), strict=True):
        same_bits(old, new)


def tree(parts: dict[int, np.ndarray]) -> np.ndarray:
    """Level by level, neighbours are added; what is before position 0 meets the rest last."""
    while len(parts) > 1 and set(parts) != {-1, 0}:
        above: dict[int, np.ndarray] = {}
        for number in sorted(parts):
            above[number // 2] = above[number // 2] + parts[number] if number // 2 in above else parts[number]
        parts = above
    return functools.reduce(np.add, (parts[number] for number in sorted(parts)))


def check_blocks(problem: Problem, dout, dlse, entry: int = 0, everything: bool = True) -> None:
    """The gradients of a call are those of its blocks, one by one; all of them if all entries begin together."""
    whole, start = gradients_of(problem, dout, dlse), int(problem.query_start[entry])
    rows = start + np.arange(problem.dims["Q"])
    numbers, firsts = np.unique(rows // BLOCK, return_index=True)
    parts = [
        gradients_of(some_rows(problem, first, last), dout[:, :, first:last], dlse[:, :, first:last])
        for first, last in itertools.pairwise([*firsts, len(rows)])
    ]
    same_bits(whole.q[entry], np.concatenate([part.q for part in parts], 2)[entry])
    for at, total in enumerate(summed(whole)):
        merged_here = tree(dict(zip(numbers.tolist(), [summed(part)[at] for part in parts])))
        if at < 2:
            same_bits(total[entry], merged_here[entry])
        elif everything:
            np.testing.assert_array_equal(total, merged_here)


# ---- blocks and their tree -------------------------------------------------------------------------------------------


@pytest.mark.spread
@dtypes
@rules
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_call_is_the_tree_of_its_blocks(place, rule, dtype):
    """Gradients of keys, values, tables and sinks are those of calls with one block of rows each, merged in the tree;
    those of queries are theirs, one after another.
    """
    check_blocks(*problem_of(*place, dtype, **rule))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("start", [0, 3 * BLOCK - 17, -6 * BLOCK + 5])
def test_many_blocks(start):
    """More partial sums than a few, which wait for one another; some of them are empty."""
    rule = {"mask": (rg.query // BLOCK) % 7 != 3, "score": rg.relative(near)}
    check_blocks(*problem_of(start, 11 * BLOCK + 40, keys=20, **rule))


@pytest.mark.parametrize("dtype", [np.float16])
def test_16_bit_sums_are_rounded_once(dtype):
    """Partial sums are float32, and the gradient is their rounded sum."""
    problem, dout, dlse = problem_of(300, 1500, dtype)
    exact = replace(problem, **{name: getattr(problem, name).astype(np.float32) for name in "qkv"})
    found = gradients_of(problem, dout, dlse)
    same_bits(found.v, gradients_of(exact, dout.astype(np.float32), dlse).v.astype(dtype))


@settings(deadline=None)
@given(st.integers(-40, 40), st.lists(st.booleans(), min_size=1, max_size=40))
def test_merged_is_the_tree(first, present):
    """Of any blocks, with or without gaps, before and after position 0."""
    numbers = [first + at for at, exists in enumerate(present) if exists] or [first]
    sums = normal(len(numbers), 3, seed=len(numbers))
    same_bits(merged(numbers, sums), tree(dict(zip(numbers, sums, strict=True))))
    assert 1 <= stack_entries(len(numbers)) <= 7


@pytest.mark.slow
@settings(
    max_examples=12 if SWEEP else 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(problems(rows=60, depth=20), st.sampled_from((-BLOCK, -30, 0, BLOCK - 40, 3 * BLOCK - 20)), st.data())
def test_random_problems(case, shift, data):
    """Any mask, score, start of each entry, dropout and sinks: blocks, threads and heights of tiles change no bit."""
    rows, keys = (case.kwargs[name].shape[-2] for name in "qk")
    given_start = case.kwargs["query_start"]
    start = (keys - rows if given_start is None else given_start) + shift
    problem = Problem.of(**case.kwargs | {"query_start": start}, **data.draw(st.just({}) | dropouts))
    if 0 in (problem.dims["B"], problem.dims["Q"]):
        return
    dout = normal(*problem.q.shape[:3], problem.v.shape[3], seed=1).astype(problem.dtype)
    dlse = normal(*problem.q.shape[:3], seed=2).astype(problem.real)
    entry = data.draw(st.integers(0, problem.dims["B"] - 1))
    check_blocks(problem, dout, dlse, entry, bool((problem.query_start == problem.query_start[0]).all()))
    same(*heights(problem, dout, dlse))


# ---- tiles, threads, company -----------------------------------------------------------------------------------------


def heights(problem: Problem, dout, dlse):
    """The gradients with tiles of the largest number of rows, and of the smallest."""
    found = []
    known = gradients.NARROW, gradients._recipes
    try:
        for gradients.NARROW in (0, 2**40):
            gradients._recipes = Memo(4)
            found.append(gradients_of(problem, dout, dlse))
    finally:
        gradients.NARROW, gradients._recipes = known
    return found


@pytest.mark.spread
@rules
@pytest.mark.parametrize("start", [0, 700, -333])
def test_the_height_of_tiles_changes_no_bit(rule, start):
    """Which tiles are faster is a question of the mask; the gradients do not depend on the answer."""
    rule = {"mask": rg.key >= 0} | rule  # without a mask tiles are never narrow
    same(*heights(*problem_of(start, 1900, **rule)))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("starts", "groups"), [([700, -30], 2), ([700], 1)], ids=["several heads", "one head"])
@rules
def test_threads_and_layouts_change_no_bit(rule, starts, groups):
    """Tasks that share sums, over several blocks, heads of a group and batch entries; any strides."""
    problem, dout, dlse = problem_of(np.array(starts), 1300, B=len(starts), keys=300, groups=groups, **rule)
    usual = gradients_of(problem, dout, dlse)
    for count in (1, 2, 3, 5, 2):
        with threads.limit(count):
            same(usual, gradients_of(problem, dout, dlse))
    for layout in set(LAYOUTS) - {"broadcast"}:
        laid = {name: laid_out(getattr(problem, name), layout) for name in "qkv"}
        same(usual, gradients_of(replace(problem, **laid), laid_out(dout, layout), laid_out(dlse, layout)))


def test_heads_are_added_in_order():
    """Within a block: the rows of the first head, then those of the next. A few rows are one chain per head."""
    problem, dout, dlse = problem_of(8, 4)
    apart = {name: np.repeat(getattr(problem, name), HEADS // GROUPS, 1) for name in "kv"}
    grouped, each = gradients_of(problem, dout, dlse), gradients_of(replace(problem, **apart), dout, dlse)
    # Not of dK, whose scale is applied to the sum.
    same_bits(grouped.v, each.v[:, 0::2] + each.v[:, 1::2])


# ---- rows that are not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 37, -5])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_what_is_masked_stays_out(poison, start):
    """Keys that no row attends to, and rows that attend to nothing, hold anything."""
    rule = {"mask": rg.causal() & (rg.key % 10 != 3) & (rg.query % 7 != 2), "score": rg.relative(near)}
    problem, dout, dlse = problem_of(start, 1500, **rule)
    clean = gradients_of(problem, dout, dlse)
    rows, keys = (start + np.arange(1500)) % 7 == 2, np.arange(140) % 10 == 3
    for part, which in ((problem.q, rows), (dout, rows), (dlse, rows), (problem.k, keys), (problem.v, keys)):
        part[:, :, which] = poison
    found = gradients_of(problem, dout, dlse)
    assert not found.k[:, :, keys].any() and not found.q[:, :, rows].any()
    same(clean, found)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("start", [1, 33, 700, -45])
def test_positions_outside_of_the_call_contribute_nothing(start):
    """A tile may begin before the first row and end after the last. A score there may be NaN or infinite."""
    edges = rg.sqrt(rg.query - start) + 1 / (rg.query - start + 1) + rg.sqrt(start + 49 - rg.query)
    rule = {"score": rg.score + edges + rg.relative(near), "mask": rg.key < 139}
    problem, dout, dlse = problem_of(start, 50, **rule)
    found = gradients_of(problem, dout, dlse)
    law = reference.backward(problem, dout, dlse)
    for mine, exact in zip((found.q, *summed(found)), (law.q, *summed(law)), strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_allclose(mine, exact, rtol=1e-3, atol=1e-4)
