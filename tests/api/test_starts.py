"""A call over some batch entries and heads, with batch_start and head_start, is the same part of the whole call."""

import gc
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
from tests.support.engines import TOLERANCE, engines, normal, qkv, same_bits
from tests.support.lanes import examples, sweep
from tests.support.parts import four, parts
from tests.support.strategies import Case, dropouts, problems

random_problems = examples(15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
DTYPES = (np.float32, np.float64, ml_dtypes.bfloat16)


def equal(mine, theirs):
    """Equal results: arrays, and tuples of arrays."""
    if isinstance(mine, tuple):
        for one, other in zip(mine, theirs, strict=True):
            equal(one, other)
    else:
        same_bits(mine, theirs)


@random_problems
@given(st.data(), problems(dtypes=DTYPES, depth=20), st.none() | dropouts, st.sampled_from(("jit", "reference")))
def test_a_part_has_the_bits_of_the_whole(data, case, falling, name):
    """out and lse of any entries and heads of any call, with tables, sinks and dropout."""
    kwargs, part = four(case.kwargs) | (falling or {}), data.draw(parts(case))
    whole = rg.attention_with_lse(**kwargs, engine=name)
    found = rg.attention_with_lse(**part.kwargs | (falling or {}), engine=name)
    for old, new in zip(whole, found, strict=True):
        same_bits(part.of(old), new)
    if not falling:  # without a seed and sinks, the fast path may take the call
        alone = {name: value for name, value in part.kwargs.items() if value is not None}
        same_bits(rg.attention(**alone), rg.attention(**alone, dropout=0.0, seed=1))


@random_problems
@given(st.data(), problems(dtypes=DTYPES, depth=12), st.none() | dropouts)
def test_weights_of_a_part(data, case, falling):
    """Weights of selected rows and keys, with dropout."""
    kwargs, part = four(case.kwargs) | (falling or {}), data.draw(parts(case))
    whole, some = ({name: value for name, value in each.items() if name != "v"} for each in (kwargs, part.kwargs))
    same_bits(part.of(rg.attention_weights(**whole)), rg.attention_weights(**some | (falling or {})))


@random_problems
@given(st.data(), problems(dtypes=DTYPES, depth=12), st.sampled_from(("jit", "reference")))
def test_statistics_of_a_part(data, case, name):
    """Every statistic, and the mass on a set of keys that depends on batch entry and head."""
    kwargs, part = four(case.kwargs), data.draw(parts(case))
    (B, H, Q, _), K = kwargs["q"].shape, kwargs["k"].shape[2]
    seen = rg.table(np.random.default_rng(Q).random((B, H, 5)) > 0.5, "seen")
    keys = seen[rg.batch, rg.head, rg.key % 5] | (rg.key == rg.head)
    measures = [
        "lse",
        "entropy",
        "maximum",
        "distance",
        "range",
        "counts",
        "received",
        rg.mass(keys, "some"),
        rg.top(2),
    ]
    if Q and K:
        measures.append(rg.pooled(min(Q, 2), min(K, 3)))
    whole, some = ({name: value for name, value in each.items() if name != "v"} for each in (kwargs, part.kwargs))
    found = rg.attention_stats(**some, of=measures, engine=name)
    for measure, old in rg.attention_stats(**whole, of=measures, engine=name)._answers.items():
        picked = type(old)(*map(part.of, old)) if isinstance(old, tuple) else part.of(old)
        equal(picked, found[measure])


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
    part = data.draw(parts(Case(kwargs)))
    whole = rg.attention_backward(dout, **kwargs, **falling or {}, engine=name)
    found = rg.attention_backward(part.of(dout), **part.kwargs, **falling or {}, engine=name)
    same_bits(part.of(whole.q), found.q)
    same_bits(whole.k[part.entries, part.groups], found.k)
    same_bits(whole.v[part.entries, part.groups], found.v)
    same_bits(part.of(whole.tables[height]), part.of(found.tables[height]))
    rest = found.tables[height].copy()
    rest[part.entries, part.heads] = 0
    assert found.tables.keys() == whole.tables.keys() and not rest.any()


@pytest.mark.spread
@engines
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cut", [1, 2])
def test_gradients_of_tables_add_up(engine, dtype, cut):
    """The gradients of a table, of all parts together, are those of the whole to the rounding of a sum of its terms."""
    B, H, Q, K = 3, 4, 9, 21
    q, k, v = qkv(B=B, H=H, G=2, Q=Q, K=K, dtype=dtype)
    dout = normal(B, H, Q, 16, seed=8).astype(dtype)
    own, shared = rg.table(normal(B, H, 7, dtype=np.float64)), rg.table(normal(7, dtype=np.float64))
    rules = {
        "mask": rg.causal() & ((rg.key + rg.head) % 5 > rg.batch),
        "score": rg.score + own[rg.batch, rg.head, rg.key % 7] + shared[rg.clip(rg.query - rg.key, 0, 6)],
        "engine": engine,
    }
    whole = rg.attention_backward(dout, q, k, v, **rules).tables
    cuts = cut, 2
    sums = {table: np.zeros(table.array.shape) for table in (own, shared)}
    for entries in (slice(0, cuts[0]), slice(cuts[0], B)):
        for heads in (slice(0, cuts[1]), slice(cuts[1], H)):
            groups = slice(heads.start // 2, heads.stop // 2)
            given_ = dout[entries, heads], q[entries, heads], k[entries, groups], v[entries, groups]
            found = rg.attention_backward(*given_, **rules, batch_start=entries.start, head_start=heads.start)
            for table, total in sums.items():
                total += found.tables[table]
    weights = rg.attention_weights(
        *(part.astype(np.float64) for part in (q, k)), mask=rules["mask"], score=rules["score"]
    )
    terms = weights * np.abs(dout.astype(np.float64) @ np.repeat(v, 2, 1).astype(np.float64).swapaxes(-1, -2))
    # dS = P · dP − P · Σ P · dP, each term in the dtype of sums in both calls, and then sums in float64
    budget = 2 * terms.sum() * weights.size * np.finfo(np.float64).eps
    for table, total in sums.items():
        np.testing.assert_allclose(total, whole[table], rtol=0, atol=budget)


def test_numbers_beyond_32_bits():
    """Integers of a rule that leave 32 bits only because heads count from far away."""
    q, k, v = qkv(H=4)
    last = (1 << 31) - 4
    for rule in ({"mask": (rg.head * 3 + rg.key) % 7 > 2}, {"score": rg.score + rg.to_float(rg.head * rg.head % 11)}):
        for first in (last, 1 << 20):
            found, exact = (
                rg.attention(q, k, v, **rule, head_start=first, engine=name) for name in ("jit", "reference")
            )
            np.testing.assert_allclose(found, exact, **TOLERANCE)
            for head in range(4):
                numbered = {name: substituted(each, {rg.head: lift(first + head)}) for name, each in rule.items()}
                alone = rg.attention(q[:, [head]], k[:, [head]], v[:, [head]], **numbered)
                same_bits(found[:, [head]], alone)


@engines
def test_bare_arrays_are_of_the_call(engine):
    """An array passed as mask= or score=, and sinks, have the entries and heads of the call, wherever it begins."""
    q, k, v = qkv()
    rules = {"mask": normal(2, 1, 19, 37, seed=4) > 0, "score": normal(2, 19, 37, seed=5), "sinks": normal(2, seed=6)}
    usual = rg.attention(q, k, v, **rules, engine=engine)
    same_bits(rg.attention(q, k, v, **rules, batch_start=3, head_start=7, engine=engine), usual)


@engines
def test_callables_count_too(engine):
    """A callable is a rule: its batch and head count from the starts."""
    q, k, v = qkv(B=3, H=4)
    limit = np.array([[5, 9, 30, 37], [1, 2, 3, 4], [37, 8, 20, 0]])
    rules = {
        "mask": lambda b, h, i, j: j < limit[b, h],
        "score": lambda s, b, h, i, j: s + 0.1 * b * h,
        "engine": engine,
    }
    whole = rg.attention(q, k, v, **rules)
    part = rg.attention(q[1:, 2:3], k[1:, 2:3], v[1:, 2:3], **rules, batch_start=1, head_start=2)
    same_bits(part, whole[1:, 2:3])


def test_the_batch_is_one_number():
    """Several axes before the heads are one batch, in the order of the array: batch_start counts entries of that."""
    q, k, v = (part.reshape(2, 3, *part.shape[1:]) for part in qkv(B=6))
    rules = {"mask": rg.lengths([1, 20, 7, 30, 4, 37])}
    whole = rg.attention(q, k, v, **rules)
    same_bits(rg.attention(q[1], k[1], v[1], **rules, batch_start=3), whole[1])
    same_bits(rg.attention(q[1:, 1:], k[1:, 1:], v[1:, 1:], **rules, batch_start=4), whole[1:, 1:])


def test_a_start_may_be_any_integer():
    """An integer of Python or NumPy or of a tensor means the same; what is no number of an entry is refused."""
    q, k, v = qkv()
    rules = {"score": rg.alibi(rg.alibi_slopes(8))}
    usual = rg.attention(q, k, v, **rules, head_start=3)
    for start in (np.int32(3), np.array(3), np.uint64(3), torch.tensor(3)):
        same_bits(rg.attention(q, k, v, **rules, head_start=start), usual)
    same_bits(
        rg.attention(q, k, v, **rules, head_start=0), rg.attention(q, k, v, score=rg.alibi(rg.alibi_slopes(8)[:2]))
    )
    for start in (1.0, True, np.True_, [3], np.array([3]), "3", -1, (1 << 31) - 1, 1 << 70, rg.head):
        for name in ("head_start", "batch_start"):
            with pytest.raises(rg.Refused, match=f"{name} is not the number of a"):
                rg.attention(q, k, v, **{name: start})


# ---- every function that has the arguments, and what is kept between calls -------------------------------------------


@pytest.mark.parametrize("first", [{"batch_start": 2, "head_start": 5}, *sweep({"head_start": 5}, {"batch_start": 2})])
def test_no_door_forgets_them(first):
    """Every public function that takes query_start, or rules and arrays of one call, takes both and uses them."""
    q, k, v = qkv(B=1, H=2)
    rules = {"mask": rg.key != rg.head + 3 * rg.batch}
    moved = {"mask": rg.key != rg.head + first.get("head_start", 0) + 3 * (rg.batch + first.get("batch_start", 0))}
    for function in (rg.attention, rg.attention_with_lse, rt.attention, rt.attention_with_lse):
        given_ = map(torch.from_numpy, (q, k, v)) if function.__module__.startswith("regard.torch") else (q, k, v)
        given_ = tuple(given_)
        found, expected = function(*given_, **rules, **first), function(*given_, **moved)
        plain = function(*given_, **rules)
        for one, other, without in zip(
            *(each if isinstance(each, tuple) else (each,) for each in (found, expected, plain))
        ):
            assert np.array_equal(one, other) and not np.array_equal(one, without)
    for function, given_ in (
        (lambda *x, **y: rg.attention_weights(*x, **y), (q, k)),
        (lambda *x, **y: rg.attention_stats(*x, of="entropy", **y).entropy, (q, k)),
        (lambda *x, **y: rg.attention_backward(np.ones_like(q), *x, **y).q, (q, k, v)),
    ):
        same_bits(function(*given_, **rules, **first), function(*given_, **moved))
        assert not np.array_equal(function(*given_, **rules, **first), function(*given_, **rules))
    explained = rg.explain(q, k, v, **rules, **first)
    assert explained.cost.allowed == rg.explain(q, k, v, **moved).cost.allowed


def test_explain_says_where_the_call_begins():
    """The starts are shown where they differ from 0, and in the rules."""
    q, k, v = qkv(B=2, H=4)
    text = str(rg.explain(q, k, v, score=rg.alibi(16), batch_start=3, head_start=8))
    assert "; batch entry 0 is batch entry 3, head 0 is head 8 of the whole\n" in text and "slope[head + 8]" in text
    assert "of the whole" not in str(rg.explain(q, k, v, score=rg.alibi(16), batch_start=0, head_start=0))
    assert "head_start: 8" in repr(rg.explain(q, k, v, head_start=8).problem)


@pytest.mark.parametrize("rule", [{"mask": rg.key > rg.head}, {"score": rg.alibi(16)}], ids=["plain", "frozen table"])
def test_two_starts_do_not_share_a_result(rule):
    """The same rule object with other starts gives other results, in any order of calls; what is kept for a start is
    used again.
    """
    q, k, v = qkv(H=4)
    calls = [{"head_start": 0}, {"head_start": 4}, {"head_start": 12}, {"batch_start": 4, "head_start": 4}]
    fresh = [rg.attention(q, k, v, **rule, **first, engine="reference") for first in calls]
    for first, exact in [*zip(calls, fresh), *zip(calls[::-1], fresh[::-1])]:
        np.testing.assert_allclose(rg.attention(q, k, v, **rule, **first), exact, **TOLERANCE)
        np.testing.assert_allclose(rg.attention(q, k, v, **rule, **first, dropout=0.0, seed=1), exact, **TOLERANCE)
    known = len(engine._recipes.results), len(fast_path._kinds.results), len(starts._counted.results)
    for first in calls:
        rg.attention(q, k, v, **rule, **first)
        rg.attention(q, k, v, **rule, **first, dropout=0.0, seed=1)
    assert known == (len(engine._recipes.results), len(fast_path._kinds.results), len(starts._counted.results))


def test_a_rule_of_a_start_is_kept():
    """As long as a rule lives, it becomes the same rule again, also if its arrays may change: else every call would
    compile and plan anew.
    """
    for rule in (rg.key > rg.head, rg.alibi(16), rg.score * rg.table(normal(16))[rg.head]):
        assert weakref.ref(counted(rule, Starts(head=4)))() is not None
        assert counted(rule, Starts(head=4)) is counted(rule, Starts(None, 4)) is not counted(rule, Starts(head=5))


def test_starts_keep_no_array_alive():
    """The tables of a rule are freed with the rule, whether or not the starts changed it."""
    q, k, v = qkv(H=4)
    for build in (
        lambda: rg.score - rg.table(normal(9, seed=77))[rg.head],
        lambda: rg.score - rg.table(normal(37, seed=78))[rg.key],
    ):
        rule = build()
        given_ = {"score": rule}
        rg.attention(q, k, v, **given_, head_start=5)
        rg.attention(q, k, v, **given_, head_start=5, dropout=0.5, seed=1)
        held = [weakref.ref(table) for table in rule.tables]
        del rule, given_
        gc.collect()
        assert held and [table() for table in held] == [None]


# ---- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3])
def test_a_cache_of_some_heads_and_sequences(rows):
    """A cache of two of four groups and two of three sequences decodes the bits of that part of the full cache."""
    B, H, G, K, D = 3, 8, 4, 40, 16
    q, k, v = qkv(B=B, H=H, G=G, Q=K, K=K)
    slopes, limit = rg.alibi_slopes(H), np.array([2, 30, 7])
    rules = {
        "mask": rg.causal() & ((rg.key + rg.head) % 5 > 0) & (rg.key >= rg.table(limit)[rg.batch] - 9),
        "score": rg.alibi(slopes),
    }
    whole, part = rg.KVCache(heads=G, depth=D, batch=B), rg.KVCache(heads=2, depth=D, batch=2)
    starts_ = {"batch_start": 1, "head_start": 4}
    for first in range(0, K, rows):
        new = slice(first, min(first + rows, K))
        whole.append(k[:, :, new], v[:, :, new])
        part.append(k[1:, 2:, new], v[1:, 2:, new])
        expected = whole.attend_with_lse(q[:, :, new], **rules)
        found = part.attend_with_lse(q[1:, 4:, new], **rules, **starts_)
        for old, mine in zip(expected, found):
            same_bits(old[1:, 4:], mine)
        same_bits(part.attend(q[1:, 4:, new], **rules, **starts_), found[0])
    # Sequences that are chosen are counted as before, from batch_start.
    alone = part.attend(q[2:, 4:, new], **rules, batch_start=2, head_start=4, sequences=[1], query_start=new.start)
    same_bits(alone, found[0][1:])


def test_steps_of_a_cache_see_another_start():
    """A step that differs from the last one only in its starts is prepared anew."""
    cache = rg.KVCache(heads=2, depth=8)
    q, k, v = qkv(B=1, H=2, Q=9, K=9, D=8, E=8)
    cache.append(k[:, :, :8], v[:, :, :8])
    cache.attend(q[:, :, :8], mask=rg.causal())
    cache.append(k[:, :, 8:], v[:, :, 8:])
    mask = rg.key != rg.head + 2 * rg.batch
    for first in ({}, {"head_start": 3}, {"head_start": 4}, {"batch_start": 3}, {}):
        moved = rg.key != rg.head + first.get("head_start", 0) + 2 * (rg.batch + first.get("batch_start", 0))
        found = cache.attend(q[:, :, 8:], mask=mask, **first)
        same_bits(found, rg.attention(q[:, :, 8:], k, v, mask=moved))


def test_starts_of_a_cache_are_checked():
    """The refusal names the cache, and a table that is too short."""
    cache = rg.KVCache(heads=2, depth=8)
    q, k, v = qkv(B=1, H=2, Q=3, K=3, D=8, E=8)
    cache.append(k, v)
    with pytest.raises(rg.Refused, match=r"KVCache.attend: head_start is not the number of a query head"):
        cache.attend(q, head_start=0.5)
    with pytest.raises(rg.Refused, match=r"KVCache.attend: the slope table has 4 entries for heads 3 … 4"):
        cache.attend(q, score=rg.alibi(4), head_start=3)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_cache_reads_a_start_that_changed(library):
    """A start in an array or a tensor that was changed since the last step is read again, and a bad one is refused."""
    new = np.array if library == "numpy" else pytest.importorskip("torch").tensor
    H, G, D = 8, 2, 8
    k, v = normal(1, G, 50, D, seed=1), normal(1, G, 50, D, seed=2)
    q, rule = normal(1, H, 1, D, seed=3), rg.alibi(16)
    cache = rg.KVCache(heads=G, depth=D)
    cache.append(k, v)
    cache.append(k[:, :, :1], v[:, :, :1])
    start = new(0)
    for number in (0, 8, 0):
        start[...] = number
        same_bits(cache.attend(q, score=rule, head_start=start), cache.attend(q, score=rule, head_start=number))
    with pytest.raises(rg.Refused):
        cache.attend(q, score=rule, head_start=np.array([0, 8]))
