"""Readings of one tree: its value, what it can be over a tile, its derivative."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.language.analysis import adjoints, bounds, evaluate, ranges_of
from regard.language.expr import batch, head, key, query, score, table, walk
from regard.language.intervals import Interval
from tests.support.lanes import by_name

TABLE = table(np.array([3, -1, 4, 1, -5, 9]), "numbers")


def tile(query, key):
    """One tile: each variable from its first to its last value; the score has the values of the key."""
    ends = {"query": query, "key": key, "score": key}
    return {name: Interval(np.array([float(lo)]), np.array([float(hi)])) for name, (lo, hi) in ends.items()}


def test_kinds_of_values():
    """A float expression has a float value, an integer one an integer value, a mask a truth value, whatever it
    reads.
    """
    small, byte, flag = (table(np.array([number])) for number in (np.float32(1), np.uint8(255), True))
    kinds = {
        np.float64: (rg.floor(key), rg.to_float(key), key / 2, score, rg.sign(score), small[0] * 2),
        np.int64: (key // 2, rg.to_int(score), byte[0] + 1, rg.where(key > 1, 1, 2), (key > 1) + (key > 0)),
        np.bool_: (key <= query, ~(key > 1), flag[key]),
    }
    values = {"key": np.arange(3), "score": np.zeros(3), "query": np.arange(3)}
    for dtype, expressions in kinds.items():
        assert {evaluate(each, values).dtype.type for each in expressions} == {dtype}


EMPTY, MIXED, FULL = (0, 0), (0, 1), (1, 1)
BOUNDS = [
    (key <= query, (8, 15), (0, 7), FULL),
    (key <= query, (8, 15), (16, 23), EMPTY),
    (3 * (query - key) > 3 * query - 3 * key, (0, 9), (0, 9), EMPTY),
    (query // 16 == key // 16, (16, 31), (16, 31), FULL),
    (query // 16 == key // 16, (16, 31), (32, 47), EMPTY),
    (key % 64 < 16, (0, 0), (80, 127), EMPTY),
    (TABLE[key] > -2, (0, 0), (0, 3), FULL),
    (TABLE[key] > -2, (0, 0), (0, 4), MIXED),
    (rg.where(key > 3, 1, -1) < 0, (0, 0), (0, 3), FULL),
    ((key < 4) ^ (key < 4), (0, 0), (0, 3), EMPTY),
    (score <= score, (0, 0), (0, 1), MIXED),
    # Sums of integers are compared as sums of coefficient · term, so terms of both sides cancel.
    (3 * query - (key - 2) - query + 5 >= 2 * query, (0, 900), (5, 7), FULL),
    (3 * query - (key - 2) - query + 5 >= 2 * query + 1, (0, 900), (5, 7), MIXED),
    (query // 2 * 4 - 1 >= 4 * (query // 2) - key + 5, (0, 900), (5, 7), MIXED),
    (-(key - query) * 2 >= query + query - 13, (0, 900), (5, 7), MIXED),
]


@pytest.mark.parametrize(("mask", "queries", "keys", "verdict"), BOUNDS)
def test_verdicts(mask, queries, keys, verdict):
    """A tile is full, empty or undecided; differences of positions are decided exactly."""
    found = bounds(mask, tile(queries, keys))

    assert (found.lo.item(), found.hi.item()) == verdict


@given(st.tuples(*[st.integers(-4, 4)] * 4, st.sampled_from([-3, -1, 1, 2, 5])), *[st.integers(-50, 50)] * 2)
@settings(max_examples=40)
def test_verdicts_are_sound(numbers, q0, k0):
    """No verdict contradicts a point of its tile, for affine comparisons, congruences and reads."""
    a, b, c, d, step = numbers
    for mask in (
        a * query + b * key <= c * key + d,
        (a * query - key) % step == d,
        (query - key) // step < d,
        TABLE[query - a] > TABLE[key],
        abs(query - key) % step >= abs(d),
        rg.minimum(query, a * key) != d,
        TABLE[TABLE[key] + a] == d,
    ):
        for rows, keys in ((0, 0), (1, 30), (30, 2)):
            agrees(mask, (q0, q0 + rows), (k0, k0 + keys))


def agrees(mask, queries, keys):
    """The mask is within its bounds at every point of a tile."""
    q, k = np.ix_(*(range(first, last + 1) for first, last in (queries, keys)))
    value, found = evaluate(mask, {"query": q, "key": k}), bounds(mask, tile(queries, keys))
    assert found.lo <= value.min() and value.max() <= found.hi


WRAPS = {
    "a power too far": key * 2**62 * 4 < 5,
    "the least integer": abs(key + (-(2**63))) > 0,
    "negated": -(key + (-(2**63))) > 0,
    "divided": (key + (-(2**63))) // -1 > 0,
    "a product": (key + 2**40) * (query + 2**40) > 0,
    "cancelling": key + 2**62 + 2**62 > key,
    "on both sides": key * 2**61 < (key + 1) * 2**61,
    "a remainder": (key * 2**61) % 3 == 1,
    "less than more": key + (2**63 - 4) > query,
    "many powers": functools.reduce(lambda x, _: x * 2**62, range(17), key) >= 0,
}


@by_name("mask", WRAPS)
def test_verdicts_know_that_integers_wrap(mask):
    """Integers of the language wrap around 64 bits, and no verdict denies it."""
    for first, last in itertools.combinations_with_replacement(range(9), 2):
        agrees(mask, (0, 2), (first, last))


def test_shared_parts_are_read_once():
    """x = x + x, sixty times over, is compared in the time of its nodes; a sum of three thousand terms too."""
    tree = functools.reduce(lambda x, _: x + x, range(60), key)
    assert bounds(tree >= key, tile((0, 0), (0, 0))).lo >= 1
    long = functools.reduce(lambda x, number: x + query // number, range(1, 3000), key)
    assert bounds(long >= 0, tile((0, 9), (0, 9))).lo >= 1


DERIVATIVES = {
    score: "1.0",
    score * 3: "3.0",
    30 * rg.tanh(score / 30): None,
    rg.where(query >= key, score, -1.0): "where(query >= key, 1.0, 0.0)",
    rg.exp(score) * rg.sigmoid(score) / (1 + score * score): None,
}


@pytest.mark.parametrize("expression", DERIVATIVES, ids=repr)
def test_derivatives_of_the_score(expression):
    """The derivative equals the central difference, and is as short as it can be."""
    slope = adjoints(expression)[score]
    values = {"query": 2, "key": 1, "score": np.array([0.7, 0.7 + 1e-6, 0.7 - 1e-6])}
    _, above, below = evaluate(expression, values)

    assert repr(slope) == (DERIVATIVES[expression] or repr(slope))
    assert np.ravel(evaluate(slope, values))[0] == pytest.approx((above - below) / 2e-6, rel=1e-6)


def test_derivatives_of_tables():
    """Every float read is a leaf of its own; a leaf that occurs several times gets the sum; integers get
    nothing.
    """
    slope, bias = table(np.array([2.0, 3.0]), "slope")[head], table(np.zeros(4), "bias")[key]
    found = adjoints(score * slope + slope * bias + TABLE[query])

    assert found.keys() == {score, slope, bias}
    assert repr(found[slope]) in ("score + bias[key]", "bias[key] + score")
    assert found[score] is slope and found[bias] is slope


def test_conditions_carry_no_derivative():
    """What only decides, indexes or rounds has slope 0: the leaf does not appear."""
    held = table(np.array([0.5, 1.5]), "held")
    read = held[rg.to_int(score)]

    assert adjoints(rg.where(held[key] > 1, rg.floor(score) + read + score // 2.0, rg.to_float(batch))).keys() == {read}


ROOT = rg.sqrt(score)
STEEP = {  # a rule, the score at which it is evaluated, and its slope there
    "chosen": (rg.where(score > 0, ROOT, 0.0), 0.0, 0.0),
    "chosen, inside": (rg.where(score > 0, ROOT, 0.0), 4.0, 0.25),
    "nested": (rg.where(query > 0, rg.where(score > 0, ROOT, score * 0.5), 1.0), 0.0, 0.5),
    "shared": (rg.where(score > 1, ROOT, 0.0) + rg.where(score > 2, 3 * ROOT, 0.0), 0.0, 0.0),
    "larger": (rg.maximum(rg.log(score), -1.0), 0.0, 0.0),
    "clipped": (rg.clip(ROOT, 0.5, 4.0), 0.0, 0.0),
    "beside": (rg.where(score > 0, ROOT, 0.0) + 2 * score, 0.0, 2.0),
    "in full": (ROOT, 0.0, np.inf),
}


@by_name("expression, at, slope", STEEP)
def test_what_was_not_chosen_passes_nothing_on(expression, at, slope):
    """√ is endlessly steep at 0 and nothing below; where it is not chosen, the slope is that of what was."""
    assert evaluate(adjoints(expression)[score], {"query": 2, "key": 1, "score": np.array(at)}) == slope


def test_ranges_of_gives_every_node_the_interval_that_bounds_gives_it():
    """One pass over several roots tells the interval of each node, the same as asking node by node."""
    ranges = tile((0, 5), (3, 9))
    roots = (query - key < 4, rg.to_float(key * 7) + 0.5)
    alone = {id(node): bounds(node, ranges) for node in walk(*roots)}
    assert ranges_of(roots, ranges) == alone
