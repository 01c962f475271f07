"""`TensorCache`: whatever raises, at any line, it is as before; and rows can be taken back."""

import copy
import functools

import numpy as np
import pytest
import torch

import regard as rg
from regard.torch.cache import TensorCache
from tests.api.test_kv_cache_interrupts import same
from tests.support.interrupts import interrupted
from tests.support.refusals import refusing
from tests.support.tensors import normal

G, H, D, E = 2, 4, 8, 4


drawn = functools.partial(normal, dtype=torch.float64)


def lived(window) -> TensorCache:
    cache = TensorCache(G, D, E, batch=3, window=window, dtype=torch.float64)
    cache.append(drawn(3, G, 9, D), drawn(3, G, 9, E), rows=[9, 2, 5])
    cache.append(drawn(3, G, 2, D, seed=1), drawn(3, G, 2, E, seed=2))
    return cache


def seen(cache) -> list:
    """All that a cache shows, as arrays."""
    k, v, lengths, start = cache._held
    rows = [kept[number, :, :length] for kept in (k, v) for number, length in enumerate(lengths)]
    out = cache.attend(drawn(len(cache), H, 2, D, seed=3), mask=rg.causal())
    return [*map(np.asarray, (lengths, start, *rows, out))]


@pytest.mark.spread
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("window", [None, 3])
def test_a_cache_of_tensors_is_as_before_whatever_line_raises(window, error):
    """Every method, interrupted before each of its lines; afterwards it does what it does to a cache that was never
    interrupted.
    """
    cache = lived(window)
    before = seen(cache)
    one, many = ((drawn(3, G, n, D, seed=4), drawn(3, G, n, E, seed=5)) for n in (1, 40))
    calls = [
        lambda cache: cache.append(*one),
        lambda cache: cache.append(*many),
        lambda cache: cache.append(*many, rows=[3, 40, 0]),
        lambda cache: cache.truncate([4, 4, 6]),
        lambda cache: cache.drop(1),
        lambda cache: cache.reorder([2, 2, 0, 1]),
    ]
    for call in calls:
        tried, twin = copy.deepcopy(cache), copy.deepcopy(cache)
        lines = [same(seen(tried), before) for _ in interrupted(error, call, tried)]
        assert len(lines) > 1
        call(twin)
        for each in (tried, twin):
            each.append(drawn(len(each), G, 2, D, seed=6), drawn(len(each), G, 2, E, seed=7))
        same(seen(tried), seen(twin))


def test_what_fails_changes_nothing():
    """More rows than there are, and lengths that do not fit, are refused, and the cache is as before."""
    cache = lived(None)
    before = seen(cache)
    k, v = drawn(3, G, 2, D), drawn(3, G, 2, E)
    for rows in ([3, 0, 0], [-1, 0, 0], [1, 1]):
        with refusing("rows must be one row count per sequence"):
            cache.append(k, v, rows=rows)
    for lengths in (-1, [12, 0, 0], [1, 1]):
        with refusing():
            cache.truncate(lengths)
    with pytest.raises(IndexError):
        cache.reorder([7])
    same(seen(cache), before)


@pytest.mark.parametrize("window", [None, 3])
def test_a_cache_of_tensors_is_the_cache(window):
    """Appended to in any lengths, truncated, dropped from and reordered, it attends as rg.KVCache does, padding and
    removed rows included, with rules that read the number that a head has in the whole.
    """
    mask = rg.causal() & ((rg.query - rg.key < rg.head) | (rg.key == 0))
    random, sizes = np.random.default_rng(0), {"batch": 3, "window": window}
    caches = TensorCache(G, D, E, **sizes, dtype=torch.float64), rg.KVCache(G, D, E, **sizes, dtype="float64")
    ours, law = caches
    for step in range(14):
        count, width = len(law), int(random.integers(1, 9))
        k, v, q = (drawn(count, heads, width, depth, seed=step + depth) for heads, depth in ((G, D), (G, E), (H, D)))
        rows = random.integers(0, width + 1, count) if step % 2 else None
        kept = random.integers(law.lengths, law.lengths + (width if rows is None else rows) + 1)
        for change, given in (("append", (k, v, rows)), ("truncate", (kept,))):
            for cache in caches:
                getattr(cache, change)(*given)
            found, expected = (cache.attend(q, mask=mask, head_start=2) for cache in caches)
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)
        for cache in caches:
            if step == 8:
                cache.drop(1)
            if step == 10:
                cache.reorder([1, 0, 0])
        assert ours.lengths.tolist() == law.lengths.tolist()
