"""Expressions as machine code: every operator in masks and scores, every kind of table, and numbers that decide by a
hair.
"""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.engines.jit import engine
from regard.engines.jit.code.target import ISAS, host, limited
from regard.engines.reference import attention as reference
from regard.language.analysis import STEPS
from regard.language.expr import Expr, Op, lift
from regard.language.functions import to_float
from regard.language.operators import OPERATORS
from regard.language.problem import Problem
from tests.support.engines import normal
from tests.support.machine import OFFERED, each_isa, on

here = pytest.mark.parametrize("isa", [on(isa, sweep=isa != host().isa) for isa in ISAS])

# Two numbers that exercise an operator: signs, fractions, whole numbers; kept where every function is defined and
# moderate.
X = (rg.query - rg.key) * 0.25
Y = rg.key % 5 + 0.5
FLOATS = {
    "log": abs(X) + 0.5,
    "log2": abs(X) + 0.5,
    "log1p": abs(X),
    "sqrt": abs(X),
    "exp": X / 8,
    "exp2": X / 8,
    "expm1": X / 8,
    "tan": X / 16,
    "pow": abs(X) + 0.5,
}


def applied(name: str, x: Expr, y: Expr) -> Expr:
    """The operator on two numbers, as a number."""
    takes, given = OPERATORS[name].takes, (x, y)
    as_kind = {"b": lambda value: value > 1, "i": rg.to_int}
    found = Op(name, *(as_kind.get(kind, lift)(given[place % 2]) for place, kind in enumerate(takes)))
    return rg.where(found, 1.0, -1.0) if found.kind == "bool" else found


def of_positions(name: str) -> tuple[Expr, Expr]:
    """The operator on floats and, where it takes them, on integers."""
    return applied(name, FLOATS.get(name, X), Y), applied(name, abs(rg.query - rg.key) % 7 + 1, rg.key % 5 - 7)


def agree(isa="portable", rows=40, **rules):
    problem = Problem.of(*normal(3, 2, rows, 8), **rules)
    with limited(isa):
        found = engine.solve(problem)
    for each, exact, rounding in zip(found, reference.forward(problem), (2e-4, 2e-5), strict=True):
        np.testing.assert_allclose(each, exact, rtol=rounding, atol=2e-5)


@pytest.mark.spread
@each_isa
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_in_a_mask_and_in_a_score(name, isa):
    """Of floats and, where it takes them, of integers; of positions and of the score. Masks compute in float64, where
    the C library does what has no vector form. They hide some of the odd keys only, so that scores show.
    """
    floats, whole = of_positions(name)
    follows = 1.0 if name in STEPS else applied(name, abs(rg.tanh(rg.score)) + 0.5, Y)
    mask = ((floats > 0.3) ^ (whole > 0.37)) | (rg.key % 2 == 0)
    agree(isa, mask=mask, score=0.5 * follows * rg.score + 0.1 * floats + 0.1 * whole)


FLOAT_OR_SIGNED = "f2", ml_dtypes.bfloat16, "f4", "f8", "i1", "i2", "i4", "i8"
TABLES = [np.linspace(-3, 3, 40).astype(dtype) for dtype in FLOAT_OR_SIGNED]
TABLES += [np.arange(40).astype(dtype) % 7 for dtype in ("u1", "u2", "u4")] + [np.arange(40) % 3 == 0]


@pytest.mark.spread
@here
@pytest.mark.parametrize("array", TABLES, ids=lambda array: array.dtype.name)
def test_every_kind_of_table(array, isa):
    """Read by the key, the query and a distance, in masks and scores."""
    numbers = rg.table(array)
    parts = numbers[rg.key], numbers[rg.query], numbers[abs(rg.query - rg.key)]
    key, query, distance = (rg.where(part, 1.0, 0.0) if part.kind == "bool" else to_float(part) for part in parts)
    mask = (key < 2.0) ^ (query < 2.0) ^ (distance < 2.0)
    agree(isa, mask=mask, score=rg.score + 0.3 * key - 0.2 * query * distance)


def test_a_half_is_widened_exactly():
    """Every float16 there is, denormals, infinities and NaN too."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    shown, same = (rg.table(array)[rg.key] for array in (halves, halves.astype(np.float64)))
    q, k = np.zeros((1, 1), np.float32), np.zeros((1 << 16, 1), np.float32)
    for isa in OFFERED:
        with limited(isa):
            masks = (shown != same) & (same == same), shown != shown
            differs, nans = (engine.solve(Problem.of(q, k, k, mask=mask))[1].item() for mask in masks)
        assert differs == -np.inf
        assert nans == pytest.approx(np.log(np.isnan(halves).sum()), rel=1e-6)


def test_a_table_without_axes():
    """A single number, read with no index."""
    agree(score=rg.score * rg.table(np.array(3.0))[()])


@pytest.mark.parametrize(
    "rule",
    [
        rg.score + 5 * rg.floor((rg.query - rg.key) / 41),
        rg.score - rg.table(np.arange(20.0))[rg.to_int(abs(rg.query - rg.key) / 41)],
        rg.where(rg.table(np.full(130, 0.3, np.float32))[rg.key] == 0.3, 9.0, rg.score),
        rg.where(to_float(rg.key + 2**24) == to_float(rg.query + 2**24), 5.0, rg.score),
        rg.where(0.1 * rg.key < 0.3, 5.0, rg.score) + 0.1 * rg.key,
        rg.score + ((rg.key * 1.0) // 0.1) % 2,
    ],
)
def test_discontinuous_decisions_agree_with_the_law(rule):
    """Quotients, equalities and floors of positions and tables fall on the same side as in float64."""
    agree(host().isa, rows=130, score=rule)


@pytest.mark.parametrize("size", [1e4, 1e6, 1e9, 1e12, 1e15])
def test_scores_of_any_size_keep_their_weights(size):
    """However large scores are, equal ones share alike, and the largest takes all from much smaller ones."""
    q, k, v = normal(3, 1, 1, 40, 8)
    mean, even = v[0, 0].mean(0), np.full_like(q, np.sqrt(size))
    found = engine.solve(Problem.of(even * np.float32(1.1), even * np.float32(1.3), v))[0]
    np.testing.assert_allclose(found[0, 0, 0], mean, rtol=1e-4, atol=1e-6)
    for low in (-size, np.finfo(np.float32).min):
        bias = np.zeros((40, 40), np.float32)
        bias[3] = low
        problem = Problem.of(q, k, v, score=bias)
        (out, lse), wanted = engine.solve(problem), reference.forward(problem)[0]
        assert np.isfinite(lse).all()
        np.testing.assert_allclose(*(np.delete(each, 3, 2) for each in (out, wanted)), rtol=1e-4, atol=1e-5)
    first = np.argmax(q.astype(float) @ k.astype(float).swapaxes(-1, -2), -1)[0, 0]
    np.testing.assert_allclose(engine.solve(Problem.of(q, k, v, scale=1e30))[0][0, 0], v[0, 0][first])
