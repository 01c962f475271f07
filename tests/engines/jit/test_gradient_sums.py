"""Gradients are sums over blocks of 1024 query positions, merged in a tree: the same bits in one call or in several, in
tiles of any height, on any threads, in any layout, in any company.
"""

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
from regard.engines.jit.code.target import ISAS, limited
from regard.engines.jit.gradient_sums import merged
from regard.engines.jit.kernels.parts.row_sums import stack_entries
from regard.engines.jit.run import threads
from regard.language.problem import Gradients, Problem
from tests.support.engines import normal, same_bits
from tests.support.kernels import guarded
from tests.support.lanes import examples
from tests.support.machine import on
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
    "direct": {"score": rg.score + rg.table(normal(9000, 700, seed=9))[rg.query + 4000, rg.key]},
    "clamped": {"score": rg.score + rg.table(far)[rg.clip(rg.query // 50, 0, 39), rg.clip(rg.key, 0, 49)]},
    "sinks": {"sinks": normal(HEADS, 3, seed=10), "mask": rg.causal()},
    "dropout": {"dropout": 0.3, "seed": 5},
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
dtypes = pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.sweep)])
# The first position and the number of rows: on borders and off them, before position 0, many blocks.
PLACES = {"on": (0, 3 * BLOCK), "off": (700, 2300), "before": (-1500, 2900), "across": (1023, 2), "one": (37, 50)}


def problem_of(start, rows, dtype=np.float32, B=1, keys=140, **rule) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A call, dout and dlse."""
    q, dout = (normal(B, HEADS, rows, 8, seed=seed).astype(dtype) for seed in (1, 2))
    k, v = (normal(B, GROUPS, keys, 8, seed=seed).astype(dtype) for seed in (3, 4))
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
    while len(parts) > 1:
        if set(parts) == {-1, 0}:
            return parts[-1] + parts[0]
        above: dict[int, np.ndarray] = {}
        for number in sorted(parts):
            above[number // 2] = above[number // 2] + parts[number] if number // 2 in above else parts[number]
        parts = above
    return next(iter(parts.values()))


def blocks_of(start: int, rows: int) -> dict[int, tuple[int, int]]:
    """The rows of each block."""
    return {
        number: (max(number * BLOCK - start, 0), min((number + 1) * BLOCK - start, rows))
        for number in range(start // BLOCK, (start + rows - 1) // BLOCK + 1)
    }


def check_blocks(problem: Problem, dout, dlse, entry: int = 0, everything: bool = True) -> None:
    """The gradients of a call are those of its blocks, one by one; all of them if all entries begin together."""
    whole = gradients_of(problem, dout, dlse)
    parts = {
        number: gradients_of(some_rows(problem, *rows), dout[:, :, slice(*rows)], dlse[:, :, slice(*rows)])
        for number, rows in blocks_of(int(problem.query_start[entry]), problem.dims["Q"]).items()
    }
    same_bits(whole.q[entry], np.concatenate([part.q for part in parts.values()], 2)[entry])
    for at, total in enumerate(summed(whole)):
        if at < 2:
            same_bits(total[entry], tree({number: summed(part)[at][entry] for number, part in parts.items()}))
        elif everything:
            np.testing.assert_array_equal(total, tree({number: summed(part)[at] for number, part in parts.items()}))


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


@rules
def test_two_halves_of_a_tree(rule):
    """Rows 0 … 2047 and 2048 … 4095, in two calls: the gradients of one call are the sums of theirs."""
    problem, dout, dlse = problem_of(0, 4 * BLOCK, keys=40, **rule)
    whole = gradients_of(problem, dout, dlse)
    halves = [
        gradients_of(some_rows(problem, *rows), dout[:, :, slice(*rows)], dlse[:, :, slice(*rows)])
        for rows in ((0, 2 * BLOCK), (2 * BLOCK, 4 * BLOCK))
    ]
    for total, first, second in zip(*map(summed, (whole, *halves)), strict=True):
        np.testing.assert_array_equal(total, first + second)


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
@examples(12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
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
    for old, new in heights(problem, dout, dlse):
        same(old, new)


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
    yield tuple(found)


@pytest.mark.spread
@rules
@pytest.mark.parametrize("start", [0, 700, -333])
def test_the_height_of_tiles_changes_no_bit(rule, start):
    """Which tiles are faster is a question of the mask; the gradients do not depend on the answer."""
    rule = {"mask": rg.key >= 0} | rule  # without a mask tiles are never narrow
    for old, new in heights(*problem_of(start, 1900, **rule)):
        same(old, new)


@pytest.mark.one_in(4)
@rules
def test_threads_change_no_bit(rule):
    """Tasks that share sums, over several blocks, heads of a group and batch entries."""
    call = problem_of(np.array([700, 700]), 1700, B=2, keys=700, **rule)
    found = []
    for count in (1, 2, 3, 5, 2):
        with threads.limit(count):
            found.append(gradients_of(*call))
    for other in found[1:]:
        same(found[0], other)


@pytest.mark.one_in(4)
@rules
def test_layouts_change_no_bit(rule):
    problem, dout, dlse = problem_of(np.array([700, -30]), 1300, B=2, **rule)
    usual = gradients_of(problem, dout, dlse)
    for layout in set(LAYOUTS) - {"broadcast"}:
        laid = {name: laid_out(getattr(problem, name), layout) for name in "qkv"}
        same(usual, gradients_of(replace(problem, **laid), laid_out(dout, layout), laid_out(dlse, layout)))


@pytest.mark.parametrize("rule", ["plain", "causal", "window", "gaps", "empty rows"])
def test_company_changes_no_bit(rule):
    """An entry of the batch and a head of keys have the gradients that they have alone, wherever the others begin."""
    starts = np.array([700, -30, 4096])
    problem, dout, dlse = problem_of(starts, 1300, B=3, **RULES[rule])
    whole, group = gradients_of(problem, dout, dlse), HEADS // GROUPS
    for b, start in enumerate(starts):
        for g in range(GROUPS):
            heads = slice(g * group, (g + 1) * group)
            parts = problem.q[[b], heads], problem.k[[b], g : g + 1], problem.v[[b], g : g + 1]
            alone = Problem.of(*parts, query_start=start, **RULES[rule])
            found = gradients_of(alone, dout[[b], heads], dlse[[b], heads])
            same_bits(whole.q[[b], heads], found.q)
            same_bits(whole.k[[b], g : g + 1], found.k)
            same_bits(whole.v[[b], g : g + 1], found.v)


@pytest.mark.parametrize("live", range(HEADS))
def test_heads_that_contribute_nothing_change_no_bit(live):
    """A head of a group whose dout and dlse are 0: keys and values have the gradients of the other head alone."""
    problem, dout, dlse = problem_of(700, 1900, mask=rg.causal())
    dout[:, [head for head in range(HEADS) if head != live]] = 0
    dlse[:, [head for head in range(HEADS) if head != live]] = 0
    g, apart = live * GROUPS // HEADS, {name: np.repeat(getattr(problem, name), HEADS // GROUPS, 1) for name in "kv"}
    grouped, each = gradients_of(problem, dout, dlse), gradients_of(replace(problem, **apart), dout, dlse)
    np.testing.assert_array_equal(grouped.k[:, g], each.k[:, live])
    np.testing.assert_array_equal(grouped.v[:, g], each.v[:, live])


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
    for part, which in ((problem.q, rows), (dout, rows), (problem.k, keys), (problem.v, keys)):
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
    law = rg.attention_backward(
        dout, problem.q, problem.k, problem.v, dlse=dlse, engine="reference", query_start=start, **rule
    )
    for mine, exact in zip((found.q, *summed(found)), (law.q, *summed(law)), strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_allclose(mine, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.spread
@pytest.mark.parametrize("isa", [on(isa) for isa in ISAS])
@pytest.mark.parametrize("at_end", [True, False], ids=["end", "start"])
@pytest.mark.parametrize("start", [31, -3])
def test_nothing_outside_of_the_arrays_is_touched(isa, at_end, start):
    """Every array is adjacent to a page that cannot be read or written, and a tile begins before the first row."""
    problem, dout, dlse = problem_of(start, 70, B=2, keys=30, score=rg.relative(near), sinks=normal(HEADS))
    laid = {name: guarded(getattr(problem, name), at_end) for name in "qkv"}
    usual = gradients_of(problem, dout, dlse)
    same(usual, gradients_of(replace(problem, **laid), guarded(dout, at_end), guarded(dlse, at_end)))
    with limited(isa):
        gradients_of(replace(problem, **laid), guarded(dout, at_end), guarded(dlse, at_end))
