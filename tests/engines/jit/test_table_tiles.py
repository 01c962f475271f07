"""Tables read in squares give the bits of tables read element by element, for every layout, and read nothing else."""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.engines.jit.code.target import limited
from regard.engines.jit.kernels.parts.table_tiles import element_bytes
from regard.language.analysis import evaluate
from tests.support.engines import DTYPES_IN_CI, normal, same_bits
from tests.support.kernels import guarded
from tests.support.machine import each_isa

# CI compiles for four of them, sweeps for the others.
TABLES = [
    *(np.bool_, np.int64, np.float16, np.float32),
    *(pytest.param(dtype, marks=pytest.mark.sweep) for dtype in (np.int8, ml_dtypes.bfloat16, np.float64)),
]
FAR = 2**20  # beyond every key


def laid_out(array, layout, rng):
    """The same numbers in another layout; between forbidden pages where that is possible."""
    if layout == "turned":
        return guarded(np.ascontiguousarray(array.swapaxes(-1, -2)), bool(rng.integers(2))).swapaxes(-1, -2)
    if layout == "backwards":
        return guarded(np.ascontiguousarray(array[..., ::-1, ::-1]), bool(rng.integers(2)))[..., ::-1, ::-1]
    if layout == "every other":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return guarded(array, bool(rng.integers(2)))


def random_table(rng, shape, dtype):
    if dtype == np.bool_:
        return rng.random(shape) < rng.choice([0.1, 0.5, 0.95])
    if np.dtype(dtype).kind == "i":
        return rng.integers(-3, 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def random_call(seed, dtype):
    """q, k, v, dout and (batch, head) axes of a table; few rows of grouped heads among them."""
    rng = np.random.default_rng(seed)
    B, G, group = int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.choice([1, 1, 3]))
    Q = int(rng.choice([1, 2, 5, rng.integers(1, 150)]))
    K, D = int(rng.choice([1, 3, 15, 17, rng.integers(1, 300)])), int(rng.choice([4, 17]))
    H = G * group
    q, k, v, dout = (
        normal(*shape, seed=seed + n).astype(dtype)
        for n, shape in enumerate([(B, H, Q, D), (B, G, K, D), (B, G, K, D), (B, H, Q, D)])
    )
    return rng, (q, k, v), dout, (int(rng.choice([1, B])), int(rng.choice([1, H])), Q, K)


def rules(table, shape, plain):
    """A mask or a score that reads a table of (batch, head, query, key), by squares or one by one."""
    key = rg.key if plain else rg.minimum(rg.key, FAR)
    index = (0 if shape[0] == 1 else rg.batch, 0 if shape[1] == 1 else rg.head, rg.query, key)
    read = rg.table(table, "numbers")[index]
    return {"mask": read} if table.dtype == np.bool_ else {"score": rg.score + read}


def check(arrays, dout, *both, start=0):
    """Two ways to write rules give the same bits: forward, gradients, that of a table too, and statistics."""
    results = []
    for rule in both:
        call = {"query_start": start, "engine": "jit"} | rule
        slopes = rg.attention_backward(dout, *arrays, **call)
        stats = rg.attention_stats(*arrays[:2], of="entropy", **call)
        tables = slopes.tables.values() if all("score" in each for each in both) else ()
        results.append((*rg.attention_with_lse(*arrays, **call), *slopes[:3], *tables, stats.entropy))
    for found, wanted in zip(*results, strict=True):
        same_bits(found, wanted)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", DTYPES_IN_CI)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("layout", ["plain", "turned", "backwards", "every other"])
def test_squares_have_the_bits_of_single_reads(dtype, table, layout):
    """For tables of any dtype and layout."""
    for seed in range(3):
        rng, arrays, dout, shape = random_call(seed, dtype)
        numbers = laid_out(random_table(rng, shape, table), layout, rng)
        by_squares, one_by_one = (rules(numbers, shape, plain) for plain in (True, False))
        assert element_bytes(*by_squares.values()) == (numbers.dtype.itemsize,)
        assert element_bytes(*one_by_one.values()) == ()
        check(arrays, dout, by_squares, one_by_one)


@pytest.mark.sweep
@each_isa
def test_squares_on_every_instruction_set(isa):
    """The same for vectors of every width."""
    with limited(isa):
        for seed in range(3):
            rng, arrays, dout, shape = random_call(seed, np.float32)
            mask = random_table(rng, shape, np.bool_)
            bias = laid_out(random_table(rng, shape, np.float32), "plain", rng)
            check(arrays, dout, *(rules(mask, shape, plain) | rules(bias, shape, plain) for plain in (True, False)))


@pytest.mark.spread
@pytest.mark.parametrize("rule", [rg.causal(), rg.causal() & rg.window(20), rg.documents(lengths=[7, 100, 60, 133])])
@pytest.mark.parametrize("start", [0, 37])
def test_a_mask_as_an_array_has_the_bits_of_its_rule(rule, start):
    """At any position of the first row, whatever the plan calls full or mixed."""
    q, k, v, dout = (normal(2, 3, rows, 16, seed=rows) for rows in (263, 300, 300, 263))
    positions = {"query": start + np.arange(263)[:, None], "key": np.arange(300)}
    array = np.broadcast_to(evaluate(rule, positions), (263, 300)).copy()
    check((q, k, v), dout, {"mask": rule}, {"mask": array}, start=start)
