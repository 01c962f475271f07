"""Law 11: sums over keys are a binary tree over pieces of 1024 positions, in every path of the compiled engine.

Every test has more than 3072 keys: below that a tree and a sum piece after piece are the same.
"""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit.code.target import limited
from regard.engines.jit.kernels.forward import PIECE
from regard.engines.jit.run import threads
from tests.support.engines import DTYPES, DTYPES_IN_CI, normal, qkv, same_bits
from tests.support.lanes import SWEEP
from tests.support.machine import OFFERED, each_isa
from tests.support.strategies import LAYOUTS, Dims, laid_out, masks, scores

EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES_IN_CI, ids=lambda dtype: np.dtype(dtype).name)
# The third leaves whole pieces out, the fourth most of them; in the fifth many rows attend to nothing.
RULES = {
    "dense": {},
    "causal": {"mask": rg.causal()},
    "gaps": {"mask": rg.causal() & ((rg.key // 1500) % 3 != 1), "score": rg.softcap(4.0)},
    "sparse": {"mask": rg.causal() & (rg.window(700) | rg.global_tokens(3))},
    "empty": {"mask": (rg.query - rg.key > 4000) & (rg.query % 3 != 0)},
    "dropout": {"mask": rg.causal(), "dropout": 0.3, "seed": 5},
}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def case(dtype=np.float32, K=9000, Q=70, H=4, G=2, D=16, E=16, B=1):
    return qkv(H=H, Q=Q, K=K, D=D, E=E, G=G, B=B, dtype=dtype)


def same_results(one, other):
    """The same bits; NaN is equal to NaN."""
    for two in zip(one, other, strict=True):
        same_bits(*(np.where(np.isnan(each), each.dtype.type(9), each) for each in two))


# ---- the tree --------------------------------------------------------------------------------------------------------


def leaf(q, k, v, number: int, rule: dict) -> rg.Part:
    """The piece with this number, computed alone."""
    here = (rg.key >= number * PIECE) & (rg.key < (number + 1) * PIECE)
    return rg.attention_part(q, k, v, **rule | {"mask": here & rule.get("mask", rg.everything())})


def tree(leaves: list, merge) -> object:
    """The law, written out: the leaves, padded with None to a power of two, merged two by two."""
    size = 1 << max(len(leaves) - 1, 0).bit_length()
    level = leaves + [None] * (size - len(leaves))
    while len(level) > 1:
        level = [merge(*pair) if pair[1] is not None else pair[0] for pair in zip(level[::2], level[1::2])]
    return level[0]


def check_tree(q, k, v, rule):
    """Every piece alone, empty ones among them, merged two by two as the law says, has the bits of the call, which it
    returns.
    """
    whole = rg.attention_with_lse(q, k, v, **rule)
    pieces = [leaf(q, k, v, number, rule) for number in range(-(-k.shape[2] // PIECE))]
    merged = tree(pieces, lambda left, right: rg.merge([left, right])), rg.merge(pieces)
    for found in (*merged, rg.attention_part(q, k, v, **rule)):
        same_results(whole, found.result())
    return whole


@pytest.mark.spread
@EACH_DTYPE
@each_rule
@pytest.mark.parametrize("K", [3073, 5000, 9000])
def test_law_11_a_call_is_the_tree_of_its_pieces(dtype, rule, K):
    """For every rule and number of keys."""
    check_tree(*case(dtype, K=K), rule)


@pytest.mark.sweep
@each_isa
def test_law_11_on_every_instruction_set(isa):
    """The same, compiled for each instruction set that runs here."""
    with limited(isa):
        check_tree(*case(K=5000, Q=9), RULES["gaps"])


@pytest.mark.slow
@settings(max_examples=60 if SWEEP else 3)
@given(st.data())
def test_law_11_random_rules_are_trees(data):
    """The same for random masks and scores, with gaps, empty rows and any start; and a row alone."""
    dims = Dims(B=2, G=1, H=2, Q=data.draw(st.integers(1, 40)), K=data.draw(st.integers(3000, 6000)), D=4, E=4)
    q, k, v = case(K=dims.K, Q=dims.Q, H=2, G=1, D=4, E=4, B=2)
    gap = (rg.key // data.draw(st.sampled_from((128, 1000, 1024, 2048)))) % data.draw(st.integers(2, 5)) != 0
    mask = data.draw(st.sampled_from((gap, rg.causal() & gap, ~gap | rg.window(900)))) | data.draw(masks(dims, 1))
    rule = {"mask": mask, "score": data.draw(scores(dims)), "query_start": data.draw(st.integers(0, dims.K))}
    whole, row = check_tree(q, k, v, rule), data.draw(st.integers(0, dims.Q - 1))
    alone = rg.attention_with_lse(q[:, :, [row]], k, v, **rule | {"query_start": rule["query_start"] + row})
    same_results([each[:, :, [row]] for each in whole], alone)


@pytest.mark.parametrize("size", [1024, 2048, 4096])
def test_law_11_each_process_holds_some_keys(size):
    """Parts of equal size from position 0, each with its own keys alone and anything else in the other rows."""
    q, k, v = case(K=9000, Q=33)
    rule = {
        "mask": (rg.key >= 2500) & rg.causal(),
        "score": rg.score + rg.sin(0.01 * rg.key),
        "dropout": 0.2,
        "seed": 1,
    }
    parts, sinks = [], normal(4, 2, seed=3)
    for first in range(0, 9000, size):
        own = (np.arange(9000) // size * size == first)[:, None]
        held = (np.where(own, each, np.float32(np.nan)) for each in (k, v))
        here = (rg.key >= first) & (rg.key < first + size)
        parts.append(rg.attention_part(q, *held, **rule | {"mask": rule["mask"] & here}))
    same_results(rg.attention_with_lse(q, k, v, **rule, sinks=sinks), rg.merge(parts).result(sinks))


# ---- what may not change a bit ---------------------------------------------------------------------------------------


@pytest.mark.spread
@EACH_DTYPE
@each_rule
@pytest.mark.parametrize("Q", [1, 3, 70])
def test_law_11_threads_layouts_and_company(dtype, rule, Q):
    """One thread, two, three, five; few rows share their pieces among the threads, one thread takes them in order.
    Other strides; an entry of the batch and a group of heads alone.
    """
    q, k, v = case(dtype, B=2, K=5000, Q=Q)
    whole = rg.attention_with_lse(q, k, v, **rule)
    for count in (1, 2, 3, 5):
        with threads.limit(count):
            same_results(whole, rg.attention_with_lse(q, k, v, **rule))
    for layout in set(LAYOUTS) - {"broadcast"}:
        same_results(whole, rg.attention_with_lse(*(laid_out(each, layout) for each in (q, k, v)), **rule))
    for b, g in itertools.product(range(2), range(2)):
        some = slice(2 * g, 2 * g + 2)
        alone = q[[b], some], k[[b], g : g + 1], v[[b], g : g + 1]
        starts = {"batch_start": b, "head_start": 2 * g}
        part = rg.attention_part(*alone, **starts, **rule)
        for found in (rg.attention_with_lse(*alone, **starts, **rule), part.result()):
            same_results([each[[b], some] for each in whole], found)


@pytest.mark.spread
@EACH_DTYPE
@pytest.mark.parametrize(
    ("rule", "window"),
    [
        *((RULES[name], None) for name in ("causal", "gaps", "sparse", "empty")),
        *(({"mask": rg.window(window)}, window) for window in (3500, 5000)),
    ],
)
def test_law_11_decoding_over_pages(dtype, rule, window):
    """Token by token and in chunks over a cache, whose pages are anywhere and whose ring forgets keys and not
    positions: the bits of one prefill.
    """
    q, k, v = case(dtype, K=5300, Q=5300, B=2)
    whole = rg.attention_with_lse(q, k, v, **rule)
    cache = rg.KVCache(2, 16, batch=2, dtype=np.dtype(dtype).name, window=window)
    borders = (0, 700, 701, 3000, 4090, 4096, 4097, 4098, 5000, 5299, 5300)
    for first, last in itertools.pairwise(borders):
        cache.append(k[:, :, first:last], v[:, :, first:last])
        part = cache.attend_with_lse(q[:, :, first:last], **({} if window else rule))
        same_results([each[:, :, first:last] for each in whole], part)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_law_11_between_instruction_sets(dtype):
    """Instruction sets with fused multiply-add have the same bits, unless they multiply pairs of bfloat16."""
    fused = [isa for isa in OFFERED if isa in ("avx512bf16", "avx512", "avx2")]
    if np.dtype(dtype).name == "bfloat16":
        fused = [isa for isa in fused if isa != "avx512bf16"]
    if len(fused) < 2:
        pytest.skip(f"this machine offers {', '.join(OFFERED)}: nothing to compare")
    q, k, v = case(dtype, K=5000, Q=20)
    rule = {"mask": rg.causal(), "score": rg.softcap(5.0)}
    results = []
    for isa in fused:
        with limited(isa):
            results.append(rg.attention_with_lse(q, k, v, **rule))
    for other in results[1:]:
        same_results(results[0], other)


# ---- values ----------------------------------------------------------------------------------------------------------


def test_zeros_are_positive():
    """A sum that underflowed below zero is 0 and not -0: whether it is merged or rescaled does not show."""
    q, k, v = np.ones((1, 1, 1, 4), np.float32), *np.zeros((2, 1, 1, 5000, 4), np.float32)
    v[:, :, :100] = -1e-30
    for loud in (200, 1100, 4500):  # later keys, in another block or piece, whose scores are larger by 100
        k[:, :, loud:] = 50
        same_bits(check_tree(q, k, v, {})[0], np.zeros_like(q))


def test_what_is_attended_shows_in_a_part():
    """A NaN or an infinity that a row attends to shows in the merged result; one that it does not attend to cannot."""
    q, k, v = case(K=5000, Q=2)
    v[:, :, 4500], k[:, :, 1100] = np.nan, np.inf
    for mask, finite in ((rg.everything(), False), ((rg.key != 4500) & (rg.key != 1100), True)):
        assert np.isfinite(check_tree(q, k, v, {"mask": mask})[0]).all() == finite


def test_a_tree_of_1024_pieces_is_more_accurate_than_a_sum_in_order():
    """Over a million keys, against float64: the error of the tree is below that of adding piece after piece."""
    K, part = 1024 * PIECE, 64 * PIECE
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((1, 1, rows, 4), dtype=np.float32) for rows in (4, K))
    v = rng.random((1, 1, K, 4), dtype=np.float32)
    exact = rg.attention(*(each.astype(np.float64) for each in (q, k, v)))
    blocks = [slice(first, first + part) for first in range(0, K, part)]
    pieces = [leaf(q, k[:, :, some], v[:, :, some], number, {}) for some in blocks for number in range(64)]
    tree, in_order = rg.merge(pieces), functools.reduce(lambda whole, piece: rg.merge([whole, piece]), pieces)
    same_bits(rg.attention(q, k, v), tree.result()[0])
    errors = [np.square((found.result()[0] - exact) / exact).mean() for found in (tree, in_order)]
    assert errors[0] < errors[1]
