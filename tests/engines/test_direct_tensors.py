"""Direct calls of tensors: modes of torch, gradients, and arguments that are tensors."""

import gc
import weakref
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from transformers import AutoModel, BertConfig

import regard as rg
import regard.torch
from regard.engines import direct
from regard.language.checks.arguments import Arguments
from regard.language.problem import Problem
from regard.torch.functional import attention_rows_first
from regard.torch.hf import register
from tests.engines.test_direct import TENSORS, fully, needs_exchange
from tests.support.direct_calls import RULES, SIZES
from tests.support.engines import dtypes
from tests.support.lanes import by_name
from tests.support.refusals import refusing
from tests.support.tensors import normal

pytestmark = needs_exchange
qkv, directly = TENSORS.qkv, TENSORS.directly


def check(given, **rules):
    """A call is bit-identical to the full path."""
    assert torch.equal(rg.attention(*given, **rules), fully(*given, **rules))


def check_gradients(given, change=lambda dout: dout, seed=0, **rules):
    """So are its gradients; a call for lse does not take the fast path."""
    leaves = [each.clone().requires_grad_() for each in given]
    out, checked = rg.attention(*leaves, **rules), rg.attention_with_lse(*leaves, **rules)[0]
    dout = change(normal(*out.shape, seed=seed, dtype=out.dtype))
    for found, wanted in zip(*(torch.autograd.grad(each, leaves, dout) for each in (out, checked)), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("state", [nullcontext, torch.inference_mode, torch.no_grad], ids=lambda each: each.__name__)
def test_modes_of_torch(state):
    """The output is what torch makes in that mode; gradients are computed only where they are recorded."""
    given = qkv()
    expected = rg.attention(*given)
    leaves = [each.clone().requires_grad_() for each in given]
    with state():
        out = rg.attention(*leaves)
        assert out.is_inference() == torch.is_inference_mode_enabled() and out.requires_grad == torch.is_grad_enabled()
        assert torch.equal(out.detach(), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert rg.attention(*given).dtype == torch.float32


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.spread
@dtypes
@by_name("given", RULES)
@by_name("size", SIZES)
def test_gradients_of_known_calls(size, given, dtype):
    """Bit by bit those of the full path; the first backward pass of a kind is checked, the others are not."""
    for seed in (1, 2, 3):
        check_gradients(qkv(**size, dtype=dtype, seed=seed), seed=seed, **given)


@pytest.mark.parametrize(
    "change",
    [
        lambda dout: dout[..., :1, :1].expand(dout.shape),
        lambda dout: dout.transpose(1, 2).contiguous().transpose(1, 2),
        lambda dout: torch._efficientzerotensor(dout.shape),
        lambda dout: torch.complex(torch.zeros_like(dout), -dout).conj().imag,
    ],
    ids=["the same everywhere", "transposed", "zeros without memory", "lazily negated"],
)
def test_gradients_of_any_layout(change):
    """A gradient that autograd passes may be expanded, strided, lazy or without memory."""
    for seed in (1, 2, 3):
        check_gradients(qkv(seed=seed), change, seed)


@dtypes
def test_gradients_with_rows_first(dtype):
    """Bit by bit those of the full path; those of known calls have the heads of a row side by side, as the output."""
    for seed in (1, 2, 3):
        leaves = [each.requires_grad_() for each in qkv(dtype=dtype, seed=seed)]
        out, checked = attention_rows_first(*leaves, Arguments()), rg.attention_with_lse(*leaves)[0].transpose(1, 2)
        dout = normal(*out.shape, seed=seed, dtype=out.dtype)
        wanted = torch.autograd.grad(checked, leaves, dout)
        for _ in range(2):
            found = torch.autograd.grad(out, leaves, dout, retain_graph=True)
            assert all(map(torch.equal, (out, *found), (checked, *wanted)))
        assert all(each.transpose(1, 2).is_contiguous() for each in (out.transpose(1, 2), *found))


def test_steps_with_gradients_are_calls_of_their_own():
    """Gradients of a step are those of the full path, before and after steps without."""
    for K in (30, 31, 32, 31):
        given = qkv(Q=2, K=K)
        check(given)
        for seed in range(2):
            check_gradients(given, seed=seed)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)], ids=str)
def test_only_what_needs_a_gradient_gets_one(needed):
    """Inputs that need none have none, also after a call without gradients."""
    rg.attention(*qkv())
    for seed in (1, 2):
        leaves = [each.requires_grad_(need) for each, need in zip(qkv(seed=seed), needed)]
        rg.attention(*leaves).sum().backward()
        assert [each.grad is not None for each in leaves] == list(needed)


# ---- arguments that are tensors --------------------------------------------------------------------------------------


def test_what_else_is_added_goes_through_python():
    """Another shape, a tensor whose gradient is wanted, a device without numbers; and many rows, in which enough
    numbers may be −infinity to leave out tiles.
    """
    q, k, v = qkv(K=30)
    score = torch.randn(2, 4, 5, 30)
    rg.attention(q, k, v, score=score)
    assert directly(q, k, v, score=score) is not None
    for other in (score[..., :-1], score.double(), score.clone().requires_grad_(), score.to("meta"), 3.0, "score"):
        assert directly(q, k, v, score=other) is None
    with torch.no_grad():
        assert directly(q, k, v, score=score.clone().requires_grad_()) is not None
    q, k, v = qkv(Q=400, K=400)
    rg.attention(q, k, v, score=(score := torch.randn(400, 400)))
    assert directly(q, k, v, score=score) is None


@dtypes
def test_the_least_number(dtype):
    """Of any dense layout and of every size; NaN is passed over."""
    rg.attention(*qkv())
    for count in (8, 9, 15, 16, 17, 999, 1 << 16):
        numbers = TENSORS.normal(count, dtype=dtype, seed=count)
        assert direct.least(numbers) == float(numbers.amin())
        numbers[count // 3] = torch.nan
        assert direct.least(numbers) == float(numbers[~numbers.isnan()].amin())
        numbers[-1] = -torch.inf
        assert direct.least(numbers) == -float("inf")
    numbers = TENSORS.normal(3, 5, 7, dtype=dtype)
    assert direct.least(numbers.permute(2, 0, 1)) == float(numbers.amin())


def test_numbers_that_torch_looks_at():
    """Gaps in memory, few or many numbers, whole numbers, other devices, and what is no tensor."""
    odd = [torch.zeros(7), torch.zeros(0), torch.zeros(40)[::2], torch.zeros(3, 1).expand(3, 9), torch.zeros(70000)]
    odd += [torch.arange(30), torch.ones(30, dtype=torch.bool), torch.zeros(30, dtype=torch.complex64)]
    for each in (*odd, torch.zeros(30, device="meta"), torch.zeros(30).to_sparse(), None, 3.0, [1.0] * 30):
        assert direct.least(each) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda random: {"mask": random(2, 1, 20, 20) < 0.5},
        lambda random: {"mask": (random(2, 1, 1, 20) < 0.5).expand(2, 4, 20, 20)},
        lambda random: {"score": random(1, 4, 20, 20)},
        lambda random: {"mask": random(20, 20) < 0.5, "score": random(20, 20)},
    ],
    ids=["booleans", "padding", "floats", "both"],
)
def test_masks_and_scores_that_are_tensors(make):
    """Every call reads what they contain now, also if the tensor is the same and was changed in place."""
    kept = {name: each.clone() for name, each in make(torch.randn).items()}
    for seed in range(3):
        for name, each in make(torch.randn).items():
            kept[name].copy_(each)
        for rules in (make(torch.randn), kept):
            check(qkv(Q=20, K=20, seed=seed), **rules)
            check_gradients(qkv(Q=20, K=20, seed=seed), seed=seed, **rules)


@pytest.mark.parametrize("rules", [("mask",), ("mask", "score")], ids=str)
def test_steps_of_one_row_with_tensors(rules, monkeypatch):
    """The next steps of decoding are known calls, too, whatever the strides of the arrays."""
    for K in (30, 31, 33, 32):
        given = qkv(Q=1, K=K, seed=K)
        made = {"mask": normal(2, 1, 1, K, seed=K) < 0.5, "score": normal(1, 4, 1, 64, seed=K)[..., :K]}
        added = {name: made[name] for name in rules}
        expected = fully(*given, **added)
        with monkeypatch.context() as patch:
            if K > 30:
                patch.setattr(Problem, "of", None)
            assert torch.equal(rg.attention(*given, **added), expected)


def test_a_mask_that_changes_before_the_backward_pass():
    """Autograd notices it, and what is kept of a mask is a copy."""
    mask = torch.ones(5, 9, dtype=torch.bool)
    leaves = [each.requires_grad_() for each in qkv()]
    for _ in range(2):
        out = rg.attention(*leaves, mask=mask)
        mask[0, 0] = False
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
    held = weakref.ref(mask)
    del mask, out
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("rule", [{"mask": torch.ones(5, 5, dtype=torch.bool)}, {"score": torch.zeros(5, 5)}], ids=str)
@pytest.mark.parametrize("axes", [0, 1])
def test_too_few_axes_are_refused_with_a_mask_too(rule, axes):
    """As without one."""
    q = torch.randn((5,) * axes)
    with refusing():
        rg.attention(q, q, q, **rule)


@pytest.mark.parametrize("shape", [(), (70,), (1, 70)], ids=str)
def test_scores_of_few_axes(shape):
    """A number for each key, or one for all, is added, however many rows there are."""
    score = torch.randn(shape)
    for _ in range(2):
        check(qkv(Q=70, K=70), score=score)


# ---- doors -----------------------------------------------------------------------------------------------------------


def through_transformers():
    config = BertConfig(vocab_size=9, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8)
    register()
    model = AutoModel.from_config(config, attn_implementation="regard").eval()
    tokens = torch.ones(2, 6, dtype=torch.long)
    padded = {"attention_mask": tokens.tril()}
    return lambda: (train(model(tokens)), train(model(tokens, **padded)), model(tokens), model(tokens, **padded))


def train(out):
    out.last_hidden_state.sum().backward()


def through_a_cache():
    cache, (row,) = rg.KVCache(4, 8), normal(1, 4, 1, 8).numpy()
    return lambda: (cache.append(row, row), cache.attend(row))


def through_sdpa():
    q = normal(1, 4, 6, 8)

    def call():
        with regard.torch.replace_sdpa():
            torch.nn.functional.scaled_dot_product_attention(q, q, q)

    return call


BOOLEANS = torch.ones(6, 6, dtype=torch.bool)
DOORS = {
    "NumPy": lambda: partial(rg.attention, *normal(3, 4, 6, 8).numpy()),
    "torch": lambda: partial(rg.attention, *normal(3, 4, 6, 8)),
    "gradients": lambda: lambda: rg.attention(*normal(3, 4, 6, 8).requires_grad_()).sum().backward(),
    "gradients, mask": lambda: (
        lambda: rg.attention(*normal(3, 4, 6, 8).requires_grad_(), mask=BOOLEANS).sum().backward()
    ),
    "mask": lambda: partial(rg.attention, *normal(3, 4, 6, 8), mask=BOOLEANS),
    "score": lambda: partial(rg.attention, *normal(3, 4, 6, 8), score=normal(6, 6)),
    "layer": lambda: partial(regard.torch.Attention(32, 4), normal(1, 6, 32)),
    "MultiheadAttention": lambda: partial(
        regard.torch.MultiheadAttention(32, 4), *normal(3, 6, 1, 32), need_weights=False
    ),
    "SDPA": through_sdpa,
    "transformers": through_transformers,
    "cache": through_a_cache,
}


@by_name("door", DOORS)
def test_a_known_call_is_not_checked_again(door, monkeypatch):
    """Whatever the way into regard, the second call of a kind uses what was kept of the first."""
    call = door()
    call()
    monkeypatch.setattr(Problem, "of", None)
    call()
