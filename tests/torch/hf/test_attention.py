"""Any transformers model: on regard it computes what it computes on its own attention code, or it is refused."""

import warnings

import pytest
import torch
import transformers as T
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.testing import assert_close
from transformers import masking_utils

from bench.model_errors import perturbed
from regard.torch.hf import attention as hf
from regard.torch.hf.lazy_mask import LazyMask, lazy_mask
from tests.support.lanes import by_name
from tests.support.refusals import refusing, whats
from tests.support.tensors import normal
from tests.torch.hf.models import GREEDY, built, on, tokens

# Windows in both directions; grouped heads; windows; softcap; sinks; values narrower than keys; chunks; masks that are
# cut to the last rows; a position bias; cross-attention.
ENCODERS = ["bert", "modernbert"]
WRITERS = ["gpt2", "llama", "mistral", "gemma2", "gpt_oss", "deepseek_v3", "llama4_text", "gemma4_text", "t5", "bart"]


@pytest.mark.spread
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", [*ENCODERS, *WRITERS])
def test_a_model_computes_what_it_computes_on_its_own_code(name, padding):
    """Rows that are no padding agree with eager within four times the change by a last place of every weight."""
    model, inputs = built(name), tokens(padding)
    seen = inputs.get("attention_mask", torch.ones(2, 9)).bool()
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"], seen = inputs["input_ids"].flip(1), slice(None)
    with torch.no_grad():
        found, want, moved = (
            on(each, implementation)(**inputs)[0][seen]
            for each, implementation in ((model, "regard"), (model, "eager"), (perturbed(model), "eager"))
        )
    assert 0 < (found - want).abs().max() <= 4 * (moved - want).abs().max()


@pytest.mark.spread
@pytest.mark.parametrize("cache", ["dynamic", "static", "none"])
@pytest.mark.parametrize("name", WRITERS)
def test_generation_gives_the_same_tokens(name, cache):
    """Greedy generation from left-padded prompts, past every window, gives the tokens that eager gives."""
    model, options = built(name), {"max_new_tokens": 10, **GREEDY}
    options |= {"dynamic": {}, "static": {"cache_implementation": "static"}, "none": {"use_cache": False}}[cache]
    options |= {"output_logits": True, "return_dict_in_generate": True}
    want, found = (on(model, way).generate(**tokens("left", length=7), **options) for way in ("eager", "regard"))
    assert torch.equal(found.sequences, want.sequences)
    ours, theirs = torch.stack(found.logits), torch.stack(want.logits)
    assert len(ours) == 10 and (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("more", [{}, {"attention_mask": (torch.arange(12) < torch.tensor([[12], [10]])).long()}])
def test_a_prefix_of_an_encoder(more):
    """Keys and values before those of the text (prefix tuning), without a mask or with one of the whole length."""
    model = built("bert").bert
    found = []
    for name in ("eager", "regard"):
        prefix = T.DynamicCache()
        for layer in range(2):
            prefix.update(*normal(2, 2, 4, 5, 8, seed=layer), layer)
        cache = T.EncoderDecoderCache(prefix, T.DynamicCache())
        with torch.no_grad():
            out = on(model, name)(torch.arange(2, 9).expand(2, -1), past_key_values=cache, **more).last_hidden_state
        found.append(torch.cat([out[0], out[1, :5]]))
    assert_close(*found)


ONES = torch.ones(2, 9, dtype=torch.long)
# What a model is given besides, and how much padding stands on both sides.
GIVEN = {
    "nothing": ({}, (0, 0)),
    "no cache": ({"use_cache": False}, (0, 0)),
    "a mask of ones": ({"attention_mask": ONES}, (0, 0)),
    "padding": ({"attention_mask": pad(ONES, (2, 1))}, (2, 1)),
}


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@by_name("more, around", GIVEN)
def test_packed_documents(name, more, around, mode):
    """Position ids that start anew pack documents, the second of one token: each gives what it gives alone."""
    model, ids, positions = built(name), tokens()["input_ids"], torch.tensor([[0, 1, 2, 3, 0, 0, 1, 2, 3]])
    with mode():
        alone = torch.cat([model(input_ids=part).logits for part in ids.split([4, 1, 4], 1)], 1)
        found = model(input_ids=pad(ids, around), position_ids=pad(positions, around), **more).logits
        assert (found[:, around[0] :][:, :9] - alone).abs().max() < 1e-5 * found.abs().max()


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_packed_documents_by_cumulative_lengths(name):
    """As DataCollatorWithFlattening packs them, also where the attention receives no position ids, with gradients."""
    model, ids = built(name), tokens()["input_ids"]
    rows = [{"input_ids": part[0].tolist(), "labels": part[0].tolist()} for part in ids[:1].split([4, 1, 4], 1)]
    batch = T.DataCollatorWithFlattening(return_flash_attn_kwargs=True)(rows)
    batch.pop("labels")
    alone = [model(input_ids=torch.tensor([row["input_ids"]]))[0] for row in rows]
    found = model(**batch, use_cache=False)[0] if name != "bert" else model(**batch)[0]
    assert (found - torch.cat(alone, 1)).abs().max() < 1e-5 * found.abs().max()
    found.sin().sum().backward()
    weight = next(model.parameters())
    packed, weight.grad = weight.grad, None
    sum(each.sin().sum() for each in alone).backward()
    assert_close(packed, weight.grad, atol=1e-4, rtol=1e-4)

    with refusing("cumulative lengths do not fit the packed batch"):
        model(**batch | {"cu_seq_lens_q": torch.tensor([0, 4, 8]), "cu_seq_lens_k": torch.tensor([0, 4, 8])})


def test_packed_documents_in_a_cache():
    """A step after them attends to all documents, and a warning says so; a step after one text does not warn."""
    model, ids = built("llama"), tokens()["input_ids"]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        cache = model(input_ids=ids[:, :-1]).past_key_values
        model(input_ids=ids[:, -1:], past_key_values=cache)
        cache = model(input_ids=ids[:, :-1], position_ids=torch.arange(8)[None] % 4).past_key_values
        with pytest.raises(UserWarning, match="which document"):
            model(input_ids=ids[:, -1:], past_key_values=cache, position_ids=torch.tensor([[4]]))


# ----------------------------------------------------------------------------------------------- the attention function


class Module:
    is_causal, training = True, False


def attend(mask=None, B=1, H=4, G=2, Q=3, K=5, D=8, dtype=torch.float32, **kwargs):
    torch.manual_seed(2)
    q, k, v = (torch.randn(B, heads, rows, D).to(dtype) for heads, rows in ((H, Q), (G, K), (G, K)))
    return hf.attend(Module(), q, k, v, mask, **kwargs)


def test_no_mask_on_a_causal_module_is_causal_from_the_first_key():
    """A static cache is filled from its first key: row i sees keys 0 … i; with one row, or is_causal=False, all are
    seen.
    """
    seen = torch.ones(3, 5, dtype=torch.bool)
    for given, mask in (({}, seen.tril()), ({"is_causal": False}, seen), ({"Q": 1}, seen[:1])):
        assert_close(attend(**given)[0], attend(mask, Q=len(mask))[0])
    assert not torch.allclose(attend()[0], attend(seen)[0], atol=1e-2)


def test_a_row_that_may_attend_nothing_gives_zero():
    """Where eager gives the mean of all values for left padding, regard gives 0."""
    allowed = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    allowed[:, :, 0] = False
    out, weights = attend(allowed, output_attentions=True)
    assert (out[:, 0] == 0).all() and (weights[:, :, 0] == 0).all()
    assert (out[:, 1:] != 0).all() and torch.allclose(weights[:, :, 1:].sum(-1), torch.ones(()), atol=1e-6)


def test_bias_and_softcap_come_in_this_order():
    """softmax(c · tanh(s / c) + bias), as the models write it."""
    bias = normal(1, 4, 3, 5)
    _, weights = attend(is_causal=False, softcap=0.5, position_bias=bias, scaling=2.0, output_attentions=True)
    torch.manual_seed(2)
    q, k = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 5, 8)
    logits = 2.0 * q @ k.repeat_interleave(2, 1).mT
    assert torch.allclose(weights, (0.5 * torch.tanh(logits / 0.5) + bias).softmax(-1), atol=1e-6)


def test_one_set_of_learned_queries_serves_the_batch():
    """Queries with a batch of one are used for every entry of the keys."""
    q, k = torch.randn(1, 2, 3, 8), torch.randn(4, 2, 5, 8)
    out, _ = hf.attend(Module(), q, k, k, None, is_causal=False)
    assert torch.equal(out, hf.attend(Module(), q.expand(4, -1, -1, -1), k, k, None, is_causal=False)[0])


ANOTHER = lazy_mask(1, 3, 5, 2, 0, mask_function=masking_utils.causal_mask_function)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dtype": torch.float8_e4m3fn}, "model.float"),
        ({"sliding_window": 2}, "window without a mask"),
        ({"s_aux": torch.zeros(3)}, "sinks do not fit"),
        ({"mask": torch.ones(1, 1, 3, 4, dtype=torch.bool)}, "does not fit"),
        ({"mask": torch.ones(1, 1, 3, 5, dtype=torch.int64)}, "not a mask"),
        ({"mask": ANOTHER, "K": 6}, "another shape"),
        ({"mask": ANOTHER, "Q": 2}, "another shape"),
        ({"position_bias": torch.zeros(1, 4, 3, 9)}, "does not fit"),
    ],
)
def test_what_is_not_handled_is_refused(given, said):
    """Nothing is ignored: an argument is used, known to be harmless, or refused with a way out."""
    with refusing(said):
        attend(**given)


def test_all_reasons_at_once():
    """A call that is wrong in five ways says so five times."""
    call = {"dtype": torch.float8_e4m3fn, "temperature": 1.0, "cache": object()}
    assert len(whats(attend, **call)) == 5  # the dtype of query, key and value


# ------------------------------------------------------------------------------------------------ models that cannot


def test_check_and_register():
    """check is silent for a model on regard and names the implementation otherwise; registering twice is registering
    once.
    """
    hf.register()
    model = built("bert", "eager")
    with refusing("eager"):
        hf.check(model)
    hf.check(on(model, "regard"))
    assert isinstance(masking_utils.create_bidirectional_mask(model.config, torch.zeros(1, 4, 32), None), LazyMask)


def test_check_asks_only_modules_that_could_attend():
    """Rotary angles keep a configuration of their own, which says eager; they attend nothing, so the model is well."""
    hf.check(built("granite_swa"))


def test_a_mask_that_hides_nothing_stretches():
    """A mask made for one key that lets it be seen serves for more keys, as the models' own mask, which is added,
    does.
    """
    mask = lazy_mask(1, 1, 1, 0, 0, mask_function=masking_utils.causal_mask_function)
    assert torch.equal(attend(mask, Q=1)[0], attend(torch.ones(1, 5, dtype=torch.bool), Q=1)[0])


def qkv(K, seed=0):
    """Three rows, the last ones of K keys, as a model passes them: rows first in memory."""
    return [normal(2, rows, 4, 8, seed=3 * seed + n).transpose(1, 2) for n, rows in enumerate((3, K, K))]


def test_a_call_like_an_earlier_one_is_the_same_call():
    """With a mask by transformers, and with tensors as masks and biases: repeated, with other numbers, and recorded."""
    module, K = torch.nn.Module(), 7
    given = {
        "causal": lazy_mask(2, 3, K, K - 3, mask_function=masking_utils.causal_mask_function),
        "booleans": normal(2, 1, 3, K) < 0.7,
        "floats": normal(1, 4, 3, K),
        "floats that hide": normal(1, 4, 3, K).masked_fill_(torch.arange(K) == 2, -torch.inf),
    }
    for name, mask in given.items():
        for seed in range(3):
            q, k, v = qkv(K, seed)
            found = hf.attend(module, q, k, v, mask, is_causal=True)[0]
            plain = torch.ones(3, K, dtype=torch.bool).tril(K - 3) if name == "causal" else mask
            wanted = scaled_dot_product_attention(q, k, v, attn_mask=plain)
            assert_close(found, wanted.transpose(1, 2))
            assert found.is_contiguous()
            weights = hf.attend(module, q, k, v, mask, is_causal=True, output_attentions=True)[1]
            assert_close((weights @ v).transpose(1, 2), found)


@pytest.mark.parametrize("place", ["attention_mask", "position_bias"])
def test_a_bias_of_zeros_learns(place):
    """Its gradient is torch's, also where keys are hidden: models begin to train with a bias of zeros (Swin)."""
    q, k, v = qkv(7)
    bias = torch.zeros(1, 4, 3, 7, requires_grad=True)
    for added in (bias, bias.masked_fill(torch.arange(7) == 3, -torch.inf)):
        given = {"attention_mask": None, place: added}
        out, _ = hf.attend(torch.nn.Module(), q, k, v, is_causal=False, **given)
        wanted = scaled_dot_product_attention(q, k, v, attn_mask=added).transpose(1, 2)
        found, slope = (torch.autograd.grad(each.sin().sum(), bias, retain_graph=True)[0] for each in (out, wanted))
        assert out.is_contiguous() and slope.abs().max() > 0  # some models view the output
        assert_close(found, slope)


def test_floats_that_begin_to_hide():
    """A later call with tensors of the same shapes, one number of which hides a key: rows without keys give 0."""
    q, k, v = qkv(7)
    for low in (0.0, -1.0, torch.finfo(torch.float32).min, -torch.inf, 0.0):
        bias = torch.zeros(2, 4, 3, 7).masked_fill(torch.arange(7) > 2, low)
        bias[0, :, 1] = low
        for _ in range(2):
            found = hf.attend(torch.nn.Module(), q, k, v, bias)[0]
        wanted = scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).clone()
        if low < -1e30:
            wanted[0, 1] = 0
        assert_close(found, wanted)


def test_a_bias_with_floats_in_both_arguments():
    """attention_mask and position_bias: both are added, and what either hides is hidden."""
    q, k, v = qkv(7)
    one, other = normal(2, 1, 4, 3, 7)
    other = other.masked_fill(torch.arange(7) == 3, -torch.inf)
    keep = torch.arange(7) != 5
    for mask in (one, one.masked_fill(~keep, torch.finfo(torch.float32).min), keep.expand(1, 1, 3, 7)):
        found = hf.attend(torch.nn.Module(), q, k, v, mask, position_bias=other)[0]
        added = other + (torch.zeros(3, 7).masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else mask)
        wanted = scaled_dot_product_attention(q, k, v, attn_mask=added)
        assert_close(found, wanted.transpose(1, 2))
