"""The laws of meaning, each by name, in every engine."""

import functools
import math

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.common.arrays import as_tensor
from regard.engines.dispatch import choose
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.support.engines import ENGINES, TOLERANCE, dtypes, engines, normal, qkv, same_bits
from tests.support.lanes import by_name, sweep
from tests.support.refusals import refusing
from tests.support.strategies import LAYOUTS, laid_out

INF, NAN = math.inf, math.nan


def spread(engine, keys, **rules):
    """The weights of equal scores, one row: read off the output, with the unit vectors as values."""
    rows = rules.pop("rows", keys)
    return rg.attention(
        np.zeros((rows, 4), np.float32),
        np.zeros((keys, 4), np.float32),
        np.eye(keys, dtype=np.float32),
        engine=engine,
        **rules,
    )


def attending(engine, rule, **sizes):
    """out and lse of q, k and v under a rule; and such arrays, two query heads on each key head."""
    return functools.partial(rg.attention_with_lse, engine=engine, **rule), qkv(H=4, G=2, **sizes)


def same(whole, part, cut=...):
    """Fails unless a part has the bits of the whole there."""
    for old, new in zip(whole, part, strict=True):
        same_bits(old[cut], new)


# ---- law 1 -----------------------------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("scale", [None, 0.3, 0.0, -1.0])
def test_law_1_scale_then_score_then_mask_then_softmax(engine, scale):
    """s = scale · q·k, then the score expression, then the mask; weights are the softmax over the allowed keys."""
    q, k, v = qkv(B=1, H=1)
    out, lse = rg.attention_with_lse(
        q, k, v, scale=scale, score=rg.score * rg.score + 1, mask=rg.causal(), engine=engine
    )
    factor = 1 / math.sqrt(16) if scale is None else scale
    powers = np.exp((factor * (q.astype(float) @ k.astype(float).swapaxes(-1, -2))) ** 2 + 1) * np.tri(19, 37, 37 - 19)
    np.testing.assert_allclose(out, powers / powers.sum(-1, keepdims=True) @ v.astype(float), **TOLERANCE)
    np.testing.assert_allclose(lse, np.log(powers.sum(-1)), **TOLERANCE)


# ---- law 2 -----------------------------------------------------------------------------------------------------------


@engines
def test_law_2_true_means_may_attend(engine):
    """A key where the mask is true gets weight; one where it is false gets none."""
    weights = spread(engine, 4, mask=np.array([[True, False, True, False]] * 4))
    np.testing.assert_allclose(weights, [[0.5, 0, 0.5, 0]] * 4)


@engines
def test_law_2_masks_compose(engine):
    """& | ~ of masks is & | ~ of what they allow."""
    near, even = rg.window(3, 2), (rg.key + rg.query) % 2 == 0
    query, key = np.ogrid[:9, :9]
    a, b = (key - query > -3) & (key - query <= 2), (key + query) % 2 == 0
    for mask, expected in ((near & even, a & b), (near | even, a | b), (~near & even, ~a & b), (near ^ even, a ^ b)):
        same_bits(spread(engine, 9, mask=mask) > 0, expected)


# ---- law 3 -----------------------------------------------------------------------------------------------------------


@engines
def test_law_3_the_last_query_stands_at_the_last_key(engine):
    """By default the queries are the last Q of the K keys; query_start=0 gives the top-left convention."""
    for keys, rows, start, counts in (
        (7, 3, {}, [5, 6, 7]),
        (7, 3, {"query_start": 0}, [1, 2, 3]),
        (3, 5, {}, [0, 0, 1, 2, 3]),
    ):
        assert (spread(engine, keys, rows=rows, mask=rg.causal(), **start) > 0).sum(-1).tolist() == counts


@engines
def test_law_3_each_batch_entry_may_start_elsewhere(engine):
    """query_start per batch entry, as an array or a list, shifts each entry's rows, in masks and in scores."""
    q, k, v = qkv(B=3)
    rules = {"mask": rg.causal(), "score": rg.score - 0.1 * (rg.query - rg.key), "engine": engine}
    starts = np.array([18, 2, -4])
    whole = rg.attention(q, k, v, query_start=starts, **rules)
    same_bits(whole, rg.attention(q, k, v, query_start=starts.tolist(), **rules))
    for (entry, start), kind in zip(enumerate(starts), (int, np.int32, np.array)):
        same_bits(whole[entry], rg.attention(q[entry], k[entry], v[entry], query_start=kind(start), **rules))


@engines
def test_law_3_bare_arrays_lie_over_rows_and_keys(engine):
    """An array given as mask= or score= is indexed by row and key, wherever the rows stand."""
    q, k, v = qkv()
    allowed, added = normal(19, 37, seed=4) > 0, normal(2, 1, 19, 37, seed=5)
    usual = rg.attention(q, k, v, mask=allowed, score=added, engine=engine)
    for start in (0, -3, 50):
        same_bits(rg.attention(q, k, v, mask=allowed, score=added, query_start=start, engine=engine), usual)


@engines
def test_law_3_batch_and_head_count_from_their_starts(engine):
    """With batch_start and head_start, rules and tables mean the entries and heads of a larger call, bit for bit."""
    q, k, v = qkv(B=4, H=8, G=4)
    limits = np.array([[5, 37], [30, 12], [1, 20], [37, 8]])
    rules = {
        "mask": rg.causal() & (rg.key < rg.table(limits)[rg.batch, rg.head % 2]),
        "score": rg.alibi(8) - 0.125 * rg.batch * rg.head,
        "engine": engine,
    }
    whole = rg.attention_with_lse(q, k, v, **rules)
    for entries, groups in ((slice(0, 2), slice(0, 2)), (slice(2, 4), slice(2, 4)), (slice(1, 2), slice(3, 4))):
        heads = slice(2 * groups.start, 2 * groups.stop)
        part = q[entries, heads], k[entries, groups], v[entries, groups]
        starts = {"batch_start": entries.start, "head_start": heads.start}
        same(whole, rg.attention_with_lse(*part, **rules, **starts), np.s_[entries, heads])


# ---- law 4 -----------------------------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("width", [1, 2, 5])
def test_law_4_a_window_counts_the_row_itself(engine, width):
    """window(w) lets a row see w keys, itself included."""
    weights = spread(engine, 9, mask=rg.window(width))
    assert (weights > 0).sum(-1).tolist() == [min(row + 1, width) for row in range(9)]
    assert (np.diagonal(weights) > 0).all()


# ---- law 5 -----------------------------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize(
    "rule",
    [
        {"mask": rg.query % 3 == 0},
        {"score": rg.where(rg.query % 3 == 0, rg.score, -INF)},
        {"mask": rg.causal(), "query_start": -9},
        {"mask": np.arange(19)[:, None] % 2 == np.zeros(37)},
    ],
)
def test_law_5_a_row_that_may_attend_nothing(engine, rule):
    """Its output is 0 and its lse −inf; its gradients are 0. Never NaN."""
    q, k, v = qkv()
    out, lse = rg.attention_with_lse(q, k, v, engine=engine, **rule)
    problem = Problem.of(q, k, v, **rule)
    empty = ~(reference.weights(problem, np.arange(19), np.arange(37)) > 0).any(-1)
    assert empty.any()
    same_bits(out[empty], np.zeros_like(out[empty]))
    assert (lse[empty] == -INF).all()
    assert np.isfinite(out).all()
    same_bits(np.isfinite(lse), ~empty)
    found = reference.backward(problem, np.ones(out.shape), np.ones(lse.shape))
    assert not found.q[empty].any()
    assert all(np.isfinite(part).all() for part in found[:3])


@engines
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_law_5_no_rows_or_no_keys(engine, shape):
    """Without keys every row is empty; without rows there is nothing to say."""
    q, k, v = qkv(Q=shape[0], K=shape[1])
    for rule in (
        {"mask": rg.causal()},
        {"mask": np.ones(shape, bool)},
        {"score": np.zeros((2, 1, *shape), np.float32)},
    ):
        out, lse = rg.attention_with_lse(q, k, v, engine=engine, **rule)
        assert out.shape == (2, 2, shape[0], 16)
        assert not out.any()
        assert (lse == -INF).all()


# ---- law 6 -----------------------------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("where", ["k", "v", "bias"])
def test_law_6_what_is_masked_cannot_leak(engine, poison, where):
    """A masked key, value or bias changes no bit of a row that may not attend it, not even as NaN or infinity."""
    added = np.zeros((37, 1), np.float32)
    rule = {"mask": rg.causal() & (rg.key % 5 != 3), "score": rg.bias(added[:, 0])}
    attend, (q, k, v) = attending(engine, rule, Q=37)
    before = attend(q, k, v)
    poisoned = {"k": k, "v": v, "bias": added}[where]
    poisoned[..., 3::5, :] = poison  # never attended
    poisoned[..., 30, :] = poison  # attended from row 30 on
    after = attend(q, k, v)
    same(before, [part[:, :, :30] for part in after], np.s_[:, :, :30])
    if poison != poison:
        assert np.isnan(after[0][:, :, 30:]).all()  # what is attended is seen
        assert np.isnan(after[1][:, :, 30:]).all() == (where != "v")


@engines
def test_law_6_an_attended_value_is_seen_in_its_column_only(engine):
    """One NaN in a value row shows in that column of every row that attends it, and nowhere else."""
    q, k, v = qkv(Q=37)
    v[:, :, 10, 4] = NAN
    out = rg.attention(q, k, v, mask=rg.window(8), engine=engine)
    expected = np.zeros(out.shape, bool)
    expected[:, :, 10:18, 4] = True
    same_bits(np.isnan(out), expected)


def test_law_6_backward():
    """Gradients do not leak either: what nobody may attend gets 0, and NaN stays with those who attend it."""
    q, k, v = qkv(Q=37)
    k[:, :, 20], v[:, :, 20] = NAN, INF
    problem = Problem.of(q, k, v, mask=rg.causal() & (rg.key != 20))
    found = reference.backward(problem, np.ones((2, 2, 37, 16)), np.ones((2, 2, 37)))
    assert all(np.isfinite(part).all() for part in found[:3])
    assert not found.k[:, :, 20].any()
    assert not found.v[:, :, 20].any()


# ---- law 7 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "dtype"), [*((engine, np.float32) for engine in ENGINES), ("auto", np.float64)])
def test_law_7_lse_is_the_natural_logarithm(engine, dtype):
    """lse = ln Σ exp(score), in the dtype of the input."""
    x = np.zeros((6, 4), dtype)
    _, lse = rg.attention_with_lse(x, x, x, score=rg.score + rg.log(rg.key + 1), engine=engine)
    assert lse.dtype == dtype
    np.testing.assert_allclose(lse, math.log(21), rtol=1e-6)


@engines
def test_law_7_parts_merge_by_their_lse(engine):
    """Attention over all keys is the mean of attention over parts, weighted by exp(lse): a monoid."""
    q, k, v = qkv()
    whole, total = rg.attention_with_lse(q, k, v, engine=engine)
    parts = [
        rg.attention_with_lse(q, k[:, :, part], v[:, :, part], engine=engine) for part in (slice(0, 11), slice(11, 37))
    ]
    np.testing.assert_allclose(np.logaddexp(parts[0][1], parts[1][1]), total, **TOLERANCE)
    merged = sum(out * np.exp(lse - total)[..., None] for out, lse in parts)
    np.testing.assert_allclose(merged, whole, **TOLERANCE)


# ---- law 8 -----------------------------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("count", [None, 1, 3])
def test_law_8_sinks_are_logits_in_the_denominator(engine, count):
    """A sink acts as a key with that score and a value of 0: it takes weight and gives nothing."""
    q, k, v = qkv(B=1)
    sinks = normal(2, seed=6) if count is None else normal(2, count, seed=6)
    plain, before = rg.attention_with_lse(q, k, v, mask=rg.causal(), engine=engine)
    out, lse = rg.attention_with_lse(q, k, v, mask=rg.causal(), sinks=sinks, engine=engine)
    mass = np.log(np.exp(sinks.reshape(2, -1)).sum(-1))[None, :, None]
    np.testing.assert_allclose(lse, np.logaddexp(before, mass), **TOLERANCE)
    np.testing.assert_allclose(out, plain * np.exp(before - lse)[..., None], **TOLERANCE)


@engines
def test_law_8_an_empty_row_with_a_sink(engine):
    """It gives 0, and its lse is the sink's; a sink of −inf is no sink."""
    q, k, v = qkv(B=1)
    out, lse = rg.attention_with_lse(q, k, v, mask=rg.key < 0, sinks=np.array([0.25, -INF]), engine=engine)
    assert not out.any()
    np.testing.assert_allclose(lse[0, 0], 0.25)
    assert (lse[0, 1] == -INF).all()


@engines
@pytest.mark.parametrize("sink", [INF, np.nan])
def test_law_8_a_sink_that_is_no_number_shows_unless_nothing_is_attended(engine, sink):
    """It shows in every row of its head, and in no other head; a row that may attend nothing gives 0 all the same."""
    q, k, v = qkv(B=1)
    v[:] = 0
    out, lse = rg.attention_with_lse(q, k, v, mask=rg.query % 2 == 0, sinks=np.array([sink, 0.5]), engine=engine)
    empty = (np.arange(19) + 37 - 19) % 2 == 1
    assert not out[0, 0, empty].any()
    assert np.isnan(out[0, 0, ~empty]).all()
    assert np.isnan(lse[0, 0]).all()
    assert np.isfinite(out[0, 1]).all() and np.isfinite(lse[0, 1]).all()


# ---- law 10 ----------------------------------------------------------------------------------------------------------


@engines
@dtypes
def test_law_10_results_have_the_dtype_and_sums_are_wider(engine, dtype):
    """out has the dtype of the arrays; lse is float32, or float64 for float64; 10,000 equal weights are not lost to a
    16-bit sum.
    """
    q, k, v = np.zeros((1, 3, 8), dtype), np.zeros((1, 10_000, 8), dtype), np.ones((1, 10_000, 8), dtype)
    out, lse = rg.attention_with_lse(q, k, v, engine=engine)
    assert out.dtype == dtype
    assert lse.dtype == (np.float64 if dtype is np.float64 else np.float32)
    np.testing.assert_allclose(out.astype(np.float64), 1, rtol=1e-12 if dtype is np.float64 else 1e-7)
    np.testing.assert_allclose(lse, np.log(10_000), rtol=3e-7)


@engines
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_law_10_errors_of_16_bit_are_those_of_the_usual_computation(engine, dtype):
    """Against float64, the largest and the mean error are at most 1.2 times those of torch's fused attention on the
    same arrays.
    """
    import torch

    q, k, v = (normal(1, 4, 256, 64, seed=seed).astype(dtype) for seed in range(3))
    exact = rg.attention(*(part.astype(np.float64) for part in (q, k, v)), mask=rg.causal(), engine="reference")
    usual = torch.nn.functional.scaled_dot_product_attention(*map(as_tensor, (q, k, v)), is_causal=True).double()
    found = rg.attention(q, k, v, mask=rg.causal(), engine=engine).astype(np.float64)
    for size in (np.max, np.mean):
        assert size(abs(found - exact)) <= 1.2 * size(abs(usual.numpy() - exact))


@engines
def test_law_10_other_dtypes_are_refused(engine):
    """Numbers that attention does not know are not silently computed in some other way."""
    for dtype in (np.int8, ml_dtypes.float8_e4m3fn):
        x = np.zeros((4, 8), dtype)
        with refusing(np.dtype(dtype).name):
            rg.attention(x, x, x, engine=engine)


# ---- law 11: the same bits -------------------------------------------------------------------------------------------
# The reference computes in float64 and rounds once, which hides the last bits that a matrix product may order
# differently.

LOCAL = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "window": {"mask": rg.window(9)},
    "softcap": {"mask": rg.causal(), "score": rg.softcap(2.0)},
    "alibi": {"mask": rg.causal(), "score": rg.alibi(np.array([0.5, 0.25, 0.1, 0.05], np.float32))},
}
formats = pytest.mark.parametrize(
    ("engine", "dtype"),
    [
        ("jit", np.float32),
        ("jit", ml_dtypes.bfloat16),
        ("reference", np.float32),
        *sweep(("jit", np.float64), ("jit", np.float16)),
    ],
)
local = by_name("rule", LOCAL)
DROPPED = {"mask": rg.window(40), "score": rg.softcap(3.0), "dropout": 0.2, "seed": 3}


def rules(*names, more=()):
    """Some of them."""
    return pytest.mark.parametrize("rule", [*(LOCAL[name] for name in names), *more])


@pytest.mark.spread
@formats
@local
def test_law_11_neighbouring_rows(engine, dtype, rule):
    """A row's bits do not depend on the other rows: on what they hold, nor on how many they are."""
    attend, (q, k, v) = attending(engine, rule, dtype=dtype, Q=45, K=150)
    whole = attend(q, k, v)
    disturbed = q.copy()
    disturbed[:, :, 1::2] = 30 * normal(2, 4, 22, 16, seed=9)
    disturbed[:, :, 5] = NAN
    same(whole, [part[:, :, ::2] for part in attend(disturbed, k, v)], np.s_[:, :, ::2])
    for row in (0, 1, 31, 44):
        same(whole, attend(q[:, :, [row]], k, v, query_start=150 - 45 + row), np.s_[:, :, [row]])


@formats
@local
def test_law_11_batch_and_heads(engine, dtype, rule):
    """An entry of the batch, and a group of heads, give the same bits alone and in company."""
    attend, (q, k, v) = attending(engine, rule, dtype=dtype, B=3, Q=45, K=70)
    whole = attend(q, k, v)
    for entry in range(3):
        same(whole, attend(q[entry], k[entry], v[entry]), entry)
    if "slope" not in repr(rule):  # a rule that names the head does depend on which one it is
        for head in range(4):
            same(whole, attend(q[:, [head]], k[:, [head // 2]], v[:, [head // 2]]), np.s_[:, [head]])


@pytest.mark.spread
@formats
@local
def test_law_11_strides_and_alignment(engine, dtype, rule):
    """How the arrays lie in memory changes no bit; nor does anything where they lie as before."""
    attend, arrays = attending(engine, rule, dtype=dtype, Q=45, K=300, E=7)
    usual = attend(*arrays)
    for layout in LAYOUTS:
        if layout != "broadcast":  # repeats numbers, so it is no layout of these arrays
            same(usual, attend(*(laid_out(part, layout) for part in arrays)))
    shared = [np.broadcast_to(part[:1], part.shape) for part in arrays]
    same(attend(*(part.copy() for part in shared)), attend(*shared))


@pytest.mark.spread
@formats
@pytest.mark.parametrize("chunk", [1, 40])
@rules("causal", "window", "softcap", "alibi", more=[DROPPED])
def test_law_11_prefill_in_chunks(engine, dtype, rule, chunk):
    """The strong form: token by token, or in chunks, over the keys so far, equals the whole prefill bit for bit."""
    attend, (q, k, v) = attending(engine, rule, dtype=dtype, Q=150, K=150)
    whole = attend(q, k, v)
    for first in range(0, 150, chunk):
        last = min(first + chunk, 150)
        part = attend(q[:, :, first:last], k[:, :, :last], v[:, :, :last])
        same(whole, part, np.s_[:, :, first:last])


@rules("causal", "window", "softcap")
def test_law_11_gradients_in_any_company(rule):
    """An entry of the batch, and a group of heads, have the same gradients alone, wherever other entries begin."""
    q, k, v = qkv(B=3, H=4, G=2, Q=1100, K=150)
    dout, starts = normal(*q.shape, seed=8), np.array([0, 333, -90])
    whole = rg.attention_backward(dout, q, k, v, query_start=starts, engine="jit", **rule)
    for entry, group in np.ndindex(3, 2):
        many, one = np.s_[[entry], 2 * group : 2 * group + 2], np.s_[[entry], group : group + 1]
        parts = dout[many], q[many], k[one], v[one]
        alone = rg.attention_backward(*parts, query_start=starts[entry], engine="jit", **rule)
        same((whole.q[many], whole.k[one], whole.v[one]), alone[:3])


# ---- law 12 ----------------------------------------------------------------------------------------------------------


@engines
def test_law_12_a_score_of_minus_infinity_removes_the_key(engine):
    """−inf from the score does what the mask does: a mask on top changes no bit, and a NaN value stays out just as
    well.
    """
    q, k, v = qkv(Q=37)
    v[:, :, 3::5] = NAN
    keep = rg.causal() & (rg.key % 5 != 3)
    added = np.where(np.tri(37, dtype=bool) & (np.arange(37) % 5 != 3), 0, -INF).astype(np.float32)
    masked = rg.attention_with_lse(q, k, v, mask=keep, engine=engine)
    assert np.isfinite(masked[0]).all()
    for score in (rg.where(keep, rg.score, -INF), rg.bias(added, query_start=0)):
        scored = rg.attention_with_lse(q, k, v, score=score, engine=engine)
        both = rg.attention_with_lse(q, k, v, score=score, mask=keep, engine=engine)
        for once, twice, plain in zip(scored, both, masked):
            same_bits(once, twice)
            np.testing.assert_allclose(once, plain, **TOLERANCE)


@engines
@pytest.mark.parametrize("poison", [INF, NAN])
def test_law_12_an_attended_infinity_or_nan_shows(engine, poison):
    """A score of +inf or NaN makes its row NaN where it is attended, and no other row."""
    q, k, v = qkv(Q=37)
    score = rg.where((rg.query == 20) & (rg.key == 4), poison, rg.score)
    out, lse = rg.attention_with_lse(q, k, v, score=score, mask=rg.causal(), engine=engine)
    expected = np.broadcast_to(np.arange(37) == 20, lse.shape)
    same_bits(np.isnan(out).all(-1), expected)
    same_bits(np.isnan(out).any(-1), expected)
    same_bits(np.isnan(lse), expected)


# ---- law 13 ----------------------------------------------------------------------------------------------------------


@engines
def test_law_13_a_named_engine_runs_or_refuses(engine):
    """The requested engine is the one that runs; an unknown one is refused; "auto" says why it chose."""
    problem = Problem.of(*qkv())
    assert choose(problem, engine) == (engine, ["requested explicitly"])
    with refusing(f"did you mean '{engine}'"):
        choose(problem, engine + "s")
    name, reasons = choose(problem, "auto")
    assert name == "jit"
    assert reasons
