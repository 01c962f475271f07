"""What the tests of the cache put into it: its sizes, keys and values, and queries."""

import regard as rg
from tests.support.engines import normal, same_bits

G, H, D, E = 2, 4, 8, 4


def kv(batch, rows, seed=1):
    """New keys and values."""
    return normal(batch, G, rows, D, seed=seed), normal(batch, G, rows, E, seed=seed + 1)


def kvq(batch, keys, rows):
    """Keys, values and queries."""
    return *kv(batch, keys), normal(batch, H, rows, D, seed=3)


def rows_of(chosen, *arrays) -> list:
    """Some rows of each of the arrays."""
    return [each[:, :, chosen] for each in arrays]


def empty(**options) -> rg.KVCache:
    return rg.KVCache(G, D, E, **options)


def filled(k, v, rows=None, **options) -> rg.KVCache:
    """A cache after one append."""
    cache = empty(**{"batch": len(k)} | options)
    cache.append(k, v, rows=rows)
    return cache


def same_arrays(found, expected) -> None:
    """Equal bits in every array of two lists."""
    for one, other in zip(found, expected, strict=True):
        same_bits(one, other)
