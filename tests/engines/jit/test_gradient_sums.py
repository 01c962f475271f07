"""Gradients are sums over blocks of 1024 query positions, merged in a tree: the same bits in one call or in several, in
tiles of any height, on any threads, in any layout, in any company.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.common.caching import Memo
from regard.engines.jit import gradients, threads
from regard.engines.jit.gradient_sums import merged
from regard.engines.jit.kernels.parts.tasks import stack_entries
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.engines.jit.test_backward import same
from tests.engines.jit.usual import gradients_of, incoming, large_examples, slopes, tree
from tests.support.engines import normal, qkv, same_bits
from tests.support.lanes import by_name, sweep
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
rules = by_name("rule", RULES)
# The first position and the number of rows: on borders and off them, before position 0, many blocks.
PLACES = {"on": (0, 3 * BLOCK), "off": (700, 2300), "before": (-1500, 2900), "across": (1023, 2), "one": (37, 50)}


def problem_of(
    start, rows, dtype=np.float32, B=1, keys=140, groups=GROUPS, **rule
) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A call, dout and dlse."""
    arrays = qkv(H=HEADS, G=groups, Q=rows, K=keys, D=8, E=8, B=B, dtype=dtype)
    problem = Problem.of(*arrays, query_start=start, **rule)
    return problem, *incoming(problem)


def check_blocks(problem: Problem, dout, dlse, entry: int = 0) -> None:
    """The gradients of a call are those of its blocks, one by one; all of them if all entries begin together."""
    whole, start = gradients_of(problem, dout, dlse), int(problem.query_start[entry])
    rows = start + np.arange(problem.dims["Q"])
    numbers, firsts = np.unique(rows // BLOCK, return_index=True)
    parts = []
    for first, last in itertools.pairwise([*firsts, len(rows)]):
        q, *incoming = (part[:, :, first:last] for part in (problem.q, dout, dlse))
        block = replace(problem, q=q, query_start=problem.query_start + first)
        parts.append(slopes(gradients_of(block, *incoming)))
    queries, *sums = zip(*parts, strict=True)
    same_bits(whole.q[entry], np.concatenate(queries, 2)[entry])
    for at, (total, some) in enumerate(zip(slopes(whole)[1:], sums, strict=True)):
        merged_here = tree(dict(zip(numbers.tolist(), some)))
        if at < 2:
            same_bits(total[entry], merged_here[entry])
        elif (problem.query_start == start).all():
            np.testing.assert_array_equal(total, merged_here)


# ---- blocks and their tree -------------------------------------------------------------------------------------------


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [np.float32, *sweep(np.float64)])
@rules
@by_name("place", PLACES)
def test_a_call_is_the_tree_of_its_blocks(place, rule, dtype):
    """Gradients of keys, values, tables and sinks are those of calls with one block of rows each, merged in the tree;
    those of queries are theirs, one after another.
    """
    check_blocks(*problem_of(*place, dtype, **rule))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("start", "dtype"), [(0, np.float64), (3 * BLOCK - 17, np.float32), (-6 * BLOCK + 5, np.float32)]
)
def test_many_blocks(start, dtype):
    """More partial sums than a few, which wait for one another; some of them are empty."""
    rule = {"mask": (rg.query // BLOCK) % 7 != 3, "score": rg.relative(near)}
    check_blocks(*problem_of(start, 11 * BLOCK + 40, dtype, keys=20, **rule))


def test_16_bit_sums_are_rounded_once():
    """Partial sums are float32, and the gradient is their rounded sum."""
    problem, dout, dlse = problem_of(300, 1500, np.float16)
    exact = replace(problem, **{name: getattr(problem, name).astype(np.float32) for name in "qkv"})
    found = gradients_of(problem, dout, dlse)
    same_bits(found.v, gradients_of(exact, dout.astype(np.float32), dlse).v.astype(np.float16))


@given(st.integers(-40, 40), st.lists(st.booleans(), min_size=1, max_size=40))
def test_merged_is_the_tree(first, present):
    """Of any blocks, with or without gaps, before and after position 0."""
    numbers = [first + at for at, exists in enumerate(present) if exists] or [first]
    sums = normal(len(numbers), 3, seed=len(numbers))
    same_bits(merged(numbers, sums), tree(dict(zip(numbers, sums))))
    assert 1 <= stack_entries(len(numbers)) <= 7


@pytest.mark.slow
@large_examples(12, 4)
@given(problems(rows=60, depth=20), st.sampled_from((-BLOCK, -30, 0, BLOCK - 40, 3 * BLOCK - 20)), st.data())
def test_random_problems(case, shift, data):
    """Any mask, score, start of each entry, dropout and sinks: blocks, threads and heights of tiles change no bit."""
    problem = Problem.of(**case.kwargs, **data.draw(st.just({}) | dropouts))
    problem = replace(problem, query_start=problem.query_start + shift)
    if problem.dims["Q"]:
        check_blocks(problem, *incoming(problem), data.draw(st.integers(0, problem.dims["B"] - 1)))
        same(*heights(problem, *incoming(problem)))


# ---- tiles, threads, company -----------------------------------------------------------------------------------------


def heights(problem: Problem, dout, dlse):
    """The gradients with tiles of the largest number of rows, and of the smallest."""
    found = []
    for narrow in (0, 2**40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gradients, "NARROW", narrow)
            patch.setattr(gradients, "_recipes", Memo(4))
            found.append(gradients_of(problem, dout, dlse))
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
    for mine, exact in zip(slopes(found), slopes(law), strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_allclose(mine, exact, rtol=1e-3, atol=1e-4)
