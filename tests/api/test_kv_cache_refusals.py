"""What a cache refuses, and what it says of itself."""

import numpy as np

import regard as rg
from tests.api.caches import D, E, G, H, filled, kv
from tests.support.engines import normal
from tests.support.refusals import refusal, refusing, word_for_word


def cached(**kwargs):
    return filled(*kv(2, 300), **kwargs)


def stepped(**kwargs):
    """The same, where the first sequence has one more row."""
    cache = cached(**kwargs)
    cache.append(*kv(1, 1), sequences=0)
    return cache


WORDS = [
    (lambda: rg.KVCache(0, 2.5, batch=-1, dtype="int8", window=0, storage="int4"), """\
KVCache: heads is too small
  given     0
  expected  1 or more
  fix       check the number
KVCache: depth is not an integer
  given     2.5
  expected  an integer
  fix       round it with int(…)
KVCache: batch is negative
  given     -1
  expected  0 or more
  fix       check the number
KVCache: window is too small
  given     0
  expected  1 or more
  fix       check the number
KVCache: this dtype is not supported
  given     dtype='int8'
  expected  one of float32, float16, bfloat16, float64
  fix       omit it for float32
KVCache: unknown storage
  given     storage='int4'
  expected  None, or 'int8'
  fix       omit it to store rows unchanged"""),
    (lambda: cached().append(normal(3, H, 2, D + 1), normal(2, G, 2, E, dtype=np.float64)), """\
KVCache.append: k and the cache differ in sequences
  given     k (3, 4, 2, 9)
  expected  B = 2 before the heads
  fix       pass rows for every sequence, or name theirs with sequences=; rows= marks the padding
KVCache.append: k and the cache differ in heads
  given     k (3, 4, 2, 9)
  expected  G = 2 on axis -3
  fix       pass the key/value heads, not the query heads
KVCache.append: k and the cache differ in depth
  given     k (3, 4, 2, 9)
  expected  8 on the last axis
  fix       check the last axis
KVCache.append: v and the cache differ in dtype
  given     float64
  expected  float32
  fix       convert it, or create the cache with dtype='float64'"""),
    (lambda: cached().append(normal(2, G, 2, D), normal(2, G, 3, E), rows=[1, 4]), """\
KVCache.append: k and v differ in rows
  given     2 and 3
  expected  one value row per key row
  fix       check axis -2
KVCache.append: rows must be one row count per sequence
  given     [1, 4]
  expected  integers from 0 to 2, one per sequence (2)
  fix       omit it to append all rows"""),
    (lambda: cached().attend(normal(3, 5, 300, D + 1), scale=np.nan), """\
KVCache.attend: q and the cache differ in sequences
  given     q (3, 5, 300, 9)
  expected  B = 2 before the heads
  fix       pass rows for every sequence, or name theirs with sequences=
KVCache.attend: q and k differ in depth
  given     q (3, 5, 300, 9), k (3, 2, 300, 8), v (3, 2, 300, 4)
  expected  D = 9 for both
  fix       check the last axis; the layout is (batch, heads, rows, depth)
KVCache.attend: key heads do not divide query heads
  given     q (3, 5, 300, 9), k (3, 2, 300, 8), v (3, 2, 300, 4): H=5, G=2
  expected  H to be a multiple of G
  fix       repeat k and v to 5 heads, or check that axis -3 is heads: the layout is (batch, heads, rows, depth)"""),
    (lambda: cached().attend(normal(2, H, 1, D), score=rg.causal()), """\
KVCache.attend: q does not have the rows of the last append
  given     1 rows
  expected  the 300 rows appended last
  fix       append their keys first, or pass their positions: query_start=…
KVCache.attend: a score must be a number
  given     `key <= query`, which is a condition
  expected  a rule that computes the new logit
  fix       pass it as mask=, true where a row may attend"""),
    (lambda: cached().append(*kv(2, 2), rows=[1], sequences=[1, -1, 1]), """\
KVCache.append: a sequence is listed twice
  given     sequences=[1, -1, 1]
  expected  each sequence at most once
  fix       list it once, with all its rows
KVCache.append: k and the cache differ in sequences
  given     k (2, 2, 2, 8)
  expected  B = 3 before the heads
  fix       pass rows for every sequence, or name theirs with sequences=; rows= marks the padding
KVCache.append: v and the cache differ in sequences
  given     v (2, 2, 2, 4)
  expected  B = 3 before the heads
  fix       pass rows for every sequence, or name theirs with sequences=; rows= marks the padding"""),
    (lambda: cached().attend(normal(2, H, 1, D), sequences=[0, 5], scale=np.nan), """\
KVCache.attend: no such sequence
  given     [0, 5]
  expected  numbers from 0 to 1
  fix       count from 0, or from the end with negative numbers
KVCache.attend: q does not have the rows of the last append
  given     1 rows
  expected  the 300 rows appended last
  fix       append their keys first, or pass their positions: query_start=…
KVCache.attend: scale is not a number
  given     nan
  expected  a finite number
  fix       omit it for 1/√D"""),
    (lambda: stepped().attend(normal(2, H, 1, D)), """\
KVCache.attend: the last append was for other sequences
  given     q with rows for 2 sequences, 1 of them in the last append
  expected  only sequences of the last append
  fix       pass the sequences= of the last append, or the positions of the rows: query_start=…"""),
    (lambda: cached().truncate([-1, 301]), """\
KVCache.truncate: a length is negative
  given     sequence 0: -1
  expected  sequence 0: 0 or more
  fix       pass how many positions remain, not how many are removed
KVCache.truncate: a sequence is shorter than the length
  given     sequence 1: 301
  expected  sequence 1: at most 300
  fix       append the missing rows instead"""),
    (lambda: cached().truncate([1.5, 2]), """\
KVCache.truncate: lengths must be one integer, or one per sequence
  given     [1.5, 2]
  expected  an integer, or 2 of them
  fix       pass cache.lengths with the lengths to change reduced"""),
    (lambda: stepped(window=10).truncate(264), """\
KVCache.truncate: the next row would attend to keys that were released
  given     sequence 0: length 264, a window from position 255
  expected  sequence 0: positions from 256
  fix       truncate less, or drop the sequence and append its rows to a new one"""),
    (lambda: cached().drop([0, 2]), """\
KVCache: no such sequence
  given     [0, 2]
  expected  numbers from 0 to 1
  fix       count from 0, or from the end with negative numbers"""),
]  # fmt: skip


@word_for_word(WORDS)
def test_wording(call, words):
    """The words of a refusal are part of the interface, and all reasons come at once."""
    assert refusal(call) == words


def test_a_row_whose_keys_were_given_back_is_refused():
    """A row whose window begins before the stored positions is rejected; any other is computed."""
    cache = cached(window=10)
    cache.append(*kv(2, 1))
    assert cache.held(0) == range(256, 301)
    q = normal(2, H, 1, D)
    cache.attend(q, query_start=265)
    words = """\
KVCache.attend: a row attends to keys that were released
  given     sequence 1: a window from position 255
  expected  positions from 256
  fix       attend these rows before appending more$"""
    with refusing(words):
        cache.attend(q, query_start=[299, 264])


def test_what_a_cache_says_of_itself():
    """Its text tells the sizes that matter."""
    assert repr(cached(window=200, storage="int8")) == (
        "KVCache(2 heads × 8 and 4, float32 in int8, window 200; lengths [300, 300], 30,720 bytes)"
    )
