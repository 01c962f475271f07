"""The cache of keys and values: whatever is appended, dropped and reordered, it attends as if every key had stayed."""

import copy
import dataclasses
import functools
import itertools
import pickle
import runpy
import tempfile
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import regard as rg
from regard.api.kv_cache.pages import PAGE
from regard.engines.jit import threads
from regard.engines.jit.code.target import limited
from tests import ROOT
from tests.api.caches import D, E, G, H, empty, filled, kv, kvq, rows_of, same_arrays
from tests.support.engines import engines, normal, same_bits
from tests.support.kernels import guarded
from tests.support.lanes import by_name, examples, sweep
from tests.support.refusals import refusal, refusing, word_for_word

CAUSAL = rg.causal()

SLOPES = rg.alibi_slopes(H)
NO_ROWS = normal(G, 0, D), normal(G, 0, E)
WIDTHS = st.sampled_from((0, 1, 1, 1, 2, 30, 127, 128, 129, 260))


class Model(RuleBasedStateMachine):
    """A cache beside plain arrays that keep everything."""

    @initialize(batch=st.sampled_from((2, 1, 3, 0)), window=st.sampled_from((None, None, 1, 2, 5, 100, 129, 300)))
    def begin(self, batch, window):
        self.cache = empty(batch=batch, window=window)
        self.window, self.seed = window, 0
        self.sequences = [NO_ROWS] * batch
        self.newest, self.width = [0] * batch, 0
        self.stepped = [True] * batch  # which sequences the last append was for

    def drawn(self, *shape):
        self.seed += 1
        return normal(*shape, seed=self.seed)

    def some(self, data, numbers):
        """None, or some of the numbers, in any order, counted from the first or from the last."""
        order, count = data.draw(st.none() | st.permutations(numbers)), len(self.sequences)
        chosen = None if order is None else order[: data.draw(st.integers(0, len(order)))]
        return chosen and [number - count * data.draw(st.booleans()) for number in chosen]

    @rule(width=WIDTHS, data=st.data())
    def append(self, width, data):
        chosen = self.some(data, range(len(self.sequences)))
        numbers = range(len(self.sequences)) if chosen is None else [each % len(self.sequences) for each in chosen]
        count = len(numbers)
        k, v = self.drawn(count, G, width, D), self.drawn(count, G, width, E)
        rows = data.draw(st.none() | st.lists(st.integers(0, width), min_size=count, max_size=count))
        self.newest, self.width = [0] * len(self.sequences), width
        self.stepped = [number in numbers for number in range(len(self.sequences))]
        for place, number in enumerate(numbers):
            real = width if rows is None else rows[place]
            k[place, :, real:] = v[place, :, real:] = np.nan
            new = k[place, :, :real], v[place, :, :real]
            self.sequences[number] = tuple(np.concatenate(each, 1) for each in zip(self.sequences[number], new))
            self.newest[number] = real
        self.cache.append(k, v, rows=rows, sequences=chosen)
        self.attend()

    @rule(data=st.data())
    def truncate(self, data):
        """To any length; with a window, to one within the last append, which is always possible."""
        ends = [k.shape[1] for k, _ in self.sequences]
        starts = [end - real for end, real in zip(ends, self.newest)]
        least = starts if self.window else [0] * len(ends)
        lengths = [data.draw(st.integers(low, end)) for low, end in zip(least, ends)]
        self.cache.truncate(np.array(lengths, np.int64))
        self.sequences = [(k[:, :end], v[:, :end]) for (k, v), end in zip(self.sequences, lengths)]
        self.newest = [max(end - start, 0) for start, end in zip(starts, lengths)]

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            self.cache.save(f"{folder}/cache")
            self.cache = rg.KVCache.load(f"{folder}/cache")

    @rule(more=st.integers(0, 2))
    def add(self, more):
        self.cache.add(more)
        self.sequences += [NO_ROWS] * more
        self.newest += [0] * more
        self.stepped += [True] * more
        self.attend(with_sinks=True)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def drop(self, data):
        """Some sequences, counted from the first or from the last."""
        count = len(self.sequences)
        gone = data.draw(st.lists(st.integers(-count, count - 1), max_size=2, unique_by=lambda each: each % count))
        self.cache.drop(gone)
        for number in sorted((each % count for each in gone), reverse=True):
            del self.sequences[number], self.newest[number], self.stepped[number]

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def reorder(self, data):
        order = data.draw(st.lists(st.integers(0, len(self.sequences) - 1), max_size=4))
        self.cache.reorder(order)
        for name in ("sequences", "newest", "stepped"):
            setattr(self, name, [getattr(self, name)[number] for number in order])

    @rule(with_score=st.booleans(), with_sinks=st.booleans(), data=st.data())
    def attend_again(self, with_score, with_sinks, data):
        self.attend(with_score, with_sinks, self.some(data, np.flatnonzero(self.stepped).tolist()))

    def attend(self, with_score=False, with_sinks=False, chosen=None):
        """Each sequence's newest rows get the bits that attention over all its keys gives them; padding gives 0."""
        if chosen is None and not all(self.stepped):
            with refusing("the last append was for other sequences"):
                self.cache.attend(self.drawn(len(self.sequences), H, self.width, D))
            chosen = np.flatnonzero(self.stepped).tolist()
        rules = {
            "mask": CAUSAL,
            "score": rg.alibi(SLOPES) if with_score else None,
            "sinks": SLOPES if with_sinks else None,
        }
        numbers = range(len(self.sequences)) if chosen is None else chosen
        q = self.drawn(len(numbers), H, self.width, D)
        out, lse = self.cache.attend_with_lse(q, **rules, sequences=chosen)
        if self.window is not None:
            rules["mask"] = rg.window(self.window)
        for place, number in enumerate(numbers):
            (k, v), real = self.sequences[number], self.newest[number]
            expected = rg.attention_with_lse(q[place, :, :real], k, v, **rules)
            same_arrays((out[place, :, :real], lse[place, :, :real]), expected)
            assert not out[place, :, real:].any() and np.isneginf(lse[place, :, real:]).all()

    @invariant()
    def holds_what_was_appended(self):
        """Lengths go on, and what is still held is what was appended; at least what the next row sees is held."""
        assert self.cache.lengths.tolist() == [k.shape[1] for k, _ in self.sequences]
        assert len(self.cache) == len(self.sequences)
        for number, (k, v) in enumerate(self.sequences):
            held = self.cache.held(number)
            reach = k.shape[1] - self.newest[number] - (self.window or k.shape[1]) + 1
            assert held.stop == k.shape[1] and held.start <= max(reach, 0)
            same_bits(self.cache.keys(number), k[:, held.start :])
            same_bits(self.cache.values(number), v[:, held.start :])

    @invariant()
    def every_page_is_free_or_held(self):
        """A page is free or counted once for each sequence that holds it; what free pages hold is never seen."""
        held, found = self.cache._state.pages, []
        for number in range(len(self.sequences)):
            positions = self.cache.held(number)
            found += held.table[number, positions.start // PAGE : -(-positions.stop // PAGE)].tolist()
        counts = np.bincount(np.array(found, int), minlength=len(held.holders))
        assert held.holders.tolist() == counts.tolist()
        assert sorted(held.free) == np.flatnonzero(counts == 0).tolist()
        for store in self.cache._state.stores:
            store.array[held.free] = np.nan


TestModel = Model.TestCase
TestModel.settings = examples(50, stateful_step_count=20)
TestModel.pytestmark = pytest.mark.slow


def pages_held(cache) -> int:
    return int((cache._state.pages.holders > 0).sum())


def alone(cache, number, q, **rules):
    """Attention over all rows of one sequence."""
    return rg.attention(q, cache.keys(number), cache.values(number), **rules)


# ---- positions -------------------------------------------------------------------------------------------------------


RULES = {
    "causal": {"mask": CAUSAL},
    "alibi": {"mask": CAUSAL, "score": rg.alibi(SLOPES)},
    "softcap": {"mask": CAUSAL, "score": rg.softcap(3.0)},
    "sinks": {"mask": CAUSAL, "sinks": SLOPES},
    "documents": {"mask": CAUSAL & rg.documents(lengths=[30, 150, 120])},
    "bias": {"mask": CAUSAL, "score": rg.score + rg.table(normal(300, 300, seed=8))[rg.query, rg.key]},
}


@engines
@pytest.mark.parametrize("chunk", [1, *sweep(7, 128), 150])
@by_name("rules", RULES)
def test_law_11_chunks_over_a_cache(engine, rules, chunk):
    """The strong form over a cache: token by token, or in chunks, is bit-identical to one prefill."""
    k, v, q = kvq(2, 300, 300)
    whole = rg.attention_with_lse(q, k, v, engine=engine, **rules)
    cache = empty(batch=2)
    for first in range(0, 300, chunk):
        part = slice(first, min(first + chunk, 300))
        cache.append(*rows_of(part, k, v))
        if chunk > 1 or first % 37 == 0 or 120 < first < 135:
            found = cache.attend_with_lse(q[:, :, part], engine=engine, **rules)
            same_arrays(found, rows_of(part, *whole))


@pytest.mark.parametrize("window", [1, 128, 129])
def test_a_ring_stops_growing(window):
    """Far past its size a window holds the pages of the window, and no more."""
    cache, pages = empty(window=window), []
    for _ in range(700):
        cache.append(*kv(1, 1))
        pages.append(pages_held(cache))
    assert max(pages) == -(-(window - 1) // PAGE) + 1
    assert cache.held(0).start >= 700 - window - PAGE


@engines
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("rows", [1, 8])
def test_rows_say_where_they_are(window, rows, engine):
    """query_start is the position of the first row, in all sequences, in each or in the chosen ones; as in
    `rg.attention` it may be negative: of the rows before the first key, and with more rows than keys.
    """
    k, v, q = kvq(3, 6, rows)
    cache = filled(k, v, rows=[6, 3, 5], window=window)
    for mask, starts, chosen in itertools.product((rg.everything(), CAUSAL), ((-3, 2, 1), (2, 2, 2)), (None, [-1, 0])):
        rule, order = mask if window is None else mask & rg.window(window), chosen or [0, 1, 2]
        start = 2 if starts == (2, 2, 2) else np.array(starts)[order]
        found = cache.attend(q[order], mask=mask, query_start=start, sequences=chosen, engine=engine)
        for place, number in enumerate(order):
            rules = {"mask": rule, "query_start": starts[number], "engine": engine}
            same_bits(found[place], alone(cache, number % 3, q[number], **rules))


def test_axes_before_the_heads_are_the_sequences():
    """Any axes before the heads count as the sequences, and one sequence needs none; the result has the axes of q."""
    k, v, q = kvq(6, 9, 9)
    expected = rg.attention(q, k, v)
    cache = filled(k.reshape(2, 3, G, 9, D), v, batch=6)
    same_bits(cache.attend(q.reshape(3, 2, H, 9, D)), expected.reshape(3, 2, H, 9, E))
    out, lse = filled(k[0], v[0], batch=1).attend_with_lse(q[0])
    same_bits(out, expected[0])
    assert lse.shape == (H, 9)
    cache = rg.KVCache(1, D, E)
    cache.append(k[0, 0], v[0, 0])
    same_bits(cache.attend(q[0, 0]), rg.attention(q[0, 0], k[0, 0], v[0, 0]))


def test_tensors_in_and_out():
    """Tensors are stored as arrays are, and queries as a tensor give a tensor; requires_grad is rejected, unless
    gradients are disabled.
    """
    import torch

    k, v, q = (torch.from_numpy(each).bfloat16() for each in kvq(2, 9, 9))
    expected = rg.attention(q, k, v, mask=CAUSAL)
    cache = empty(batch=2, dtype=torch.bfloat16)
    for part in (slice(0, 8), slice(8, 9)):
        cache.append(*rows_of(part, k, v))
        found = cache.attend(q[:, :, part], mask=CAUSAL)
        assert isinstance(found, torch.Tensor) and torch.equal(found, expected[:, :, part])
    one = slice(0, 1)
    k, v, q = k[:, :, one].requires_grad_(), v[:, :, one], q[:, :, one].requires_grad_()
    with refusing("k requires gradients"):
        cache.append(k, v)
    with refusing("q requires gradients"):
        cache.attend(q)
    with torch.no_grad():
        cache.append(k, v)
        assert not cache.attend(q).requires_grad


def test_many_keys_in_pieces():
    """Thousands of keys, which the compiled engine sums in pieces: sequences of other lengths are each bit-identical to
    their own call.
    """
    k, v, q = kvq(3, 5000, 1)
    cache = filled(k, v, rows=[4963, 1023, 0])
    for _ in range(3):
        cache.append(*kv(3, 1))
        found = cache.attend(q)
        for number in range(3):
            same_bits(found[number], alone(cache, number, q[number]))


def one_row(cache, q, **rules):
    """The newest row of the only sequence gets the bits that attention gives it."""
    same_bits(cache.attend(q, **rules)[0], alone(cache, 0, q[0], **rules))


def test_what_changed_since_the_last_step_is_seen():
    """A step is prepared again after arrays or variables of callables have changed, and for other rules."""
    k, v, q = kvq(1, 40, 1)
    cache = filled(*rows_of(slice(20), k, v))
    allowed, slopes, sinks, size, capped = np.arange(99) % 2 == 0, SLOPES.copy(), SLOPES.copy(), 3, 2.0
    shown = rg.table(allowed)[rg.key]
    for step in range(20, 40):
        cache.append(*rows_of([step], k, v))
        slopes *= 1.5
        one_row(cache, q, score=rg.alibi(slopes))
        allowed[step // 2] ^= True
        one_row(cache, q, mask=shown)
        sinks += 1
        one_row(cache, q, sinks=sinks)
        size += step % 2
        one_row(cache, q, mask=lambda b, h, q, k: q - k < size)  # noqa: B023, a captured number that changes is the point
        capped += 0.5
        one_row(cache, q, score=rg.softcap(capped), scale=step / 40)
        one_row(cache, q, mask=allowed[: step + 1])


def test_limits_hold_for_a_step_too():
    """Fewer threads or other instructions, from one step to the next, are those of the next step."""
    k, v, q = normal(1, G, 9000, 64, seed=1), normal(1, G, 9000, 64, seed=2), normal(1, H, 1, 64)
    cache = rg.KVCache(G, 64)
    cache.append(*rows_of(slice(8992), k, v))
    for step, isa, most in zip(range(8992, 9000), itertools.cycle((None, "portable", None)), itertools.cycle((9, 1))):
        cache.append(*rows_of([step], k, v))
        with limited(isa) if isa else nullcontext(), threads.limit(most):
            one_row(cache, q)
            assert cache._reader.ready.decoder.workers == threads.count()


def test_the_block_table_is_read_to_its_end_and_no_further():
    """A step prepared for positions to come reads no entry of an unallocated page: behind the table is a
    forbidden page.
    """
    k, v, q = kvq(1, 382, 1)
    cache = filled(*rows_of(slice(380), k, v))
    state = cache._state
    table = guarded(state.pages.table[:, :3].copy(), at_end=True)
    cache._state = state._replace(pages=dataclasses.replace(state.pages, table=table))
    for step in (380, 381):
        cache.append(*rows_of([step], k, v))
        one_row(cache, q)


def test_a_table_that_ends_is_refused_where_it_ends():
    """A step ahead of its time refuses nothing: a table that covers the keys so far is read, until it covers them no
    more.
    """
    cache, q, rule = empty(), normal(1, H, 1, D), rg.score + rg.table(normal(30))[rg.key]
    for step in range(31):
        cache.append(*kv(1, 1))
        if step < 30:
            one_row(cache, q, score=rule)
    with refusing("covers 30 of 31 keys"):
        cache.attend(q, score=rule)


# ---- some of the sequences, and back ---------------------------------------------------------------------------------


def test_steps_of_the_same_sequences_are_prepared_once():
    """A step of some sequences is repeated without new checks, and other sequences are prepared again."""
    cache, q, prepared = empty(batch=3), normal(2, H, 1, D), []
    for step in range(12):
        chosen = [0, 2] if step < 8 else [2, 0]
        cache.append(*kv(2, 1, seed=step), sequences=chosen)
        same_arrays(cache.attend(q, sequences=chosen), map(functools.partial(alone, cache), chosen, q))
        prepared.append(cache._reader.ready)
    assert len({id(each) for each in prepared}) == 2


def test_another_number_of_rows_is_refused_after_equal_steps():
    """A call that looks like the one before is rejected if more rows were appended since."""
    cache, q = empty(), normal(1, H, 1, D)
    for _ in range(2):
        cache.append(*kv(1, 1))
        cache.attend(q)
    cache.append(*kv(1, 2))
    with refusing("q does not have the rows of the last append"):
        cache.attend(q)


@pytest.mark.parametrize("window", [None, 3, 128])
def test_guesses_are_taken_back(window):
    """Speculative decoding: guessed rows are appended and attended, the wrong ones removed; each step has the bits of
    decoding without guesses, and repeats the one before without new checks.
    """
    cache, prepared = empty(window=window), []
    k, v, q = kvq(1, 300, 300)
    whole = rg.attention(q, k, v, mask=CAUSAL if window is None else rg.window(window))

    def step(begin, right):
        part = slice(begin, begin + 4)
        guess = [each[:, :, part].copy() for each in (k, v)]
        for each in guess:
            each[:, :, right:] = np.nan  # a wrong guess
        cache.append(*guess)
        same_bits(cache.attend(q[:, :, part], mask=CAUSAL)[:, :, :right], whole[:, :, begin : begin + right])
        prepared.append(cache._reader.ready)
        cache.truncate(begin + right)

    for begin in range(20):
        step(begin, 1)
    assert len({id(each) for each in prepared}) <= 3
    for begin in range(20, 290, 3):
        step(begin, 3)


# ---- sharing ---------------------------------------------------------------------------------------------------------


def test_beams_share_what_they_have_in_common():
    """Sequences made by reorder hold the same pages; each copies only the page that it writes into."""
    cache = filled(*kv(1, 1000))
    before = pages_held(cache)
    cache.reorder([0, 0, 0, 0])
    assert pages_held(cache) == before
    cache.append(*kv(4, 1))
    assert pages_held(cache) == before + 3


def test_a_store_of_fixed_size():
    """A full store raises and does not change; pages released by one sequence serve another; nothing is ever
    moved.
    """
    k, v = kv(3, 130)
    cache = filled(k, v, rows=[130, 100, 1], pages=4)
    store = cache._state.stores.k.array
    assert (
        refusal(lambda: cache.append(k, v, rows=[0, 29, 0]))
        == """\
KVCache.append: the storage is full
  given     1 pages needed, 0 free
  expected  at most the 4 pages of 128 positions that were allocated
  fix       drop a sequence, or create the cache with more pages=, or with pages=None to let it grow"""
    )
    assert cache.lengths.tolist() == [130, 100, 1]
    cache.drop(0)
    cache.append(k[:2], v[:2], rows=[29, 0])
    same_bits(cache.keys(0), np.concatenate([k[1, :, :100], k[0, :, :29]], 1))
    assert cache._state.stores.k.array is store


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copy_goes_its_own_way(copied):
    """A copy of a cache, made to keep a prompt for later, holds what it held, and neither sees what the other
    appends.
    """
    k, v, q = kvq(1, 5, 1)
    cache = filled(*rows_of(slice(3), k, v), window=300)
    cache.attend(q, query_start=2)
    other = copied(cache)
    for kept, last in ((cache, 3), (other, 4)):
        kept.append(*rows_of([last], k, v))
    for kept, last in ((cache, 3), (other, 4)):
        same_bits(kept.keys(0), k[0][:, [0, 1, 2, last]])
        one_row(kept, q)


# ---- dtypes ----------------------------------------------------------------------------------------------------------


def test_rows_in_8_bits():
    """A row comes back within half a step of its own scale, zeros as zeros; what is not finite comes back as NaN, and
    shows.
    """
    k, v = kv(1, 200)
    k *= np.exp(3 * normal(1, G, 200, 1, seed=5))
    k[0, 0, 3], v[0, 1, 7, 2] = 0, np.inf
    cache = filled(k, v, storage="int8")
    step = np.abs(k[0]).max(-1, keepdims=True) / 127
    assert (np.abs(cache.keys(0) - k[0]) <= step * (0.5 + 1e-5)).all()
    assert (cache.keys(0)[0, 3] == 0).all()
    same_bits(np.isnan(cache.values(0)).any(-1), np.isinf(v[0]).any(-1))
    assert cache.nbytes == 2 * G * PAGE * (D + 4 + E + 4)


def test_the_example_decodes(capsys):
    """Decoding with caches chooses the tokens that the whole text at once chooses, for texts that are not all the
    same.
    """
    texts, agreed = runpy.run_path(str(ROOT / "examples" / "decoding.py"))["main"]()
    assert min(agreed) > 190  # the products around the attention round differently for one row and for many
    assert all(len(set(text[-200:])) > 20 for text in texts)
    assert "window 100; lengths [430, 264, 205]" in capsys.readouterr().out


# ---- what it refuses, and what it says of itself ---------------------------------------------------------------------


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


test_wording = word_for_word(WORDS)


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
