"""Functions of the language: each equals NumPy's of the same meaning, under every spelling."""

import math

import numpy as np
import pytest

import regard as rg
from regard.language import functions
from regard.language.analysis import evaluate
from regard.language.expr import key, score
from regard.language.tree.syntax import METHODS, SPELLINGS
from tests.support.lanes import by_name
from tests.support.refusals import refusing

X = np.array([-3.7, -1.0, -0.5, 0.0, 0.3, 1.0, 2.5, 20.0])
POSITIVE = np.abs(X) + 0.1

# regard's name -> what NumPy computes, and where; first those that have NumPy's name.
ANYWHERE = "ceil", "cos", "exp", "exp2", "expm1", "floor", "sign", "sin", "square", "tan", "tanh", "trunc"
UNARY = {name: (getattr(np, name), X) for name in ANYWHERE}
UNARY |= {name: (getattr(np, name), POSITIVE) for name in ("log", "log1p", "log2", "sqrt")}
UNARY |= {
    "atan": (np.arctan, X),
    "erf": (np.vectorize(math.erf), X),
    "relu": (lambda x: np.maximum(x, 0), X),
    "round_even": (np.rint, X),
    "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), X),
    "softplus": (lambda x: np.logaddexp(x, 0), np.append(X, [1e4, -1e4])),  # where exp overflows, and underflows
    "to_float": (np.float64, X),
    "to_int": (np.trunc, X),
}
OTHERS = {
    "clip": (rg.clip(score, -1, 1), np.clip(X, -1, 1)),
    "maximum": (rg.maximum(score, 0.5), np.maximum(X, 0.5)),
    "minimum": (rg.minimum(score, 0.5), np.minimum(X, 0.5)),
    "pow": (rg.pow(rg.exp(score), 0.3), np.exp(X) ** 0.3),
    "where": (rg.where(score > 0, score, -1), np.where(X > 0, X, -1)),
}


ROWS = {name: (getattr(rg, name)(score), numbers, of(numbers)) for name, (of, numbers) in UNARY.items()}
ROWS |= {name: (expression, X, expected) for name, (expression, expected) in OTHERS.items()}


@by_name("expression, numbers, expected", ROWS)
def test_a_function_is_that_of_numpy(expression, numbers, expected):
    """The value is NumPy's."""
    assert np.allclose(evaluate(expression, {"score": numbers}), expected, rtol=1e-14)


def test_every_function_is_tested_and_documented():
    """A new function comes with a row above, a sentence, a public name and a spelling."""
    assert set(functions.__all__) == ROWS.keys()
    for name in functions.__all__:
        assert getattr(rg, name) is getattr(functions, name) and getattr(functions, name).__doc__ and name in SPELLINGS


def test_where_of_conditions_is_a_condition():
    """A choice between masks is a mask."""
    found, numbers = evaluate(rg.where(key > 3, key < 6, key == 0), {"key": np.arange(8)}), np.arange(8)
    np.testing.assert_array_equal(found, np.where(numbers > 3, numbers < 6, numbers == 0), strict=True)


def test_relu_of_integers_is_an_integer():
    """Integers stay integers where nothing forces them to be floats."""
    assert {each.kind for each in (rg.relu(key - 3), rg.square(key), rg.clip(key, 0, 3))} == {"int"}


CASTS = {
    "float": ("float32", np.float32, np.dtype(np.float16), float, score, np.zeros(3, np.float32)),
    "int": ("int64", int, "cuda:0", None),
    "bool": (bool, np.bool_, key > 0),
}


@pytest.mark.parametrize("kind", CASTS)
def test_casts(kind):
    """to, type and astype convert to a dtype of any library; a device does not change the number."""
    for wanted in CASTS[kind]:
        assert key.to(wanted).kind == key.astype(wanted).kind == kind


def test_casts_of_several_arguments():
    """A device and a dtype may come together, in any order, by name too."""
    assert key.to("cuda", np.float32).kind == "float"
    assert key.to(device="cpu", dtype=np.float32, non_blocking=True).kind == "float"
    assert score.float() is score and score.to(np.float64) is score
    assert (key > 0).int() is rg.where(key > 0, 1, 0) and key.bool() is (key != 0)


def test_methods_are_spellings():
    """score.tanh() is tanh(score), for every method that has a function of its name."""
    for name in METHODS.keys() & UNARY.keys():
        assert getattr(score, name)() is SPELLINGS[name](score)


def test_numpy_spellings():
    """NumPy's functions of symbols give the language's."""
    for found, expected in (
        (np.rint(score), rg.round_even(score)),
        (np.where(key > 3, score, 0.0), rg.where(key > 3, score, 0.0)),
        (np.clip(score, 0, 1), rg.clip(score, 0, 1)),
        (np.minimum(key, 3), rg.minimum(key, 3)),
        (np.logical_not(key > 3), ~(key > 3)),
        (np.add(key, 3), key + 3),
        (np.float32(2) * score, 2.0 * score),
        (np.power(score, 2), score * score),
        (np.floor_divide(key, 3), key // 3),
    ):
        assert found is expected


def test_numpy_reductions_are_refused():
    """A sum over an axis is not a rule over positions; ufuncs write to no array."""
    for reduce in (np.sum, np.max, np.mean, np.linalg.norm):
        with refusing("needs several numbers"):
            reduce(score)
    with pytest.raises(TypeError, match="out"):
        np.add(score, 1, out=np.zeros(()))
