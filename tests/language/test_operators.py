"""Every row of the operator table: its value, its bounds, its derivative and its text agree with one another."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.language import functions as f
from regard.language.analysis import adjoints, bounds, evaluate
from regard.language.expr import Op, lift, score, table
from regard.language.intervals import Interval
from regard.language.operators import CALL, OPERATORS
from tests.support.lanes import examples

ROWS = pytest.mark.parametrize("name", OPERATORS)
NAMES = {**{name: getattr(rg, name) for name in rg.__all__}, "lift": lift}
SPECIAL = [0.0, -0.0, 0.5, 1.0, -1.0, 3.0, 7.0, 0.1, -2.5, 1e-30, 1e30, 700.0, -700.0, math.inf, -math.inf]

numbers = st.sampled_from(SPECIAL) | st.floats(-20, 20) | st.integers(-20, 20).map(float)


# Integers first, so that a failing example is one that reads easily.
def arguments(row, columns):
    """One read per argument of the row, so that any numbers can be used, as a condition where one is required."""
    tables = [table(column > 0 if code == "b" else column) for code, column in zip(row.takes, columns, strict=True)]
    return Op(row.name, *(held[rg.key] for held in tables))


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


@ROWS
def test_the_derivative_is_the_slope(name):
    """Each partial derivative equals the central difference of the value, away from steps and corners."""
    row = OPERATORS[name]
    numbers = np.array([1.83, 0.37] if name == "pow" else [0.37] if row.takes == "n" else [0.37, 1.83, -0.59])
    expression = arguments(row, numbers[-len(row.takes) :, None])
    flat = row.derivative is None

    if row.gives == "bool" or name == "to_int":
        assert flat
        return
    slopes, at = adjoints(expression), {"key": np.array(0)}
    for read in expression.args:
        if read.kind == "bool":
            continue
        held, ends = read.table.array, []
        middle = held[0]
        for held[0] in (middle + 1e-6, middle - 1e-6):
            ends.append(float(evaluate(expression, at)))
        held[0] = middle
        slope = float(evaluate(slopes[read], at)) if read in slopes else 0.0
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)
        assert not flat or slope == 0


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


def test_division():
    """x // y is floor(x / y) for floats, with x / y rounded; whole division and remainder by 0 give 0 for integers;
    floats follow IEEE 754.
    """
    whole, by = np.array([-7, 7, 7]), np.array([2, -2, 0])
    for name, x, y, expected in (
        (
            "floordiv",
            np.array([1.0, -1.0, 6.0, np.inf, 1.0]),
            np.array([0.1, 0.1, 0.1, 2.0, -np.inf]),
            [10, -10, 60, np.inf, 0],
        ),
        ("floordiv", whole, by, [-4, -4, 0]),
        ("mod", whole, by, [1, -1, 0]),
        ("mod", np.array([5.0]), 0.0, [np.nan]),
        ("div", whole, by, [-3.5, -3.5, np.inf]),
    ):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(OPERATORS[name].value(x, y), expected)


def test_truncation():
    """to_int goes toward zero, saturates at 32 bits, and takes NaN for 0."""
    numbers = np.array([2.9, -2.9, 1e20, -1e20, np.nan, np.inf])

    assert evaluate(rg.to_int(score), {"score": numbers}).tolist() == [2, -2, 2**31 - 1, -(2**31), 0, 2**31 - 1]


def test_ties_share_the_derivative():
    """At min(x, y) with x = y each argument gets half, as a central difference would say."""
    expression = rg.minimum(score, 2.0)

    assert evaluate(adjoints(expression)[score], {"score": np.array([1.0, 2.0, 3.0])}).tolist() == [1.0, 0.5, 0.0]
