"""Keys and values in 8 bits, multiplied inside the kernel: the bits of attention over the rows that the cache shows."""

import numpy as np
import pytest

import regard as rg
from regard.engines.jit.code.target import limited
from tests.engines.jit.usual import same_results
from tests.support.engines import DTYPES, normal, same_bits
from tests.support.machine import each_isa

SIZES = [
    # query heads, key heads, D, E
    (4, 4, 64, 64),
    (8, 2, 32, 64),
    (3, 1, 40, 24),
    (2, 2, 7, 5),
]


def compare(dtype, sizes, rows, keys, batch=2, **rules):
    """Attention of the last rows over a cache, and over copies of what the cache shows."""
    H, G, D, E = sizes
    cache = rg.KVCache(G, D, E, batch=batch, dtype=np.dtype(dtype).name, storage="int8")
    cache.append(normal(batch, G, keys, D, seed=1).astype(dtype), normal(batch, G, keys, E, seed=2).astype(dtype))
    q = normal(batch, H, rows, D, seed=3).astype(dtype)
    k, v = (np.stack([look(number) for number in range(batch)]) for look in (cache.keys, cache.values))
    found = cache.attend_with_lse(q, query_start=keys - rows, engine="jit", **rules)
    wanted = rg.attention_with_lse(q, k, v, query_start=keys - rows, engine="jit", **rules)
    same_results(found, wanted)


@pytest.mark.spread
@each_isa
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_of_what_the_cache_shows(dtype, sizes, isa):
    """One row, some, and a prefill; within one page, and over several pieces."""
    with limited(isa):
        for rows, keys in ((1, 1), (1, 127), (1, 1500), (5, 300), (40, 1100)):
            compare(dtype, sizes, rows, keys, mask=rg.causal())


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_are_not_finite(dtype):
    """A row with an infinity is NaN where it is allowed weight, and has no effect where it is masked."""
    q, k, v = (normal(2, 50, 16, seed=seed).astype(dtype) for seed in (3, 1, 2))

    def found():
        cache = rg.KVCache(2, 16, dtype=np.dtype(dtype).name, storage="int8")
        cache.append(k, v)
        return cache.attend(q, mask=rg.causal())

    wanted = found()
    v[1, 30, 3] = np.inf
    shown = found()
    assert np.isnan(shown[1, 30:]).all()
    shown[1, 30:] = wanted[1, 30:]
    same_bits(shown, wanted)


def test_denormals_and_the_largest_numbers():
    """Scales at both ends of float32."""
    for size in (1e-44, 1e-38, 3e38):
        cache = rg.KVCache(1, 16, storage="int8")
        v = (np.linspace(-1, 1, 40 * 16).reshape(1, 40, 16) * size).astype(np.float32)
        cache.append(np.zeros_like(v), v)
        q = np.zeros((1, 1, 16), np.float32)
        with np.errstate(over="ignore"):
            same_bits(cache.attend(q, query_start=39), rg.attention(q, cache.keys(0), cache.values(0), engine="jit"))
