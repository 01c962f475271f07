"""Tables read in squares give the bits of tables read element by element, for every layout, and read nothing else."""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.engines.jit.code.target import limited
from regard.engines.jit.kernels.parts.table_tiles import element_bytes
from tests.engines.jit.usual import same_results, slopes
from tests.support.engines import dtypes_in_ci, normal, qkv
from tests.support.kernels import guarded
from tests.support.lanes import sweep
from tests.support.machine import each_isa

# CI compiles for four of them, sweeps for the others.
TABLES = [np.bool_, np.int64, np.float16, np.float32, *sweep(np.int8, ml_dtypes.bfloat16, np.float64)]
FAR = 2**20  # beyond every key


def laid_out(array, layout, rng):
    """The same numbers in another layout; between forbidden pages where that is possible."""
    if layout == "every other":
        return np.stack([array, np.zeros_like(array)], -1)[..., 0]
    turned = {"plain": lambda a: a, "turned": lambda a: a.swapaxes(-1, -2), "backwards": lambda a: a[..., ::-1, ::-1]}
    change = turned[layout]
    return change(guarded(np.ascontiguousarray(change(array)), bool(rng.integers(2))))


def random_table(rng, shape, dtype):
    if dtype == np.bool_:
        return rng.random(shape) < rng.choice([0.1, 0.5, 0.95])
    if np.dtype(dtype).kind == "i":
        return rng.integers(-3, 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def random_call(seed, dtype):
    """q, k, v, dout and (batch, head) axes of a table; few rows of grouped heads among them."""
    rng = np.random.default_rng(seed)
    B, G, group = rng.integers(1, 3), rng.integers(1, 3), rng.choice([1, 1, 3])
    Q, K = rng.choice([1, 2, 5, rng.integers(1, 150)]), rng.choice([1, 3, 15, 17, rng.integers(1, 300)])
    H, D = G * group, rng.choice([4, 17])
    dout = normal(B, H, Q, D, seed=seed, dtype=dtype)
    shape = rng.choice([1, B]), rng.choice([1, H]), Q, K
    return rng, qkv(H=H, G=G, Q=Q, K=K, D=D, E=D, B=B, dtype=dtype), dout, shape


def rules(table, shape, plain):
    """A mask or a score that reads a table of (batch, head, query, key), by squares or one by one."""
    key = rg.key if plain else rg.minimum(rg.key, FAR)
    index = (0 if shape[0] == 1 else rg.batch, 0 if shape[1] == 1 else rg.head, rg.query, key)
    read = rg.table(table, "numbers")[index]
    return {"mask": read} if table.dtype == np.bool_ else {"score": rg.score + read}


def check(arrays, dout, *both):
    """Two ways to write rules give the same bits: forward, gradients, that of a table too, and statistics. What a table
    in float64 gets from several heads is summed in float64, in another order.
    """
    results, sums = [], []
    for rule in both:
        call = {"query_start": 0, "engine": "jit"} | rule
        gradients = slopes(rg.attention_backward(dout, *arrays, **call))
        sums.append(gradients[3:])
        stats = rg.attention_stats(*arrays[:2], of="entropy", **call)
        results.append((*rg.attention_with_lse(*arrays, **call), *gradients[:3], stats.entropy))
    same_results(*results)
    for squares, single in zip(*sums):
        np.testing.assert_allclose(squares, single, rtol=0, atol=1e-14 if squares.dtype == np.float64 else 0)


@pytest.mark.spread
@each_isa
@dtypes_in_ci
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("layout", ["plain", "turned", "backwards", "every other"])
@pytest.mark.parametrize("seed", [*range(4), *sweep(4, 5)])
def test_squares_have_the_bits_of_single_reads(dtype, table, layout, isa, seed):
    """For tables of any dtype and layout."""
    rng, arrays, dout, shape = random_call(seed, dtype)
    numbers = laid_out(random_table(rng, shape, table), layout, rng)
    by_squares, one_by_one = (rules(numbers, shape, plain) for plain in (True, False))
    assert element_bytes(*by_squares.values()) == (numbers.dtype.itemsize,)
    assert element_bytes(*one_by_one.values()) == ()
    with limited(isa):
        check(arrays, dout, by_squares, one_by_one)
