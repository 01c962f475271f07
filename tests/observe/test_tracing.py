"""Trace: every attention call is listed as torch itself lays it out, and planted faults are found where they were
planted.
"""

import contextlib
import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.attention.flex_attention as flex
import torch.nn.functional as F
from torch import nn

import regard as rg
from regard import Refused, key, query
from regard.engines.dispatch import solve
from regard.observe.observed_call import problem_of
from regard.observe.observer import Observer
from regard.observe.tracing import trace
from tests.observe.heads import WIDE, B, H, Heads
from tests.support.lanes import by_name
from tests.support.refusals import refusing

N = 5


def written_out(q, k, v):
    return (q @ k.mT / 2).softmax(-1) @ v


WAYS = {
    "torch SDPA": F.scaled_dot_product_attention,
    "regard.attention": rg.attention,
    "softmax(q kᵀ) v, written out": written_out,
}


def rows():
    return torch.randn(B, N, WIDE)


def encoder(layers=2):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDE, H, 32, batch_first=True), layers).eval()


def llama(implementation: str):
    from regard.torch.hf import register
    from tests.torch.hf.models import built

    register()
    return built("llama", implementation, hidden_size=WIDE, head_dim=WIDE // H)


def unhooked(model) -> bool:
    """Whether nothing watches the layers of a model."""
    return all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def stopped(model, given) -> Refused:
    """The refusal with which a trace of a faulty model ends."""
    with refusing() as caught:
        trace(model, given)
    return caught.value


@pytest.mark.parametrize("kind", WAYS)
def test_a_call_is_listed_as_it_was_made(kind):
    """Sizes, dtypes and strides are those of the tensors that the function was given and gave, whichever function it
    is.
    """
    given = []

    def attend(q, k, v):
        given.append((q, k, v, WAYS[kind](q, k, v)))
        return given[-1][-1]

    found = trace(nn.Sequential(Heads(attend), Heads(attend).double().float()), rows())

    assert [call.layer for call in found.calls] == ["0", "1"]
    assert [call.kind for call in found.calls] == [kind, kind]
    for call, tensors in zip(found.calls, given, strict=True):
        for layout, tensor in zip((call.q, call.k, call.v, call.out), tensors, strict=True):
            assert (layout.shape, layout.strides) == (tuple(tensor.shape), tensor.stride())
            assert layout.dtype == "float32"
    assert found.findings == ()


def test_the_text():
    """Alike calls stand in one block, which names the first and the last; the summary comes first."""
    assert (
        str(trace(encoder(3), (rows(), nn.Transformer.generate_square_subsequent_mask(N))))
        == """\
TransformerEncoder: 3 attention calls
shapes fit, all numbers are finite, no row is fully masked

0   layers.0.self_attn … layers.2.self_attn, 3 calls alike: torch SDPA
    q      (2, 4, 5, 4) float32, strides (16, 4, 32, 1)
    k      (2, 4, 5, 4) float32, strides (16, 4, 32, 1)
    v      (2, 4, 5, 4) float32, strides (16, 4, 32, 1)
    mask   key <= query, over (2, 4, 5, 5)
    scores 0.5 · q·k, over (2, 4, 5, 5)
    out    (2, 4, 5, 4) float32, strides (16, 4, 32, 1)"""
    )


def test_multihead_attention_with_weights():
    """nn.MultiheadAttention that returns its weights makes no call of SDPA; it is seen all the same."""
    (call,) = trace(nn.MultiheadAttention(WIDE, H, batch_first=True), (rows(), rows(), rows())).calls
    assert (call.kind, call.q.shape) == ("softmax(q kᵀ) v, written out", (B * H, N, WIDE // H))
    assert call.scores == f"({B * H}, {N}, {N}) float32, strides ({N * N}, {N}, 1)"


@pytest.mark.parametrize("formula", ["bhqd,bhkd->bhqk|bhqk,bhkd->bhqd", "bqhd,bkhd->bhqk|bhqk,bkhd->bqhd"])
def test_attention_in_einsum(formula):
    """Attention written with einsum is seen, whatever the order of its axes."""
    scores, values = formula.split("|")
    found = trace(lambda x: torch.einsum(values, torch.einsum(scores, x, x).softmax(-1), x), torch.randn(2, 3, 3, 8))
    assert [call.q.shape for call in found.calls] == [(2, 3, 3, 8)]


def test_heads_in_the_batch():
    """Products over batch · heads, and a softmax over batch and heads apart, as in BLOOM, with an added bias in the
    product.
    """
    import transformers as T

    model = T.BloomForCausalLM(T.BloomConfig(vocab_size=64, hidden_size=WIDE, n_layer=2, n_head=H)).eval()
    found = trace(model, torch.arange(6)[None])
    assert [(call.q.shape, call.v.shape) for call in found.calls] == [((H, 6, 4), (H, 6, 4))] * 2
    assert found.findings == () and "not attended" in found.calls[0].mask


def test_other_products_are_no_attention():
    """A product without a softmax (linear attention), a softmax without a product after it (a classifier): no attention
    call.
    """
    x = rows()
    assert trace(lambda x: (x @ x.mT) @ x, x).calls == ()
    found = trace(nn.Sequential(nn.Linear(WIDE, 3), nn.Softmax(-1)), x)
    assert found.calls == () and "no attention call" in str(found)


def test_regards_own_cache():
    """A cache's keys have no layout of their own; its rows and rules are told, with the lengths of the sequences."""
    cache = rg.KVCache(heads=2, depth=8, batch=B, window=4)

    def steps(x):
        cache.append(x, x)
        cache.attend(x, mask=rg.causal())
        cache.append(x[:, :, :1], x[:, :, :1])
        return cache.attend(x[:, :, :1])

    found = trace(steps, torch.randn(B, 2, N, 8)).calls
    assert [(call.kind, call.q.shape, call.k, call.scores) for call in found] == [
        ("regard.KVCache.attend", (B, 2, Q, 8), None, f"0.353553 · q·k, over ({B}, 2, {Q}, {K})")
        for Q, K in ((N, N), (1, N + 1))
    ]
    assert "query - key < 4" in found[1].mask


def test_flex_attention_of_a_model():
    """FlexAttention is seen, compiled or not, and its rules are read as expressions, with what they captured."""
    document, slope = torch.arange(128) // 40, torch.tensor([0.5, 0.25])
    block = flex.create_block_mask(
        lambda b, h, q, kv: (document[q] == document[kv]) & (q >= kv), None, None, 128, 128, device="cpu"
    )
    compiled = torch.compile(flex.flex_attention)

    def attend(q):
        return compiled(q, q, q, block_mask=block, score_mod=lambda s, b, h, q, kv: s + slope[h] * (kv - q))

    q = torch.randn(1, 2, 128, 16)
    (call,) = trace(attend, q).calls
    assert (call.kind, call.k.shape, call.out.shape) == ("FlexAttention", (1, 2, 128, 16), (1, 2, 128, 16))
    assert call.mask == "(table[query] == table[key]) & (query >= key), over (1, 2, 128, 128)"
    with torch.compiler.set_stance("force_eager"):
        assert solved(attend, q) == ["FlexAttention"]


class Solver(Observer):
    """Solves every call once more, as the problem that it was described as."""

    def called(self, seen):
        out, _ = solve(problem_of(seen), "reference")
        np.testing.assert_allclose(out.reshape(seen.out.shape), seen.out.detach().numpy(), rtol=0, atol=1e-5)


def solved(attend, *given) -> list[str]:
    """The kinds of the calls, each of which was solved once more."""
    observer = Solver(attend, describing=True)
    with torch.no_grad(), observer.watching():
        attend(*given)
    return [seen.kind for seen in observer.seen]


LOWER = torch.ones(N, N + 2, dtype=torch.bool).tril()
RANDOM = torch.rand(B, H, N, N + 2, generator=torch.Generator().manual_seed(1)) > 0.4
SAID = {
    "plain": {},
    "causal": {"is_causal": True},
    "booleans": {"attn_mask": LOWER},
    "booleans per entry and head": {"attn_mask": RANDOM},
    "floats": {"attn_mask": torch.linspace(-3, 3, N * (N + 2)).view(1, 1, N, N + 2)},
    "the smallest number": {"attn_mask": torch.ones(N, N + 2).masked_fill(~LOWER, torch.finfo(torch.float32).min)},
    "scale": {"scale": 0.1},
}


@by_name("said", SAID)
@pytest.mark.parametrize("groups", [H, 2])
def test_torchs_words_are_understood(said, groups):
    """The problem that a call of SDPA is described as has the output that SDPA gave: masks, bias, scale, grouped
    heads.
    """
    q, k, v = (torch.randn(B, heads, rows, 8) for heads, rows in ((H, N), (groups, N + 2), (groups, N + 2)))
    assert solved(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=groups != H, **said)) == ["torch SDPA"]


def test_regards_words_are_kept():
    """So has the problem of a call of regard, with rules, sinks, a start and dropout."""
    q, k = torch.randn(B, H, N, 8), torch.randn(B, 2, N, 8)
    rules = {"mask": rg.causal(), "score": rg.softcap(2.0), "scale": 0.3, "query_start": 1, "sinks": torch.ones(H)}
    assert solved(lambda: rg.attention(q, k, k, **rules, dropout=0.5, seed=7)) == ["regard.attention"]


# Numbers --------------------------------------------------------------------------------------------------------------


def test_nan_in_a_weight():
    """The first function whose output holds NaN is named with its layer, and the parameter that brought it in."""
    model = encoder()
    with torch.no_grad():
        model.layers[1].linear1.weight[3, 5] = torch.nan
    found = trace(model, rows()).first("number")
    assert (found.call, found.layer) == (None, "layers.1.linear1")
    assert found.text == (
        "the output of linear holds NaN in 10 of 320 numbers, first at [0, 0, 3]; "
        "layers.1.linear1.weight holds NaN in 1 of 512 numbers, first at [3, 5]"
    )


def test_nan_in_the_input():
    """What the model was given is none of its own."""
    x = rows()
    x[1, 2, 3] = torch.inf
    found = trace(encoder(), {"src": x}).first("number")
    assert found.text == "the input 'src' already holds infinity in 1 of 160 numbers, first at [1, 2, 3]"


def test_nan_in_a_score():
    """A table that the score reads is named."""
    bias = rg.table(torch.tensor([0, 0, torch.nan, 0, 0]), "bias")
    layer = Heads(partial(rg.attention, score=rg.score + bias[key]))
    text = "the score's table 'bias' already holds NaN in 1 of 5 numbers, first at [2]"
    assert trace(layer, rows()).first("number").text == text


def test_scores_that_overflow():
    """Scores beyond the range of float16 become infinite although q and k are finite: the scores are named."""
    x = torch.full((1, 1, 3, 64), 60.0).half()
    found = trace(lambda q: (q @ q.mT).softmax(-1) @ q, x)
    assert found.first("number").text.startswith("the output of matmul holds infinity in 9 of 9 numbers")
    assert [finding.text for finding in found.findings if finding.call == 0] == [
        "the scores hold infinity in 9 of 9 numbers, first at [0, 0, 0, 0], though q and k are finite: they "
        "exceed the range of float16",
        "the output holds NaN in 192 of 192 numbers, first at [0, 0, 0, 0], though q, k and v are finite",
    ]


def test_masks_are_no_infinities():
    """−infinity in an added mask is meant; it is no finding."""
    mask = torch.zeros(N, N).masked_fill(~torch.ones(N, N).tril().bool(), -torch.inf)
    assert trace(Heads(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask + 0)), rows()).findings == ()


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attend", [F.scaled_dot_product_attention, lambda *qkv: rg.attention(*qkv[:3], mask=qkv[3])])
def test_rows_without_keys(attend):
    """A row that the mask leaves no key is counted and placed, in regard and in torch."""
    mask = torch.arange(N)[:, None].expand(N, N) != 3
    layer = Heads(lambda q, k, v: attend(q, k, v, mask))
    found = trace(nn.Sequential(layer, layer), rows())
    assert found.first("row").text == (
        f"row 3 of batch entry 0, head 0, the first of {B * H} of {B * H * N} rows, is fully masked: the "
        "mask allows no key"
    )
    assert "the first fully masked row: call 0, 0: row 3" in str(found) and "(and 1 more below)" in str(found)


def test_padding_of_a_llama():
    """Left padding leaves its own rows nothing: the same rows are found on regard, on SDPA and in eager code."""
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, :2] = 0
    inputs = {"input_ids": torch.arange(12).view(2, 6), "attention_mask": mask}
    found = [trace(llama(implementation), inputs) for implementation in ("regard", "sdpa", "eager")]
    assert {each.first("row").text for each in found} == {
        "row 0 of batch entry 1, head 0, the first of 8 of 48 rows, is fully masked: the mask allows no key"
    }


def test_a_score_that_swallows():
    """A score of −infinity on every allowed key is distinguished from a mask that allows none."""
    rule = rg.where(query >= 3, -np.inf, rg.score)
    found = trace(Heads(partial(rg.attention, mask=rg.causal(), score=rule)), rows())
    assert [finding.text for finding in found.findings] == [
        f"row 3 of batch entry 0, head 0, the first of {2 * B * H} of {B * H * N} rows, is fully masked: "
        "its score is −infinity for every key that the mask allows"
    ]


# Shapes ---------------------------------------------------------------------------------------------------------------


def test_heads_and_rows_changed_places():
    """A head axis that was not transposed runs without an error, over the wrong axis; the layer's own head count
    tells.
    """
    faulty = Heads(F.scaled_dot_product_attention, lambda x: x.view(B, N, H, WIDE // H))
    found = trace(nn.Sequential(Heads(F.scaled_dot_product_attention), faulty), rows())
    assert (found.first("shape").call, found.first("shape").layer) == (1, "1")
    assert "q (2, 5, 4, 4) has 5 heads and 4 rows, and the layer 4 heads" in found.first("shape").text


@pytest.mark.parametrize("kind", ["torch SDPA", "regard.attention"])
def test_a_shape_that_stops_the_model(kind):
    """The refusal names the call and its layer in three beats, with what the last good call had; the error is its
    cause.
    """
    faulty = Heads(lambda q, k, v: WAYS[kind](q, k.transpose(1, 2), v))
    error = stopped(nn.Sequential(Heads(WAYS[kind]), faulty), rows())
    assert str(error).startswith(
        f"regard.torch.trace: call 1 in 1 ({kind}): k and v differ in rows\n  given     q (2, 4, 5, 4), "
        "k (2, 5, 4, 4), v (2, 4, 5, 4)\n  expected  one value row per key row\n  fix       check axis -2; "
        "the layout is (batch, heads, rows, depth); call 0 in 0 had q (2, 4, 5, 4), k (2, 4, 5, 4), "
        "v (2, 4, 5, 4)"
    )
    assert isinstance(error.__cause__, Refused if kind == "regard.attention" else RuntimeError)
    (note,) = error.__notes__
    assert "the first wrong shape: call 1, 1: k and v differ in rows" in note
    assert "1   1" in note and "k      (2, 5, 4, 4) float32, strides (80, 16, 4, 1)" in note


def test_a_mask_that_does_not_fit():
    """A mask of the wrong sizes is named with the sizes it should broadcast to."""
    mask = torch.ones(N, N + 1, dtype=torch.bool)
    error = stopped(Heads(partial(F.scaled_dot_product_attention, attn_mask=mask)), rows())
    assert (
        "call 0 in Heads (torch SDPA): the mask array does not fit\n  given     (5, 6)\n"
        "  expected  something that broadcasts to (B, H, Q, K) = (2, 4, 5, 5)" in str(error)
    )


def test_a_mask_that_torchs_layer_refuses():
    """What a layer of torch refuses before its attention is named with the layer and what it was working on."""
    reason = stopped(encoder(), (rows(), torch.zeros(4, 5))).reasons[0]
    assert reason.what == "layers.0.self_attn stopped with RuntimeError"
    assert "query (5, 2, 16)" in reason.given and "attn_mask (4, 5)" in reason.given
    assert "should be (5, 5)" in reason.expected


def test_a_layer_that_does_not_fit():
    """Outside of attention, the function of torch is named with the sizes of its arguments and the parameter's path."""
    model = encoder()
    model.layers[1].linear2 = nn.Linear(31, WIDE)
    reason = stopped(model, rows()).reasons[0]
    assert reason.what == "linear stopped in layers.1.linear2"
    assert reason.given == "(2, 5, 32), layers.1.linear2.weight (16, 31), layers.1.linear2.bias (16,)"
    assert "call 1 in layers.1.self_attn had q (2, 4, 5, 4)" in reason.fix


def test_what_cannot_be_traced():
    """No model, and inputs that no model takes, are refused in three beats."""
    assert "not a model\n  given     int\n  expected  a torch module, or a function" in str(stopped(3, rows()))
    assert "inputs have an unsupported type\n  given     int" in str(stopped(encoder(), 3))


# The model ------------------------------------------------------------------------------------------------------------


def test_a_model_that_stops_is_left_as_it_was():
    """No hook stays behind."""
    model = encoder(1)
    stopped(model, rows()[..., :3])
    assert unhooked(model)


def test_a_trace_holds_no_tensor_of_the_model():
    """Of tensors their layouts are kept; those themselves go with the run, also where a call failed: a model may try a
    function that fails and go on.
    """
    held = []

    def attend(q, k, v):
        held.extend(map(weakref.ref, (q, k, v)))
        with contextlib.suppress(RuntimeError):
            F.scaled_dot_product_attention(q, k[..., :1], v)
        return (q @ k.mT).softmax(-1) @ v

    found = trace(Heads(attend), rows())
    gc.collect()
    shown = [(call.q.shape[-1], call.out is None) for call in found.calls]
    assert shown == [(WIDE // H, True), (WIDE // H, False)]
    assert [tensor() for tensor in held] == [None] * 3


def test_compiled_models_are_traced():
    """A compiled model is run as it was written."""
    assert [call.kind for call in trace(torch.compile(encoder(1)), rows()).calls] == ["torch SDPA"]


def test_a_method_of_a_model():
    """A method is a run of its module: the layers of `model.generate` have their names, and every token its calls."""
    given = {"input_ids": torch.arange(4)[None], "max_new_tokens": 3, "do_sample": False}
    found = trace(llama("regard").generate, given).calls[::2]
    assert [(call.layer[-11:], call.q.shape[2], call.k.shape[2]) for call in found] == [
        ("0.self_attn", rows, keys) for rows, keys in ((4, 4), (1, 5), (1, 6))
    ]


def test_gradients_are_not_asked_for():
    """The model runs without a graph."""
    asked = []
    trace(lambda x: asked.append(torch.is_grad_enabled()) or F.scaled_dot_product_attention(x, x, x), rows())
    assert asked == [False]
