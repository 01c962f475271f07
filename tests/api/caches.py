"""What the tests of the cache put into it: its sizes, keys and values, and queries."""

from tests.support.engines import normal

G, H, D, E = 2, 4, 8, 4


def kv(batch, rows, seed=1):
    """New keys and values."""
    return normal(batch, G, rows, D, seed=seed), normal(batch, G, rows, E, seed=seed + 1)


def kvq(batch, keys, rows):
    """Keys, values and queries."""
    return *kv(batch, keys), normal(batch, H, rows, D, seed=3)
