"""Direct calls of NumPy arrays: machine code gives the bits of the full path, and leaves everything else to Python."""

import gc
import os
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.engines import direct
from regard.engines.jit.code.target import limited
from regard.engines.jit.direct import table
from regard.engines.jit.run import threads
from tests.support.direct_calls import NOTHING, RULES, SIZES, in_a_child, watching, wrong_at_once

DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


def arrays(*sizes, dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(size, dtype=np.float32).astype(dtype) for size in sizes]


def qkv(B=2, H=4, G=2, Q=5, K=9, D=16, E=16, **kind):
    return arrays((B, H, Q, D), (B, G, K, D), (B, G, K, E), **kind)


def directly(q, k, v, **given):
    """The output by machine code alone, or None."""
    return direct.attend_arrays(q, k, v, *NOTHING._replace(**given), "auto")


def fully(q, k, v, **given):
    """The output without the fast path: a seed disables it."""
    return rg.attention(q, k, v, **given, seed=0)


def same(a, b):
    """Bit by bit, in the same dtype; NaN is equal to NaN."""
    return a is not None and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@each_dtype
@pytest.mark.parametrize("given", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_machine_code_gives_what_the_full_path_gives(size, given, dtype):
    """Bit by bit, for other numbers in arrays of the same layout."""
    rg.attention(*qkv(**size, dtype=dtype), **given)
    for seed in (1, 2):
        q, k, v = qkv(**size, dtype=dtype, seed=seed)
        assert same(directly(q, k, v, **given), fully(q, k, v, **given))


def unaligned(array):
    """A copy whose numbers begin at an odd address."""
    room = np.empty(array.nbytes + 1, np.uint8)[1:]
    copy = room.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


LAYOUTS = {
    "transposed": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    "one head for all": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "from the middle": lambda a: np.concatenate([a, a, a])[len(a) : 2 * len(a)],
    "backwards": lambda a: np.ascontiguousarray(a[:, :, ::-1])[:, :, ::-1],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "three axes": lambda a: a[0],
}


@pytest.mark.parametrize("change", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("place", range(3))
def test_layouts(change, place):
    """Strides of any of the arrays."""
    for seed in (1, 2, 3):
        given = qkv(seed=seed)
        if change is LAYOUTS["three axes"]:
            given = [change(each) for each in given]
        else:
            given[place] = change(given[place])
        expected = fully(*given)
        assert same(rg.attention(*given), expected) and same(directly(*given), expected)


@pytest.mark.parametrize("change", [unaligned, lambda a: np.repeat(a, 2, -1)[..., ::2]], ids=["odd address", "gaps"])
@pytest.mark.parametrize("place", range(3))
def test_arrays_that_are_copied(change, place):
    """Before and after a call of arrays without these layouts."""
    for seed in (1, 2):
        given = qkv(seed=seed)
        given[place] = change(given[place])
        expected = fully(*qkv(seed=seed))
        assert same(rg.attention(*given), expected)
        assert same(rg.attention(*qkv(seed=seed)), expected) and same(rg.attention(*given), expected)


STATES = {
    "an observer": watching,
    "narrower vectors": lambda: limited("portable"),
    "one thread": lambda: threads.limit(1),
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_what_looks_at_calls_is_left_to_python(state):
    """Machine code has no call while something observes or limits calls, and has it again afterwards."""
    given = qkv()
    expected = rg.attention(*given)
    assert directly(*given) is not None
    with state():
        assert directly(*given) is None
        np.testing.assert_allclose(rg.attention(*given), expected, atol=1e-6)
    assert directly(*given) is not None


class Own(np.ndarray):
    """A user's subclass of an array."""


ODD = {
    "a subclass": lambda a: a.view(Own),
    "a masked array": lambda a: np.ma.masked_array(a),
    "another shape": lambda a: a[..., :-1, :],
    "another dtype": lambda a: a.astype(np.float64),
    "another dtype of this size": lambda a: a.view(np.int32),
    "the other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "records": lambda a: a.view([("x", np.float32)]),
    "a list": lambda a: a.tolist(),
    "nothing": lambda a: None,
    "many axes": lambda a: a[None, None],
    "no axes": lambda a: a[0, 0, 0, 0].reshape(()),
    "a number": lambda a: a[0, 0, 0, 0],
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
@pytest.mark.parametrize("place", range(3))
def test_other_arrays_are_left_to_python(change, place):
    """Machine code has no call with an array unlike that of the earlier call, and leaves no exception behind."""
    given = qkv()
    rg.attention(*given)
    assert directly(*given) is not None
    given[place] = change(given[place])
    assert directly(*given) is None


def test_other_arguments_are_left_to_python():
    """Another rule or number, and an engine that was not asked for before."""
    given = qkv()
    rg.attention(*given)
    for other in ({"mask": rg.window(2)}, {"scale": 0.7}, {"scale": float("nan")}, {"seed": 3}, {"dropout": 0.5}):
        assert directly(*given, **other) is None
    assert direct.attend_arrays(*given, *NOTHING, "reference") is None
    assert direct.attend_arrays(*given) is None and direct.attend_arrays() is None


def test_more_kinds_than_the_table_holds():
    """The oldest goes; every result stays right."""
    given = qkv()
    for number in range(table.CALLS + 6):
        scale = 0.01 + number / 100
        assert same(rg.attention(*given, scale=scale), fully(*given, scale=scale))
    assert directly(*given, scale=0.01) is None and directly(*given, scale=scale) is not None


def test_many_threads_at_once():
    """Calls of one kind and of different kinds, from several threads: the memory of a call is never shared."""
    sizes = [{"Q": 3 + number, "K": 40, "H": 8} for number in range(4)]
    cases = [(given := qkv(**size, seed=seed), fully(*given)) for size in sizes for seed in range(3)]
    assert not wrong_at_once(cases, same, 100)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")
def test_a_forked_child():
    """A child has other threads: it checks its first call again."""
    given = qkv(Q=70, K=70, H=8)
    expected = rg.attention(*given)

    def right():
        first = directly(*given) is None
        return first and all(same(rg.attention(*given), expected) for _ in range(3))

    assert in_a_child(right)


def test_no_array_is_kept_alive():
    """The table refers to no array of a call."""
    given = [*qkv(Q=3, D=24, E=24), *arrays((2, 4, 3, 9))]
    held = [weakref.ref(each) for each in given]
    rg.attention(*given[:3], score=given[3])
    out = weakref.ref(directly(*given[:3], score=given[3]))
    given.clear()
    gc.collect()
    assert [each() for each in (*held, out)] == [None] * 5


@pytest.mark.spread
@each_dtype
@pytest.mark.parametrize("shape", [(2, 4, 5, 30), (1, 4, 5, 30), (5, 30), (1, 1, 1, 30)], ids=str)
def test_a_score_that_is_an_array(shape, dtype):
    """In the dtype of q or in float32, with −inf in it, bit by bit."""
    for seed in range(3):
        q, k, v = qkv(K=30, dtype=dtype, seed=seed)
        (score,) = arrays(shape, dtype=dtype, seed=seed)
        score[..., 3] = -np.inf
        expected = fully(q, k, v, score=score)
        assert same(rg.attention(q, k, v, score=score), expected) and same(directly(q, k, v, score=score), expected)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("copied", [False, True], ids=["views", "copies"])
def test_steps_of_decoding_are_one_call(copied, biased, dtype):
    """A call with another number of keys, in the same unit of 64 keys, is in the table."""
    for H, D, counts in ((4, 16, (2, 40, 63, 64)), (8, 64, (513, 514, 575)), (8, 64, (1025, 1026, 1088))):
        q, k, v = qkv(H=H, Q=1, K=1100, D=D, E=D, dtype=dtype)
        (score,) = arrays((1, H, 1, 1100))
        for number, K in enumerate(counts):
            given = [q, *(np.ascontiguousarray(each[:, :, :K]) if copied else each[:, :, :K] for each in (k, v))]
            rules = {"score": score[..., :K]} if biased else {}
            found = directly(*given, **rules) if number else rg.attention(*given, **rules)
            assert same(found, fully(*given, **rules))


def test_without_torch():
    """Arrays go directly in a process that has not imported torch."""
    code = """
import sys
import numpy as np
import regard as rg
from regard.engines import direct
q = np.ones((1, 2, 3, 8), np.float32)
out = rg.attention(q, q, q)
found = direct.attend_arrays(q, q, q, None, None, None, None, None, 0.0, None, None, None, "auto")
print(np.array_equal(found, out), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
