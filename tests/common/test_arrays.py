"""Reading arrays of other libraries: what has no numbers is refused with a fix that fits what it is."""

import functools
import re

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import regard as rg
from tests.support.engines import normal
from tests.support.refusals import reasons_of, refusal, refusing


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


def arrays(seed, dtype=np.float32):
    """q, k and v."""
    return normal(3, 2, 6, 8, seed=seed, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_arrays_with_dlpack_only_are_read(dtype):
    """As q, k, v, a mask, a score and sinks; the result is that of the arrays."""
    q, k, v = arrays(0, dtype)
    bias = normal(6, 6)
    rules = {"mask": bias < 0.7, "score": bias, "sinks": bias[0, :2].copy()}
    capsules = {name: Capsule(each) for name, each in rules.items()}
    expected = rg.attention(q, k, v, **rules)
    for given in ((Capsule(q), Capsule(k), Capsule(v)), (q, Capsule(k), Capsule(v))):
        np.testing.assert_array_equal(rg.attention(*given, **capsules), expected)


@pytest.mark.parametrize("name", ["mask", "score"])
@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor], ids=["arrays", "tensors"])
def test_a_block_mask_names_its_function(name, convert):
    """A BlockMask is not "an array that cannot be converted", and the fix can be run."""
    block = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 128, 128, device="cpu")
    (reason,) = reasons_of(rg.attention, *convert(arrays(0)), **{name: block})

    assert (reason.given, reason.fix) == ("a BlockMask of torch", "mask=block_mask.mask_mod")


def test_the_transforms_of_torch():
    """Inside torch.func, functions for arrays name the operator of tensors, and it works there."""
    q, k, v = arrays(0)
    batched = torch.from_numpy(v)[None]
    for inside in (lambda each: rg.attention(q, k, each), lambda each: rg.attention_weights(each, k)):
        with refusing(r"torch\.func[\s\S]*regard\.torch\.attention"):
            torch.func.vmap(inside)(batched)

    attend = functools.partial(rg.attention, *map(torch.from_numpy, (q, k)))
    assert torch.equal(torch.func.vmap(attend)(batched)[0], attend(batched[0]))


def test_arrays_beside_a_tensor_that_torch_transforms():
    """Keys and values may be arrays where the queries are a tensor, inside a transform as outside."""
    q, k, v = arrays(0)
    tensor = torch.from_numpy(q)

    def attend(each):
        return rg.attention(each, k, v)

    torch.testing.assert_close(torch.func.vmap(attend)(tensor[None])[0], attend(tensor))
    torch.testing.assert_close(torch.compile(attend, backend="eager")(tensor), attend(tensor))
    assert torch.func.grad(lambda each: attend(each).sum())(tensor).shape == q.shape
    assert attend(tensor.to("meta")).shape == q.shape


def test_fixes_fit_what_was_given():
    """No `.cpu()` or `.astype` for what has none."""
    for each in (Unknown(), "a", {"a": 1}, [[1.0], [1.0, 2.0]], np.array(["a", "b"])):
        (reason,) = reasons_of(rg.attention, each, each, each)

        assert not re.search(r"\.(cpu|astype|float)\(", reason.fix), reason


WRONG = [
    (lambda array: array.astype(np.int32), "dtype"),
    (lambda array: array.astype(complex), "dtype"),
    (lambda array: array[0, 0], "axes"),
    (lambda array: torch.from_numpy(array[0]).to_sparse(), "read"),
]


@pytest.mark.parametrize(("make", "word"), WRONG)
@pytest.mark.parametrize("names", ["q", "k", "v", "qk", "qv", "kv", "qkv"])
def test_one_problem_of_several_arguments_is_one_reason(make, word, names):
    """Any of q, k and v with the same problem: one reason that names each of them, and none that has it not."""
    given = [make(each) if name in names else each for name, each in zip("qkv", arrays(0))]
    (reason,) = (each for each in reasons_of(rg.attention, *given) if word in each.what)

    assert sorted(set(reason.what.replace(":", "").split()) & set("qkv")) == sorted(names)


def test_a_custom_operator_in_a_rule():
    """torch does not know what an operator of the user's own computes, so the fix is to write it out."""

    @torch.library.custom_op("regard_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    for rule in (doubled, torch.ops.regard_tests.doubled, torch.ops.regard_tests.doubled.default):
        text = refusal(rg.attention, *arrays(0), score=lambda s, *_, rule=rule: rule(s))

        assert "regard_tests.doubled" in text and "custom operator" in text and "write out" in text
