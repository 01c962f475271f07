"""Decoding over simulated ranks: whatever is appended, dropped and reordered, every rank has the bits of one cache."""

import itertools

import numpy as np
import pytest

import regard as rg
import regard.parallel as rp
from regard import Refused
from regard.api.kv_cache.checks import known_dtype
from regard.engines.jit.kernels.forward import PIECE
from regard.parallel.decoding import BLOCK, Shares
from regard.parallel.exchange import LENGTH
from tests.parallel.ranks import on_ranks
from tests.support.engines import same_bits
from tests.support.lanes import sweep
from tests.support.refusals import refusal, refusing

CAUSAL = rg.causal()

G, H, D, E = 2, 6, 8, 4
SLOPES = rg.alibi_slopes(H)
RULES = {
    "causal": {"mask": CAUSAL},
    "alibi": {"mask": CAUSAL, "score": rg.alibi(SLOPES)},
    "sinks": {"mask": CAUSAL, "sinks": SLOPES, "scale": 0.3},
    "window": {"mask": CAUSAL & rg.window(700), "score": rg.softcap(2)},
    "of heads": {"mask": CAUSAL & ((rg.key % 3 != 1) | (rg.head > 2))},
    "of a cache": {"mask": CAUSAL, "sinks": np.stack([SLOPES, SLOPES], 1)},
}


def arrays(rng, dtype, *shapes):
    """Normal arrays of a dtype."""
    return [rng.standard_normal(shape, np.float32).astype(known_dtype(dtype)) for shape in shapes]


def steps(seed, batch, dtype, window, most):
    """Random calls of a cache as (method, arguments, keywords), each followed by `attend_with_lse` where it can be."""
    rng = np.random.default_rng(seed)
    lengths, newest = np.zeros((2, batch), int)
    for number in range(12):
        kind = rng.choice(["append"] * 6 + ["truncate", "drop", "reorder", "add"]) if number else "append"
        B = len(lengths)
        if kind == "append" or not B:
            width = int(rng.choice([0, 1, 1, 2, 17, 130, 1024, most]))
            rows = None if rng.random() < 0.5 else rng.integers(0, width + 1, B)
            k, v, q = arrays(rng, dtype, (B, G, width, D), (B, G, width, E), (B, H, width, D))
            yield "append", (k, v, rows), {}
            newest = np.full(B, width) if rows is None else rows
            lengths = lengths + newest
            yield "attend_with_lse", (q,), RULES[rng.choice([*RULES])]
            if B > 1:
                some = rng.permutation(B)[: B - 1]
                yield "attend_with_lse", (q[some],), {"sequences": some, "mask": CAUSAL}
            start = max(min(lengths, default=0) - 3, 0)
            yield "attend_with_lse", (q[:, :, :2],), {"query_start": int(start), "mask": CAUSAL}
        elif kind == "truncate":
            lengths = rng.integers(lengths - newest if window else 0, lengths + 1)
            yield "truncate", (lengths,), {}
            newest = np.zeros(B, int)
        else:
            gone, order = int(rng.integers(B)), rng.integers(0, B, int(rng.integers(1, 4)))
            argument, kept = {
                "add": (1, [*range(B), B]),
                "drop": (gone, np.delete(np.arange(B), gone)),
                "reorder": (order, order),
            }[kind]
            yield kind, (argument,), {}
            lengths, newest = (np.append(own, 0)[kept] for own in (lengths, newest))


def run(cache, script):
    """What each call returned or refused in words, and the lengths after it."""
    found = []
    for method, arguments, keywords in script:
        try:
            result = getattr(cache, method)(*arguments, **keywords)
        except Refused as refused:
            result = str(refused).replace("parallel.", "")
        found.append((result, cache.lengths))
    return found


@pytest.mark.parametrize(
    ("ranks", "batch", "options", "tokens"),
    [
        (2, 1, {}, 12000),
        (3, 2, {"dtype": "bfloat16"}, 5000),
        (3, 2, {"storage": "int8"}, None),
        (5, 1, {"dtype": "float64", "window": 130}, 3000),
        *sweep((1, 1, {}, None), (5, 1, {}, None), (2, 3, {"window": 1500}, None)),
    ],
)
def test_every_rank_has_the_bits_of_one_cache(ranks, batch, options, tokens):
    """Random calls: outputs, lse, lengths and refusals are those of `rg.KVCache`; each position is held once."""
    script = [*steps(ranks + batch, batch, options.get("dtype", "float32"), options.get("window"), 5000 // batch)]

    def work(transport):
        cache = rp.KVCache(G, D, E, batch=batch, **options, tokens=tokens, group=transport)
        return run(cache, script), cache

    alone = rg.KVCache(G, D, E, batch=batch, **options)
    expected = run(alone, script)
    assert sum(isinstance(result, tuple) for result, _ in expected) > 10
    caches = []
    for found, cache in on_ranks(ranks, work):
        for (method, _, _), (one, lengths), (other, wanted) in zip(script, found, expected, strict=True):
            assert isinstance(other, tuple) or one == other, method
            results = zip(one, other, strict=True) if isinstance(other, tuple) else []
            for a, b in ((lengths, wanted), *results):
                same_bits(a, b)
        caches.append(cache)
    for sequence in range(len(alone)):
        held = np.sort(np.concatenate([cache.held(sequence) for cache in caches]))
        assert held.tolist() == list(alone.held(sequence))


def test_what_travels():
    """A step sends E + 2 numbers per row and head for each subtree of a rank, whatever the number of keys; of many rows
    each rank merges some, and sends what it found.
    """
    q, k, v = arrays(np.random.default_rng(0), "float32", (1, H, 4096, D), (1, G, 4096, D), (1, G, 4096, E))

    def work(transport):
        cache = rp.KVCache(G, D, E, tokens=4096, group=transport)
        cache.append(k[:, :, :4095], v[:, :, :4095])
        sent = []
        for rows in (slice(0, 4095), slice(4095, 4096)):
            if rows.start:
                cache.append(k[:, :, rows], v[:, :, rows])
            cache._reader.transport.sent[:] = 0
            cache.attend(q[:, :, rows], mask=CAUSAL)
            sent.append(transport.sent.tolist())
        return sent, repr(cache)

    (many, one), words = on_ranks(2, work)[0]
    agreement = 1 + LENGTH + 32  # a status, a length and a hash
    assert one[1] - agreement == H * (E + 2) * 4
    rows, own = 4095 - 4095 // 2, 4095 // 2
    assert many[1] - agreement == rows * H * (E + 2) * 4 + own * H * (E + 1) * 4
    assert words == (
        "KVCache(2 heads × 8 and 4, float32; lengths [4096]; rank 0 of 2: 2,048 of 4,096 positions, 196,608 bytes)"
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("tokens", [None, 1, 5000, 200_000])
def test_shares(ranks, tokens):
    """Each block belongs to one rank; up to the expected length a rank has one run, and none has twice the mean and a
    block more.
    """
    shares = Shares.of(ranks, tokens)
    assert BLOCK == PIECE
    for last in (0, 1, 2, 3, 5, 16, 31, 64, 100):
        spans = [shares.spans(rank, last) for rank in range(ranks)]
        blocks = [[block for span in each for block in range(*span)] for each in spans]
        assert sorted(itertools.chain(*blocks)) == list(range(last))
        if last <= shares.blocks * ranks:
            assert max(map(len, spans)) <= 1
        else:
            assert max(map(len, blocks)) <= 2 * max(shares.blocks, last / ranks)


def test_refusals_are_raised_on_every_rank():
    """What one rank refuses, or ranks do differently, is refused on all of them, and the cache is unchanged."""
    rows, q = np.ones((2, G, 3, D), np.float32), np.ones((2, H, 3, D), np.float32)
    nan, many = float("nan"), np.ones((2, G, 600, D), np.float32)
    calls = {
        "k and the cache differ in heads": lambda cache, rank: cache.append(rows[:, : 2 - rank], rows),
        "the storage is full": lambda cache, rank: cache.append(many, many),
        "the ranks disagree about the new keys": lambda cache, rank: cache.append(rows * (1 + rank), rows),
        "scale is not a number": lambda cache, rank: cache.attend(q, scale=nan if rank else 1),
        "the ranks disagree about the queries": lambda cache, rank: cache.attend(q + rank),
        "the ranks disagree about the mask": lambda cache, rank: cache.attend(q, mask=rg.window(3 + rank)),
        "the ranks disagree about the sinks": lambda cache, rank: cache.attend(q, sinks=np.full(H, 1.0 + rank)),
        "q does not have the rows of the last append": lambda cache, rank: cache.attend(q[:, :, :2]),
        "a sequence is shorter than the length": lambda cache, rank: cache.truncate(9 if rank else 3),
        "the ranks disagree about the remaining lengths": lambda cache, rank: cache.truncate(2 + rank),
        "no such sequence": lambda cache, rank: cache.drop(2 * rank),
        "the ranks disagree about the remaining sequences": lambda cache, rank: cache.reorder([rank, 1 - rank]),
        "the number of sequences is negative": lambda cache, rank: cache.add(-rank if rank else 1),
    }

    def work(transport):
        cache = rp.KVCache(G, D, batch=2, pages=4, group=transport)
        cache.append(rows, rows)
        found = [refusal(call, cache, transport.rank) for call in calls.values()]
        return found, cache.attend(q).sum(), cache.lengths.tolist()

    one, other = on_ranks(2, work)
    assert one == other and one[1:] == (2 * H * 3 * D, [3, 3])
    assert all(expected in text for expected, text in zip(calls, one[0], strict=True)), one


def test_caches_that_cannot_be_spread():
    """Caches of other kinds, filled ones, and ranks that differ in what they spread."""

    class Other(rg.KVCache):
        pass

    filled = rg.KVCache(G, D)
    filled.append(*np.ones((2, G, 3, D), np.float32))
    empty = rg.KVCache(G, D, E, batch=3, dtype="bfloat16", window=9, pages=7, storage="int8")
    for expected, caches, tokens in (
        ("only the caches of layers on the CPU can be spread", lambda rank: [empty, Other(G, D)], None),
        ("a cache holds positions already", lambda rank: [empty, filled] if rank else [empty, empty], None),
        ("the ranks disagree about the number of caches", lambda rank: [empty] * (1 + rank), None),
        ("the ranks disagree about the cache", lambda rank: [rg.KVCache(G + rank, D)], None),
        ("tokens is too small", lambda rank: [empty], 0),
    ):
        with refusing(expected):
            on_ranks(
                2, lambda group, make=caches, tokens=tokens: rp.spread(make(group.rank), tokens=tokens, group=group)
            )
    (cache,) = on_ranks(2, lambda transport: rp.spread([empty], tokens=5000, group=transport))[1]
    assert repr(cache) == (
        "KVCache(2 heads × 8 and 4, bfloat16 in int8, window 9; lengths [0, 0, 0]; rank 1 of 2: 0 of 0 positions, "
        "35,840 bytes)"
    )
