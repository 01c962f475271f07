"""Gradients: rg.attention_backward against the law, on random problems; the same bits however it is computed."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from engines import normal, qkv
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

import regard as rg
from regard import engines, reference
from regard.gradients import learned
from regard.jit import gradients, threads
from regard.jit.target import ISAS, limited
from regard.problem import Gradients, Problem
from regard.readings import adjoints, clamped, evaluate

B, H, G, Q, K, D, E = 2, 4, 2, 70, 300, 24, 17


def arrays(dtype=np.float32, **sizes):
    q, k, v = (part.astype(dtype) for part in qkv(**{"B": B, "H": H, "G": G, "Q": Q, "K": K, "D": D, "E": E} | sizes))
    return q, k, v, normal(*q.shape[:3], v.shape[3], seed=4).astype(dtype), normal(*q.shape[:3], seed=5)


height, slope = normal(9, seed=6), normal(H, seed=7)
RULES = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "window": {"mask": rg.causal() & rg.window(20), "score": rg.softcap(4.0)},
    "documents": {"mask": rg.documents(lengths=[30, 1, 50, 160, 400])},
    "per_head": {"mask": rg.key % (rg.head + 2) == 0},
    "tables": {"mask": rg.causal(), "score": rg.alibi(slope, rg.relative(height)) * rg.table(slope)[rg.head]},
    "bias": {"score": rg.bias(normal(H, Q, K, seed=8))},
    "shared_bias": {"score": rg.gate(normal(Q, K, seed=9)), "mask": rg.causal()},
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
    """The usual computation, every step in the dtype of sums: softmax, its products, dS; absolute: of the sizes of all terms."""
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
        found, tables = np.zeros_like(ds), {table: np.zeros(table.array.shape) for table in learned(problem) if not table.frozen}
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
    """The error of every gradient is what the usual computation makes, what the last bits of q decide, and a rounding."""
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
        errors = [np.abs(other - part)[finite].max(initial=0) for other in (mine, parts(ordinary)[name], parts(shaken)[name])]
        size = sizes[name][finite].max(initial=0)
        own = float(ml_dtypes.finfo(parts(found)[name].dtype).eps)  # what it is rounded to in the end
        budget = 4 * sum(error for error in errors[1:] if np.isfinite(error)) + 16 * eps * size
        budget += 2 * max(coarse, own) * size if max(coarse, own) > eps else 0
        assert errors[0] <= budget, f"{name}: error {errors[0]:.2e}, usual {errors[1]:.2e}, input rounding {errors[2]:.2e}, {size:.2e}"


# ---- the law -----------------------------------------------------------------------------------------------------------------


@rules
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_are_those_of_the_law(rule, dtype):
    """q, k, v, tables and sinks, with a gradient of lse too, for grouped heads and any mask or score."""
    q, k, v, dout, dlse = arrays(dtype)
    dlse = dlse.astype(dtype)
    problem = Problem.of(q, k, v, **rule)
    found = rg.attention_backward(dout, q, k, v, dlse=dlse, engine="jit", **rule)

    judge(found, problem, dout, dlse)
    assert [part.dtype for part in found[:3]] == [dtype] * 3


@settings(max_examples=60, deadline=None)
@given(problems(rows=150, depth=40), st.booleans())
def test_random_problems(case, with_lse):
    """Any mask, score, shape, stride, start and sinks: the gradients of the law."""
    problem = Problem.of(**case.kwargs)
    rng = np.random.default_rng(0)
    dout = rng.standard_normal((*problem.q.shape[:3], problem.v.shape[3])).astype(problem.dtype)
    dlse = rng.standard_normal(problem.q.shape[:3]).astype(problem.real) if with_lse else None
    tables = [table for table in learned(problem) if not table.frozen]
    found = engines.pull_back(problem, engines.keep(problem, "jit"), dout, dlse, tables)

    judge(found, problem, dout, dlse)
