"""Direct calls: machine code gives the bits of the full path, and leaves everything else to Python."""

import gc
import os
import signal
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regard as rg
from regard.engines import direct, fast_path
from regard.engines.jit.code.target import limited
from regard.engines.jit.direct import table
from regard.engines.jit.run import threads
from tests.support.direct_calls import NOTHING, RULES, SIZES, in_a_child, watching, wrong_at_once

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="needs torch with DLPack's C exchange interface"
)


def tensors(*sizes, dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=random).to(dtype) for size in sizes]


def qkv(B=2, H=4, G=2, Q=5, K=9, D=16, E=16, **kind):
    return tensors((B, H, Q, D), (B, G, K, D), (B, G, K, E), **kind)


def directly(q, k, v, **given):
    """The output by machine code alone, or None."""
    return direct.attend(q, k, v, *NOTHING._replace(**given), "auto")


def fully(q, k, v, **given):
    """The output without the fast path: a seed disables it."""
    return rg.attention(q, k, v, **given, seed=0)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("given", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_machine_code_gives_what_the_full_path_gives(size, given, dtype):
    """Bit by bit, for other numbers in tensors of the same layout; lists of tensors are not changed."""
    rg.attention(*qkv(**size, dtype=dtype), **given)
    for seed in (1, 2):
        q, k, v = qkv(**size, dtype=dtype, seed=seed)
        found = directly(q, k, v, **given)
        assert found is not None and torch.equal(found, fully(q, k, v, **given))


LAYOUTS = {
    "transposed": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "every second": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "one head for all": lambda t: t[:, :1].expand(t.shape),
    "from the middle": lambda t: torch.cat([t, t, t])[len(t) : 2 * len(t)],
    "three axes": lambda t: t[0],
    "a parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
}


@pytest.mark.parametrize("change", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("place", range(3))
def test_layouts(change, place):
    """Any strides of any of the tensors."""
    for seed in (1, 2, 3):
        given = qkv(seed=seed)
        given = [change(each) for each in given] if change is LAYOUTS["three axes"] else given
        given[place] = given[place] if change is LAYOUTS["three axes"] else change(given[place])
        expected = fully(*given)
        assert torch.equal(rg.attention(*given), expected) and torch.equal(directly(*given), expected)


class Passing(TorchDispatchMode):
    """A dispatch mode that changes nothing."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


STATES = {
    "an observer": watching,
    "a dispatch mode": Passing,
    "torch's profiler": lambda: torch.autograd.profiler.profile(use_cpu=True),
    "narrower vectors": lambda: limited("portable"),
    "one thread": lambda: threads.limit(1),
    "forward mode": torch.autograd.forward_ad.dual_level,
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_what_looks_at_calls_is_left_to_python(state):
    """Machine code has no call while something observes, intercepts or limits calls, and has it again afterwards."""
    given = qkv()
    expected = rg.attention(*given)
    assert directly(*given) is not None
    with state():
        assert directly(*given) is None
        assert torch.allclose(rg.attention(*given), expected, atol=1e-6)
    assert directly(*given) is not None


def test_kernels_of_other_machines_are_not_remembered():
    """After calls with narrower vectors, machine code gives the bits of this machine."""
    given = qkv()
    rg.attention(*given)
    with limited("portable"):
        rg.attention(*given)
    assert torch.equal(directly(*given), fully(*given))


class Own(torch.Tensor):
    """A user's subclass of a tensor."""


ODD = {
    "a subclass": lambda t: t.as_subclass(Own),
    "lazily negated": lambda t: torch.complex(torch.zeros_like(t), -t).conj().imag,
    "requires a gradient": lambda t: t.clone().requires_grad_(),
    "an array of NumPy": lambda t: t.numpy(),
    "another shape": lambda t: t[..., :-1, :],
    "another dtype": lambda t: t.double(),
    "a list": lambda t: t.tolist(),
    "nothing": lambda t: None,
    "on no device": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "zeros without memory": lambda t: torch._efficientzerotensor(t.shape),
    "many axes": lambda t: t[None, None],
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
@pytest.mark.parametrize("place", range(3))
def test_other_tensors_are_left_to_python(change, place):
    """Machine code has no call with a tensor unlike that of the earlier call, and leaves no exception behind."""
    given = qkv()
    rg.attention(*given)
    assert directly(*given) is not None
    given[place] = change(given[place])

    kind = fast_path.known(*given, NOTHING, "auto")[0] if change is ODD["requires a gradient"] else None
    assert directly(*given) is None or (kind is not None and kind.even)


def test_other_arguments_are_left_to_python():
    """Another rule or number, and an engine that was not asked for before."""
    given = qkv()
    rg.attention(*given)
    for other in ({"mask": rg.window(2)}, {"scale": 0.7}, {"scale": float("nan")}, {"seed": 3}, {"dropout": 0.5}):
        assert directly(*given, **other) is None
    assert direct.attend(*given, *NOTHING, "reference") is None
    assert direct.attend(*given) is None and direct.attend() is None


@pytest.mark.parametrize("state", [nullcontext, torch.inference_mode, torch.no_grad], ids=lambda each: each.__name__)
def test_modes_of_torch(state):
    """The output is what torch makes in that mode; gradients are computed only where they are recorded."""
    given = [each.requires_grad_() for each in qkv()]
    rg.attention(*[each.detach() for each in given])
    with state():
        out = rg.attention(*given)
        assert out.is_inference() == torch.is_inference_mode_enabled() and out.requires_grad == torch.is_grad_enabled()
        assert torch.equal(out.detach(), fully(*[each.detach() for each in given]))
    with torch.autocast("cpu", torch.bfloat16):
        assert rg.attention(*qkv()).dtype == torch.float32


def test_more_kinds_than_the_table_holds():
    """The oldest goes; every result stays right."""
    given = qkv()
    for number in range(table.CALLS + 6):
        scale = 0.01 + number / 100
        assert torch.equal(rg.attention(*given, scale=scale), fully(*given, scale=scale))
    assert directly(*given, scale=0.01) is None and directly(*given, scale=scale) is not None


def test_many_threads_at_once():
    """Calls of one kind and of different kinds, from several threads: the memory of a call is never shared."""
    sizes = [{"Q": 3 + number, "K": 40, "H": 8} for number in range(4)]
    cases = [(given := qkv(**size, seed=seed), fully(*given)) for size in sizes for seed in range(3)]
    assert not wrong_at_once(cases, torch.equal, 150)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")
def test_a_forked_child():
    """A child has other threads: it checks its first call again."""
    given = qkv(Q=70, K=70, H=8)
    expected = rg.attention(*given)

    def right():
        first = directly(*given) is None
        return first and all(torch.equal(rg.attention(*given), expected) for _ in range(3))

    assert in_a_child(right)


@pytest.mark.sweep
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a system with timers that send signals")
def test_a_long_call_can_be_interrupted():
    """A signal handler that raises ends the call within a slice of time; the next call is right."""
    given = qkv(B=1, H=8, G=8, Q=3000, K=3000, D=64, E=64)
    expected = rg.attention(*given)

    class Alarm(Exception):
        """What the handler raises."""

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            while True:
                directly(*given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for _ in range(3):
        assert torch.equal(directly(*given), expected)


def test_no_tensor_is_kept_alive():
    """The table refers to no tensor of a call."""
    given = qkv(D=24, E=24)
    held = [weakref.ref(each) for each in given]
    out = weakref.ref(rg.attention(*given))
    out = weakref.ref(directly(*given))
    given.clear()
    gc.collect()
    assert [each() for each in (*held, out)] == [None] * 4


# ---- scores that are tensors, and decoding ---------------------------------------------------------------------------


def added(q, k, v, score):
    """The output by machine code alone of a call that adds a tensor to the scores, or None."""
    return directly(q, k, v, score=score)


BIASES = {
    "all axes": lambda B, H, Q, K: ((B, H, Q, K), ...),
    "one for all entries": lambda B, H, Q, K: ((1, H, Q, K), ...),
    "one for all heads": lambda B, H, Q, K: ((B, 1, Q, K), ...),
    "three axes": lambda B, H, Q, K: ((H, Q, K), ...),
    "strided": lambda B, H, Q, K: ((B, H, 2 * Q, K), (..., slice(None, None, 2), slice(None))),
    "half the precision": lambda B, H, Q, K: ((B, H, Q, K), torch.bfloat16),
}


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("Q", [1, 5, 49])
def test_a_score_that_is_a_tensor(Q, shape, dtype):
    """Bit by bit the full path, for other numbers in tensors of the same layouts, whatever they are."""
    size, cut = shape(2, 4, Q, 30)
    for seed in range(3):
        q, k, v = qkv(Q=Q, K=30, dtype=dtype, seed=seed)
        (score,) = tensors(size, seed=seed + 5)
        score = score.to(cut) if isinstance(cut, torch.dtype) else score[cut]
        if seed == 2:
            score.flatten()[::7] = -torch.inf
            score[..., 3] = torch.nan
        expected = fully(q, k, v, score=score)
        assert torch.equal(rg.attention(q, k, v, score=score).nan_to_num(9), expected.nan_to_num(9))
        assert torch.equal(added(q, k, v, score).nan_to_num(9), expected.nan_to_num(9))


def test_what_else_is_added_goes_through_python():
    """Another shape, a tensor whose gradient is wanted, a device without numbers; and many rows, in which enough
    numbers may be −infinity to leave out tiles.
    """
    q, k, v = qkv(K=30)
    (score,) = tensors((2, 4, 5, 30))
    rg.attention(q, k, v, score=score)
    assert added(q, k, v, score) is not None
    for other in (score[..., :-1], score.double(), score.clone().requires_grad_(), score.to("meta"), 3.0, "score"):
        assert added(q, k, v, other) is None
    with torch.no_grad():
        assert added(q, k, v, score.clone().requires_grad_()) is not None
    q, k, v = qkv(Q=64, K=64)
    rg.attention(q, k, v, score=(score := tensors((64, 64))[0]))
    assert added(q, k, v, score) is None


GROWING = {
    "joined": lambda t, K: t[:, :, :K].contiguous(),
    "a view of a buffer": lambda t, K: t[:, :, :K],
    "heads innermost": lambda t, K: t[:, :, :K].transpose(1, 2).contiguous().transpose(1, 2),
}


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("cut", GROWING.values(), ids=GROWING)
def test_steps_of_decoding_are_one_call(cut, biased, dtype):
    """A call with other numbers of keys is in the table if both have as many units of 64 keys: before and after a call
    takes several threads, and before and after its keys are split into pieces.
    """
    for H, D, counts in ((4, 16, (2, 40, 63, 64)), (8, 64, (513, 514, 575)), (8, 64, (1025, 1026, 1088))):
        q, k, v = qkv(H=H, Q=1, K=1100, D=D, E=D, dtype=dtype)
        (score,) = tensors((1, H, 1, 1100))
        for number, K in enumerate(counts):
            rules = {"score": cut(score.transpose(2, 3), K).transpose(2, 3)} if biased else {}
            given = q, cut(k, K), cut(v, K)
            found = directly(*given, **rules) if number else rg.attention(*given, **rules)
            assert torch.equal(found, fully(*given, **rules))
        rules = {"score": score[..., : K + 1]} if biased else {}
        assert directly(q, cut(k, K + 1), cut(v, K + 1), **rules) is None or K % 64
        # The entry of a step has runs of its own.
        given = q, cut(k, counts[0]), cut(v, counts[0])
        rules = {"score": cut(score.transpose(2, 3), counts[0]).transpose(2, 3)} if biased else {}
        assert torch.equal(rg.attention(*given, **rules), fully(*given, **rules))


def test_a_bias_of_one_key_is_not_one_of_several():
    """It is one number for all keys, so the call is another one."""
    for K in (1, 2, 3):
        q, k, v = qkv(Q=1, K=K)
        (score,) = tensors((1, 4, 1, K))
        for _ in range(2):
            assert torch.equal(rg.attention(q, k, v, score=score), fully(q, k, v, score=score))


def test_steps_with_gradients_are_calls_of_their_own():
    """Gradients of a step are those of the full path, before and after steps without."""
    for K in (30, 31, 32, 31):
        q, k, v = qkv(Q=2, K=K)
        assert torch.equal(rg.attention(q, k, v), fully(q, k, v))
        for _ in range(2):
            leaves = [each.clone().requires_grad_() for each in (q, k, v)]
            dout = torch.ones(2, 4, 2, 16)
            for found, expected in zip(gradients(leaves, dout), checked_gradients(leaves, dout)):
                assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_least_number(dtype):
    """Of any dense layout and of every size; NaN is passed over."""
    rg.attention(*qkv())
    for count in (8, 9, 15, 16, 17, 999, 1 << 16):
        (numbers,) = tensors((count,), dtype=dtype, seed=count)
        assert direct.least(numbers) == float(numbers.amin())
        numbers[count // 3] = torch.nan
        assert direct.least(numbers) == float(numbers[~numbers.isnan()].amin())
        numbers[-1] = -torch.inf
        assert direct.least(numbers) == -float("inf")
    (numbers,) = tensors((3, 5, 7), dtype=dtype)
    assert direct.least(numbers.permute(2, 0, 1)) == float(numbers.amin())


def test_numbers_that_torch_looks_at():
    """Gaps in memory, few or many numbers, whole numbers, other devices, and what is no tensor."""
    odd = [torch.zeros(7), torch.zeros(0), torch.zeros(40)[::2], torch.zeros(3, 1).expand(3, 9), torch.zeros(70000)]
    odd += [torch.arange(30), torch.ones(30, dtype=torch.bool), torch.zeros(30, dtype=torch.complex64)]
    for each in (*odd, torch.zeros(30, device="meta"), torch.zeros(30).to_sparse(), None, 3.0, [1.0] * 30):
        assert direct.least(each) is None


# ---- gradients -------------------------------------------------------------------------------------------------------


def gradients(given, dout, **rules):
    return torch.autograd.grad(rg.attention(*given, **rules), given, dout)


def checked_gradients(given, dout, **rules):
    """Without the fast path: it has no lse."""
    return torch.autograd.grad(rg.attention_with_lse(*given, **rules)[0], given, dout)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("given", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_gradients_of_known_calls(size, given, dtype):
    """Bit by bit those of the full path; the first backward pass of a kind is checked, the others are not."""
    for seed in (1, 2, 3):
        q, _, v = leaves = [each.requires_grad_() for each in qkv(**size, dtype=dtype, seed=seed)]
        (dout,) = tensors((*q.shape[:-1], v.shape[-1]), dtype=dtype, seed=seed + 9)
        for found, expected in zip(gradients(leaves, dout, **given), checked_gradients(leaves, dout, **given)):
            assert torch.equal(found, expected)


SLOPES = {
    "the same everywhere": lambda dout: dout[..., :1, :1].expand(dout.shape),
    "transposed": lambda dout: dout.transpose(1, 2).contiguous().transpose(1, 2),
    "zeros without memory": lambda dout: torch._efficientzerotensor(dout.shape),
    "lazily negated": lambda dout: torch.complex(torch.zeros_like(dout), -dout).conj().imag,
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("change", SLOPES.values(), ids=SLOPES)
def test_gradients_of_any_layout(change):
    """A gradient that autograd passes may be expanded, strided, lazy or without memory."""
    for seed in (1, 2, 3):
        leaves = [each.requires_grad_() for each in qkv(seed=seed)]
        dout = change(tensors((2, 4, 5, 16), seed=seed + 9)[0])
        for found, expected in zip(gradients(leaves, dout), checked_gradients(leaves, dout)):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, True, True)], ids=str)
def test_only_what_needs_a_gradient_gets_one(needed):
    """Inputs that need none have none."""
    for seed in (1, 2):
        leaves = [each.requires_grad_(need) for each, need in zip(qkv(seed=seed), needed)]
        rg.attention(*leaves).sum().backward()
        assert [each.grad is not None for each in leaves] == list(needed)


ARRAYS = {
    "booleans": lambda random: {"mask": torch.rand(2, 1, 20, 20, generator=random) < 0.7},
    "padding": lambda random: {"mask": (torch.rand(2, 1, 1, 20, generator=random) < 0.7).expand(2, 4, 20, 20)},
    "floats": lambda random: {"score": torch.randn(1, 4, 20, 20, generator=random)},
    "both": lambda random: {
        "mask": torch.rand(20, 20, generator=random) < 0.7,
        "score": torch.randn(20, 20, generator=random),
    },
}


@pytest.mark.spread
@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("grad", [False, True])
def test_masks_and_scores_that_are_tensors(make, grad):
    """Every call reads what they contain now, also if the tensor is the same and was changed in place."""
    size = {"Q": 20, "K": 20}
    random = torch.Generator().manual_seed(0)
    kept = {name: each.clone() for name, each in make(random).items()}
    for seed in range(3):
        for name, each in make(random).items():
            kept[name].copy_(each)
        for given in (make(random), kept):
            q, k, v = qkv(**size, seed=seed)
            assert torch.equal(rg.attention(q, k, v, **given), fully(q, k, v, **given))
            if grad:
                leaves = [each.requires_grad_() for each in (q, k, v)]
                (dout,) = tensors((2, 4, 20, 16), seed=seed + 9)
                for found, expected in zip(gradients(leaves, dout, **given), checked_gradients(leaves, dout, **given)):
                    assert torch.equal(found, expected)


def test_a_mask_that_changes_before_the_backward_pass():
    """Autograd notices it."""
    mask = torch.ones(5, 9, dtype=torch.bool)
    leaves = [each.requires_grad_() for each in qkv()]
    for _ in range(2):
        out = rg.attention(*leaves, mask=mask)
        mask[0, 0] = False
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_masks_are_not_kept_alive():
    """What is kept of a mask is a copy."""
    mask = torch.ones(5, 9, dtype=torch.bool)
    for _ in range(2):
        rg.attention(*qkv(), mask=mask)
    held = weakref.ref(mask)
    del mask
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("rule", [{"mask": torch.ones(5, 5, dtype=torch.bool)}, {"score": torch.zeros(5, 5)}], ids=str)
@pytest.mark.parametrize("axes", [0, 1])
def test_too_few_axes_are_refused_with_a_mask_too(rule, axes):
    """As without one."""
    q = torch.randn((5,) * axes)
    with pytest.raises(rg.Refused):
        rg.attention(q, q, q, **rule)


@pytest.mark.parametrize("shape", [(), (70,), (1, 70)], ids=str)
def test_scores_of_few_axes(shape):
    """A number for each key, or one for all, is added, however many rows there are."""
    q, k, v = qkv(Q=70, K=70)
    score = torch.randn(shape)
    for _ in range(2):
        assert torch.equal(rg.attention(q, k, v, score=score), fully(q, k, v, score=score))
