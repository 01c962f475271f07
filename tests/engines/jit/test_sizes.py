"""Sizes near 2**31, distant addresses, rules of thousands of nodes: right or rejected, never wrapped. Arrays are sparse
or repeat one row.
"""

import sys

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import regard as rg
from regard.engines import jit
from regard.engines.jit.code import arguments, build
from regard.engines.plan import plan
from regard.language.problem import Problem
from tests.support.engines import normal
from tests.support.kernels import fresh
from tests.support.lanes import by_name
from tests.support.refusals import refusing

LIMIT = 2**31


def sparse(path, shape, dtype=np.float32) -> np.ndarray:
    """Zeros of any size: a file whose content is a hole."""
    try:
        return np.memmap(path, dtype, "w+", shape=shape)
    except OSError as error:
        pytest.skip(f"no sparse file of this size can be had: {error}")


# ---- rows ------------------------------------------------------------------------------------------------------------


def check(q, k, v, *masks, **start):
    """The compiled engine and the law agree; the law sees copies."""
    for mask in masks:
        found = rg.attention(q, k, v, mask=mask, engine="jit", **start)
        expected = rg.attention(*map(np.array, (q, k, v)), mask=mask, engine="reference", **start)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("last", [LIMIT - 1, LIMIT - 7, LIMIT - 64, LIMIT - 1025])
def test_the_last_rows_before_the_limit(tmp_path, last):
    """Rows just below 2**31, with unused lanes beyond it, attend to their window and nothing else."""
    k, v = (sparse(tmp_path / name, (last, 2)) for name in "kv")
    k[-80:], v[-80:] = normal(80, 2, seed=1), normal(80, 2, seed=2)
    q = normal(5, 2)
    expected = rg.attention(q, np.array(k[-80:]), np.array(v[-80:]), mask=rg.window(50), engine="reference")

    # The same window, in words whose parts go beyond 32 bits.
    beyond = rg.causal() & (rg.query * 3 - rg.key * 3 < 150), rg.window(50) & (rg.key * rg.query > 0)
    for mask in (rg.window(50), *beyond):
        found = rg.attention(q, k, v, mask=mask, engine="jit")
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_start_far_beyond_the_keys():
    """Rows may be as far as 2**31 from the keys, on either side."""
    q, k = normal(3, 4), normal(40, 4)
    for start in (LIMIT - 4, -LIMIT + 4):
        check(q, k, k, rg.query - rg.key > 0, (rg.query + rg.key) % 3 != 0, query_start=start)
    with refusing("query_start is not a position"):
        rg.attention(q, k, k, query_start=LIMIT - 3)


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, -1])
def test_rows_gigabytes_apart(tmp_path, step):
    """Strides of elements, rows and heads may exceed 32 bits, in either direction."""
    store = sparse(tmp_path / "store", (6, 2**32), np.float32)  # rows 16 GiB apart
    far = store.strides[0]
    q, k, v = (as_strided(store[:, at:], (2, 3, 4), (3 * far, far, 4)) for at in (0, 100, 200))
    deep = as_strided(store[:, 300:], (3, 6), (4, far))
    for seed, part in enumerate((q, k, v, deep)):
        part[...] = normal(*part.shape, seed=seed)
    check(q[:, ::step], k[:, ::step], v[:, ::step], rg.causal())
    check(deep, deep, deep[:, ::-1], rg.causal())


def test_addresses_are_found_in_every_kind_of_array(tmp_path):
    """What is read from the array's own memory is what NumPy says."""
    base = np.zeros((5, 6, 7))
    kinds = [
        base,
        base[1:, ::-2],
        base.T,
        base[:0],
        np.zeros(()),
        np.broadcast_to(1.0, (3, 4)),
        np.frombuffer(b"12345678", np.int8),
        sparse(tmp_path / "map", (3, 4)),
    ]
    assert [arguments.address(array) for array in kinds] == [array.ctypes.data for array in kinds]


# ---- products --------------------------------------------------------------------------------------------------------


def far(*shape):
    """Zeros of any size that repeat one number."""
    return np.broadcast_to(np.float32(0), shape)


# Positions are 32-bit numbers in compiled code; results have up to 2**63 bytes; tiles of all heads and batch entries
# are numbered together with their keys in 64 bits.
ROWS = r"{} has too many rows\n.*\n  expected  fewer than 2\*\*31 rows\n.*split the call"
RESULT = r"the result is too large\n.*\n  expected  fewer than 2\*\*63 bytes"
TILES = r"the mask has too many tiles to plan\n.*64 heads.*\n.*\n  fix       split the call"
REFUSED = {
    "queries": (ROWS.format("q"), (LIMIT, 8), (1, 8), None),
    "keys": (ROWS.format("k"), (1, 8), (LIMIT, 8), None),
    "heads": (RESULT, (2**29, 2**20, 2**10, 1), (1, 1, 3, 1), None),
    "bytes": (RESULT, (2**59, 1, 1, 1), (1, 1, 3, 1), None),
    "tiles": (TILES, (1, 64, LIMIT - 64, 1), (1, 64, LIMIT - 64, 1), rg.causal() & (rg.head < 3)),
}


@by_name("words, q, k, mask", REFUSED)
def test_what_nothing_could_hold_is_refused(words, q, k, mask):
    """Too many rows, a result too large, too many tiles: the message names what is too much, and the way out."""
    v = (*k[:-1], 8)
    with refusing(words):
        plan(Problem.of(far(*q), far(*k), far(*v), mask=mask), 16, 16)


def test_work_is_counted_without_wrapping():
    """The cost of a call of 2**31 rows by 2**31 keys, 64 heads and depth 128 is a number, and positive."""
    q = far(1, 64, LIMIT - 64, 128)
    found = plan(Problem.of(q, q, q), 1 << 20, 16)
    assert sum(found.pairs.values()) == 64 * (LIMIT - 64) ** 2


# ---- rules that are too large, and little memory ---------------------------------------------------------------------

Q = normal(2, 5, 8)


def chain(length: int):
    """A score of so many functions, one inside the other."""
    score = rg.score
    for _ in range(length):
        score = rg.tanh(score)
    return score


def union(length: int):
    """A mask of so many conditions."""
    mask = rg.key == 0
    for number in range(length):
        mask = mask | (rg.key == 3 * number)
    return mask


RULES = {"score": {"score": chain(2000)}, "mask": {"mask": union(6000)}}
RULES["both"] = {"score": chain(jit.LARGEST // 28 + 1), "mask": union(jit.LARGEST // 4 + 1)}


@pytest.mark.parametrize("engine", ["auto", "jit"])
@by_name("rules", RULES)
def test_rules_of_thousands_of_nodes_are_refused_at_once(engine, rules):
    """Nothing is compiled or planned; the limit and the way out are in the message."""
    before = set(build._kernels)
    calls = [
        lambda: rg.attention(Q, Q, Q, engine=engine, **rules),
        lambda: rg.attention_stats(Q, Q, of=["entropy"], engine=engine, **rules),
        lambda: rg.attention_backward(Q, Q, Q, Q, engine=engine, **rules),
        lambda: rg.explain(Q, Q, Q, engine=engine, **rules),
        lambda: rg.attention_part(Q, Q, Q, **rules),
    ]
    for call in calls:
        with refusing("operations per pair"):
            call()
    assert set(build._kernels) == before


@by_name("rules", RULES)
def test_the_law_has_no_limit(rules):
    """The reference computes them."""
    assert np.isfinite(rg.attention(Q, Q, Q, engine="reference", **rules)).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_too_little_memory_to_compile_is_an_error():
    """However little is left, a call raises MemoryError or is right; the process goes on, and computes once it may."""
    script = """
        import os, resource, tempfile
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
        import numpy as np, regard as rg

        q = np.ones((1, 8, 16), np.float32)
        rg.attention(q, q, q)
        score, failed = rg.score, 0
        for megabytes in (0, 1, 3, 8, 12, 16, 20, 28, 40, 60, 90, 400):
            for _ in range(8):
                score = rg.tanh(score) + rg.sin(score)
            taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + (megabytes << 20), resource.RLIM_INFINITY))
            try:
                found = rg.attention(q, q, q, score=score)
                assert np.allclose(found, 1)
            except MemoryError:
                failed += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert np.allclose(rg.attention(q, q, q, score=score), 1)
        print(failed)
    """
    assert int(fresh(script)) > 3
