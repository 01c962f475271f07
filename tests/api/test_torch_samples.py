"""torch's own samples of attention: what its test suite calls SDPA and MultiheadAttention with, computed by regard."""

import math

import pytest
import torch

import regard as rg
import regard.torch as rt

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def sdpa():
    """torch's description of its operator. Its module takes seconds to load: not while tests are collected."""
    name = "torch.testing._internal.common_methods_invocations"
    internal = pytest.importorskip(name, reason="torch has no samples here")
    return next(op for op in internal.op_db if op.name == "nn.functional.scaled_dot_product_attention")


def through_regard(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The call of SDPA as a call of regard; the broadcasting of heads and batch that SDPA allows is written out."""
    lead = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    q, k, v = (each.expand(*lead, *each.shape[-3:]) for each in (q, k, v))
    if not enable_gqa and q.ndim > 2:
        heads = max(each.shape[-3] for each in (q, k, v))
        q, k, v = (each.expand(*each.shape[:-3], heads, *each.shape[-2:]) for each in (q, k, v))
    rules = {}
    if is_causal:
        rules = {"mask": rg.causal(), "query_start": 0}
    elif attn_mask is not None:
        shape = (*q.shape[:-1], k.shape[-2])
        whole = attn_mask.expand(shape).reshape(-1, *shape[-3:]) if len(shape) > 2 else attn_mask.expand(shape)
        rules = {"mask" if attn_mask.dtype == torch.bool else "score": whole, "query_start": k.shape[-2] - q.shape[-2]}
    return rg.attention(q, k, v, scale=scale, **rules)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_samples_of_sdpa(sdpa, dtype, grad):
    """Every sample without dropout: values and gradients are as close to the float64 ones as torch's own, but for a few
    roundings of the scores, which are as large as they are: exp turns their absolute error into a relative one.
    """
    count = 0
    for sample in sdpa.sample_inputs("cpu", dtype, requires_grad=grad):
        if sample.kwargs.get("dropout_p"):
            continue
        count += 1
        found = results(through_regard, sample, dtype, grad)
        theirs = results(torch.nn.functional.scaled_dot_product_attention, sample, dtype, grad)
        exact = results(torch.nn.functional.scaled_dot_product_attention, sample, torch.float64, grad)
        q, k = (each.detach().double() for each in (sample.input, sample.args[0]))
        largest = float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) / math.sqrt(q.shape[-1])
        steepness = 1 + (sample.kwargs.get("scale") or 1) * largest
        # A gradient of saturated weights is a small difference of large numbers, the other results among them.
        unit = torch.finfo(dtype).eps * max(
            float(each.abs().nan_to_num().max()) for each in exact if each is not None and each.numel()
        )
        for mine, usual, truth in zip(found, theirs, exact, strict=True):
            if truth is None:
                assert mine is None
                continue
            assert mine.shape == usual.shape and mine.dtype == usual.dtype
            budget = (usual.double() - truth).abs().max() if truth.numel() else 0
            assert torch.equal(mine.isnan(), usual.isnan())
            error = (mine.double() - truth).abs().nan_to_num().max() if truth.numel() else 0
            assert error <= 2 * budget + 2 * steepness * unit, (sample, float(error), float(budget), unit)
    assert count >= 10


def results(function, sample, dtype, grad):
    """The result of a sample in this dtype, and the gradients of its tensors."""
    given = [
        each.detach().to(dtype).requires_grad_(each.requires_grad) if each.is_floating_point() else each
        for each in (sample.input, *sample.args[:2])
    ]
    extra = list(sample.args[2:])
    kwargs = {
        name: each.detach().to(dtype) if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for name, each in sample.kwargs.items()
    }
    out = function(*given, *extra, **kwargs)
    if grad:
        out.square().sum().backward()
    return [out.detach(), *([each.grad for each in given] if grad else [])]


@pytest.mark.spread
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_samples_of_modules(name, training):
    """torch's samples of its layers with attention: the same results with regard's layer in their place."""
    modules = pytest.importorskip("torch.testing._internal.common_modules", reason="torch has no samples here")
    count = 0
    for info in modules.module_db:
        if info.module_cls is not getattr(torch.nn, name):
            continue
        for sample in info.module_inputs_func(
            info, device="cpu", dtype=torch.float64, requires_grad=False, training=training
        ):
            args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
            if sample.forward_input is None:
                continue
            torch.manual_seed(0)
            theirs = info.module_cls(*args, **kwargs).double().train(training)
            for part in theirs.modules():  # which weights fall out differs
                if isinstance(part, torch.nn.MultiheadAttention):
                    part.dropout = 0.0
                elif isinstance(part, torch.nn.Dropout):
                    part.p = 0.0
            mine = replaced(theirs)
            given, named = sample.forward_input.args, sample.forward_input.kwargs
            for found, expected in zip(leaves(mine(*given, **named)), leaves(theirs(*given, **named)), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
            count += 1
    assert count


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def replaced(module):
    """A copy of the module in which regard computes attention."""
    import copy

    if isinstance(module, torch.nn.MultiheadAttention):
        return rt.MultiHeadAttention.of(module)
    made = copy.deepcopy(module)
    for path, part in list(made.named_modules()):
        if isinstance(part, torch.nn.MultiheadAttention):
            parent = made.get_submodule(path.rpartition(".")[0])
            setattr(parent, path.rpartition(".")[2], rt.MultiHeadAttention.of(part))
    return made


def test_what_the_samples_hold(sdpa):
    """Masks, causality, scales and grouped heads are among them, so that this file means something."""
    samples = list(sdpa.sample_inputs("cpu", torch.float32, requires_grad=False))
    named = [sample.kwargs for sample in samples]

    assert any(kwargs.get("attn_mask") is not None for kwargs in named)
    assert any(kwargs.get("is_causal") for kwargs in named)
    assert math.prod(samples[0].input.shape) > 0
