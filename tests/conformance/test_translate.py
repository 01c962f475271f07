"""Canonical calls in the conventions of a function, and results read back."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from regard.conformance.call import Call
from regard.conformance.conventions.fields import CHOICES, Adapter
from regard.conformance.conventions.layouts import array_kind, dtype_name, float64, on_call
from regard.conformance.conventions.structure import checked
from regard.conformance.conventions.translate import Absent, prepare
from regard.conformance.law.expected import compared_gradients, expected
from tests.conformance.calls import random_call
from tests.conformance.implementations import right
from tests.conformance.sessions import Here


@pytest.mark.parametrize("layout", CHOICES["layout"])
def test_right_functions_in_any_convention_agree_with_the_law(layout):
    """Calls, masks, windows, heads, lse and empty rows mean the same in every convention."""
    for seed in range(10):
        assert_agrees(np.random.default_rng([seed, CHOICES["layout"].index(layout)]), layout)


@pytest.mark.sweep
def test_five_hundred_right_functions_agree_with_the_law():
    """The same, over more of them."""
    for seed in range(500):
        assert_agrees(np.random.default_rng([seed, 99]), None)


def assert_agrees(rng, layout):
    """One function, in a few calls."""
    function, adapter = right(rng, layout)
    for _ in range(5):
        call = random_call(rng, adapter)
        answer = Here(function).call(call, adapter)
        assert answer.status == "ok", (answer.words, adapter, call.uses(), call.dims)
        comparison = expected(call, adapter).judge(answer)
        assert comparison.right, (str(comparison), adapter, call.uses(), call.dims)


def test_a_wrong_declaration_does_not_agree():
    """The comparison can fail: under each other value of a convention some call differs."""
    differ = set()
    for seed in range(60):
        rng = np.random.default_rng([seed, 97])
        function, adapter = right(rng)
        for name in ("mask", "causal", "window", "softcap", "groups", "lse", "empty_row"):
            for value in CHOICES[name]:
                wrong = replace(adapter, **{name: value})
                if value == getattr(adapter, name) or (name, value) in differ:
                    continue
                try:
                    call = random_call(rng, adapter)
                    answer = Here(function).call(call, wrong)
                except Absent:
                    continue
                if answer.status != "ok" or not expected(call, wrong).judge(answer).right:
                    differ.add((name, value))

    for name in ("mask", "causal", "window", "softcap", "groups", "lse", "empty_row"):
        left = {value for value in CHOICES[name] if (name, value) not in differ} - {"any", "none"}
        assert not left, (name, left)


@pytest.mark.spread
@pytest.mark.parametrize("layout", CHOICES["layout"])
@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_gradients_come_back_in_the_axes_of_the_call(layout, kind):
    """Of q, k, v, bias and sinks, through the output and lse, by torch and by jax."""
    pytest.importorskip(kind)
    rng = np.random.default_rng([CHOICES["layout"].index(layout), 1])
    for lse_layout, base in (("BHQ", "natural"), ("BQH1", "base-2"), ("HT", "natural")):
        shapes = {"HSD": ("HQK", "QK"), "SD": ("QK",), "THD": ("HQK",)}.get(layout, ("BHQK", "HQK", "QK"))
        adapter = Adapter(
            arrays=kind,
            layout=layout,
            lse=base,
            lse_layout=lse_layout,
            gradients=kind,
            mask_shapes=shapes,
            returns=("out", "lse"),
            parameters={"mask": "mask", "bias": "mask", "sinks": "sinks", "heads": "heads"},
        )
        B = 1 if layout in ("HSD", "SD", "THD") else 2
        H = 1 if layout == "SD" else 4
        G = max(H // 2, 1)
        normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
        call = Call(
            q=normal(B, H, 5, 4),
            k=normal(B, G, 7, 4),
            v=normal(B, G, 7, 6),
            mask=rng.random((1, 1, 5, 7)) < 0.8,
            bias=normal(1, 1 if shapes == ("QK",) else H, 5, 7),
            sinks=normal(H),
            dout=normal(B, H, 5, 6),
            dlse=normal(B, H, 5),
        )
        call = replace(call, mask=call.mask | (np.arange(7) == 0))
        answer = Here(differentiable(adapter)).call(call, adapter)

        assert answer.status == "ok", answer.words
        assert set(answer.gradients) == {"q", "k", "v", "bias", "sinks"}
        for role, gradient in answer.gradients.items():
            assert gradient.shape == getattr(call, role).shape, role
        assert expected(call, adapter).judge(answer).right
        comparison = compared_gradients(call, adapter, answer)
        assert comparison.right, str(comparison)


def differentiable(adapter):
    """A right function of torch or jax tensors, for gradients."""
    if adapter.arrays == "torch":
        import torch as library

        einsum, exp, log, stop = library.einsum, library.exp, library.log, lambda x: x.detach()
    else:
        import jax.numpy as library
        from jax.lax import stop_gradient as stop

        einsum, exp, log = library.einsum, library.exp, library.log
    layout = adapter.layout
    axes = {"BHSD": "bhsd", "BSHD": "bshd", "SBHD": "sbhd", "HSD": "hsd", "SD": "sd", "THD": "shd"}.get(layout)

    def inward(x, heads):
        if layout == "BSD":
            return einsum("bshd->bhsd", x.reshape(x.shape[0], x.shape[1], heads, -1))
        x = x.reshape((1,) * (4 - x.ndim) + tuple(x.shape)) if layout in ("HSD", "SD") else x
        return einsum("shd->hsd", x)[None] if layout == "THD" else x if len(axes) < 4 else einsum(f"{axes}->bhsd", x)

    def attention(q, k, v, mask=None, sinks=None, heads=None):
        shape = q.shape
        depth = shape[-1] // (heads or 1)
        q, k, v = (
            inward(q, heads),
            inward(k, k.shape[-1] // depth),
            inward(v, None if not heads else k.shape[-1] // depth),
        )
        B, H, Q, D = q.shape
        share = H // k.shape[1]
        k, v = (library.stack([x] * share, 2).reshape(B, H, *x.shape[2:]) for x in (k, v))
        scores = einsum("bhqd,bhkd->bhqk", q, k) / D**0.5 + mask
        sink = sinks[None, :, None, None]
        top = stop(library.maximum(scores.max(-1)[0] if adapter.arrays == "torch" else scores.max(-1), sink[..., 0]))[
            ..., None
        ]
        total = exp(scores - top).sum(-1)[..., None] + exp(sink - top)
        out = einsum("bhqk,bhke->bhqe", exp(scores - top) / total, v)
        lse = (top + log(total))[..., 0]
        lse = lse / np.log(2) if adapter.lse == "base-2" else lse
        if adapter.lse_layout == "HT":
            lse = einsum("bhq->hbq", lse).reshape(H, B * Q)
        elif adapter.lse_layout == "BQH1":
            lse = einsum("bhq->bqh", lse)[..., None]
            lse = lse.reshape(B * Q, H, 1) if layout == "THD" else lse
        if layout == "BSD":
            return einsum("bhsd->bshd", out).reshape(B, Q, -1), lse
        if layout in ("HSD", "SD"):
            out = out.reshape(*shape[:-1], -1)
            if adapter.lse_layout != "HT":
                lse = lse[0]
            return out, lse if layout == "HSD" else lse.reshape(
                lse.shape[1:] if lse.shape[0] == 1 else (*lse.shape[:1], 1)
            )
        return (einsum("hsd->shd", out[0]) if layout == "THD" else einsum(f"bhsd->{axes}", out)), lse

    return attention


def test_sixteen_bit_arrays_keep_their_bits():
    """bfloat16 reaches each kind of array, and returns, without a change."""
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    numbers = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype(ml_dtypes.bfloat16)
    for kind in CHOICES["arrays"]:
        for memory in ("contiguous", "strided", "readonly"):
            given = on_call(numbers, kind, memory)
            assert array_kind(given) == kind and dtype_name(given) == "bfloat16"
            assert (float64(given) == numbers.astype(np.float64)).all()


def test_memory_is_as_the_call_says():
    """Strides of two elements, of 0 along the batch, and arrays that cannot be written."""
    q = np.ones((3, 2, 5, 4), np.float32)
    for kind in ("numpy", "torch"):
        strided = on_call(q, kind, "strided")
        steps = strided.stride() if kind == "torch" else tuple(step // 4 for step in strided.strides)
        assert steps[-1] == 2
        expanded = on_call(q, kind, "expanded", 0)
        steps = expanded.stride() if kind == "torch" else expanded.strides
        assert steps[0] == 0 and tuple(expanded.shape) == q.shape
    assert not on_call(q, "numpy", "readonly").flags.writeable
    assert on_call(q, "numpy") is not q


# What a function may return instead of (2, 3, 5, 6), and what is said about it.
UNREADABLE = [
    (lambda out: None, "out", "the output is None; numpy.ndarray was expected"),
    (lambda out: out.tolist(), "out", "a list of 2 was returned; an array was expected"),
    (lambda out: (out, None), "out", "a tuple of 2 was returned; an array was expected"),
    (lambda out: out[..., :4], "out", "shape (2, 3, 5, 4); (2, 3, 5, 6) was expected (BHSD with B=2, H=3, S=5, E=6)"),
    (lambda out: out.astype(int), "out", "the output has dtype int64; floats were expected"),
    (lambda out: out, ("out", "lse"), "numpy.ndarray was returned; a tuple of 2 was expected"),
    (lambda out: (out,), ("out", "lse"), "a tuple of 1 was returned; one of 2 was expected"),
    (lambda out: (out, None), ("out", "lse"), "the lse is None; numpy.ndarray was expected"),
    (lambda out: (out, out), ("out", "lse"), "the lse has shape (2, 3, 5, 6); (2, 3, 5) was expected"),
    (lambda out: {"x": out}, {"out": "y"}, "a mapping with keys 'x' was returned; key 'y' was expected"),
    (lambda out: "text", {"out": "y"}, "str was returned; an object with 'y' was expected"),
    (lambda out: 1.0, "out", "the output is float; numpy.ndarray was expected"),
]


@pytest.mark.parametrize(("returned", "returns", "words"), UNREADABLE, ids=[each[2] for each in UNREADABLE])
def test_a_result_that_cannot_be_read_is_described(returned, returns, words):
    """What came, and what was expected, in the function's own layout."""
    call = Call(**{name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()})

    answer = Here(lambda q, k, v: returned(np.zeros((2, 3, 5, 6), np.float32))).call(call, Adapter(returns=returns))

    assert answer.status == "unreadable" and words in answer.words
    assert answer.returned is not None and checked(json.loads(json.dumps(answer.returned))) == answer.returned


SHAPES = {"q": (2, 3, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 6)}


@pytest.mark.parametrize(
    ("adapter", "arguments", "role"),
    [
        (Adapter(), {"mask": np.ones((2, 3, 5, 7), bool)}, "mask"),
        (Adapter(), {"causal": True}, "causal"),
        (Adapter(), {"lengths": np.array([1, 2])}, "lengths"),
        (Adapter(), {"scale": 1.0}, "scale"),
        (Adapter(), {"sinks": np.zeros(3)}, "sinks"),
        (Adapter(layout="HSD"), {}, "batch"),
        (Adapter(layout="SD"), {}, "batch"),
        (Adapter(layout="BSD"), {}, "heads"),
        (Adapter(layout="BSD", heads=4), {}, "heads"),
        (Adapter(layout="THD"), {}, "batch"),
        (Adapter(parameters={"mask": "m"}, mask_shapes=("QK",)), {"mask": np.ones((2, 1, 5, 7), bool)}, "mask"),
        (Adapter(parameters={"window": "w"}), {"window": (1, 2)}, "window"),
    ],
)
def test_what_a_function_does_not_have_is_absent(adapter, arguments, role):
    """The role is named; nothing is called."""
    call = Call(**{name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}, **arguments)

    with pytest.raises(Absent) as absent:
        prepare(call, adapter, ["q", "k", "v", *adapter.parameters.values()])
    assert absent.value.role == role and absent.value.words


def test_required_parameters_get_values_that_change_nothing():
    """A function that requires all of its parameters gives the same result as one that has none."""

    def plain(q, k, v):
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        powers = np.exp(scores)
        return powers / powers.sum(-1, keepdims=True) @ v

    def strict(q, k, v, /, attn_mask, is_causal, window_size, softmax_scale, dropout_p, *, sinks):
        assert attn_mask.dtype == bool and attn_mask.all() and is_causal is False and dropout_p == 0.0
        assert window_size >= 12 and np.isneginf(sinks).all() and softmax_scale == 0.5
        return plain(q, k, v)

    rng = np.random.default_rng(0)
    call = Call(**{name: rng.standard_normal(shape) for name, shape in SHAPES.items()})
    results = [Here(function).call(call, Adapter()) for function in (plain, strict)]

    assert results[1].status == "ok", results[1].words
    assert (results[0].out == results[1].out).all()
