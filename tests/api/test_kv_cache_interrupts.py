"""A cache whose methods fail or are interrupted, at any line: it is as before, and goes on as if nothing had been."""

import copy
import itertools
import sys

import numpy as np
import pytest

import regard as rg
from regard.api.kv_cache.pages import PAGE
from tests.api.caches import D, H, empty, filled, kv
from tests.support.engines import normal, same_bits
from tests.support.interrupts import ends_before, interrupted
from tests.support.kernels import fresh
from tests.support.lanes import sweep

KINDS = {
    "growing": {},
    "window": {"window": 130},
    "small window": {"window": 5, "pages": 8},
    "int8": {"storage": "int8"},
    "int8, window": {"storage": "int8", "window": 60, "pages": 9},
    "fixed": {"pages": 16},
}


def lived(kind: str, random) -> rg.KVCache:
    """A cache of three sequences after random appends, with sequences that share pages."""
    cache = empty(batch=2, **KINDS[kind])
    for width in random.integers(1, 90 if cache.pages else 300, 2).tolist():
        cache.append(*kv(2, width, width), rows=random.integers(0, width + 1, 2))
    if random.random() < 0.7:
        cache.reorder([0, 1, int(random.integers(2))])
    if random.random() < 0.5:
        cache.append(*kv(len(cache), int(random.integers(1, 3)), 5))
    return cache


def operations(cache: rg.KVCache, random) -> dict:
    """Calls that change a cache, by name; each may be made on any copy of it."""
    B, wide = len(cache), 40 if cache.pages else 300
    one, many, some = kv(B, 1), kv(B, wide), kv(2, 3)
    rows, chosen = random.integers(0, wide + 1, B), random.permutation(B)[:2]
    least = np.maximum(cache.newest_start, 0)
    lengths = random.integers(least, np.maximum(cache.lengths, least) + 1)
    order = random.integers(0, B, 4)
    return {
        "append one": lambda cache: cache.append(*one),
        "append many": lambda cache: cache.append(*many),
        "append ragged": lambda cache: cache.append(*many, rows=rows),
        "append to some": lambda cache: cache.append(*some, sequences=chosen),
        "append to some, ragged": lambda cache: cache.append(*some, sequences=chosen, rows=[3, 1]),
        "truncate": lambda cache: cache.truncate(lengths),
        "reorder": lambda cache: cache.reorder(order),
        "drop": lambda cache: cache.drop(-1),
        "add": lambda cache: cache.add(2),
    }


def stored(cache) -> list:
    """All that a cache shows besides attention: its text, sizes and rows."""
    found = [repr(cache), cache.nbytes, cache.lengths, cache.newest_start]
    for number in range(len(cache)):
        found += [cache.held(number), cache.keys(number), cache.values(number)]
    return found


def seen(cache) -> list:
    """All that a cache shows, with the bits of attention."""
    width = cache._state.width
    return [*stored(cache), *cache.attend_with_lse(normal(len(cache), H, width, D, seed=9), mask=rg.causal())]


def same(found: list, expected: list) -> None:
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, np.ndarray):
            same_bits(one, other)
        else:
            assert one == other


@pytest.mark.spread
@pytest.mark.parametrize("life", range(2))
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_is_as_before_whatever_line_raises(kind, error, life):
    """Every method, interrupted before each of its lines, leaves the cache as it was; afterwards it does what it does
    to a cache that was never interrupted, and so does the append that follows.
    """
    random = np.random.default_rng([*map(ord, kind), len(error.__name__), life])
    cache = lived(kind, random)
    before = seen(cache)
    for name, call in operations(cache, random).items():
        tried, twin = both = copy.deepcopy(cache), copy.deepcopy(cache)
        for line in interrupted(error, call, tried):
            if line % 3:  # otherwise interrupted again, before anything has been read
                same(stored(tried), before[:-2])
            if line % 7 == 0:
                same(seen(tried), before)
        assert line > 4, name
        call(twin)
        if name.startswith("append to some"):
            stepped = twin._state.stepped
            chosen = np.arange(2) if stepped is None else np.flatnonzero(stepped)
            q = normal(2, H, 3, D, seed=9)
            same_bits(*(each.attend(q, mask=rg.causal(), sequences=chosen) for each in both))
        for each in both:
            each.append(*kv(len(each), 2, 3))
        same(*map(seen, both))


@pytest.mark.spread
@pytest.mark.parametrize("storage", [None, "int8"])
@pytest.mark.parametrize("width", [1, 20, PAGE])
def test_pages_that_an_append_releases_and_needs_come_back(storage, width):
    """With a fixed number of pages, an append writes over pages that it releases: if it is interrupted, and so is the
    call that writes them back, they are as before.
    """
    cache = filled(*kv(2, 2 * PAGE), window=PAGE, pages=4, storage=storage)
    assert len(cache._state.pages.free) == 0
    new = kv(2, width, 3)
    twin, before, overwritten = copy.deepcopy(cache), seen(cache), 0
    for _ in interrupted(KeyboardInterrupt, cache.append, *new):
        if cache._state.saved is not None:
            overwritten += 1
            for again in range(1, 9):
                ends_before(again, KeyboardInterrupt, lambda: cache.keys(0))
        same(seen(cache), before)
    assert overwritten > 3
    twin.append(*new)
    same(seen(cache), seen(twin))
    assert cache._state.saved is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("lengths", list(itertools.permutations((100, 60, 30))))
def test_one_page_with_readers_of_different_lengths(lengths):
    """Sequences that share a page and end at different rows of it append to it, each behind its own rows."""
    held, new = kv(1, 100), kv(3, 5, 3)
    cache = filled(*held)
    cache.reorder([0, 0, 0])
    cache.truncate(lengths)
    before = seen(cache)
    for _ in interrupted(KeyboardInterrupt, cache.append, *new):
        same(seen(cache), before)
    for number, length in enumerate(lengths):
        for found, old, added in zip((cache.keys(number), cache.values(number)), held, new):
            same_bits(found, np.concatenate([old[0, :, :length], added[number]], 1))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory, and how much is used, are read as on Linux")
@pytest.mark.parametrize("storage", [None, *sweep("int8")])
def test_a_process_out_of_memory(storage):
    """Where the system refuses memory, MemoryError is raised and the cache still attends with the same bits; with more
    memory it appends.
    """
    printed = fresh(f"""
        import resource
        import numpy as np
        import regard as rg

        k = np.random.default_rng(0).standard_normal((2, 8, 4000, 64), dtype=np.float32)
        q = k[:, :, :1]
        cache = rg.KVCache(8, 64, batch=2, storage={storage!r})
        cache.append(k[:, :, :1000], k[:, :, :1000])
        seen = lambda: (cache.keys(1), cache.values(0), cache.attend(q, query_start=cache.lengths - 1), cache.lengths)
        before = seen()
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        failed = 0
        for spare in range(0, 120, 2):
            resource.setrlimit(resource.RLIMIT_AS, (used + (spare << 20), hard))
            try:
                cache.append(k, k)
                break
            except MemoryError:
                failed += 1
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
            assert cache.lengths.tolist() == [1000, 1000]
            for one, other in zip(seen(), before):
                assert np.array_equal(one, other)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        assert failed, "the limit was too high"
        if cache.lengths[0] == 1000:
            cache.append(k, k)
        assert np.array_equal(cache.keys(1)[:, :1000], before[0])
        assert {storage!r} or np.array_equal(cache.keys(1)[:, 1000:], k[1])
        print("done")
        """)
    assert printed == "done"


def test_interrupts_of_large_prefills():
    """Ctrl-C at random times of a prefill: a sequence has all of the new rows or none, never rows of zeros."""
    printed = fresh("""
        import itertools, os, random, signal, threading, time
        import numpy as np
        import regard as rg

        random.seed(0)
        k = np.random.default_rng(0).standard_normal((1, 4, 40_000, 64), dtype=np.float32)
        first, interrupted, took = 1000, 0, 0.0
        for attempt in itertools.count():
            if interrupted > 5:
                break
            assert attempt < 1000, interrupted
            cache = rg.KVCache(4, 64)
            cache.append(k[:, :, :first], k[:, :, :first])
            begin = time.perf_counter()
            sender = threading.Timer(random.uniform(0, took), os.kill, (os.getpid(), signal.SIGINT))
            try:
                if attempt:
                    sender.start()
                cache.append(k, k)
                took = time.perf_counter() - begin
                if attempt:
                    sender.join()
                    time.sleep(0.01)
            except KeyboardInterrupt:
                interrupted += cache.lengths[0] == first
            held = int(cache.lengths[0])
            assert held in (first, first + 40_000)
            assert np.array_equal(cache.keys(0)[:, first:], k[0, :, : held - first])
            assert np.array_equal(cache.values(0)[:, first:], k[0, :, : held - first])
            if held == first:
                cache.append(k, k)
                assert np.array_equal(cache.keys(0)[:, first:], k[0])
        print("done")
        """)
    assert printed == "done"
