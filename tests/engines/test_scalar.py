"""Self-attention on single numbers: right values, right gradients, and the same as the law."""

import math
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from regard import causal
from regard.engines.reference import attention as reference
from regard.engines.reference import scalar
from regard.engines.reference.scalar import SelfAttention, Value, causal_mask, dot, softmax
from regard.language.problem import Problem
from tests import ROOT
from tests.support.engines import normal
from tests.support.refusals import refusing


def data(rows):
    return np.array([[entry.data for entry in row] for row in rows])


def grad(rows):
    return np.array([[entry.grad for entry in row] for row in rows])


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, y: x + y * 2 - 3,
        lambda x, y: 1 - x * y,
        lambda x, y: x / y + 2 / y,
        lambda x, y: (x * y).exp(),
        lambda x, y: (y**3).log() * x,
        lambda x, y: (x - y).tanh(),
        lambda x, y: -(x + x) * x,
        lambda x, y: dot([x, y, 2.0], [y, y, x]),
    ],
)
def test_local_derivatives(formula):
    """Each operation's gradient is the slope that finite differences measure."""
    x, y, h = Value(0.7), Value(1.3), 1e-6
    formula(x, y).backward()
    along_x = (formula(Value(x.data + h), y).data - formula(Value(x.data - h), y).data) / (2 * h)
    along_y = (formula(x, Value(y.data + h)).data - formula(x, Value(y.data - h)).data) / (2 * h)
    assert (x.grad, y.grad) == pytest.approx((along_x, along_y), rel=1e-7)


def test_backward_adds_to_what_is_there():
    """A second backward pass doubles the gradients of all nodes, inner ones included, as in torch."""
    x = Value(2.0)
    square = x * x
    out = square * 3
    out.backward()
    out.backward()
    assert (x.grad, square.grad) == (24.0, 6.0)


def test_depth_has_no_limit():
    """A chain of 50,000 operations is differentiated: backward does not recurse."""
    x = Value(1.0)
    sum([x] * 50_000, x).backward()
    assert x.grad == 50_001


def test_softmax_subtracts_the_maximum():
    """Large scores do not overflow, and a shift of the row changes nothing."""
    row = [0.0, 1.0, -2.0]
    plain, shifted = ([p.data for p in softmax([x + by for x in row])] for by in (0.0, 5000.0))
    assert plain == pytest.approx(shifted, rel=1e-12)
    assert plain == pytest.approx([math.exp(x) / sum(map(math.exp, row)) for x in row])


def test_softmax_of_nothing():
    """A row that may attend nothing gets zero weights, and an empty row stays empty."""
    assert [p.data for p in softmax([-math.inf, -math.inf])] == [0, 0]
    assert softmax([]) == []


def test_the_last_query_sees_the_last_key():
    """Where there are fewer queries than keys."""
    assert causal_mask(2, 4) == [[0.0, 0.0, 0.0, -math.inf], [0.0] * 4]


def test_rows_that_do_not_fit_are_refused():
    """A dot product of rows of different length says so."""
    with refusing("differ in length"):
        dot([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    "rules",
    [{}, {"mask": causal()}, {"mask": causal(), "dropout": 0.5, "seed": 21}],
    ids=["plain", "causal", "dropout"],
)
def test_agrees_with_the_law(rules):
    """Output, weights and the gradients of the input and of every parameter are those of `reference`."""
    n, d_model, d_k, d_v = 5, 4, 3, 2
    X = [[Value(number) for number in row] for row in normal(n, d_model).tolist()]
    attend = SelfAttention(d_model, d_k, d_v, seed=2)
    factors = scalar.dropout_factors(n, n, rules["dropout"], rules["seed"]) if "seed" in rules else None
    Y, A = attend(X, causal_mask(n, n) if rules else None, factors)
    dY = normal(n, d_v, seed=1)
    sum(out * slope for row, slopes in zip(Y, dY) for out, slope in zip(row, slopes)).backward()

    x, *matrices = map(data, (X, attend.W_q, attend.W_k, attend.W_v))
    problem = Problem.of(*(x @ W for W in matrices), **rules)
    assert data(Y) == pytest.approx(reference.forward(problem)[0][0, 0], rel=1e-12)
    assert data(A) == pytest.approx(reference.weights(problem, *reference.everywhere(problem))[0, 0], rel=1e-12)
    slopes = [part[0, 0] for part in reference.backward(problem, dY[None, None])[:3]]
    for weight, slope in zip((attend.W_q, attend.W_k, attend.W_v), slopes):
        assert grad(weight) == pytest.approx(x.T @ slope, rel=1e-10, abs=1e-13)
    dX = sum(slope @ W.T for slope, W in zip(slopes, matrices))
    assert grad(X) == pytest.approx(dX, rel=1e-10, abs=1e-13)


def test_parameters_are_all_and_default_widths_follow():
    """d_k is d_model and d_v is d_k unless given; parameters() lists each number once."""
    attend = SelfAttention(4)
    assert [(len(w), len(w[0])) for w in (attend.W_q, attend.W_k, attend.W_v)] == [(4, 4)] * 3
    assert [len(SelfAttention(4, 3).W_v[0]), len(SelfAttention(4, 3, 2).W_v[0])] == [3, 2]
    assert len({id(parameter) for parameter in attend.parameters()}) == 48


def test_no_numpy():
    """The file works on Python's own numbers."""
    text = Path(scalar.__file__).read_text(encoding="utf-8")
    assert {*re.findall(r"^ *(?:import|from) (\S+)", text, re.M)} == {
        "__future__",
        "collections.abc",
        "...common.errors",
        "math",
        "random",
    }


@pytest.mark.sweep
@pytest.mark.slow
def test_the_example_trains(capsys):
    """Training on the first-token task takes the loss far below guessing."""
    example = runpy.run_path(str(ROOT / "examples" / "scalar_training.py"))
    losses = example["main"]()
    assert np.mean(losses[-10:]) < 0.05 < 0.5 < losses[0]
    assert "weights of the last sequence" in capsys.readouterr().out
