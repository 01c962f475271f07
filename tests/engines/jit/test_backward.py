"""Gradients: rg.attention_backward against the law, on random problems; the same bits however it is computed."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit.code.target import limited
from regard.engines.reference import attention as reference
from regard.language.analysis import adjoints, clamped, evaluate
from regard.language.problem import Gradients, Problem
from tests.engines.jit.usual import (
    gradients_of,
    incoming,
    large_examples,
    same_results,
    shaken,
    slopes,
    softmax,
    tables_of,
)
from tests.support.engines import DTYPES, dtypes_in_ci, engines, normal, qkv
from tests.support.kernels import fresh
from tests.support.lanes import sweep
from tests.support.machine import each_isa
from tests.support.refusals import reasons_of, refusing
from tests.support.strategies import problems

B, H, G, Q, K, D, E = 2, 4, 2, 70, 300, 24, 17


def arrays(dtype=np.float32, **sizes):
    q, k, v = qkv(**{"B": B, "H": H, "G": G, "Q": Q, "K": K, "D": D, "E": E} | sizes, dtype=dtype)
    return q, k, v, normal(*q.shape[:3], v.shape[3], seed=4, dtype=dtype), normal(*q.shape[:3], seed=5)


height, slope = normal(9, seed=6), normal(H, seed=7)
RULES = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "window": {"mask": rg.causal() & rg.window(20), "score": rg.softcap(4.0)},
    "documents": {"mask": rg.documents(lengths=[30, 1, 50, 160, 759])},
    "per_head": {"mask": rg.key % (rg.head + 2) == 0},
    "tables": {"mask": rg.causal(), "score": rg.alibi(slope, rg.relative(height)) * rg.table(slope)[rg.head]},
    "bias": {"score": rg.bias(normal(H, Q, K, seed=8))},
    "shared_gate": {"score": rg.gate(normal(Q, K, seed=9)), "mask": rg.causal()},
    "sinks": {"sinks": normal(H, 3, seed=10)},
    "negative_scale": {"scale": -0.3},
    "dropout": {"dropout": 0.3, "seed": 5, "mask": rg.causal()},
}


def same(x: Gradients, y: Gradients) -> None:
    same_results(slopes(x), slopes(y))


def law(problem, dout, dlse=None):
    found = reference.backward(problem, dout, dlse)
    return found._replace(tables={table: found.tables[table] for table in tables_of(problem)})


def usual(problem, dout, dlse, absolute=False):
    """The usual computation, every step in the dtype of sums: softmax, its products, dS; absolute: of the sizes of all
    terms.
    """
    real, size = (np.float64, np.abs) if absolute else (problem.real.type, lambda x: x)
    q, k, v, s, _, _, p, shares, values = softmax(problem, exact=absolute)
    with np.errstate(all="ignore"):
        kept = np.broadcast_to(np.asarray(reference.left_over(problem, values), real), p.shape)
        g = size(dout.astype(real))
        out = (p * kept) @ size(v)
        rest = (0 if dlse is None else size(dlse.astype(real))) - (-1 if absolute else 1) * (g * out).sum(-1)
        ds = p * (kept * (g @ size(v).swapaxes(-1, -2)) + rest[..., None])
        dlogits = np.zeros_like(ds)
        tables = {table: np.zeros(table.array.shape) for table in tables_of(problem)}
        for leaf, partial in adjoints(reference.score_rule(problem)).items():
            slope = np.where(s != -np.inf, ds * size(evaluate(partial, values)), 0).astype(real)
            if leaf is rg.score:
                dlogits = real(size(problem.scale)) * slope
            elif leaf.table in tables:
                place = clamped(leaf.table, [np.broadcast_to(evaluate(part, values), ds.shape) for part in leaf.index])
                np.add.at(tables[leaf.table], place, slope)
        dk, dv = dlogits.swapaxes(-1, -2) @ size(q), (p * kept).swapaxes(-1, -2) @ g
        dsinks = None if problem.sinks is None else (shares * rest[..., None]).sum((0, 2))
        return Gradients(dlogits @ size(k), *(reference.per_group(problem, part) for part in (dk, dv)), tables, dsinks)


def judge(found, problem, dout, dlse=None) -> None:
    """The error of every gradient is what the usual computation makes, what the last bits of q decide, and a
    rounding.
    """
    exact, moved = (law(each, dout, dlse) for each in (problem, shaken(problem, 1)))
    ordinary, sizes = (usual(problem, dout, dlse, absolute) for absolute in (False, True))
    eps, coarse = float(np.finfo(problem.real).eps), float(ml_dtypes.finfo(problem.dtype).eps)
    each = zip(*map(slopes, (exact, found, ordinary, moved, sizes)), strict=True)
    for number, (part, *others, size) in enumerate(each):
        own = float(ml_dtypes.finfo(others[0].dtype).eps)  # what it is rounded to in the end
        mine, *others = (other.astype(np.float64) for other in others)
        finite = np.isfinite(part) & np.isfinite(others[1])
        assert np.isfinite(mine[finite]).all(), f"gradient {number}"
        error, *allowed = (np.abs(other - part)[finite].max(initial=0) for other in (mine, *others))
        size = size[finite].max(initial=0)
        budget = 4 * sum(filter(np.isfinite, allowed)) + 16 * eps * size
        budget += 2 * max(coarse, own) * size if max(coarse, own) > eps else 0
        assert error <= budget, f"gradient {number}: error {error:.2e} over the budget of {budget:.2e}"


def check(rule, dtype=np.float32, with_lse=False, **sizes):
    """Gradients of a call against the law."""
    q, k, v, dout, dlse = arrays(dtype, **sizes)
    problem = Problem.of(q, k, v, **rule)
    dlse = dlse.astype(problem.real) if with_lse else None
    found = rg.attention_backward(dout, q, k, v, dlse=dlse, engine="jit", **rule)
    judge(found, problem, dout, dlse)
    return found


# ---- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, np.float32) for name in RULES),
        *(("plain", np.float16), ("window", ml_dtypes.bfloat16), ("tables", np.float16)),
        *sweep(*((name, np.float64) for name in RULES), ("plain", ml_dtypes.bfloat16), ("window", np.float16)),
    ],
)
def test_gradients_are_those_of_the_law(name, dtype):
    """q, k, v, tables and sinks, with a gradient of lse too, for grouped heads and any mask or score; 16-bit arrays get
    16-bit gradients, summed in float32.
    """
    found = check(RULES[name], dtype, with_lse=True)
    assert [part.dtype for part in found[:3]] == [dtype] * 3


@pytest.mark.slow
@large_examples(12, 5)
@given(problems(dtypes=DTYPES, rows=150, depth=40), st.booleans())
def test_random_problems(case, with_lse):
    """Any mask, score, shape, stride, start and sinks: the gradients of the law."""
    problem = Problem.of(**case.kwargs)
    dout, dlse = incoming(problem)
    dlse = dlse if with_lse else None
    judge(gradients_of(problem, dout, dlse), problem, dout, dlse)


def test_a_forward_pass_can_be_handed_in():
    """With out and lse of an earlier call the forward pass is not computed again, and the gradients are the same up to
    rounding.
    """
    q, k, v, dout, _ = arrays()
    rule = RULES["tables"] | RULES["sinks"]
    out, lse = rg.attention_with_lse(q, k, v, **rule)
    found = rg.attention_backward(dout, q, k, v, out=out, lse=lse, **rule)

    judge(found, Problem.of(q, k, v, **rule), dout)


@pytest.mark.spread
@each_isa
@dtypes_in_ci
def test_every_vector_unit(isa, dtype):
    """The same gradients with narrower vectors."""
    with limited(isa):
        check(RULES["tables"] | RULES["dropout"], dtype)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("depths", [(1, 1), (16, 40), (65, 128), (130, 3)])
def test_every_depth(depths):
    """Depths that fill no register, one, several."""
    check(RULES["causal"], B=1, D=depths[0], E=depths[1])


@engines
@pytest.mark.parametrize("empty", ["Q", "K", "B"])
def test_nothing_at_all(empty, engine):
    """No rows, no keys, no batch: gradients of that shape, zeros."""
    q, k, v, dout, _ = arrays(**{empty: 0})
    found = rg.attention_backward(dout, q, k, v, score=rg.alibi(slope), sinks=slope, engine=engine)

    assert [part.shape for part in found[:3]] == [q.shape, k.shape, v.shape]
    assert not any(part.any() for part in slopes(found))


def test_one_entry_of_keys_for_the_whole_batch():
    """The gradient of what was broadcast is the sum over the batch, in the shape that was given."""
    q, k, v, dout, _ = arrays(np.float64, B=3)
    each = rg.attention_backward(dout, q, k[:1].repeat(3, 0), v[:1].repeat(3, 0))
    for pair in ((k[:1], v[:1]), (k[0], v[0])):
        for mine, its, array in zip(rg.attention_backward(dout, q, *pair)[1:3], each[1:3], pair, strict=True):
            assert mine.shape == array.shape
            np.testing.assert_allclose(mine, its.sum(0).reshape(array.shape), rtol=1e-13, atol=1e-14)


def test_a_table_that_is_read_twice_gets_the_sum():
    """score · g[head] + g[head] · b[key]: g gets both parts, b its own; an array of integers has no entry."""
    g, b, place = (rg.table(part) for part in (normal(H, dtype=np.float64), normal(K, dtype=np.float64), np.arange(K)))
    score = rg.score * g[rg.head] + g[rg.head] * b[place[rg.key]]
    assert check({"score": score}, np.float64).tables.keys() == {g, b}


@pytest.mark.parametrize("axes", [1, 2])
def test_a_table_that_only_a_condition_reads(axes):
    """It decides and is not added: its gradient is 0, whatever its shape."""
    read = rg.table(np.linspace(-1, 1, K**axes).reshape((K,) * axes))
    score = rg.where(read[(rg.query, rg.key)[:axes]] < 0.1, rg.score, 2 * rg.score)
    found = check({"score": score}, B=1)
    assert found.q.any() and not found.tables[read].any()


def test_steep_scores_that_are_not_chosen():
    """where(c, √x, 0) passes nothing back where c is false, though √ is endlessly steep at 0."""
    q, k, v, dout, _ = arrays()
    score = rg.where(rg.score > 0, rg.sqrt(rg.score), 0.0)
    found = rg.attention_backward(dout, q * 0, k, v, score=score, engine="jit")

    assert not found.q.any() and not found.k.any() and found.v.any()


def test_a_nan_that_is_attended_shows():
    """A NaN in dout reaches the keys that its row attends, and no others."""
    q, k, v, dout, _ = arrays(B=1, H=1, G=1, Q=100, K=100)
    dout[0, 0, 40] = np.nan
    found = rg.attention_backward(dout, q, k, v, mask=rg.causal(), engine="jit")

    np.testing.assert_array_equal(np.isnan(found.v[0, 0]).T, [np.arange(100) <= 40] * E)
    np.testing.assert_array_equal(np.isnan(found.q[0, 0]).T, [np.arange(100) == 40] * D)


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_memory_grows_with_rows_only():
    """Plain gradients of 30,000 causal rows take a few copies of the arrays, not a matrix of 7 GB."""
    script = """
        import resource, numpy as np, regard as rg
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal((30_000, 16), dtype=np.float32) for _ in range(3))
        call = {"mask": rg.causal() & rg.window(64), "engine": "jit"}
        rg.attention_backward(v[:500], q[:500], k[:500], v[:500], **call)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rg.attention_backward(v, q, k, v, **call)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    assert int(fresh(script)) < 48 * 1024


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_refusals():
    """Everything that does not fit is said at once."""
    q, k, v, dout, dlse = arrays()
    reasons = reasons_of(rg.attention_backward, dout[:, :, 1:], q, k, v, dlse=dlse.astype(np.float64), out=dout)
    assert [(reason.what, reason.given, reason.expected) for reason in reasons] == [
        ("only one of out and lse", "out alone", "both out and lse, or neither"),
        ("dout does not fit the result", "float32 [2, 4, 69, 17]", "float32 [2, 4, 70, 17]"),
        ("dlse does not fit the result", "float64 [2, 4, 70]", "float32 [2, 4, 70]"),
    ]
    with refusing("dout is missing"):
        rg.attention_backward(None, q, k, v)
