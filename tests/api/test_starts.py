"""A call over some batch entries and heads, with batch_start and head_start, is the same part of the whole call."""

import gc
import itertools
import weakref

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import regard as rg
import regard.torch as rt
from regard.engines import fast_path
from regard.engines.jit import engine
from regard.language.analysis import substituted
from regard.language.checks import numbers as starts
from regard.language.checks.numbers import Starts, counted
from regard.language.expr import lift
from tests.api.caches import same_arrays
from tests.support.engines import TOLERANCE, engines, normal, qkv, same_bits
from tests.support.lanes import by_name, examples
from tests.support.parts import four, parts
from tests.support.refusals import refusing
from tests.support.strategies import Case, dropouts, problems

random_problems = examples(15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
DTYPES = (np.float32, np.float64, ml_dtypes.bfloat16)


def without_values(kwargs):
    return {name: value for name, value in kwargs.items() if name != "v"}


@random_problems
@given(st.data(), problems(dtypes=DTYPES, depth=20), st.none() | dropouts, st.sampled_from(("jit", "reference")))
def test_a_part_has_the_bits_of_the_whole(data, case, falling, name):
    """out, lse and weights of any entries and heads of any call, with tables, sinks and dropout."""
    part = data.draw(parts(case))
    whole, some = (kwargs | (falling or {}) for kwargs in (four(case.kwargs), part.kwargs))
    found = *rg.attention_with_lse(**some, engine=name), rg.attention_weights(**without_values(some))
    expected = *rg.attention_with_lse(**whole, engine=name), rg.attention_weights(**without_values(whole))
    same_arrays(found, map(part.of, expected))
    if not falling:  # without a seed and sinks, the fast path may take the call
        alone = {name: value for name, value in part.kwargs.items() if value is not None}
        same_bits(rg.attention(**alone), rg.attention(**alone, dropout=0.0, seed=1))


@random_problems
@given(st.data(), problems(dtypes=DTYPES, depth=12), st.sampled_from(("jit", "reference")))
def test_statistics_of_a_part(data, case, name):
    """Every statistic, and the mass on a set of keys that depends on batch entry and head."""
    kwargs, part = without_values(four(case.kwargs)), data.draw(parts(case))
    (B, H, Q, _), K = kwargs["q"].shape, kwargs["k"].shape[2]
    seen = rg.table(np.random.default_rng(Q).random((B, H, 5)) > 0.5, "seen")
    measures = ["lse", "entropy", "maximum", "distance", "range", "counts", "received", rg.top(2)]
    measures.append(rg.mass(seen[rg.batch, rg.head, rg.key % 5] | (rg.key == rg.head), "some"))
    if Q and K:
        measures.append(rg.pooled(min(Q, 2), min(K, 3)))
    whole, found = (
        rg.attention_stats(**some, of=measures, engine=name) for some in (kwargs, without_values(part.kwargs))
    )
    for measure in measures:
        several = isinstance(whole[measure], tuple)
        old, mine = (each[measure] if several else [each[measure]] for each in (whole, found))
        same_arrays(mine, map(part.of, old))


@random_problems
@given(st.data(), problems(dtypes=DTYPES, depth=12), st.none() | dropouts, st.sampled_from(("jit", "reference")))
def test_gradients_of_a_part(data, case, falling, name):
    """dq, dk and dv of whole groups of heads, and the gradient of a table in the shape of the table: 0 where the part
    does not read it.
    """
    kwargs = four(case.kwargs)
    B, H, Q, _ = kwargs["q"].shape
    kwargs |= {each: np.broadcast_to(kwargs[each], (B, *kwargs[each].shape[1:])) for each in "kv"}
    height = rg.table(normal(B, H, dtype=np.float64))
    kwargs["score"] = (rg.score if case.kwargs["score"] is None else case.kwargs["score"]) + (
        height[rg.batch, rg.head] * rg.query / 8
    )
    dout = normal(B, H, Q, kwargs["v"].shape[3], seed=2).astype(kwargs["q"].dtype)
    part, asked = data.draw(parts(Case(kwargs))), {**(falling or {}), "engine": name}
    whole = rg.attention_backward(dout, **kwargs, **asked)
    found = rg.attention_backward(part.of(dout), **part.kwargs, **asked)
    groups = part.entries, part.groups
    same_arrays((found.q, found.k, found.v), (part.of(whole.q), whole.k[groups], whole.v[groups]))
    assert found.tables.keys() == whole.tables.keys()
    expected = np.zeros_like(whole.tables[height])
    expected[part.entries, part.heads] = part.of(whole.tables[height])
    same_bits(found.tables[height], expected)


@pytest.mark.parametrize("first", [(1 << 31) - 4, 1 << 20])
def test_numbers_beyond_32_bits(first):
    """Integers of a rule that leave 32 bits only because heads count from far away."""
    q, k, v = qkv()
    for rule in ({"mask": (rg.head * 3 + rg.key) % 7 > 2}, {"score": rg.score + rg.to_float(rg.head * rg.head % 11)}):
        for name in ("jit", "reference"):
            found = rg.attention(q, k, v, **rule, head_start=first + 1, engine=name)
            numbered = {kind: substituted(each, {rg.head: rg.head + lift(first + 1)}) for kind, each in rule.items()}
            np.testing.assert_allclose(found, rg.attention(q, k, v, **numbered, engine="reference"), **TOLERANCE)


@engines
def test_bare_arrays_are_of_the_call(engine):
    """An array passed as mask= or score=, and sinks, have the entries and heads of the call, wherever it begins."""
    rules = {"mask": normal(2, 1, 19, 37, seed=4) > 0, "score": normal(2, 19, 37, seed=5), "sinks": normal(2, seed=6)}
    found = rg.attention(*qkv(), **rules, batch_start=3, head_start=7, engine=engine)
    same_bits(found, rg.attention(*qkv(), **rules, engine=engine))


def test_the_batch_is_one_number():
    """Several axes before the heads are one batch, in the order of the array: batch_start counts entries of that."""
    given_ = [part.reshape(2, 3, *part.shape[1:]) for part in qkv(B=6)]
    mask = rg.lengths([1, 20, 7, 30, 4, 37])
    part = rg.attention(*(each[1:, 1:] for each in given_), mask=mask, batch_start=4)
    same_bits(part, rg.attention(*given_, mask=mask)[1:, 1:])


def test_a_start_may_be_any_integer():
    """An integer of Python or NumPy or of a tensor means the same; what is no number of an entry is refused."""
    q, k, v = qkv()
    usual = rg.attention(q, k, v, score=rg.alibi(rg.alibi_slopes(8)[3:5]))
    for start in (3, np.int32(3), np.array(3), np.uint64(3), torch.tensor(3)):
        same_bits(rg.attention(q, k, v, score=rg.alibi(8), head_start=start), usual)
    for start in (1.0, True, np.True_, [3], np.array([3]), "3", -1, (1 << 31) - 1, 1 << 70, rg.head):
        for name in ("head_start", "batch_start"):
            with refusing(f"{name} is not the number of a"):
                rg.attention(q, k, v, **{name: start})


# ---- every function that has the arguments, and what is kept between calls -------------------------------------------


FUNCTIONS = {
    "attention": rg.attention,
    "attention_with_lse": lambda *x, **y: rg.attention_with_lse(*x, **y)[1],
    "torch": lambda *x, **y: rt.attention(*map(torch.from_numpy, x), **y),
    "torch, lse": lambda *x, **y: rt.attention_with_lse(*map(torch.from_numpy, x), **y)[1],
    "attention_weights": lambda q, k, v, **y: rg.attention_weights(q, k, **y),
    "attention_stats": lambda q, k, v, **y: rg.attention_stats(q, k, of="entropy", **y).entropy,
    "attention_backward": lambda q, k, v, **y: rg.attention_backward(np.ones_like(q), q, k, v, **y).q,
    "explain": lambda *x, **y: rg.explain(*x, **y).cost.allowed,
}


@by_name("function", FUNCTIONS)
def test_no_function_forgets_them(function):
    """Every public function that takes query_start, or rules and arrays of one call, takes both and uses them, in
    callables too.
    """
    q, k, v = qkv(B=1)
    found = function(q, k, v, mask=lambda b, h, i, j: j < h + 3 * b, batch_start=2, head_start=5)
    assert np.array_equal(found, function(q, k, v, mask=rg.key < rg.head + 5 + 3 * 2))


def test_explain_says_where_the_call_begins():
    """The starts are shown where they differ from 0, and in the rules."""
    q, k, v = qkv(H=4)
    text = str(rg.explain(q, k, v, score=rg.alibi(16), batch_start=3, head_start=8))
    assert "; batch entry 0 is batch entry 3, head 0 is head 8 of the whole\n" in text and "slope[head + 8]" in text
    assert "of the whole" not in str(rg.explain(q, k, v, score=rg.alibi(16), batch_start=0, head_start=0))
    assert "head_start: 8" in repr(rg.explain(q, k, v, head_start=8).problem)


@pytest.mark.parametrize("rule", [{"mask": rg.key > rg.head}, {"score": rg.alibi(16)}])
def test_two_starts_do_not_share_a_result(rule):
    """The same rule object with other starts gives other results, in any order of calls; what is kept for a start is
    used again.
    """
    q, k, v = qkv(H=4)
    calls = [{"head_start": 0}, {"head_start": 4}, {"head_start": 12}, {"batch_start": 4, "head_start": 4}]
    sizes = []
    for order in (calls, calls[::-1], calls):
        for first, more in itertools.product(order, ({}, {"dropout": 0.0, "seed": 1})):
            found = rg.attention(q, k, v, **rule, **first, **more)
            np.testing.assert_allclose(found, rg.attention(q, k, v, **rule, **first, engine="reference"), **TOLERANCE)
        sizes.append([len(kept.results) for kept in (engine._recipes, fast_path._kinds, starts._counted)])
    assert sizes[1] == sizes[2]


def test_a_rule_of_a_start_is_kept():
    """As long as a rule lives, also if its arrays may change: else every call would compile and plan anew."""
    for rule in (rg.key > rg.head, rg.score * rg.table(normal(16))[rg.head]):
        assert weakref.ref(counted(rule, Starts(head=4)))() is not None


@pytest.mark.parametrize("index", [rg.head, rg.key])
def test_starts_keep_no_array_alive(index):
    """The tables of a mask and a score are freed with them, whether or not the starts changed them."""
    reads = [rg.table(normal(37, seed=seed))[index] for seed in (77, 78)]
    held = [weakref.ref(read.table) for read in reads]
    rules = {"mask": reads[0] < 9, "score": rg.score - reads[1], "head_start": 5}
    rg.attention(*qkv(H=4), **rules)
    rg.attention(*qkv(H=4), **rules, dropout=0.5, seed=1)
    del rules, reads
    gc.collect()
    assert [table() for table in held] == [None, None]


# ---- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3])
def test_a_cache_of_some_heads_and_sequences(rows):
    """A cache of two of four groups and two of three sequences decodes the bits of that part of one prefill."""
    q, k, v = qkv(B=3, H=8, G=4, Q=40, K=40)
    rules = {"mask": rg.causal() & ((rg.key + rg.head + 2 * rg.batch) % 5 > 0), "score": rg.alibi(8)}
    whole = [each[1:, 4:] for each in rg.attention_with_lse(q, k, v, **rules)]
    cache = rg.KVCache(heads=2, depth=16, batch=2)
    for start in range(0, 40, rows):
        new = slice(start, min(start + rows, 40))
        cache.append(k[1:, 2:, new], v[1:, 2:, new])
        found = cache.attend_with_lse(q[1:, 4:, new], **rules, batch_start=1, head_start=4)
        same_arrays(found, [each[:, :, new] for each in whole])
    # Sequences that are chosen are counted as before, from batch_start.
    alone = cache.attend(q[2:, 4:, new], **rules, batch_start=2, head_start=4, sequences=[1], query_start=start)
    same_bits(alone, whole[0][1:, :, new])


@pytest.mark.parametrize("new", [np.array, torch.tensor])
def test_steps_of_a_cache_see_another_start(new):
    """A step that differs from the last one only in its starts is prepared anew, also if they were changed in place;
    a bad one is refused.
    """
    cache = rg.KVCache(heads=2, depth=8)
    q, k, v = qkv(B=1, Q=1, K=9, D=8, E=8)
    for part in (slice(0, 8), slice(8, 9)):
        cache.append(k[:, :, part], v[:, :, part])
    head, batch = new(0), new(0)
    for head[...], batch[...] in ((0, 0), (3, 0), (4, 0), (0, 3), (0, 0)):
        found = cache.attend(q, mask=rg.key != rg.head + 2 * rg.batch, head_start=head, batch_start=batch)
        moved = rg.key != rg.head + int(head) + 2 * (rg.batch + int(batch))
        same_bits(found, rg.attention(q, k, v, mask=moved))
    with refusing(r"KVCache.attend: head_start is not the number of a query head"):
        cache.attend(q, head_start=np.array([0, 8]))
    with refusing(r"KVCache.attend: the slope table has 4 entries for heads 3 … 4"):
        cache.attend(q, score=rg.alibi(4), head_start=3)
