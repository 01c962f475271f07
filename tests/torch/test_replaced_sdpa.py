"""replace_sdpa: torch's own function computed by regard, in models that are not edited."""

import os
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.torch import profile, replace_sdpa
from tests.support.kernels import fresh
from tests.support.lanes import by_name, sweep
from tests.support.tensors import normal

sdpa = F.scaled_dot_product_attention
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def tensors(rng, dtype, heads_first):
    """q, k and v of random sizes, and sizes (B, H, Q, K)."""
    B, G, Q, K, D, E = (int(rng.integers(1, most)) for most in (4, 4, 40, 60, 20, 20))
    K += 8192 // Q  # as many pairs as regard computes with gradients
    H = G * int(rng.integers(1, 4))
    sizes = (B, H, Q, D), (B, G, K, D), (B, G, K, E)
    made = [torch.from_numpy(rng.standard_normal(each)).to(dtype) for each in sizes]
    if not heads_first:
        made = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in made]
    return made, (B, H, Q, K)


def options(rng, grid, dtype, key_heads):
    """Random options of a call."""
    found = {"enable_gqa": True} if key_heads not in (1, grid[1]) else {}  # a single head broadcasts
    kind = rng.integers(5)
    if kind == 0:
        found["is_causal"] = True
    elif kind < 4:
        sizes = [size if rng.random() < 0.6 else 1 for size in grid][int(rng.integers(3)) :]
        numbers = torch.from_numpy(rng.standard_normal(sizes))
        found["attn_mask"] = numbers < 0.5 if kind == 1 else numbers.to(dtype)
        if kind == 3:
            found["attn_mask"] = found["attn_mask"].masked_fill(numbers > 1, -torch.inf)
    if rng.random() < 0.3:
        found["scale"] = float(rng.uniform(-1, 1))
    return found


def gradients(out, given, slope):
    wanted = [each for each in given if each.requires_grad]
    return torch.autograd.grad(out, wanted, slope.to(out.dtype))


@pytest.mark.spread
@pytest.mark.parametrize("dtype", UNIT, ids=str)
@pytest.mark.parametrize("seed", [0, 1, 3, 7, *sweep(2, 4, 5, 6)])
def test_random_calls_are_torchs(seed, dtype):
    """Outputs, gradients (of a mask that is added, too), dtypes, shapes and strides, within what the dtype rounds."""
    rng = np.random.default_rng(seed)
    given, grid = tensors(rng, dtype, seed % 2)
    rest = options(rng, grid, dtype, given[1].shape[1])
    mask = rest.get("attn_mask")
    if mask is not None and mask.dtype is not torch.bool:
        given.append(mask)
    wide = [each.double().requires_grad_() for each in given]
    given = [each.requires_grad_() for each in given]

    def call(q, k, v, *added):
        return sdpa(q, k, v, **rest | ({"attn_mask": added[0]} if added else {}))

    with sdpa_kernel(SDPBackend.MATH):
        exact = call(*wide)
        slope = torch.from_numpy(rng.standard_normal(exact.shape))
        slopes = gradients(exact, wide, slope)
    with torch.no_grad():
        theirs = call(*given)
    with replace_sdpa() as replacement:
        out = call(*given)
        found = gradients(out, given, slope)
        with torch.no_grad():
            plain = call(*given)

    assert replacement.calls == {"regard": 2}
    assert out.dtype == dtype and plain.stride() == theirs.stride() and out.shape == theirs.shape
    bound = 64 * UNIT[dtype]
    for ours, law in zip((out, plain, *found), (exact, exact, *slopes), strict=True):
        assert float((ours.double() - law).abs().max()) <= bound * (1 + float(law.abs().max()))


Q = normal(2, 4, 5, 8)
TORCH = {
    "sizes that broadcast": (Q, Q[:1], Q, {}),
    "one head of queries": (Q[:, :1], Q, Q, {}),
    "no batch or heads": (Q[0, 0], Q[0, 0], Q[0, 0], {}),
    "no rows": (Q[:, :, :0], Q, Q, {}),
    "five axes and a mask": (Q[None], Q[None], Q[None], {"attn_mask": torch.ones(2, 1, 5, 5, dtype=torch.bool)}),
    "a mask and is_causal": (Q, Q, Q, {"attn_mask": torch.ones(5, 5, dtype=torch.bool), "is_causal": True}),
    "a scale without end": (Q, Q, Q, {"scale": float("inf")}),
}


@pytest.mark.parametrize("case", TORCH)
def test_what_regard_does_not_compute_is_torchs(case):
    """The same numbers, and the reason is counted."""
    *given, rest = TORCH[case]
    with replace_sdpa() as replacement:
        out = sdpa(*given, **rest)
    torch.testing.assert_close(out, sdpa(*given, **rest), rtol=0, atol=0, equal_nan=True)
    assert replacement.calls["regard"] == 0 and sum(replacement.calls.values()) == 1


WRONG = {
    "depths": ((Q, Q[..., :4], Q), {}),
    "a dtype": ((Q.to(torch.complex64),) * 3, {}),
    "heads": ((Q, Q[:, :3], Q[:, :3]), {"enable_gqa": True}),
    "a mask": ((Q, Q, Q), {"attn_mask": torch.ones(3, 7, dtype=torch.bool)}),
    "the dtype of a mask": ((Q, Q, Q), {"attn_mask": torch.zeros(5, 5, dtype=torch.float64)}),
    "dtypes": ((Q, Q.double(), Q), {}),
    "dropout": ((Q, Q, Q), {"dropout_p": 1.5}),
    "no tensor": ((Q, Q, 3.0), {}),
}


@by_name("given, rest", WRONG)
def test_wrong_arguments_raise_what_torch_raises(given, rest):
    """The same class of exception with the same words."""
    with pytest.raises(Exception) as error:
        sdpa(*given, **rest)
    with replace_sdpa(), pytest.raises(type(error.value)) as again:
        sdpa(*given, **rest)
    assert str(again.value).split("\n")[0] == str(error.value).split("\n")[0]


def test_the_kernel_that_was_chosen_computes():
    """sdpa_kernel is a request for a kernel of torch."""
    with replace_sdpa() as replacement, sdpa_kernel(SDPBackend.MATH):
        sdpa(Q, Q, Q)
    assert replacement.calls == {"the kernel was chosen by sdpa_kernel": 1}
    assert repr(replacement) == (
        "<scaled_dot_product_attention: 0 calls by regard, 1 by torch (the kernel was chosen by sdpa_kernel)>"
    )


def test_it_ends_with_the_block_and_nests():
    """The outermost block ends it, also by an exception; restoring twice changes nothing, and it can begin again."""
    outer = replace_sdpa()
    with replace_sdpa() as inner:
        sdpa(Q, Q, Q)
    sdpa(Q, Q, Q)
    outer.restore()
    outer.restore()
    sdpa(Q, Q, Q)
    assert (outer.calls["regard"], inner.calls["regard"]) == (2, 1)
    with inner:
        sdpa(Q, Q, Q)
    assert inner.calls["regard"] == 2
    assert torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(KeyError), replace_sdpa() as failed:
        raise KeyError
    sdpa(Q, Q, Q)
    assert not failed.calls


def test_every_thread():
    """Calls of other threads are replaced, in backward passes of checkpoints, too."""
    x = torch.randn(2, 4, 90, 8).requires_grad_()
    with replace_sdpa() as replacement:
        thread = threading.Thread(target=lambda: sdpa(Q, Q, Q))
        thread.start()
        thread.join()
        assert replacement.calls == {"regard": 1}
        torch.utils.checkpoint.checkpoint(sdpa, x, x, x, use_reentrant=False).sum().backward()
    assert replacement.calls["regard"] >= 2 and x.grad is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_after_a_fork():
    """A child goes on with the replacement."""
    with replace_sdpa() as replacement:
        child = os.fork()
        if child == 0:
            sdpa(Q, Q, Q)
            os._exit(replacement.calls["regard"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_under_autocast():
    """Autocast has cast the tensors before."""
    with replace_sdpa() as replacement, torch.autocast("cpu", torch.bfloat16):
        out = sdpa(Q, Q, Q)
    assert out.dtype is torch.bfloat16 and replacement.calls == {"regard": 1}


def test_inference_mode_and_views():
    """Tensors of inference mode, expanded and sliced ones."""
    with torch.inference_mode(), replace_sdpa() as replacement:
        q = torch.randn(1, 4, 1, 8).expand(2, 4, 5, 8)
        k = torch.randn(2, 4, 9, 16)[:, :, ::2, ::2]
        out = sdpa(q, k, k)
    assert replacement.calls == {"regard": 1}
    torch.testing.assert_close(out, sdpa(q, k, k), atol=1e-5, rtol=1e-5)


def test_dropout():
    """The rate is kept, manual_seed repeats a call, and every seed drops others."""
    v = torch.eye(512)[None, None]
    q = torch.zeros(1, 1, 512, 8)
    with replace_sdpa() as replacement:
        torch.manual_seed(3)
        first = sdpa(q, q, v, dropout_p=0.25)
        other = sdpa(q, q, v, dropout_p=0.25)
        torch.manual_seed(3)
        assert torch.equal(first, sdpa(q, q, v, dropout_p=0.25))
    assert replacement.calls == {"regard": 3} and not torch.equal(first, other)
    assert abs(float((first == 0).double().mean()) - 0.25) < 0.01
    torch.testing.assert_close(first.max(), torch.tensor(1 / 512 / 0.75))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_it_is_one_operator(dynamic):
    """Without a graph break, and though programs were compiled before it was replaced, and are afterwards."""
    graphs = []

    def backend(graph, _):
        def keep(made, _):
            graphs.append([str(node.target) for node in made.graph.nodes])
            return make_boxed_func(made.forward)

        return aot_autograd(fw_compiler=keep)(graph, _)

    def run():
        torch._dynamo.reset()
        program = torch.compile(
            lambda q: sdpa(q * 2, q, q, is_causal=True) + 1, backend=backend, fullgraph=True, dynamic=dynamic
        )
        with torch.no_grad():
            torch.testing.assert_close(program(Q), sdpa(Q * 2, Q, Q, is_causal=True) + 1, atol=1e-5, rtol=1e-5)
        return "regard.attention.default" in graphs[-1]

    before = run()
    with replace_sdpa():
        replaced = run()
    assert (before, replaced, run()) == (False, True, False)


def test_transforms():
    """torch.func's are torch's; forward-mode derivatives are regard's."""

    def loss(q):
        return sdpa(q, Q, Q).sin().sum()

    expected, many = torch.func.grad(loss)(Q), torch.vmap(sdpa)(Q, Q, Q)
    with replace_sdpa() as replacement:
        torch.testing.assert_close(torch.func.grad(loss)(Q), expected)
        torch.testing.assert_close(torch.vmap(sdpa)(Q, Q, Q), many)
        assert replacement.calls["regard"] == 0
        with torch.autograd.forward_ad.dual_level():
            dual = sdpa(torch.autograd.forward_ad.make_dual(Q, Q), Q, Q)
            tangent = torch.autograd.forward_ad.unpack_dual(dual).tangent
    assert replacement.calls["regard"] == 1
    with sdpa_kernel(SDPBackend.MATH):
        slope = torch.func.jvp(lambda q: sdpa(q, Q, Q), (Q,), (Q,))[1]
    torch.testing.assert_close(tangent, slope, atol=1e-5, rtol=1e-4)


def test_torchs_layers():
    """MultiheadAttention and a whole encoder, whose fused code has its own attention."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x, padding = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        expected = layer(x, src_key_padding_mask=padding)
        with replace_sdpa() as replacement:
            found = layer(x, src_key_padding_mask=padding)
            layer.self_attn(x, x, x, need_weights=False)
    assert replacement.calls == {"regard": 2}
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[1, :3], expected[1, :3], atol=1e-5, rtol=1e-4)


def test_a_profile_says_who_computes():
    """The engine of a call of torch's function is regard's while it is replaced."""
    layer, x = torch.nn.MultiheadAttention(16, 2, batch_first=True), torch.randn(1, 8, 16)

    def engines():
        found = profile(lambda: layer(x, x, x, need_weights=False), (), repeats=1, warmup=0, peak=1.0)
        return [call.engine for call in found.calls]

    assert engines() == ["SDPA flash"]
    with replace_sdpa():
        assert engines() == ["jit"]


def test_by_the_environment():
    """A program that does not import regard; without the variable nothing of regard is imported."""
    program = """
import sys, torch
q = torch.zeros(1, 2, 3, 8)
torch.nn.functional.scaled_dot_product_attention(q, q, q)
replaced = sys.modules.get("regard.torch.replaced_sdpa")
print("regard" in sys.modules, replaced and dict(replaced.Replacement.active[0].calls))
"""
    shown = [fresh(program, REGARD_REPLACE_SDPA=variable) for variable in ("1", "0")]
    assert shown == ["True {'regard': 1}", "False None"]
