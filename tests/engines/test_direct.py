"""Direct calls: machine code gives the bits of the full path, and leaves everything else to Python."""

import gc
import weakref
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.common.arrays import as_tensor, read_array
from regard.engines import direct
from regard.engines.jit import threads
from regard.engines.jit.code.target import limited
from regard.engines.jit.direct import table
from tests.support.direct_calls import NOTHING, RULES, SIZES, in_a_child, watching, wrong_at_once
from tests.support.engines import dtypes, normal, qkv
from tests.support.kernels import fresh
from tests.support.lanes import by_name

try:
    import torch
except ImportError:
    torch = None

needs_exchange = pytest.mark.skipif(
    not hasattr(torch and torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="needs torch with DLPack's C exchange interface",
)


class Kind(NamedTuple):
    """Arrays or tensors: how they are made of arrays, and the name of the function that has their calls in
    machine code, which replaces it when the first call is remembered.
    """

    of: Callable
    name: str

    def attend(self, *call):
        return getattr(direct, self.name)(*call)

    def normal(self, *size, **kind):
        return self.of(normal(*size, **kind))

    def qkv(self, **given):
        return list(map(self.of, qkv(**{"H": 4, "G": 2, "Q": 5, "K": 9} | given)))

    def directly(self, q, k, v, **given):
        """The output by machine code alone, or None."""
        return self.attend(q, k, v, *NOTHING._replace(**given), "auto")


ARRAYS, TENSORS = Kind(np.asarray, "attend_arrays"), Kind(as_tensor, "attend")
KINDS = {"arrays": ARRAYS, "tensors": TENSORS}


def of_kinds(names, *rows):
    """A table whose first column is the kind."""
    marks = {ARRAYS: (), TENSORS: (needs_exchange,)}
    return pytest.mark.parametrize(names, [pytest.param(*row, marks=marks[row[0]]) for row in rows])


def each(**tables):
    """The rows of tables by kind: kind and value."""
    return [(KINDS[name], value) for name, table in tables.items() for value in table]


kinds = of_kinds("kind", (ARRAYS,), (TENSORS,))


def fully(q, k, v, **given):
    """The output without the fast path: a seed disables it."""
    return rg.attention(q, k, v, **given, seed=0)


def same(a, b):
    """Whether both have the same dtype, shape and bits; NaN is equal to NaN."""
    if a is None:
        return False
    a, b = (read_array(x, "test") for x in (a, b))
    x, y = (np.where(np.isnan(part), 9, part.astype(np.float64)).tobytes() for part in (a, b))
    return (a.dtype, a.shape) == (b.dtype, b.shape) and x == y


def check(kind, given, **rules):
    """A call, and the same in machine code alone, give the bits of the full path."""
    expected = fully(*given, **rules)
    assert same(rg.attention(*given, **rules), expected) and same(kind.directly(*given, **rules), expected)


@pytest.mark.spread
@dtypes
@by_name("given", RULES)
@of_kinds("kind,size", *each(arrays=SIZES.values(), tensors=SIZES.values()))
def test_machine_code_gives_what_the_full_path_gives(kind, size, given, dtype):
    """Bit by bit, for other numbers in arrays of the same layout."""
    for seed in (1, 2, 3):
        check(kind, kind.qkv(**size, dtype=dtype, seed=seed), **given)


LAYOUTS = [
    lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    lambda a: np.concatenate([a, a, a])[len(a) : 2 * len(a)],
]
OF_ARRAYS = [
    lambda a: np.broadcast_to(a[:, :1], a.shape),
    lambda a: np.ascontiguousarray(a[:, :, ::-1])[:, :, ::-1],
    lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),  # read-only
]
OF_TENSORS = [
    *(lambda t, change=change: as_tensor(change(t.numpy())) for change in LAYOUTS),
    lambda t: t[:, :1].expand(t.shape),
    lambda t: t.repeat_interleave(2, -1)[..., ::2],
    lambda t: torch.nn.Parameter(t, requires_grad=False),
]


@of_kinds("kind,change", *each(arrays=LAYOUTS + OF_ARRAYS, tensors=OF_TENSORS))
@pytest.mark.parametrize("place", range(3))
def test_layouts(kind, change, place):
    """Any strides of any of them."""
    for seed in (1, 2, 3):
        given = kind.qkv(seed=seed)
        given[place] = change(given[place])
        check(kind, given)


@kinds
def test_three_axes(kind):
    """Without an axis of the batch."""
    for seed in (1, 2, 3):
        check(kind, [each[0] for each in kind.qkv(seed=seed)])


def unaligned(array):
    """A copy whose numbers begin at an odd address."""
    room = np.empty(array.nbytes + 1, np.uint8)[1:]
    copy = room.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("change", [unaligned, lambda a: np.repeat(a, 2, -1)[..., ::2]], ids=["odd address", "gaps"])
@pytest.mark.parametrize("place", range(3))
def test_arrays_that_are_copied(change, place):
    """Before and after a call of arrays without these layouts."""
    for seed in (1, 2):
        given = ARRAYS.qkv(seed=seed)
        expected = fully(*given)
        given[place] = change(given[place])
        for some in (given, ARRAYS.qkv(seed=seed), given):
            assert same(rg.attention(*some), expected)


STATES = [watching, lambda: limited("portable"), lambda: threads.limit(1)]
OF_TORCH = [
    lambda: torch.utils._python_dispatch.BaseTorchDispatchMode(),
    lambda: torch.autograd.profiler.profile(use_cpu=True),
    lambda: torch.autograd.forward_ad.dual_level(),
]


@of_kinds("kind,state", *each(arrays=STATES, tensors=STATES + OF_TORCH))
def test_what_looks_at_calls_is_left_to_python(kind, state):
    """Machine code has no call while something observes, intercepts or limits calls, and has it again afterwards, with
    the bits of this machine.
    """
    given = kind.qkv()
    check(kind, given)
    expected = fully(*given)
    with state():
        assert kind.directly(*given) is None
        np.testing.assert_allclose(rg.attention(*given), expected, atol=1e-6)
    check(kind, given)


ODD = [lambda a: a[..., :-1, :], lambda a: a.tolist(), lambda a: None, lambda a: a[None, None]]
ODD_ARRAYS = [
    lambda a: a.view(type("Own", (np.ndarray,), {})),
    lambda a: np.ma.masked_array(a),
    lambda a: a.astype(np.float64),
    lambda a: a.view(np.int32),
    lambda a: a.astype(a.dtype.newbyteorder()),
    lambda a: a.view([("x", np.float32)]),
    lambda a: a[0, 0, 0, 0].reshape(()),
    lambda a: a[0, 0, 0, 0],
]
ODD_TENSORS = [
    lambda t: t.as_subclass(type("Own", (torch.Tensor,), {})),
    lambda t: torch.complex(torch.zeros_like(t), -t).conj().imag,  # lazily negated
    lambda t: t.numpy(),
    lambda t: t.double(),
    lambda t: t.to("meta"),
    lambda t: t.to_sparse(),
    lambda t: torch._efficientzerotensor(t.shape),
]


@of_kinds("kind,change", *each(arrays=ODD + ODD_ARRAYS, tensors=ODD + ODD_TENSORS))
@pytest.mark.parametrize("place", range(3))
def test_others_are_left_to_python(kind, change, place):
    """Machine code has no call with what is unlike that of the earlier call, and leaves no exception behind."""
    given = kind.qkv()
    rg.attention(*given)
    assert kind.directly(*given) is not None
    given[place] = change(given[place])
    assert kind.directly(*given) is None


@kinds
def test_other_arguments_are_left_to_python(kind):
    """Another rule or number, and an engine that was not requested before."""
    given = kind.qkv()
    rg.attention(*given)
    for other in ({"mask": rg.window(2)}, {"scale": 0.7}, {"scale": float("nan")}, {"seed": 3}, {"dropout": 0.5}):
        assert kind.directly(*given, **other) is None
    assert kind.attend(*given, *NOTHING, "reference") is None
    assert kind.attend(*given) is None and kind.attend() is None


@kinds
def test_more_kinds_than_the_table_holds(kind):
    """The oldest goes; every result stays right."""
    given = kind.qkv()
    for number in range(table.CALLS + 6):
        scale = 0.01 + number / 100
        assert same(rg.attention(*given, scale=scale), fully(*given, scale=scale))
    assert kind.directly(*given, scale=0.01) is None and kind.directly(*given, scale=scale) is not None


@kinds
def test_many_threads_at_once(kind):
    """Calls of one kind and of different kinds, from several threads: the memory of a call is never shared."""
    sizes = [{"Q": 3 + number, "K": 40, "H": 8} for number in range(4)]
    cases = [(given := kind.qkv(**size, seed=seed), fully(*given)) for size in sizes for seed in range(3)]
    assert not wrong_at_once(cases, lambda a, b: bool((a == b).all()), 100)


@kinds
def test_a_forked_child(kind):
    """A child has other threads: it checks its first call again."""
    given = kind.qkv(Q=70, K=70, H=8)
    expected = rg.attention(*given)

    def right():
        first = kind.directly(*given) is None
        return first and all(same(rg.attention(*given), expected) for _ in range(3))

    assert in_a_child(right)


@kinds
def test_nothing_is_kept_alive(kind):
    """The table refers to no array of a call."""
    given = [*kind.qkv(Q=3, D=24, E=24), kind.normal(2, 4, 3, 9)]
    held = [weakref.ref(each) for each in given]
    rg.attention(*given[:3], score=given[3])
    out = weakref.ref(kind.directly(*given[:3], score=given[3]))
    given.clear()
    gc.collect()
    assert [each() for each in (*held, out)] == [None] * 5


# ---- rules that are arrays, and decoding -----------------------------------------------------------------------------

BIASES = {
    "all axes": ((2, 4), lambda a, q: a),
    "one for all entries": ((1, 4), lambda a, q: a),
    "one for all heads": ((2, 1), lambda a, q: a),
    "three axes": ((4,), lambda a, q: a),
    "two axes": ((), lambda a, q: a),
    "one row": ((1, 1), lambda a, q: a[..., :1, :]),
    "strided": ((2, 4), lambda a, q: a.repeat(2, -2)[..., ::2, :]),
    "the dtype of q": ((2, 4), lambda a, q: a.astype(q)),
    "half the precision": ((2, 4), lambda a, q: a.astype(ml_dtypes.bfloat16)),
}


@pytest.mark.spread
@dtypes
@of_kinds("kind,bias", *each(arrays=BIASES.values(), tensors=BIASES.values()))
@pytest.mark.parametrize("Q", [1, 5, 49])
def test_rules_that_are_arrays(kind, Q, bias, dtype):
    """Bit by bit the full path, for other numbers in arrays of the same layouts, whatever they are."""
    lead, change = bias
    for seed in range(3):
        q, k, v = kind.qkv(Q=Q, K=30, dtype=dtype, seed=seed)
        score = normal(*lead, Q, 30, seed=seed + 5)
        if seed:
            score.reshape(-1)[::7] = -np.inf
            score[..., 3] = (-np.inf, np.nan)[seed - 1]
        check(kind, (q, k, v), score=kind.of(change(score, dtype)))
        allowed = normal(*lead, Q, 30, seed=seed + 9) > (-1, -9, 9)[seed]
        allowed[..., 3], v[..., 3, :] = False, np.nan
        check(kind, (q, k, v), mask=kind.of(change(allowed, bool).astype(bool, copy=False)))


GROWING = [
    lambda a: np.ascontiguousarray(a),
    lambda a: a,  # a view of a buffer
    lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
]


@pytest.mark.spread
@of_kinds("kind,cut", *each(arrays=GROWING, tensors=GROWING))
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_steps_of_decoding_are_one_call(kind, cut, biased, dtype):
    """A call with other numbers of keys is in the table if both have as many units of 64 keys: before and after a call
    takes several threads, and before and after its keys are split into pieces.
    """
    for H, D, counts in ((4, 16, (2, 40, 63, 64)), (8, 64, (513, 514, 575)), (8, 64, (1025, 1026, 1088))):
        q, score = kind.normal(2, H, 1, D, dtype=dtype, seed=1), normal(1, H, 1100, 1)
        k, v = normal(2, 2, 2, 1100, D, dtype=dtype)

        def step(K, q=q, k=k, v=v, score=score):
            given = q, *(kind.of(cut(part[:, :, :K])) for part in (k, v))
            return given, {"score": kind.of(cut(score[:, :, :K]).swapaxes(2, 3))} if biased else {}

        given, rules = step(counts[0])
        assert same(rg.attention(*given, **rules), fully(*given, **rules))
        for given, rules in map(step, counts[1:]):
            assert same(kind.directly(*given, **rules), fully(*given, **rules))
        given, rules = step(counts[-1] + 1)
        assert kind.directly(*given, **rules) is None or counts[-1] % 64
        given, rules = step(counts[0])  # the entry of a step has runs of its own
        check(kind, given, **rules)


@kinds
def test_a_bias_of_one_key_is_not_one_of_several(kind):
    """It is one number for all keys, so the call is another one."""
    for K in (1, 2, 3):
        check(kind, kind.qkv(Q=1, K=K), score=kind.normal(1, 4, 1, K))


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
    assert fresh(code).split() == ["True", "False"]
