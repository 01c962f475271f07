"""Gradients: rg.attention_backward against the law, on random problems; the same bits however it is computed."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import regard as rg
from regard.api.backward import learned
from regard.engines import dispatch as engines
from regard.engines.jit.code.target import ISAS, host, limited
from regard.engines.jit.run import threads
from regard.engines.reference import attention as reference
from regard.language.analysis import adjoints, clamped, evaluate
from regard.language.problem import Gradients, Problem
from tests.support.engines import DTYPES, DTYPES_IN_CI, normal, qkv
from tests.support.kernels import fresh, guarded
from tests.support.lanes import examples
from tests.support.machine import each_isa, on
from tests.support.strategies import problems

B, H, G, Q, K, D, E = 2, 4, 2, 70, 300, 24, 17


def arrays(dtype=np.float32, **sizes):
    q, k, v = (part.astype(dtype) for part in qkv(**{"B": B, "H": H, "G": G, "Q": Q, "K": K, "D": D, "E": E} | sizes))
    return q, k, v, normal(*q.shape[:3], v.shape[3], seed=4).astype(dtype), normal(*q.shape[:3], seed=5)


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
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def parts(found):
    """All gradients of a call, with names."""
    named = dict(zip("qkv", found[:3])) | {f"table {number}": part for number, part in enumerate(found.tables.values())}
    return named if found.sinks is None else named | {"sinks": found.sinks}


def same(x, y):
    for name, part in parts(x).items():
        np.testing.assert_array_equal(part, parts(y)[name], err_msg=name)


def law(problem, dout, dlse=None):
    found = reference.backward(problem, dout, dlse)
    return found._replace(tables={table: found.tables[table] for table in learned(problem) if not table.frozen})


def usual(problem, dout, dlse, absolute=False):
    """The usual computation, every step in the dtype of sums: softmax, its products, dS; absolute: of the sizes of all
    terms.
    """
    real, size = (np.float64, np.abs) if absolute else (problem.real.type, lambda x: x)
    repeat = problem.dims["H"] // problem.dims["G"]
    q, k, v = (np.repeat(x.astype(real), n, 1) for x, n in ((problem.q, 1), (problem.k, repeat), (problem.v, repeat)))
    with np.errstate(all="ignore"):
        s, values = reference.logits(problem, *reference.everywhere(problem))
        if not absolute:
            values["score"] = real(problem.scale) * (q @ k.swapaxes(-1, -2))
            rule = evaluate(reference.score_rule(problem), values).astype(real)
            s = np.where(s == -np.inf, real(-np.inf), np.broadcast_to(rule, s.shape))
        top = reference.some_number(s.max(-1, initial=-np.inf))[..., None]
        sinks = np.zeros((1, 1, 0)) if problem.sinks is None else problem.sinks[:, None].astype(real)
        top = np.maximum(top, sinks.max(-1, initial=-np.inf)[..., None]) if sinks.size else top
        p = np.exp(s - top)
        total = p.sum(-1, keepdims=True) + np.exp(sinks - top).sum(-1, keepdims=True)
        p = np.divide(p, total, out=np.zeros_like(p), where=total > 0).astype(real)
        kept = np.broadcast_to(np.asarray(reference.left_over(problem, values), real), p.shape)
        g = size(dout.astype(real))
        out = (p * kept) @ size(v)
        rest = (0 if dlse is None else size(dlse.astype(real))) - (-1 if absolute else 1) * (g * out).sum(-1)
        ds = p * (kept * (g @ size(v).swapaxes(-1, -2)) + rest[..., None])
        found, tables = (
            np.zeros_like(ds),
            {table: np.zeros(table.array.shape) for table in learned(problem) if not table.frozen},
        )
        for leaf, partial in adjoints(reference.score_rule(problem)).items():
            slope = np.where(s == -np.inf, 0, ds * size(evaluate(partial, values))).astype(real)
            if leaf is rg.score:
                found = real(size(problem.scale)) * slope
            elif leaf.table in tables:
                place = clamped(leaf.table, [np.broadcast_to(evaluate(part, values), ds.shape) for part in leaf.index])
                np.add.at(tables[leaf.table], place, slope)
        share = np.divide(np.exp(sinks - top), total, out=np.zeros_like(top * sinks), where=total > 0)
        dsinks = None if problem.sinks is None else (share * rest[..., None]).sum((0, 2))
        turned = found.swapaxes(-1, -2)
        dk, dv = turned @ size(q), (p * kept).swapaxes(-1, -2) @ g
        return Gradients(found @ size(k), *(reference.per_group(problem, part) for part in (dk, dv)), tables, dsinks)


def judge(found, problem, dout, dlse=None) -> None:
    """The error of every gradient is what the usual computation makes, what the last bits of q decide, and a
    rounding.
    """
    exact, ordinary = law(problem, dout, dlse), usual(problem, dout, dlse)
    sizes = parts(usual(problem, dout, dlse, absolute=True))
    eps, coarse = float(np.finfo(problem.real).eps), float(ml_dtypes.finfo(problem.dtype).eps)
    noise = np.random.default_rng(1).uniform(-8 * eps, 8 * eps, problem.q.shape)
    q, k, v = (part.astype(np.float64) for part in (problem.q, problem.k, problem.v))
    shaken = law(replace(problem, q=q * (1 + noise), k=k, v=v), dout, dlse)
    for name, part in parts(exact).items():
        mine = parts(found)[name].astype(np.float64)
        finite = np.isfinite(part) & np.isfinite(parts(shaken)[name])
        np.testing.assert_array_equal(np.isfinite(mine)[finite], True, err_msg=name)
        errors = [
            np.abs(other - part)[finite].max(initial=0) for other in (mine, parts(ordinary)[name], parts(shaken)[name])
        ]
        size = sizes[name][finite].max(initial=0)
        own = float(ml_dtypes.finfo(parts(found)[name].dtype).eps)  # what it is rounded to in the end
        budget = 4 * sum(error for error in errors[1:] if np.isfinite(error)) + 16 * eps * size
        budget += 2 * max(coarse, own) * size if max(coarse, own) > eps else 0
        assert errors[0] <= budget, (
            f"{name}: error {errors[0]:.2e}, usual {errors[1]:.2e}, input rounding {errors[2]:.2e}, {size:.2e}"
        )


# ---- the law ---------------------------------------------------------------------------------------------------------


@rules
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.sweep)])
def test_gradients_are_those_of_the_law(rule, dtype):
    """q, k, v, tables and sinks, with a gradient of lse too, for grouped heads and any mask or score."""
    q, k, v, dout, dlse = arrays(dtype)
    dlse = dlse.astype(dtype)
    problem = Problem.of(q, k, v, **rule)
    found = rg.attention_backward(dout, q, k, v, dlse=dlse, engine="jit", **rule)

    judge(found, problem, dout, dlse)
    assert [part.dtype for part in found[:3]] == [dtype] * 3


@pytest.mark.slow
@examples(12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(problems(dtypes=DTYPES, rows=150, depth=40), st.booleans())
def test_random_problems(case, with_lse):
    """Any mask, score, shape, stride, start and sinks: the gradients of the law."""
    problem = Problem.of(**case.kwargs)
    rng = np.random.default_rng(0)
    dout = rng.standard_normal((*problem.q.shape[:3], problem.v.shape[3])).astype(problem.dtype)
    dlse = rng.standard_normal(problem.q.shape[:3]).astype(problem.real) if with_lse else None
    tables = [table for table in learned(problem) if not table.frozen]
    found = engines.pull_back(problem, engines.keep(problem, "jit"), dout, dlse, tables)

    judge(found, problem, dout, dlse)


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
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rule", ["plain", "window", "tables"])
def test_16_bit(dtype, rule):
    """16-bit arrays get 16-bit gradients, summed in float32."""
    q, k, v, dout, _ = arrays(dtype)
    found = rg.attention_backward(dout, q, k, v, engine="jit", **RULES[rule])

    assert [part.dtype for part in found[:3]] == [dtype] * 3
    judge(found, Problem.of(q, k, v, **RULES[rule]), dout)


@pytest.mark.spread
@each_isa
@pytest.mark.parametrize("dtype", DTYPES_IN_CI)
def test_every_vector_unit(isa, dtype):
    """The same gradients with narrower vectors."""
    rule = RULES["tables"] | RULES["dropout"]
    q, k, v, dout, _ = arrays(dtype)
    with limited(isa):
        found = rg.attention_backward(dout, q, k, v, engine="jit", **rule)

    judge(found, Problem.of(q, k, v, **rule), dout)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("depths", [(1, 1), (16, 40), (65, 128), (130, 3)])
def test_every_depth(depths):
    """Depths that fill no register, one, several."""
    q, k, v, dout, _ = arrays(B=1, D=depths[0], E=depths[1])
    judge(
        rg.attention_backward(dout, q, k, v, mask=rg.causal(), engine="jit"),
        Problem.of(q, k, v, mask=rg.causal()),
        dout,
    )


@pytest.mark.parametrize("empty", ["Q", "K", "B"])
def test_nothing_at_all(empty):
    """No rows, no keys, no batch: gradients of that shape, zeros."""
    q, k, v, dout, _ = arrays(**{empty: 0})
    found = rg.attention_backward(dout, q, k, v, score=rg.alibi(slope), sinks=slope, engine="jit")

    assert [part.shape for part in found[:3]] == [q.shape, k.shape, v.shape]
    assert not any(part.any() for part in (*found[:3], *found.tables.values(), found.sinks))


def test_one_entry_of_keys_for_the_whole_batch():
    """The gradient of what was broadcast is the sum over the batch, in the shape that was given."""
    q, k, v, dout, _ = arrays(np.float64, B=3)
    each = rg.attention_backward(dout, q, k[:1].repeat(3, 0), v[:1].repeat(3, 0))
    for pair in ((k[:1], v[:1]), (k[0], v[0])):
        found = rg.attention_backward(dout, q, *pair)
        np.testing.assert_allclose(found.k, each.k.sum(0).reshape(found.k.shape), rtol=1e-13, atol=1e-14)
        assert [part.shape for part in found[1:3]] == [part.shape for part in pair]


def test_a_table_that_is_read_twice_gets_the_sum():
    """score · g[head] + g[head] · b[key]: g gets both parts, b its own; an array of integers has no entry."""
    q, k, v, dout, _ = arrays(np.float64)
    g, b, place = (rg.table(part) for part in (normal(H, dtype=np.float64), normal(K, dtype=np.float64), np.arange(K)))
    score = rg.score * g[rg.head] + g[rg.head] * b[place[rg.key]]
    found = rg.attention_backward(dout, q, k, v, score=score, engine="jit")

    assert found.tables.keys() == {g, b}
    judge(found, Problem.of(q, k, v, score=score), dout)


def test_steep_scores_that_are_not_chosen():
    """where(c, √x, 0) passes nothing back where c is false, though √ is endlessly steep at 0."""
    q, k, v, dout, _ = arrays()
    score = rg.where(rg.score > 0, rg.sqrt(rg.score), 0.0)
    found = rg.attention_backward(dout, q * 0, k, v, score=score, engine="jit")

    assert not found.q.any() and not found.k.any() and found.v.any()


# ---- law 5 and 6 -----------------------------------------------------------------------------------------------------


@pytest.mark.spread
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("rule", ["causal", "tables", "documents"])
def test_law_6_what_is_masked_stays_out(poison, rule):
    """Keys and values that no row attends to, and fully masked rows, may contain anything: no other gradient changes a
    bit.
    """
    q, k, v, dout, _ = arrays(Q=150, K=200)
    keys, rows = [3, 77, 180], [5, 100]
    mask = RULES[rule]["mask"]
    for number in keys:
        mask = mask & (rg.key != number)
    for number in rows:
        mask = mask & (rg.query != number + 50)
    rule = RULES[rule] | {"mask": mask}
    clean = rg.attention_backward(dout, q, k, v, engine="jit", **rule)
    for part, numbers in ((q, rows), (dout, rows), (k, keys), (v, keys)):
        part[:, :, numbers] = poison

    found = rg.attention_backward(dout, q, k, v, engine="jit", **rule)
    assert not found.q[:, :, rows].any() and not found.k[:, :, keys].any() and not found.v[:, :, keys].any()
    same(clean, found)


def test_a_nan_that_is_attended_shows():
    """A NaN in dout reaches the keys that its row attends, and no others."""
    q, k, v, dout, _ = arrays(B=1, H=1, G=1, Q=100, K=100)
    dout[0, 0, 40] = np.nan
    found = rg.attention_backward(dout, q, k, v, mask=rg.causal(), engine="jit")

    assert np.isnan(found.v[0, 0, :41]).all() and np.isfinite(found.v[0, 0, 41:]).all()
    assert (
        np.isnan(found.q[0, 0, 40]).all()
        and np.isfinite(found.q[0, 0, :40]).all()
        and np.isfinite(found.q[0, 0, 41:]).all()
    )


# ---- law 11 ----------------------------------------------------------------------------------------------------------


LONG = {name: rule for name, rule in RULES.items() if name not in ("bias", "shared_gate")} | {
    "bias": {"score": rg.bias(normal(H, 200, 1000, seed=8))},
    "shared_gate": {"score": rg.gate(normal(200, 1000, seed=9))},
}
ALONE = {
    "relative": {"score": rg.relative(height), "mask": rg.causal()},
    "bias": {"score": rg.bias(normal(200, 1000, seed=9))},
    "window": LONG["window"],
}


def on_threads(rule, **sizes):
    """The same call on one thread, two, five, and two again."""
    q, k, v, dout, _ = arrays(Q=200, K=1000, **sizes)
    for count in (1, 2, 5, 2):
        with threads.limit(count):
            yield rg.attention_backward(dout, q, k, v, engine="jit", **rule)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("rule", LONG.values(), ids=LONG)
def test_law_11_threads_change_no_bit(rule):
    """However many threads, the same bits, again and again."""
    first, *others = on_threads(rule)
    for other in others:
        same(first, other)


@pytest.mark.parametrize("rule", ALONE.values(), ids=ALONE)
def test_law_11_threads_that_share_one_head(rule):
    """Also where all threads add to the gradients of one head."""
    first, *others = on_threads(rule, B=1, H=1, G=1)
    for other in others:
        same(first, other)


def test_law_11_batch_heads_and_strides_change_no_bit():
    """A head gets the same gradients alone, in a batch, and from arrays with any other strides."""
    rule = {"mask": rg.causal() & rg.window(50), "score": rg.softcap(3.0)}
    q, k, v, dout, _ = arrays(Q=300)
    whole = rg.attention_backward(dout, q, k, v, engine="jit", **rule)
    alone = rg.attention_backward(dout[1:, 2:], q[1:, 2:], k[1:, 1:], v[1:, 1:], engine="jit", **rule)
    laid = rg.attention_backward(*(np.asfortranarray(part) for part in (dout, q, k, v)), engine="jit", **rule)

    for name in "qkv":
        heads = slice(2, None) if name == "q" else slice(1, None)
        np.testing.assert_array_equal(getattr(whole, name)[1:, heads], getattr(alone, name))
    same(whole, laid)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.spread
@pytest.mark.parametrize(
    ("isa", "dtype"), [*(on(isa, np.float32) for isa in ISAS), *((host().isa, dtype) for dtype in DTYPES[1:])]
)
@pytest.mark.parametrize("at_end", [True, False], ids=["end", "start"])
@pytest.mark.parametrize(("rows", "keys", "D", "E"), [(1, 1, 1, 1), (70, 141, 33, 17)])
def test_nothing_outside_of_the_arrays_is_touched(isa, at_end, dtype, rows, keys, D, E):
    """Every array is adjacent to a page that cannot be read or written; a stray access would end the process."""
    q, k, v, dout, dlse = arrays(dtype, Q=rows, K=keys, D=D, E=E)
    q, k, v, dout = (guarded(part, at_end) for part in (q, k, v, dout))
    dlse = guarded(dlse.astype(np.float64 if dtype == np.float64 else np.float32), at_end)
    far, near = rg.table(guarded(height, at_end)), rg.table(guarded(normal(rows, keys), at_end))
    score = rg.score + far[rg.key - rg.query] + near[rg.query - (keys - rows), rg.key]
    with limited(isa):
        found = rg.attention_backward(dout, q, k, v, dlse=dlse, mask=rg.causal(), score=score, engine="jit")

    judge(found, Problem.of(q, k, v, mask=rg.causal(), score=score), dout, dlse)


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
    with pytest.raises(rg.Refused) as caught:
        rg.attention_backward(dout[:, :, 1:], q, k, v, dlse=dlse.astype(np.float64), out=dout)
    assert [(reason.what, reason.given, reason.expected) for reason in caught.value.reasons] == [
        ("only one of out and lse", "out alone", "both out and lse, or neither"),
        ("dout does not fit the result", "float32 [2, 4, 69, 17]", "float32 [2, 4, 70, 17]"),
        ("dlse does not fit the result", "float64 [2, 4, 70]", "float32 [2, 4, 70]"),
    ]
    with pytest.raises(rg.Refused, match="dout is missing"):
        rg.attention_backward(None, q, k, v)


def test_an_engine_without_a_backward_pass():
    """torch's SDPA is there to compare forward passes."""
    pytest.importorskip("torch")
    q, k, v, dout, _ = arrays()
    with pytest.raises(rg.Refused, match="engine 'sdpa' has no backward pass"):
        rg.attention_backward(dout, q, k, v, engine="sdpa")


@pytest.mark.parametrize("axes", [1, 2])
def test_a_table_that_only_a_condition_reads(axes):
    """It decides and is not added: its gradient is 0, whatever its shape."""
    q, k, v = qkv(B=1)
    height = np.linspace(-1, 1, 37**axes).reshape((37,) * axes)
    read = rg.table(height)[(rg.query, rg.key)[:axes]]
    found = rg.attention_backward(
        v[:, :, :19], q, k, v, score=rg.where(read < 0.1, rg.score, 2 * rg.score), engine="jit"
    )
    assert not found.tables[rg.table(height)].any()
    assert found.q.any()
