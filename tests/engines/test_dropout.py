"""Law 9: which weights are dropped is a pure function of seed and positions, the same in every engine."""

import functools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit.code import build
from regard.engines.jit.code.target import host, limited
from regard.engines.reference import attention as reference
from regard.engines.reference import scalar
from regard.language.dropout import Dropout, philox
from regard.language.problem import Problem
from tests.support import engines
from tests.support.engines import dtypes_in_ci
from tests.support.kernels import written
from tests.support.lanes import examples
from tests.support.machine import each_isa, names_x86_registers, on

B, H, G, Q, K, D = 2, 4, 2, 9, 14, 5


normal = functools.partial(engines.normal, dtype=np.float64)
arrays = functools.partial(engines.qkv, H=H, Q=Q, K=K, D=D, E=3, G=G, B=B, dtype=np.float64)


# ---- the generator ---------------------------------------------------------------------------------------------------

# From the appendix of known answers of the paper's own library: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFF_FFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0_A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_published_numbers(counter, key, words):
    """Philox4x32-10 is what its authors publish, bit for bit."""
    assert tuple(int(word) for word in philox(counter, key)) == words


@examples(50)
@given(
    st.integers(0, 2**64 - 1),
    st.floats(0, 1, exclude_max=True),
    st.integers(-(2**31) + 99, 2**31 - 99),
    st.integers(0, 2**32 - 1),
)
def test_the_law_on_single_numbers_drops_the_same(seed, rate, start, head):
    """Philox in plain integers and in NumPy agree for any seed, rate, position and head."""
    numbers = scalar.dropout_factors(6, 9, rate, seed, batch=2**32 - 3, head=head)
    factors = Dropout(rate, seed, 2**32 - 3, head).factors(0, 0, np.arange(3, 9)[:, None], np.arange(9))
    assert numbers == factors.tolist()
    far = Dropout(rate, seed).factors(0, head, start, np.array([0, 2**31 - 2]))
    assert set(far) <= {0.0, 1 / (1 - rate)}


# ---- the law ---------------------------------------------------------------------------------------------------------


def test_law_9_dropout_falls_on_the_weights():
    """weights = softmax · factor, out = weights · v, and lse is that of no dropout."""
    q, k, v = arrays()
    falling = {"mask": rg.causal(), "dropout": 0.3, "seed": 5}
    plain, dropped = Problem.of(q, k, v, mask=rg.causal()), Problem.of(q, k, v, **falling)
    factors = Dropout(0.3, 5).factors(*np.ix_(range(B), range(H), range(K - Q, K), range(K)))
    weights = rg.attention_weights(q, k, mask=rg.causal()) * factors
    np.testing.assert_array_equal(rg.attention_weights(q, k, **falling), weights)
    np.testing.assert_allclose(reference.forward(dropped)[0], weights @ np.repeat(v, H // G, 1), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(reference.forward(dropped)[1], reference.forward(plain)[1])


def test_law_9_no_rate_no_dropout():
    """A rate of 0 changes no bit, whatever the seed."""
    q, k, v = arrays()
    assert Problem.of(q, k, v, dropout=0, seed=3).dropout is None
    assert Problem.of(q, k, v, dropout=np.float32(0.25), seed=np.uint64(2**64 - 1)).dropout == Dropout(0.25, 2**64 - 1)


@pytest.mark.parametrize("engine", ["reference", "jit"])
def test_law_9_a_key_that_is_dropped_was_attended(engine):
    """A NaN in a value reaches every row that attends to it, dropped or not; masked, it has no effect."""
    q, k, v = arrays(dtype=np.float32)
    rules = {"mask": rg.key != 7, "dropout": 0.5, "seed": 1}
    clean = rg.attention(q, k, v, **rules, engine="reference")
    v[:, :, 7] = np.nan
    np.testing.assert_allclose(rg.attention(q, k, v, **rules, engine=engine), clean, rtol=1e-5, atol=1e-6)
    assert np.isnan(rg.attention(q, k, v, dropout=0.5, seed=1, engine=engine)).all()


# ---- the compiled engine ---------------------------------------------------------------------------------------------


def identity_values(B, H, G, Q, K, dtype):
    """q, k and values that show the weights themselves: row j of v is the j-th unit row."""
    q, k = normal(B, H, Q, 16, seed=1), normal(B, G, K, 16, seed=2)
    v = np.broadcast_to(np.eye(K), (B, G, K, K))
    return [array.astype(dtype) for array in (q, k, v)]


@pytest.mark.spread
@each_isa
@dtypes_in_ci
@pytest.mark.parametrize("shape", [(2, 4, 4, 70, 141), (2, 4, 1, 3, 48), (1, 4, 2, 1, 1300)], ids=str)
def test_law_9_the_compiled_engine_drops_the_same_pairs(isa, dtype, shape):
    """Read off the weights: what is 0 in the law is 0, and nothing else, for tiles of any shape, split keys, shared
    heads, and any first entry and head.
    """
    B, H, _, Q, K = shape
    starts = {"query_start": K - Q - 5, "batch_start": 1000, "head_start": 2**31 - 8}
    for seed in (5, 2**64 - 3):
        falling = {"scale": 0.1, "dropout": 0.3, "seed": seed, "engine": "jit"}
        with limited(isa):
            out = rg.attention(*identity_values(*shape, dtype), **falling, **starts)
        places = np.ix_(range(B), range(H), range(K - Q - 5, K - 5), range(K))
        factors = Dropout(0.3, seed, 1000, 2**31 - 8).factors(*places)
        np.testing.assert_array_equal(np.asarray(out, np.float64) > 0, factors > 0)


@pytest.mark.parametrize(("isa", "register"), [on("avx512", "zmm"), on("avx2", "ymm"), on("portable", "xmm")])
@names_x86_registers
def test_numbers_are_drawn_in_vectors(isa, register):
    """Sixteen products of 32 by 32 bits for every part of every vector, once for four keys: whole registers, nothing
    lane by lane.
    """
    with limited(isa):
        target = host()
        rows = 2 * target.lanes(4)
        text, plain = (
            build.assembly(written(target, rows, rules), target) for rules in ({"dropout": 0.1, "seed": 0}, {})
        )
    products = len(re.findall(rf"pmuludq.*{register}", text)) - len(re.findall(rf"pmuludq.*{register}", plain))
    assert products == 16 * rows // target.lanes(8)
    assert len(re.findall(r"\bmulq?\b", text)) == len(re.findall(r"\bmulq?\b", plain))


def test_explain_says_what_falls_out():
    """The rate and the seed are in the explanation and in the problem's own words."""
    found = rg.explain(*arrays(), dropout=0.125, seed=77)
    assert "then 0.125 of the weights are dropped (seed 77)" in str(found)
    assert "dropout: 0.125, seed: 77" in repr(found.problem)
