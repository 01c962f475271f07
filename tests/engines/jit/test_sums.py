"""Law 11: sums over keys are a binary tree over pieces of 1024 positions, in every path of the compiled engine.

Every test has more than 3072 keys: below that a tree and a sum piece after piece are the same.
"""

import functools
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit import threads
from regard.engines.jit.code.target import limited
from regard.engines.jit.kernels.forward import PIECE
from tests.engines.jit.usual import large_examples, rules_with_gaps, same_results, tree
from tests.support.engines import dtypes, dtypes_in_ci, qkv, same_bits
from tests.support.lanes import by_name
from tests.support.machine import OFFERED, each_isa
from tests.support.strategies import LAYOUTS, Dims, laid_out, scores

# The third leaves whole pieces out, the fourth most of them; in the fifth many rows attend to nothing.
RULES = {
    "dense": {},
    "causal": {"mask": rg.causal()},
    "gaps": {"mask": rg.causal() & ((rg.key // 1500) % 3 != 1), "score": rg.softcap(4.0)},
    "sparse": {"mask": rg.causal() & (rg.window(700) | rg.global_tokens(3))},
    "empty": {"mask": (rg.query - rg.key > 4000) & (rg.query % 3 != 0)},
    "dropout": {"mask": rg.causal(), "dropout": 0.3, "seed": 5},
}
each_rule = by_name("rule", RULES)


case = functools.partial(qkv, H=4, G=2, Q=70, K=9000, B=1)

# ---- the tree --------------------------------------------------------------------------------------------------------


def leaf(q, k, v, number: int, rule: dict, size: int = PIECE) -> rg.Part:
    """The piece with this number, computed alone; or as many pieces as a size has."""
    here = rg.key // size == number
    return rg.attention_part(q, k, v, **rule | {"mask": here & rule.get("mask", rg.everything())})


def check_tree(q, k, v, rule, size=PIECE):
    """Every piece alone, empty ones among them, merged two by two as the law says, has the bits of the call, which it
    returns.
    """
    whole, rule = rg.attention_with_lse(q, k, v, **rule), dict(rule)
    sinks = rule.pop("sinks", None)
    pieces = [leaf(q, k, v, number, rule, size) for number in range(max(-(-k.shape[-2] // size), 1))]
    merged = tree(dict(enumerate(pieces)), lambda *pair: rg.merge([*pair])), rg.merge(pieces)
    for found in (*merged, rg.attention_part(q, k, v, **rule)):
        same_results(whole, found.result(sinks))
    return whole


@pytest.mark.spread
@dtypes_in_ci
@each_rule
@pytest.mark.parametrize("K", [3073, 5000, 9000])
def test_law_11_a_call_is_the_tree_of_its_pieces(dtype, rule, K):
    """For every rule and number of keys."""
    check_tree(*case(dtype=dtype, K=K), rule)


@pytest.mark.sweep
@each_isa
def test_law_11_on_every_instruction_set(isa):
    """The same, compiled for each instruction set that runs here."""
    with limited(isa):
        check_tree(*case(K=5000, Q=9), RULES["gaps"])


@pytest.mark.slow
@large_examples(60, 3)
@given(st.data())
def test_law_11_random_rules_are_trees(data):
    """The same for random masks and scores, with gaps, empty rows and any start."""
    sizes = {"H": 2, "G": 1, "Q": data.draw(st.integers(1, 40)), "K": data.draw(st.integers(3000, 6000)), "B": 2}
    dims = Dims(**sizes, D=16, E=16)
    start = data.draw(st.integers(0, dims.K))
    rule = {"mask": data.draw(rules_with_gaps(dims)), "score": data.draw(scores(dims)), "query_start": start}
    check_tree(*case(**sizes), rule)


@pytest.mark.parametrize("size", [2 * PIECE, 4 * PIECE])
def test_law_11_each_process_holds_some_keys(size):
    """Parts of equal size from position 0, which are trees themselves."""
    check_tree(*case(Q=33), RULES["gaps"] | {"dropout": 0.2, "seed": 1, "sinks": np.ones(4)}, size)


# ---- what may not change a bit ---------------------------------------------------------------------------------------


@pytest.mark.spread
@dtypes_in_ci
@each_rule
@pytest.mark.parametrize("Q", [1, 3, 70])
def test_law_11_threads_layouts_and_company(dtype, rule, Q):
    """One thread, two, three, five; few rows share their pieces among the threads, one thread takes them in order.
    Other strides; an entry of the batch and a group of heads alone.
    """
    q, k, v = case(dtype=dtype, B=2, K=5000, Q=Q)
    attend = functools.partial(rg.attention_with_lse, **rule)
    whole = attend(q, k, v)
    for count in (1, 2, 3, 5):
        with threads.limit(count):
            same_results(whole, attend(q, k, v))
    for layout in set(LAYOUTS) - {"broadcast"}:
        same_results(whole, attend(*(laid_out(each, layout) for each in (q, k, v))))
    for b, g in itertools.product(range(2), range(2)):
        some = slice(2 * g, 2 * g + 2)
        alone = q[[b], some], k[[b], g : g + 1], v[[b], g : g + 1]
        starts = {"batch_start": b, "head_start": 2 * g}
        for found in (attend(*alone, **starts), rg.attention_part(*alone, **starts, **rule).result()):
            same_results([each[[b], some] for each in whole], found)


@pytest.mark.spread
@dtypes_in_ci
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
    q, k, v = case(dtype=dtype, K=5300, Q=5300, B=2)
    whole = rg.attention_with_lse(q, k, v, **rule)
    cache = rg.KVCache(2, 16, batch=2, dtype=np.dtype(dtype).name, window=window)
    borders = (0, 700, 701, 3000, 4090, 4096, 4097, 4098, 5000, 5299, 5300)
    for first, last in itertools.pairwise(borders):
        cache.append(k[:, :, first:last], v[:, :, first:last])
        part = cache.attend_with_lse(q[:, :, first:last], **({} if window else rule))
        same_results([each[:, :, first:last] for each in whole], part)


@pytest.mark.one_in(4)
@dtypes
def test_law_11_between_instruction_sets(dtype):
    """Instruction sets with fused multiply-add have the same bits, unless they multiply pairs of bfloat16."""
    fused = [*([] if dtype == ml_dtypes.bfloat16 else ["avx512bf16"]), "avx512", "avx2"]
    results = []
    for isa in set(fused) & set(OFFERED):
        with limited(isa):
            results.append(
                rg.attention_with_lse(*case(dtype=dtype, K=5000, Q=20), mask=rg.causal(), score=rg.softcap(5.0))
            )
    if len(results) < 2:
        pytest.skip(f"this machine offers {', '.join(OFFERED)}: nothing to compare")
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


def test_a_million_keys():
    """1024 pieces, as keys of one call and as parts."""
    K, part = 1024 * PIECE, 64 * PIECE
    q, k, v = case(K=K, Q=4, H=1, G=1, D=4, E=4)
    blocks = [np.s_[:, :, first : first + part] for first in range(0, K, part)]
    pieces = [leaf(q, k[some], v[some], number, {}) for some in blocks for number in range(64)]
    same_results(rg.attention_with_lse(q, k, v), rg.merge(pieces).result())
