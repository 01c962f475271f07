"""Every row of the operator table: its value, its derivative, its kind and its text agree with one another."""

import numpy as np
import pytest

import regard as rg
from regard.language import functions as f
from regard.language.analysis import adjoints, evaluate
from regard.language.expr import Op, score, table
from regard.language.operators import CALL, OPERATORS

ROWS = pytest.mark.parametrize("name", OPERATORS)


@ROWS
def test_the_derivative_is_the_slope(name):
    """Each partial derivative equals the central difference of the value, away from steps and corners."""
    row = OPERATORS[name]
    numbers = np.array([1.83, 0.37] if name == "pow" else [0.37] if row.takes == "n" else [0.37, 1.83, -0.59])
    # One read per argument, as a condition where one is required.
    columns = zip(row.takes, numbers[-len(row.takes) :, None], strict=True)
    convert = {"b": lambda column: column > 0, "i": lambda column: column.astype(int)}
    expression = Op(name, *(table(convert.get(code, np.copy)(column))[rg.key] for code, column in columns))
    flat = row.derivative is None

    if row.gives == "bool" or name == "to_int" or "i" in row.takes:
        assert flat
        return
    slopes, at = adjoints(expression), {"key": np.array(0)}
    for read in expression.args:
        if read.kind == "bool":
            continue
        slope = float(evaluate(slopes[read], at)) if read in slopes else 0.0
        ends = []
        for step in (1e-6, -2e-6, 1e-6):  # above, below and back
            read.table.array[0] += step
            ends.append(float(evaluate(expression, at)))
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)
        assert not flat or slope == 0


@ROWS
def test_kinds(name):
    """Integers stay integers where the row promotes, and conditions are what comparisons and logic give."""
    row = OPERATORS[name]
    integer = Op(name, *(rg.key > 0 if code == "b" else rg.key for code in row.takes))
    real = Op(name, *({"b": rg.key > 0, "i": rg.key}.get(code, score) for code in row.takes))

    assert (integer.kind, real.kind) == (("int", "float") if row.gives == "promote" else (row.gives, row.gives))


@ROWS
def test_rows_are_complete(name):
    """A function is spelled as regard exports it, costs something, and takes what its value takes."""
    row = OPERATORS[name]

    assert row.cost > 0 and set(row.takes) <= set("nibx")
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
