"""Readings of one tree: its value, what it can be over a tile, its derivative."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.language.analysis import adjoints, bounds, evaluate, ranges_of
from regard.language.expr import batch, head, key, query, score, table, walk
from regard.language.intervals import Interval

TABLE = table(np.array([3, -1, 4, 1, -5, 9]), "numbers")


def tile(**ends):
    """One tile: each variable from its first to its last value."""
    return {name: Interval(np.array([float(lo)]), np.array([float(hi)])) for name, (lo, hi) in ends.items()}


def test_values_broadcast():
    """Index arrays of any broadcastable shape give the matrix of values."""
    found = evaluate(query - key, {"query": np.arange(3)[:, None], "key": np.arange(4)})

    assert found.shape == (3, 4) and found[2, 1] == 1


def test_reads_clamp():
    """An index below the array reads its first element, one beyond reads its last."""
    assert evaluate(TABLE[key - 2], {"key": np.arange(10)}).tolist() == [3, 3, 3, -1, 4, 1, -5, 9, 9, 9]


def test_kinds_of_values():
    """A float expression has a float value, an integer one an integer value, a mask a truth value, whatever it
    reads.
    """
    values = {"key": np.arange(3), "score": np.zeros(3), "query": np.arange(3)}

    for expression in (rg.floor(key), rg.to_float(key), key / 2, score, rg.sign(score), table(np.float32([1]))[0] * 2):
        assert evaluate(expression, values).dtype == np.float64
    for expression in (
        key // 2,
        rg.to_int(score),
        table(np.uint8([255]))[0] + 1,
        rg.where(key > 1, 1, 2),
        (key > 1) + (key > 0),
    ):
        assert evaluate(expression, values).dtype == np.int64
    for expression in (key <= query, ~(key > 1), table(np.array([True]))[key]):
        assert evaluate(expression, values).dtype == np.bool_


BOUNDS = [
    (key <= query, {"query": (8, 15), "key": (0, 7)}, (1, 1)),
    (key <= query, {"query": (8, 15), "key": (16, 23)}, (0, 0)),
    (key <= query, {"query": (8, 15), "key": (8, 15)}, (0, 1)),
    (key - query <= key, {"query": (0, 9), "key": (0, 9)}, (1, 1)),
    ((query + key) - (key + query) == 0, {"query": (0, 9), "key": (0, 9)}, (1, 1)),
    (3 * (query - key) > 3 * query - 3 * key, {"query": (0, 9), "key": (0, 9)}, (0, 0)),
    (query // 16 == key // 16, {"query": (16, 31), "key": (16, 31)}, (1, 1)),
    (query // 16 == key // 16, {"query": (16, 31), "key": (32, 47)}, (0, 0)),
    (key % 64 < 16, {"key": (64, 79)}, (1, 1)),
    (key % 64 < 16, {"key": (80, 127)}, (0, 0)),
    (TABLE[key] > -2, {"key": (0, 3)}, (1, 1)),
    (TABLE[key] > -2, {"key": (0, 4)}, (0, 1)),
    (TABLE[key] > 8, {"key": (5, 99)}, (1, 1)),
    (rg.clip(key, 2, 4) >= 2, {"key": (-9, 9)}, (1, 1)),
    (rg.where(key > 3, 1, -1) < 0, {"key": (0, 3)}, (1, 1)),
    ((key < 4) ^ (key < 4), {"key": (0, 3)}, (0, 0)),
    (score <= score, {"score": (0, 1)}, (0, 1)),
]


@pytest.mark.parametrize(("mask", "ends", "verdict"), BOUNDS, ids=[f"{mask} in {ends}" for mask, ends, _ in BOUNDS])
def test_verdicts(mask, ends, verdict):
    """A tile is full (1, 1), empty (0, 0) or undecided (0, 1); differences of positions are decided exactly."""
    found = bounds(mask, tile(**ends))

    assert (found.lo.item(), found.hi.item()) == verdict


@given(st.integers(-50, 50), st.integers(0, 30), st.integers(-50, 50), st.integers(0, 30), st.data())
@settings(max_examples=300)
def test_verdicts_are_sound(q0, qn, k0, kn, data):
    """No verdict contradicts a point of its tile, for affine comparisons, congruences and reads."""
    a, b, c, d = (data.draw(st.integers(-4, 4)) for _ in range(4))
    step = data.draw(st.sampled_from([-3, -1, 1, 2, 5]))
    mask = data.draw(
        st.sampled_from(
            [
                a * query + b * key <= c * key + d,
                (a * query - key) % step == d,
                (query - key) // step < d,
                TABLE[query - a] > TABLE[key],
                abs(query - key) % step >= abs(d),
                rg.minimum(query, a * key) != d,
                TABLE[TABLE[key] + a] == d,
            ]
        )
    )
    q, k = np.ix_(range(q0, q0 + qn + 1), range(k0, k0 + kn + 1))

    value = evaluate(mask, {"query": q, "key": k})
    found = bounds(mask, tile(query=(q0, q0 + qn), key=(k0, k0 + kn)))

    assert found.lo <= value.min() and value.max() <= found.hi


def difference(x, y, **ends):
    """Bounds of x - y over one tile, from where the comparison of x - y with a number changes."""
    return [number for number in range(-50, 50) if bounds(x - y >= number, tile(**ends)).lo >= 1]


def test_terms_on_both_sides_cancel():
    """Sums of integers are compared as sums of coefficient · term, so terms of both sides cancel."""
    ends = {"query": (0, 900), "key": (5, 7)}
    assert max(difference(3 * query - (key - 2) - query + 5, 2 * query, **ends)) == 0
    assert max(difference((query // 2) * 4 - 1, 4 * (query // 2) - key, **ends)) == 4
    assert max(difference(-(key - query) * 2, query + query, **ends)) == -14


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


@pytest.mark.parametrize("mask", WRAPS.values(), ids=WRAPS)
def test_verdicts_know_that_integers_wrap(mask):
    """Integers of the language wrap around 64 bits, and no verdict denies it."""
    for first in range(9):
        for last in range(first, 9):
            q, k = np.ix_(range(3), range(first, last + 1))
            value = evaluate(mask, {"query": q, "key": k})
            found = bounds(mask, tile(query=(0, 2), key=(first, last)))
            assert found.lo <= value.min() and value.max() <= found.hi


def test_shared_parts_are_read_once():
    """x = x + x, sixty times over, is compared in the time of its nodes; a sum of three thousand terms too."""
    tree = key
    for _ in range(60):
        tree = tree + tree
    assert bounds(tree >= key, tile(key=(0, 0))).lo >= 1
    long = functools.reduce(lambda x, number: x + query // number, range(1, 3000), key)
    assert bounds(long >= 0, tile(key=(0, 9), query=(0, 9))).lo >= 1


DERIVATIVES = [
    (score, score, "1.0"),
    (score * 3, score, "3.0"),
    (30 * rg.tanh(score / 30), score, None),
    (score * score, score, None),
    (rg.where(query >= key, score, -1.0), score, "where(query >= key, 1.0, 0.0)"),
    (rg.exp(score) * rg.sigmoid(score) / (1 + score * score), score, None),
]


@pytest.mark.parametrize(
    ("expression", "leaf", "text"), DERIVATIVES, ids=[repr(expression) for expression, _, _ in DERIVATIVES]
)
def test_derivatives_of_the_score(expression, leaf, text):
    """The derivative equals the central difference, and is as short as it can be."""
    slope, values, step = adjoints(expression)[leaf], {"query": 2, "key": 1}, 1e-6
    above, below = (evaluate(expression, values | {"score": np.array(0.7 + shift)}) for shift in (step, -step))

    assert text is None or repr(slope) == text
    assert evaluate(slope, values | {"score": np.array(0.7)}) == pytest.approx((above - below) / (2 * step), rel=1e-6)


def test_derivatives_of_tables():
    """Every float read is a leaf of its own; a leaf that occurs several times gets the sum; integers get
    nothing.
    """
    slope, bias = table(np.array([2.0, 3.0]), "slope"), table(np.zeros(4), "bias")
    found = adjoints(score * slope[head] + slope[head] * bias[key] + TABLE[query])

    assert found.keys() == {score, slope[head], bias[key]}
    assert repr(found[slope[head]]) == "score + bias[key]" or repr(found[slope[head]]) == "bias[key] + score"
    assert found[score] is slope[head] and found[bias[key]] is slope[head]


def test_conditions_carry_no_derivative():
    """What only decides, indexes or rounds has slope 0: the leaf does not appear."""
    held = table(np.array([0.5, 1.5]), "held")

    assert adjoints(rg.where(held[key] > 1, score, 0.0)).keys() == {score}
    assert adjoints(rg.floor(score) + held[rg.to_int(score)] + score // 2.0).keys() == {held[rg.to_int(score)]}
    assert adjoints(rg.to_float(batch)) == {}


ROOT = rg.sqrt(score)
STEEP = {  # a rule, the score at which it is evaluated, and its slope there
    "chosen": (rg.where(score > 0, ROOT, 0.0), 0.0, 0.0),
    "chosen, below": (rg.where(score > 0, ROOT, 0.0), -1.0, 0.0),
    "chosen, inside": (rg.where(score > 0, ROOT, 0.0), 4.0, 0.25),
    "the other": (rg.where(score <= 0, 0.0, ROOT), 0.0, 0.0),
    "nested": (rg.where(query > 0, rg.where(score > 0, ROOT, score * 0.5), 1.0), 0.0, 0.5),
    "shared": (rg.where(score > 1, ROOT, 0.0) + rg.where(score > 2, 3 * ROOT, 0.0), 0.0, 0.0),
    "shared, one of them": (rg.where(score > 1, ROOT, 0.0) + rg.where(score > 9, 3 * ROOT, 0.0), 4.0, 0.25),
    "larger": (rg.maximum(rg.log(score), -1.0), 0.0, 0.0),
    "clipped": (rg.clip(ROOT, 0.5, 4.0), 0.0, 0.0),
    "beside": (rg.where(score > 0, ROOT, 0.0) + 2 * score, 0.0, 2.0),
    "in full": (ROOT, 0.0, np.inf),
}


@pytest.mark.parametrize(("expression", "at", "slope"), STEEP.values(), ids=STEEP)
def test_what_was_not_chosen_passes_nothing_on(expression, at, slope):
    """√ is endlessly steep at 0 and nothing below; where it is not chosen, the slope is that of what was."""
    assert evaluate(adjoints(expression)[score], {"query": 2, "key": 1, "score": np.array(at)}) == slope


def test_ranges_of_gives_every_node_the_interval_that_bounds_gives_it():
    """One pass over several roots tells the interval of each node, the same as asking node by node."""
    ranges = {name: Interval(np.array([0.0, 3.0]), np.array([5.0, 9.0])) for name in ("batch", "head", "query", "key")}
    roots = (query - key < 4, rg.to_float(key * 7) + 0.5)
    found = ranges_of(roots, ranges)
    nodes = list(walk(*roots))
    assert len(found) == len(nodes)
    for node in nodes:
        alone = bounds(node, ranges)
        np.testing.assert_array_equal(found[id(node)].lo, alone.lo)
        np.testing.assert_array_equal(found[id(node)].hi, alone.hi)
