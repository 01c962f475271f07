"""Few rows, whose products have keys and depths in their lanes: the bits of the same rows in a call with many."""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.common.caching import Memo
from regard.engines.jit import gradients as engine_gradients
from regard.engines.jit.code.target import host, limited
from regard.engines.jit.engine import specify
from regard.engines.jit.kernels.parts.few_rows import CROWDED, MOST
from regard.engines.jit.tiling import tiling
from regard.language.problem import Problem
from tests.engines.jit.usual import same_results, slopes
from tests.support.engines import normal, qkv, same_bits
from tests.support.lanes import sweep
from tests.support.machine import each_isa

ROWS = 90  # of the whole call
RULES = {
    "dense": {},
    "causal": {"mask": rg.causal()},
    "window and softcap": {"mask": rg.causal() & rg.window(30), "score": rg.softcap(3.0)},
    "sinks": {"sinks": np.linspace(-1, 1, 6, dtype=np.float32)},
    "dropout": {"dropout": 0.3, "seed": 5},
    "random": {"mask": (rg.key * 7 + rg.query * 3) % 5 != 0},
    "tables": {"score": rg.score + rg.table(np.linspace(-1, 1, 400, dtype=np.float32))[rg.query - rg.key + 300]},
}


def cases(*shown):
    """Kernels of few rows take minutes to compile: these rules and dtypes, and in sweeps all."""
    every = [(name, dtype) for name in RULES for dtype in (np.float32, np.float16, np.float64)]
    more = sweep(*(case for case in every if case not in shown))
    return pytest.mark.parametrize(("name", "dtype"), [*shown, *more])


def arrays(rows, dtype, **sizes):
    return qkv(**{"H": 6, "Q": rows, "K": 300, "D": 64, "E": 64} | sizes, dtype=dtype)


def check(q, k, v, **rules):
    """Any part of the rows, by itself, has the bits of a call with all of them."""
    start = k.shape[2] - ROWS
    many = rg.attention_with_lse(q, k, v, query_start=start, engine="jit", **rules)
    for first, count in ((0, 1), (41, 2), (83, 5), (10, MOST), (10, MOST + 1)):
        part = np.s_[:, :, first : first + count]
        few = rg.attention_with_lse(q[part], k, v, query_start=start + first, engine="jit", **rules)
        same_results(few, [each[part] for each in many])


@cases(("window and softcap", np.float32), ("causal", np.float16))
def test_few_rows_have_the_bits_of_many(name, dtype):
    """Also over keys that are no multiple of a vector, and in several pieces."""
    depths = {"D": 80, "E": 16} if dtype == np.float16 else {"D": 32, "E": 128}
    for K in (300, 2311, 17):
        check(*arrays(ROWS, dtype, K=K, **depths), **RULES[name])


def test_heads_side_by_side():
    """Rows of k so far apart that they share places of a cache are copied first: the bits are the same."""
    for K in (2, 31, 300):
        q, k, v = qkv(H=8, Q=2, K=K, D=64, E=64, dtype=np.float32)
        apart = np.ascontiguousarray(k.swapaxes(1, 2)).swapaxes(1, 2)
        assert apart.strides[2] == CROWDED
        same_bits(rg.attention(q, apart, v, mask=rg.window(90)), rg.attention(q, k, v, mask=rg.window(90)))


@pytest.mark.sweep
@each_isa
def test_on_every_instruction_set(isa, monkeypatch):
    """Vectors of other widths, and heads that share keys."""
    with limited(isa):
        for G in (6, 2):
            check(*arrays(ROWS, np.float32, G=G), mask=rg.causal())
        check_gradients([(3, 50)], np.float32, monkeypatch, mask=rg.causal())


def test_where_they_are_used():
    """Up to MOST rows, of all heads that share keys; depths that fill vectors; not where pairs are multiplied."""

    def few(rows, dtype=np.float32, **sizes):
        problem = Problem.of(*arrays(rows, dtype, **sizes))
        return specify(problem, tiling(problem), unit=(True,) * 4).few

    lanes = host().lanes(4)
    most = min(MOST, lanes)
    assert [few(rows) for rows in (1, most, most + 1)] == [1, most, 0]
    assert (few(1, G=2), few(1, D=lanes + 1), few(1, E=lanes + 1)) == (3, 0, 0)
    assert few(1, ml_dtypes.bfloat16) == (0 if "bf16" in host().isa else 1)


def test_groups_of_other_sizes_have_other_kernels():
    """Three heads that share keys and four have tiles of the same size."""
    for G in (4, 3, 4):
        q, k, v = qkv(H=12, G=G, Q=1, K=100, D=64, E=64)
        found, law = (rg.attention(q, k, v, engine=engine) for engine in ("jit", "reference"))
        np.testing.assert_allclose(found, law, atol=1e-5)


def test_many_heads_on_one_head_of_keys_share_tiles():
    """With the bits of each head alone: more heads than a tile has rows, also where no number of tiles divides them."""
    for H, G in ((130, 1), (71, 1), (256, 2)):
        q, k, v = qkv(H=H, G=G, Q=2, K=1100, D=16, E=16)
        whole = rg.attention_with_lse(q, k, v, mask=rg.causal(), sinks=np.linspace(-1, 1, H))
        for h in (0, 70, H - 1):
            g, sink = h * G // H, np.linspace(-1, 1, H)[[h]]
            alone = rg.attention_with_lse(q[:, [h]], k[:, [g]], v[:, [g]], mask=rg.causal(), sinks=sink)
            same_results([each[:, [h]] for each in whole], alone)


def gradients(rows, dtype, first, **rules):
    """Gradients of some rows of calls with and without heads that share keys."""
    found = []
    for G, K, (D, E) in ((6, 300, (64, 64)), (2, 77, (40, 24))):
        q, k, v = arrays(rows, dtype, K=K, D=D, E=E, G=G)
        dout = normal(*q.shape[:3], E, seed=9).astype(dtype)
        found += slopes(rg.attention_backward(dout, q, k, v, query_start=first, engine="jit", **rules))
    return found


def check_gradients(places, dtype, monkeypatch, **rules):
    """Gradients of few rows have the bits of the usual products."""
    few = [gradients(rows, dtype, first, **rules) for rows, first in places]
    monkeypatch.setattr(engine_gradients, "MOST", 0)
    for memo in ("_prepared", "_recipes"):
        monkeypatch.setattr(engine_gradients, memo, Memo(64))
    for found, (rows, first) in zip(few, places):
        same_results(found, gradients(rows, dtype, first, **rules))


@cases(("causal", np.float32), ("causal", ml_dtypes.bfloat16))  # which some CPUs multiply in pairs of keys
def test_gradients_of_few_rows_have_the_bits_of_the_usual_products(name, dtype, monkeypatch):
    """At any place in a tile of positions, and across the border of two tiles."""
    check_gradients([(1, 0), (1, 77), (5, 14), (MOST, 40)], dtype, monkeypatch, **RULES[name])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gradients_with_what_is_not_finite(bad):
    """A masked NaN or infinity has no effect, and the others are in the gradients that they belong to."""
    q, k, v = arrays(2, np.float32)

    def found():
        return rg.attention_backward(normal(*q.shape, seed=9), q, k, v, mask=rg.key < 250, engine="jit")[:3]

    clean = found()
    k[:, :, 260], v[:, :, 270] = bad, bad
    same_results(found(), clean)
    k[0, 1, 7] = bad
    assert np.isnan(found()[0][0, 1]).all()
    same_bits(found()[0][1], clean[0][1])
