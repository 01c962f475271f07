"""torch's own samples of attention: what its test suite calls SDPA with, computed by regard."""

import math

import pytest
import torch

import regard as rg

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def sdpa():
    """torch's description of its operator. Its module takes seconds to load: not while tests are collected."""
    name = "torch.testing._internal.common_methods_invocations"
    internal = pytest.importorskip(name, reason="torch has no samples here")
    return next(op for op in internal.op_db if op.name == "nn.functional.scaled_dot_product_attention")


def through_regard(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The call of SDPA as a call of regard; the broadcasting of heads and batch that SDPA allows is written out."""
    if not enable_gqa:
        lead = torch.broadcast_shapes(*(each.shape[:-2] for each in (q, k, v)))
        q, k, v = (each.expand(*lead, *each.shape[-2:]) for each in (q, k, v))
    rules = {"mask": rg.causal(), "query_start": 0} if is_causal else {}
    if attn_mask is not None:
        rules["mask" if attn_mask.dtype == torch.bool else "score"] = attn_mask
    return rg.attention(q, k, v, scale=scale, **rules)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_samples_of_sdpa(sdpa, dtype, grad):
    """Every sample without dropout: values and gradients are as close to the float64 ones as torch's own, but for a few
    roundings of the scores, which are as large as they are: exp turns their absolute error into a relative one.
    """
    kinds = set()
    for sample in sdpa.sample_inputs("cpu", dtype, requires_grad=grad):
        if sample.kwargs.get("dropout_p"):
            continue
        kinds |= {name for name, value in sample.kwargs.items() if value is not None and value is not False}
        found = results(through_regard, sample, dtype, grad)
        theirs = results(torch.nn.functional.scaled_dot_product_attention, sample, dtype, grad)
        exact = results(torch.nn.functional.scaled_dot_product_attention, sample, torch.float64, grad)
        q, k = (each.detach().double() for each in (sample.input, sample.args[0]))
        largest = float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) / math.sqrt(q.shape[-1])
        steepness = 1 + (sample.kwargs.get("scale") or 1) * largest
        # A gradient of saturated weights is a small difference of large numbers, the other results among them.
        unit = torch.finfo(dtype).eps * max(float(each.abs().nan_to_num().max()) for each in exact)
        for mine, usual, truth in zip(found, theirs, exact, strict=True):
            assert mine.shape == usual.shape and mine.dtype == usual.dtype
            assert torch.equal(mine.isnan(), usual.isnan())
            budget = (usual.double() - truth).abs().max()
            error = (mine.double() - truth).abs().nan_to_num().max()
            assert error <= 2 * budget + 2 * steepness * unit, (sample, float(error), float(budget), unit)
    assert {"attn_mask", "is_causal"} <= kinds  # so that this means something


def results(function, sample, dtype, grad):
    """The result of a sample in this dtype, and the gradients of q, k and v."""

    def converted(each):
        return each.detach().to(dtype) if each.is_floating_point() else each

    every = torch.utils._pytree.tree_map_only(torch.Tensor, converted, ((sample.input, *sample.args), sample.kwargs))
    given, kwargs = every
    leaves = [each.requires_grad_(grad) for each in given[:3]]
    out = function(*leaves, *given[3:], **kwargs)
    return [out.detach(), *(torch.autograd.grad(out.square().sum(), leaves) if grad else ())]
