"""The compiled engine as machine code: memory it may touch, vector units, and expressions: every operator in masks and
scores, every kind of table, and numbers that decide by a hair.
"""

import re

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.engines.jit import engine
from regard.engines.jit.code import build
from regard.engines.jit.code.target import ACCUMULATORS, ISAS, TALL, Target, host, limited, offered
from regard.engines.reference import attention as reference
from regard.language.analysis import STEPS
from regard.language.expr import Expr, Op, lift
from regard.language.functions import to_float
from regard.language.operators import OPERATORS
from regard.language.problem import Problem
from tests.support.engines import normal
from tests.support.kernels import arrays, fresh, guarded, written
from tests.support.machine import OFFERED, each_isa, on

WINDOW = {"mask": rg.causal() & rg.window(20), "score": rg.softcap(4.0)}


def agrees(q, k, v, **rules) -> None:
    problem = Problem.of(q, k, v, **rules)
    np.testing.assert_allclose(engine.solve(problem)[0], reference.forward(problem)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "index", [rg.key * 1_000_003, -rg.key - 10, rg.query - 2**31 + rg.key, rg.key * 2**40, 7 // (rg.key - 3)]
)
def test_an_index_outside_of_a_table_is_clamped(index):
    """However wrong an index is, 32 bits or 64, the read stays inside."""
    table = rg.table(guarded(np.linspace(-1, 1, 7, dtype=np.float32), True))
    agrees(*arrays(), score=rg.score + table[index])


def test_a_table_may_hold_any_number():
    """Ids beyond 32 bits compare as the numbers they are."""
    ids = rg.table(np.array([1, 2**40 + 1, 2**40 + 1, 1 - 2**62, 1, 2**32 + 1, 1, 1 - 2**62]))
    agrees(*arrays(Q=8, K=8), mask=ids[rg.query] == ids[rg.key])


def test_memory_grows_with_rows_only():
    """40,000 causal rows take at most 16 MB beyond the arrays."""
    script = """
        import resource, numpy as np, regard as rg
        q, k, v = (np.zeros((40_000, 16), np.float32) for _ in range(3))
        for array in (q, k, v): array[...] = 1
        rg.attention(q[:256], k[:256], v[:256], mask=rg.causal(), engine="jit")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        out = rg.attention(q, k, v, mask=rg.causal(), engine="jit")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before - out.nbytes // 1024)
    """
    assert int(fresh(script)) <= 16 * 1024


def blocks(text: str, stores: str) -> list[str]:
    """The blocks of machine code in which nothing is stored."""
    return [block for block in re.split(r"^\.LBB\S+:", text, flags=re.M) if not re.search(stores, block)]


@pytest.mark.parametrize("isa", ["neon", "portable"])
def test_kernels_compile_for_another_machine(isa):
    """For 64-bit ARM the same IR becomes fused multiply-adds on 128-bit vectors, without calls of a software fma."""
    target = Target(isa, "aarch64-unknown-linux-gnu", "generic", "+neon")
    vectors = target.tile.query_vectors
    text = build.assembly(written(target, vectors * target.lanes(4), WINDOW), target)

    products = max(len(re.findall(r"\bfmla\s+v\d+\.4s", block)) for block in blocks(text, r"\bst[pr]\b"))
    assert products >= target.tile.key_tile * vectors * 4
    assert not re.findall(r"\bbl\s+fmaf?\b", text)


@pytest.mark.parametrize("vectors", [2, TALL])
@pytest.mark.skipif("avx2" not in offered(), reason="this machine has no AVX2")
def test_the_sums_of_a_tile_stay_in_the_registers_of_avx2(vectors):
    """Of usual tiles and of tall ones, which need all 16: nothing is stored between two products."""
    with limited("avx2"):
        target = host()
        text = build.assembly(written(target, vectors * target.lanes(4), {}), target)
    apart = blocks(text, r"\bv?mov\w+\s+%ymm\d+, -?\d*\(")
    products = max(len(re.findall(r"\bvfmadd\w+ps\b", block)) for block in apart)
    assert products >= 4 * (ACCUMULATORS if vectors == TALL else target.tile.key_tile * vectors)


# ---- one kernel for many numbers -------------------------------------------------------------------------------------


def test_new_numbers_compile_nothing():
    """Another window, other documents, another scale, rate and seed: the kernel is the same."""
    q, k, v = arrays()

    def kernels(width, lengths, **numbers):
        mask = rg.window(width) & rg.documents(lengths=lengths)
        assert rg.attention(q, k, v, mask=mask, engine="jit", **numbers).any()
        return set(build._kernels)

    before = kernels(20, [100, 41], dropout=0.1, seed=1)
    assert kernels(31, [5, 6, 130], scale=0.3, dropout=0.9, seed=2**64 - 1) == before


def test_rules_that_read_other_positions_are_other_kernels():
    """The same operators on rows, keys, heads and batch entries."""
    q, k, v = (np.tile(each, (5, 5, 1, 1)) for each in arrays())
    for name in ("query", "key", "head", "batch"):
        agrees(q, k, v, mask=getattr(rg, name) >= 3)


# ---- expressions -----------------------------------------------------------------------------------------------------

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
