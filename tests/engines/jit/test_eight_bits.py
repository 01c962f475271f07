"""Keys and values in 8 bits, multiplied inside the kernel: the bits of attention over the rows that the cache shows."""

import numpy as np
import pytest

import regard as rg
from regard.engines.jit.code.target import limited
from tests.engines.jit.usual import same_results
from tests.support.engines import dtypes, normal, same_bits
from tests.support.machine import each_isa

SIZES = [
    # query heads, key heads, D, E
    (4, 4, 64, 64),
    (8, 2, 32, 64),
    (3, 1, 40, 24),
    (2, 2, 7, 5),
]


def compare(dtype, sizes, rows, keys):
    """Attention of the last rows over a cache of two sequences, and over copies of what the cache shows. From row 20 on
    rows attend keys, or values, with an infinity: those are shown as NaN.
    """
    H, G, D, E = sizes
    k, v = normal(2, G, keys, D, seed=1, dtype=dtype), normal(2, G, keys, E, seed=2, dtype=dtype)
    bad = keys - rows + 20
    k[0, 0, bad:, 1], v[1, 0, bad:, 2] = np.inf, -np.inf
    cache = rg.KVCache(G, D, E, batch=2, dtype=np.dtype(dtype).name, storage="int8")
    cache.append(k, v)
    shown = [np.stack([look(number) for number in range(2)]) for look in (cache.keys, cache.values)]
    assert [np.isnan(each).sum() for each in shown] == [len(range(bad, keys)) * size for size in (D, E)]
    q, rules = normal(2, H, rows, D, seed=3, dtype=dtype), {"query_start": keys - rows, "mask": rg.causal()}
    wanted = rg.attention_with_lse(q, *shown, engine="jit", **rules)
    same_results(cache.attend_with_lse(q, engine="jit", **rules), wanted)


@pytest.mark.spread
@each_isa
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@dtypes
def test_the_bits_of_what_the_cache_shows(dtype, sizes, isa):
    """One row, some, and a prefill; within one page, and over several pieces."""
    with limited(isa):
        for rows, keys in ((1, 1), (1, 127), (1, 1500), (5, 300), (40, 1100)):
            compare(dtype, sizes, rows, keys)


def test_denormals_and_the_largest_numbers():
    """Scales at both ends of float32."""
    for size in (1e-44, 1e-38, 3e38):
        cache = rg.KVCache(1, 16, storage="int8")
        v = (np.linspace(-1, 1, 40 * 16).reshape(1, 40, 16) * size).astype(np.float32)
        cache.append(np.zeros_like(v), v)
        q = np.zeros((1, 1, 16), np.float32)
        with np.errstate(over="ignore"):
            same_bits(cache.attend(q, query_start=39), rg.attention(q, cache.keys(0), cache.values(0), engine="jit"))
