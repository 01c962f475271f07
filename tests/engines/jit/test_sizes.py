"""Sizes near 2**31 and distant addresses: right or rejected, never wrapped. Arrays are sparse or repeat one row."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import regard as rg
from regard.engines.jit.code import arguments
from regard.engines.plan import plan
from regard.language import masks
from regard.language.problem import Problem

LIMIT = 2**31


def sparse(path, shape, dtype=np.float32) -> np.ndarray:
    """Zeros of any size: a file whose content is a hole."""
    try:
        return np.memmap(path, dtype, "w+", shape=shape)
    except OSError as error:
        pytest.skip(f"no sparse file of this size can be had: {error}")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", ["q", "k"])
def test_2_to_the_31_rows_are_refused(many):
    """Positions are 32-bit numbers in compiled code, so the position of a row must be below 2**31."""
    one = np.zeros((1, 8), np.float32)
    arrays = {"q": one, "k": one} | {many: np.broadcast_to(one, (LIMIT, 8))}
    with pytest.raises(
        rg.Refused, match=rf"{many} has too many rows\n.*\n  expected  fewer than 2\*\*31 rows\n.*split the call"
    ):
        rg.attention(arrays["q"], arrays["k"], arrays["k"])


@pytest.mark.parametrize("last", [LIMIT - 1, LIMIT - 7, LIMIT - 64, LIMIT - 1025])
def test_the_last_rows_before_the_limit(tmp_path, last):
    """Rows just below 2**31, with unused lanes beyond it, attend to their window and nothing else."""
    k, v = (sparse(tmp_path / name, (last, 2)) for name in "kv")
    k[-80:], v[-80:] = normal(80, 2, seed=1), normal(80, 2, seed=2)
    q = normal(5, 2)

    # The same window, in words whose parts go beyond 32 bits.
    for mask in (
        rg.window(50),
        rg.causal() & (rg.query * 3 - rg.key * 3 < 150),
        rg.window(50) & (rg.key * rg.query > 0),
    ):
        found = rg.attention(q, k, v, mask=mask, engine="jit")
        expected = rg.attention(q, np.array(k[-80:]), np.array(v[-80:]), mask=rg.window(50), engine="reference")
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_start_far_beyond_the_keys():
    """Rows may be as far as 2**31 from the keys, on either side."""
    q, k = normal(3, 4), normal(40, 4)
    for start in (LIMIT - 4, -LIMIT + 4):
        for mask in (rg.query - rg.key > 0, (rg.query + rg.key) % 3 != 0):
            found, expected = (
                rg.attention(q, k, k, mask=mask, query_start=start, engine=engine) for engine in ("jit", "reference")
            )
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(rg.Refused, match="query_start is not a position"):
        rg.attention(q, k, k, query_start=LIMIT - 3)


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])
def test_rows_gigabytes_apart(tmp_path, turned):
    """Strides of elements, rows and heads may exceed 32 bits, in either direction."""
    store = sparse(tmp_path / "store", (6, 2**32), np.float32)  # rows 16 GiB apart
    arrays = []
    for at, seed in ((0, 1), (100, 2), (200, 3)):
        part = as_strided(store[:, at:], (2, 3, 4), (3 * store.strides[0], store.strides[0], 4))
        part[...] = normal(2, 3, 4, seed=seed)
        arrays.append(part[:, ::-1] if turned else part)
    deep = as_strided(store[:, 300:], (3, 6), (4, store.strides[0]))
    deep[...] = normal(3, 6, seed=4)

    for q, k, v in (arrays, (deep, deep, deep[:, ::-1])):
        found = rg.attention(q, k, v, mask=rg.causal(), engine="jit")
        expected = rg.attention(*(np.array(array) for array in (q, k, v)), mask=rg.causal(), engine="reference")
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


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


@pytest.mark.parametrize("shape", [(2**29, 2**20, 2**10, 1), (2**40, 2**10, 2**9, 1), (2**59, 1, 1, 1)])
def test_a_result_that_nothing_could_hold_is_refused(shape):
    """B · H · Q · E beyond 2**63 bytes, from arrays that repeat one number."""
    q, k, v = (np.broadcast_to(np.float32(1), each) for each in (shape, (1, 1, 3, 1), (1, 1, 3, 8)))
    with pytest.raises(rg.Refused, match=r"the result is too large\n.*\n  expected  fewer than 2\*\*63 bytes"):
        Problem.of(q, k, v)


def test_a_plan_that_cannot_be_numbered_is_refused():
    """Tiles of all heads and batch entries are numbered together with their keys in 64 bits; what does not fit is said
    so.
    """
    row = np.zeros((1, 1, 1, 1), np.float32)
    q = np.broadcast_to(row, (1, 64, LIMIT - 64, 1))
    k = np.broadcast_to(row, (1, 64, LIMIT - 64, 1))
    problem = Problem.of(q, k, k, mask=masks.causal() & (rg.head < 3))
    with pytest.raises(
        rg.Refused, match=r"the mask has too many tiles to plan\n.*64 heads.*\n.*\n  fix       split the call"
    ):
        plan(problem, 16, 16)


def test_work_is_counted_without_wrapping():
    """The cost of a call of 2**31 rows by 2**31 keys, 64 heads and depth 128 is a number, and positive."""
    row = np.zeros((1, 1, 1, 1), np.float32)
    q = np.broadcast_to(row, (1, 64, LIMIT - 64, 128))
    found = plan(Problem.of(q, q, q), 1 << 20, 16)
    assert sum(found.pairs.values()) == 64 * (LIMIT - 64) ** 2
