"""Every row of the operator table: its value, its bounds, its derivative and its text agree with one another."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.language import functions as f
from regard.language.analysis import adjoints, bounds, evaluate
from regard.language.expr import Op, lift, score, table, tables_of
from regard.language.intervals import Interval
from regard.language.operators import CALL, OPERATORS
from tests.support.lanes import examples

ROWS = pytest.mark.parametrize("name", OPERATORS)
NAMES = {**{name: getattr(rg, name) for name in rg.__all__}, "lift": lift}
SPECIAL = [0.0, -0.0, 0.5, 1.0, -1.0, 3.0, 7.0, 0.1, -2.5, 1e-30, 1e30, 700.0, -700.0, math.inf, -math.inf]

numbers = st.sampled_from(SPECIAL) | st.floats(-20, 20) | st.integers(-20, 20).map(float)
# Integers first, so that a failing example is one that reads easily.
samples = st.one_of(
    st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=6), st.lists(numbers, min_size=1, max_size=6)
)


def arguments(row, columns):
    """One read per argument of the row, so that any numbers can be used, as a condition where one is required."""
    tables = [table(column > 0 if code == "b" else column) for code, column in zip(row.takes, columns, strict=True)]
    return Op(row.name, *(held[rg.key] for held in tables))


@ROWS
@examples(50)
@given(data=st.data())
def test_the_value_lies_within_the_bounds(name, data):
    """The interval of f(x, y) over a tile holds f(x, y) at every point of the tile, and says so where NaN is
    possible.
    """
    row = OPERATORS[name]
    columns = [np.array(data.draw(samples)) for _ in row.takes]
    grid = [column.ravel() for column in np.meshgrid(*columns)]
    size = grid[0].size
    expression = arguments(row, grid)

    value = evaluate(expression, {"key": np.arange(size)}).astype(np.float64)
    found = bounds(expression, {"key": Interval(np.array([0.0]), np.array([size - 1.0]))})

    assert np.isnan(value).any() <= bool(np.all(found.nan))
    known = value[~np.isnan(value)]
    assert (found.lo <= known).all() and (known <= found.hi).all()


@ROWS
@examples(100)
@given(data=st.data())
def test_the_bounds_of_a_point_hold_its_value(name, data):
    """An interval of one number gives an interval around the one result; a condition is then decided, below 2**53."""
    row = OPERATORS[name]
    point = [data.draw(numbers) for _ in row.takes]
    expression = arguments(row, [np.array([x]) for x in point])

    value = float(evaluate(expression, {"key": np.array(0)}))
    found = bounds(expression, {"key": Interval(np.zeros(1), np.zeros(1))})

    assert (np.isnan(value) and np.all(found.nan)) or (found.lo <= value <= found.hi)
    if row.gives == "bool" and np.abs(point).max() < 2**53:
        assert found.lo == found.hi == value


@pytest.mark.one_in(3)
@ROWS
def test_every_interval_of_special_numbers(name):
    """No interval with ends among the special numbers loses a value, or hides a NaN, that its members can give."""
    row = OPERATORS[name]
    ends = np.array(SPECIAL if row.takes != "b" else [0.0, 1.0])
    conditions = np.array([0.0, 1.0])
    tiles, points, inside = [], [], []
    for axis, code in enumerate(row.takes):
        members = conditions if code == "b" else ends
        lo, hi = (side.ravel() for side in np.meshgrid(members, members))
        lo, hi = lo[lo <= hi], hi[lo <= hi]
        tiles.append(np.reshape([lo, hi], (2, *np.roll([-1] + [1] * (len(row.takes) - 1), axis))))
        points.append(members.reshape(np.roll([-1] + [1] * (len(row.takes) - 1), axis)))
        inside.append((lo[:, None] <= members) & (members <= hi[:, None]))
    with np.errstate(all="ignore"):
        value = np.asarray(
            row.value(*(x != 0 if c == "b" else x for x, c in zip(points, row.takes, strict=True))), np.float64
        )
        found = row.bounds(*(Interval(lo, hi) for lo, hi in tiles))

    for tile in np.ndindex(found.lo.shape):
        reached = value[np.ix_(*(held[at] for held, at in zip(inside, tile, strict=True)))]
        possible = np.broadcast_to(found.nan, found.lo.shape)[tile]
        known = reached[~np.isnan(reached)]
        assert possible or known.size == reached.size, f"{name} of tile {tile} may be NaN"
        assert ((found.lo[tile] <= known) & (known <= found.hi[tile])).all(), f"{name} of tile {tile} leaves its bounds"


@ROWS
def test_the_derivative_is_the_slope(name):
    """Each partial derivative equals the central difference of the value, away from steps and corners."""
    row = OPERATORS[name]
    point = np.array([0.37, 1.83, -0.59])[-len(row.takes) :] if row.takes != "n" else np.array([0.37])
    if name == "pow":
        point = np.array([1.83, 0.37])
    tables = [table(np.array([x > 0 if code == "b" else x])) for code, x in zip(row.takes, point, strict=True)]
    expression = Op(name, *(held[0] for held in tables))
    flat = row.derivative is None

    if row.gives == "bool" or name == "to_int":
        assert flat
        return
    slopes = adjoints(expression)
    for held, code in zip(tables, row.takes, strict=True):
        if code == "b":
            continue
        middle, step = held.array[0], 1e-6
        ends = []
        for held.array[0] in (middle + step, middle - step):
            ends.append(float(evaluate(expression, {})))
        held.array[0] = middle
        slope = float(evaluate(slopes[held[0]], {})) if held[0] in slopes else 0.0
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)
        assert not flat or slope == 0


@ROWS
def test_the_text_builds_the_expression_again(name):
    """eval(repr(e)) is e, for variables and for constants as arguments."""
    row = OPERATORS[name]
    condition, number = rg.key <= rg.query, score + 1
    for x, c in ((number, condition), (lift(2.0), lift(True))):
        expression = Op(name, *(c if code == "b" else x for code in row.takes))

        assert lift(eval(repr(expression), NAMES | tables_of(expression))) is expression


@ROWS
def test_kinds(name):
    """Integers stay integers where the row promotes, and conditions are what comparisons and logic give."""
    row = OPERATORS[name]
    integer = Op(name, *(rg.key > 0 if code == "b" else rg.key for code in row.takes))
    real = Op(name, *(rg.key > 0 if code == "b" else score for code in row.takes))

    assert (integer.kind, real.kind) == (("int", "float") if row.gives == "promote" else (row.gives, row.gives))


@ROWS
def test_rows_are_complete(name):
    """A function is spelled as regard exports it, costs something, and takes what its value takes."""
    row = OPERATORS[name]

    assert row.cost > 0 and set(row.takes) <= set("nbx")
    assert row.precedence != CALL or row.text == "abs" or row.text in f.__all__


def test_division_by_zero():
    """Whole division and remainder by 0 give 0 for integers; floats follow IEEE 754."""
    zero = table(np.array([0]))[0]
    values = {"key": np.array(5), "score": np.array(5.0)}

    assert evaluate(rg.key // zero, values) == 0
    assert evaluate(rg.key % zero, values) == 0
    assert evaluate(rg.key / zero, values) == np.inf
    assert np.isnan(evaluate(score % zero, values))


def test_truncation():
    """to_int goes toward zero, saturates at 32 bits, and takes NaN for 0."""
    numbers = np.array([2.9, -2.9, 1e20, -1e20, np.nan, np.inf])

    assert evaluate(rg.to_int(score), {"score": numbers}).tolist() == [2, -2, 2**31 - 1, -(2**31), 0, 2**31 - 1]


def test_ties_share_the_derivative():
    """At min(x, y) with x = y each argument gets half, as a central difference would say."""
    expression = rg.minimum(score, 2.0)

    assert evaluate(adjoints(expression)[score], {"score": np.array([1.0, 2.0, 3.0])}).tolist() == [1.0, 0.5, 0.0]


def test_floor_division_of_floats_is_the_floor_of_the_quotient():
    """x // y is floor(x / y) for floats, with x / y rounded, and Python's // for integers, where division by 0 gives
    0.
    """
    x, y = np.array([1.0, -1.0, 6.0, np.inf, 1.0]), np.array([0.1, 0.1, 0.1, 2.0, -np.inf])
    with np.errstate(all="ignore"):
        assert OPERATORS["floordiv"].value(x, y).tolist() == [10, -10, 60, np.inf, 0]
        assert OPERATORS["floordiv"].value(np.array([-7, 7, 7]), np.array([2, -2, 0])).tolist() == [-4, -4, 0]
