"""Reading arrays of other libraries: what has no numbers is refused with a fix that fits what it is."""

import random

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import regard as rg


class Capsule:
    """An array that offers the protocol of DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Unknown:
    """An object without numbers."""


def arrays(seed: int, dtype=np.float32) -> np.ndarray:
    """q, k and v."""
    return np.random.default_rng(seed).standard_normal((3, 2, 6, 8)).astype(dtype)


def refusal(*call, **named) -> rg.Refused:
    """The refusal of a call."""
    with pytest.raises(rg.Refused) as caught:
        rg.attention(*call, **named)
    return caught.value


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_arrays_with_dlpack_only_are_read(dtype):
    """As q, k, v, a mask, a score and sinks; the result is that of the arrays."""
    for seed in range(5):
        q, k, v = arrays(seed, dtype)
        mask = np.random.default_rng(seed).random((6, 6)) < 0.7
        bias = np.random.default_rng(seed).standard_normal((6, 6)).astype(np.float32)
        given = [Capsule(each) if seed % 2 or number else each for number, each in enumerate((q, k, v))]
        found = rg.attention(*given, mask=Capsule(mask), score=Capsule(bias), sinks=Capsule(bias[0, :2].copy()))

        np.testing.assert_array_equal(found, rg.attention(q, k, v, mask=mask, score=bias, sinks=bias[0, :2]))


@pytest.mark.parametrize("name", ["mask", "score"])
@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_a_block_mask_names_its_function(name, kind):
    """A BlockMask is not "an array that cannot be converted", and the fix can be run."""
    block = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 128, 128, device="cpu")
    call = arrays(0) if kind == "arrays" else torch.from_numpy(arrays(0))
    (reason,) = refusal(*call, **{name: block}).reasons

    assert (reason.given, reason.fix) == ("a BlockMask of torch", "mask=block_mask.mask_mod")


def test_the_transforms_of_torch():
    """Inside torch.func, functions for arrays name the operator of tensors, and it works there."""
    q, k, v = torch.from_numpy(arrays(0))
    batched = v.expand(3, *v.shape)
    for inside in (lambda each: rg.attention(q.numpy(), k, each), lambda each: rg.attention_weights(each, k)):
        with pytest.raises(rg.Refused, match=r"torch\.func[\s\S]*regard\.torch\.attention"):
            torch.func.vmap(inside)(batched)

    assert torch.func.vmap(lambda each: rg.attention(q, k, each))(batched).shape == batched.shape


def test_arrays_beside_a_tensor_that_torch_transforms():
    """Keys and values may be arrays where the queries are a tensor, inside a transform as outside."""
    q, k, v = arrays(0)
    tensor = torch.from_numpy(q)
    right = rg.attention(tensor, k, v)
    batched = torch.func.vmap(lambda each: rg.attention(each, k, v))(tensor[None])
    compiled = torch.compile(lambda each: rg.attention(each, k, v), backend="eager")(tensor)

    torch.testing.assert_close(batched[0], right)
    torch.testing.assert_close(compiled, right)
    assert torch.func.grad(lambda each: rg.attention(each, k, v).sum())(tensor).shape == q.shape
    assert rg.attention(tensor.to("meta"), k, v).shape == q.shape


def test_arrays_of_jax():
    """Results are arrays of JAX, with the numbers of those of NumPy."""
    jax = pytest.importorskip("jax")
    given = arrays(0)
    q, k, v = map(jax.numpy.asarray, given)
    for function in (
        lambda *qkv: rg.attention(*qkv, mask=rg.causal()),
        lambda *qkv: rg.attention_with_lse(*qkv)[1],
        lambda q, k, v: rg.attention_weights(q, k),
        lambda q, k, v: rg.attention_backward(q, k, v, q[..., : v.shape[-1]] * 0 + 1).k,
        lambda *qkv: rg.merge([rg.attention_part(*qkv)]).result()[0],
    ):
        found, expected = function(q, k, v), function(*given)
        assert isinstance(found, jax.Array) and isinstance(expected, np.ndarray)
        assert np.array_equal(found, expected)


def test_tracers_of_jax():
    """`jit` and `grad` of JAX hand over tracers, which have no `.cpu()`."""
    jax = pytest.importorskip("jax")
    q, k, v = map(jax.numpy.asarray, arrays(0))
    for transformed in (
        lambda: jax.jit(rg.attention)(q, k, v),
        lambda: jax.grad(lambda each: rg.attention(each, k, v).sum())(q),
    ):
        with pytest.raises(rg.Refused, match=r"a tracer of JAX[\s\S]*jax\.pure_callback"):
            transformed()


def test_fixes_fit_what_was_given():
    """No `.cpu()` or `.astype` for what has none."""
    for each in (Unknown(), "a", {"a": 1}, [[1.0], [1.0, 2.0]], np.array(["a", "b"])):
        (reason,) = refusal(each, each, each).reasons

        assert not any(word in reason.fix for word in (".cpu()", ".astype(", ".float()")), reason


WRONG = [
    (lambda array: array.astype(np.int32), "dtype"),
    (lambda array: array.astype(complex), "dtype"),
    (lambda array: array[0, 0], "axes"),
    (lambda array: torch.from_numpy(array[0]).to_sparse(), "read"),
]


@pytest.mark.parametrize(("make", "word"), WRONG)
def test_one_problem_of_several_arguments_is_one_reason(make, word):
    """Any of q, k and v with the same problem: one reason that names each of them, and none that has it not."""
    draw = random.Random(0)
    for names in ("q", "k", "v", "qk", "qv", "kv", "qkv"):
        q, k, v = arrays(draw.randrange(100))
        named = {name: make(each) if name in names else each for name, each in zip("qkv", (q, k, v))}
        reasons = [each for each in refusal(*named.values()).reasons if word in each.what]

        assert len(reasons) == 1
        assert sorted(set(reasons[0].what.replace(":", "").split()) & set("qkv")) == sorted(names)


def test_a_custom_operator_in_a_rule():
    """torch does not know what an operator of the user's own computes, so the fix is to write it out."""

    @torch.library.custom_op("regard_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    for rule in (doubled, torch.ops.regard_tests.doubled, torch.ops.regard_tests.doubled.default):
        text = str(refusal(*arrays(0), score=lambda s, *_, rule=rule: rule(s)))

        assert "regard_tests.doubled" in text and "custom operator" in text and "write out" in text
