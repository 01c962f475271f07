"""Canonical calls in the conventions of a function, and results read back."""

import contextlib
import functools
import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.common.arrays import name_of_dtype
from regard.conformance.conventions.fields import CHOICES, Adapter
from regard.conformance.conventions.layouts import array_kind, float64, on_call, shown
from regard.conformance.conventions.parameters import Parameter, completed
from regard.conformance.conventions.read import lse_shape
from regard.conformance.conventions.translate import Absent, prepare
from regard.laws.call import Call
from regard.laws.expected import compared_gradients, expected
from tests.conformance.calls import random_call
from tests.conformance.implementations import right
from tests.conformance.sessions import Here
from tests.support.engines import normal
from tests.support.lanes import sweep


@pytest.mark.parametrize(("layout", "count"), [*((each, 10) for each in CHOICES["layout"]), *sweep((None, 500))])
def test_right_functions_in_any_convention_agree_with_the_law(layout, count):
    """Calls, masks, windows, heads, lse and empty rows mean the same in every convention; each function in a few
    calls.
    """
    for seed in range(count):
        rng = np.random.default_rng([seed, CHOICES["layout"].index(layout) if layout else 99])
        function, adapter = right(rng, layout)
        for _ in range(5):
            call = random_call(rng, adapter)
            answer = Here(function).call(call, adapter)
            assert answer.status == "ok", (answer.words, adapter, call.uses(), call.dims)
            comparison = expected(call, adapter).judge(answer)
            assert comparison.right, (str(comparison), adapter, call.uses(), call.dims)


def test_a_wrong_declaration_does_not_agree():
    """The comparison can fail: under each other value of a convention some call differs."""
    names = ("mask", "causal", "window", "softcap", "groups", "lse", "empty_row")
    left = {(name, value) for name in names for value in CHOICES[name]} - {("empty_row", "any"), ("groups", "none")}
    for seed in range(100):
        rng = np.random.default_rng([seed, 97])
        function, adapter = right(rng)
        for name, value in sorted(left):
            wrong = replace(adapter, **{name: value})
            call = random_call(rng, adapter)
            with contextlib.suppress(Absent):
                answer = Here(function).call(call, wrong)
                if answer.status != "ok" or not expected(call, wrong).judge(answer).right:
                    left.remove((name, value))
        if not left:
            break

    assert not left


@pytest.mark.spread
@pytest.mark.parametrize("layout", CHOICES["layout"])
@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_gradients_come_back_in_the_axes_of_the_call(layout, kind):
    """Of q, k, v, bias and sinks, through the output and lse, by torch and by jax."""
    pytest.importorskip(kind)
    number = CHOICES["layout"].index(layout)
    rng = np.random.default_rng([number, 1])
    shapes = {"HSD": ("HQK", "QK"), "SD": ("QK",), "THD": ("HQK",)}.get(layout, ("BHQK", "HQK", "QK"))
    names = {"mask": "mask", "bias": "mask", "sinks": "sinks", "heads": "heads"}
    common = {"arrays": kind, "layout": layout, "gradients": kind, "mask_shapes": shapes, "parameters": names}
    B, H, G = {"HSD": (1, 4, 2), "THD": (1, 4, 2), "SD": (1, 1, 1)}.get(layout, (2, 4, 2))

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    lse_layout, base = (("BHQ", "natural"), ("BQH1", "base-2"), ("HT", "natural"))[number % 3]
    adapter = Adapter(lse=base, lse_layout=lse_layout, returns=("out", "lse"), **common)
    call = Call(
        q=normal(B, H, 5, 4),
        k=normal(B, G, 7, 4),
        v=normal(B, G, 7, 6),
        mask=(rng.random((1, 1, 5, 7)) < 0.8) | (np.arange(7) == 0),
        bias=normal(1, H, 5, 7),
        sinks=normal(H),
        dout=normal(B, H, 5, 6),
        dlse=normal(B, H, 5),
    )
    answer = Here(differentiable(adapter)).call(call, adapter)

    assert answer.status == "ok", answer.words
    assert {role: part.shape for role, part in answer.gradients.items()} == {
        role: getattr(call, role).shape for role in ("q", "k", "v", "bias", "sinks")
    }
    assert expected(call, adapter).judge(answer).right
    comparison = compared_gradients(call, adapter, answer)
    assert comparison.right, str(comparison)


def differentiable(adapter):
    """A right function of torch or jax tensors, for gradients."""
    layout = adapter.layout
    swaps = {"SBHD": [(0, 1), (1, 2)], "BSHD": [(1, 2)], "BSD": [(1, 2)], "THD": [(1, 2)]}.get(layout, [])
    missing = {"HSD": 1, "THD": 1, "SD": 2}.get(layout, 0)  # axes of size 1

    def swapped(x, swaps):
        return functools.reduce(lambda x, axes: x.swapaxes(*axes), swaps, x)

    def attention(q, k, v, mask=0, sinks=None, heads=None, cu_seqlens_q=None, cu_seqlens_k=None):
        rows, depth = q.shape[:-1], q.shape[-1] // (heads or 1)
        q, k, v = (x.reshape((1,) * missing + tuple(x.shape)) for x in (q, k, v))
        if layout == "BSD":
            groups = k.shape[-1] // depth
            q, k, v = (x.reshape(*x.shape[:2], each, -1) for x, each in ((q, heads), (k, groups), (v, groups)))
        out, lse = rg.attention_with_lse(*(swapped(x, swaps) for x in (q, k, v)), score=mask, sinks=sinks)
        B, H, Q = lse.shape
        lse = lse / np.log(2) if adapter.lse == "base-2" else lse
        if adapter.lse_layout == "HT":
            lse = lse.swapaxes(0, 1).reshape(H, B * Q)
        elif adapter.lse_layout == "BQH1":
            lse = lse.swapaxes(1, 2)[..., None]
        out = swapped(out, swaps[::-1])
        return out.reshape(*rows, -1), lse.reshape(lse_shape(adapter, {"B": B, "H": H, "Q": Q}))

    return attention


def test_sixteen_bit_arrays_keep_their_bits():
    """bfloat16 reaches each kind of array, and returns, without a change."""
    import jax  # noqa: F401, without which it is skipped
    import torch  # noqa: F401

    numbers = normal(2, 3, 5, 4, dtype=ml_dtypes.bfloat16)
    for kind in CHOICES["arrays"]:
        for memory in ("contiguous", "strided", "readonly"):
            given = on_call(numbers, kind, memory)
            assert array_kind(given) == kind and name_of_dtype(given) == "bfloat16"
            assert (float64(given) == numbers.astype(np.float64)).all()


def test_memory_is_as_the_call_says():
    """Strides of two elements, of 0 along the batch, and arrays that cannot be written."""
    q = np.ones((3, 2, 5, 4), np.float32)
    for kind in ("numpy", "torch"):
        strided, expanded = (np.asarray(on_call(q, kind, memory, 0)) for memory in ("strided", "expanded"))
        assert strided.strides[-1] == 8 and expanded.strides[0] == 0 and expanded.shape == q.shape
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
    out = np.zeros((2, 3, 5, 6), np.float32)

    answer = Here(lambda q, k, v: returned(out)).call(Call(**NOTHING), Adapter(returns=returns))

    assert answer.status == "unreadable" and words in answer.words
    assert answer.returned is not None and json.loads(json.dumps(answer.returned)) == answer.returned


SHAPES = {"q": (2, 3, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 6)}
NOTHING = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}


MASK = np.ones((2, 1, 5, 7), bool)
# Conventions, the arguments of a call, and the role that is absent.
ABSENT = [
    ({}, {"mask": MASK}, "mask"),
    ({}, {"causal": True}, "causal"),
    ({}, {"lengths": np.array([1, 2])}, "lengths"),
    ({}, {"scale": 1.0}, "scale"),
    ({}, {"sinks": np.zeros(3)}, "sinks"),
    ({"layout": "HSD"}, {}, "batch"),
    ({"layout": "SD"}, {}, "batch"),
    ({"layout": "BSD"}, {}, "heads"),
    ({"layout": "BSD", "heads": 4}, {}, "heads"),
    ({"layout": "THD"}, {}, "batch"),
    ({"parameters": {"mask": "m"}, "mask_shapes": ("QK",)}, {"mask": MASK}, "mask"),
    ({"parameters": {"window": "w"}}, {"window": (1, 2)}, "window"),
]


@pytest.mark.parametrize(("declared", "arguments", "role"), ABSENT)
def test_what_a_function_does_not_have_is_absent(declared, arguments, role):
    """The role is named; nothing is called."""
    call, adapter = Call(**NOTHING, **arguments), Adapter(**declared)

    with pytest.raises(Absent) as absent:
        parameters = [Parameter(name=each) for each in ("q", "k", "v", *adapter.parameters.values())]
        prepare(call, completed(adapter, parameters), parameters)
    assert absent.value.role == role and absent.value.words


def test_required_parameters_get_values_that_change_nothing():
    """A function that requires all of its parameters gives the same result as one that has none."""

    def strict(q, k, v, /, attn_mask, is_causal, window_size, softmax_scale, dropout_p, *, sinks):
        assert attn_mask.dtype == bool and attn_mask.all() and is_causal is False and dropout_p == 0.0
        assert window_size >= 12 and np.isneginf(sinks).all() and softmax_scale == 0.5
        return rg.attention(q, k, v)

    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    answer = Here(strict).call(Call(**arrays), Adapter())

    assert answer.status == "ok", answer.words
    assert (answer.out == rg.attention(*arrays.values())).all()


@pytest.mark.parametrize(
    ("layout", "words"), [("BSD", "BSD with B=2, S=5, H·D=12"), ("THD", "THD with T=10, H=3, D=4")]
)
def test_the_axes_of_a_layout_are_named(layout, words):
    assert shown(layout, (2, 3, 5, 4)) == words
