"""`contributions` and `logit_lens`: what is added to the residual stream, against plain hooks."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

import regard as rg
from regard.models import Config, LanguageModel
from regard.torch.hf.tiny_models import tiny_config
from tests.support.hf_models import sharpened
from tests.support.refusals import refusing

X = {"input_ids": torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])}


def made(name, dtype=torch.float32, **more):
    """A tiny model that predicts tokens, and its inputs."""
    torch.manual_seed(0)
    config = tiny_config(type(AutoConfig.for_model(name)), **more)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    inputs = X | ({"decoder_input_ids": X["input_ids"][:, 2:]} if config.is_encoder_decoder else {})
    return sharpened(kind.from_config(config)).eval().to(dtype), inputs


# Learned positions and biases, grouped heads, norms of what is added, parallel blocks whose sum is made in place,
# cross-attention, several norms of a head, experts; float64 and bfloat16.
KINDS = dict.fromkeys(("gpt2", "gemma2", "gptj", "falcon", "t5", "gpt_oss"), torch.float32)
KINDS |= {"llama": torch.float64, "qwen3": torch.bfloat16}


@pytest.mark.parametrize("name", KINDS)
def test_all_parts_add_up_to_the_logit(name):
    """Heads, other parts of blocks, the embedding and biases; and keys to their head."""
    model, inputs = made(name, KINDS[name])
    found = rg.contributions(model, inputs=inputs, position=3)
    sums = np.array([[*each.sum(-1)] for each in found.keys.values()])
    parts = sums.sum() + sum(found.rest.values()) + found.embedding + found.constant
    unit = 8 * torch.finfo(KINDS[name]).eps if name == "qwen3" else 2e-6
    with torch.no_grad():
        head = model.get_output_embeddings()
        logits = []
        handle = head.register_forward_hook(lambda _, given, out: logits.append(out[0, 3]))
        model(**inputs)
        handle.remove()

    np.testing.assert_allclose(sums, found.heads, rtol=1e-12)
    assert abs(found.logit - float(logits[0].max())) <= unit * abs(found.logit)
    assert abs(parts - found.logit) <= unit * (np.abs(sums).sum() + abs(found.logit))
    assert np.abs(sums).max() > 4 * unit * abs(found.logit)


def added(model, name, layer, row):
    """What each head of a layer adds to the stream at a row, by hooks and the weights, (H, d)."""
    block = (model.transformer.h if name == "gpt2" else model.model.layers)[layer]
    matrix = block.attn.c_proj if name == "gpt2" else block.self_attn.o_proj
    weight = matrix.weight if name == "gpt2" else matrix.weight.T  # (H · E, d)
    seen = []
    handles = [matrix.register_forward_pre_hook(lambda _, given: seen.append(given[0][0, row]))]
    if name == "gemma2":
        norm = block.post_attention_layernorm
        handles += [norm.register_forward_pre_hook(lambda _, given: seen.append(given[0][0, row]))]
    model(**X)
    for handle in handles:
        handle.remove()
    H = model.config.num_attention_heads
    heads = torch.einsum("he,hed->hd", seen[0].view(H, -1), weight.view(H, -1, weight.shape[1]))
    return heads if name != "gemma2" else (1 + norm.weight) * heads / (seen[1].square().mean() + norm.eps).sqrt()


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
@torch.no_grad()
def test_heads_add_what_hooks_see(name):
    """Direct logit attribution as it is usually written: the output of a head through W_O, the last norm with its
    divisor frozen, and the unembedding.
    """
    model, _ = made(name)
    found = rg.contributions(model, inputs=X, token=7, position=5)
    end = model.transformer.ln_f if name == "gpt2" else model.model.norm
    ends = []
    handle = end.register_forward_pre_hook(lambda _, given: ends.append(given[0][0, 5]))
    model(**X)
    handle.remove()
    centred, gain = ends[0] - ends[0].mean() * (name == "gpt2"), end.weight + (name == "gemma2")
    direction = gain * model.get_output_embeddings().weight[7] / (centred.square().mean() + 1e-6).sqrt()
    for layer, row in enumerate(found.heads):
        heads = added(model, name, layer, 5)
        heads = heads - heads.mean(-1, keepdim=True) * (name == "gpt2")
        np.testing.assert_allclose(row, heads @ direction, rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_the_logit_lens_ends_with_the_model():
    """The last block predicts what the model predicts, in T5 too, which scales between; the embedding what it is."""
    for name in ("gpt2", "t5"):
        model, inputs = made(name)
        found = rg.logit_lens(model, inputs=inputs, count=2)
        best = model(**inputs).logits[0].softmax(-1).topk(2)
        np.testing.assert_array_equal(found.numbers[-1], best.indices)
        np.testing.assert_allclose(found.chances[-1], best.values, rtol=1e-4)
    model, _ = made("gpt2")
    hidden = model(**X, output_hidden_states=True).hidden_states[0]
    first = model.lm_head(model.transformer.ln_f(hidden))[0].argmax(-1)
    np.testing.assert_array_equal(rg.logit_lens(model, inputs=X).numbers[0, :, 0], first)


@torch.no_grad()
def test_circuits_are_products_of_the_weights():
    """What a head of GPT-2 writes and matches, and composition, from matrices of the size of the stream."""
    model, _ = made("gpt2")
    (first, second), d = model.transformer.h, model.config.n_embd
    first.ln_1 = torch.nn.LayerNorm(d, elementwise_affine=False)
    second.attn.c_attn.bias.normal_()
    found = rg.circuits(model, inputs=X)
    x = second.ln_1(model.transformer.wte.weight)
    q, k, v = (each.view(len(x), 4, -1)[:, 2] for each in second.attn.c_attn(x).split(d, -1))
    scores = q[7] @ k.T / q.shape[1] ** 0.5
    assert [token for token, _ in found.matches(1, 2, 7, 64)] == scores.argsort(descending=True).tolist()

    values = (second.attn.c_attn.weight.T @ x[7])[2 * d :].view(4, -1)[2]
    written = values @ second.attn.c_proj.weight.view(4, -1, d)[2]
    logits = model.lm_head.weight @ (model.transformer.ln_f.weight * (written - written.mean()))
    best = found.writes(1, 2, 7, 5)
    assert [token for token, _ in best] == logits.topk(5).indices.tolist()
    np.testing.assert_allclose([value for _, value in best], logits.topk(5).values, rtol=1e-4)

    def matrices(block, head):
        scales = torch.ones(d) if block.ln_1.weight is None else block.ln_1.weight
        gain = torch.diag(scales) @ (torch.eye(d) - 1 / d)  # the transpose of what the norm does to a row
        parts = [gain.T @ each.view(d, 4, -1)[:, head] for each in block.attn.c_attn.weight.split(d, -1)]
        return *parts, block.attn.c_proj.weight.view(4, -1, d)[head]

    (q, k, v, o), (_, _, v0, o0) = matrices(second, 2), matrices(first, 3)
    for kind, (left, right) in {"k": (k, q.T), "q": (q, k.T), "v": (v, o)}.items():
        wanted = (v0 @ o0 @ left @ right).norm() / ((v0 @ o0).norm() * (left @ right).norm())
        np.testing.assert_allclose(found.composition(kind)[1, 2, 0, 3], wanted, rtol=1e-4)
    assert np.isnan(found.composition("v")[0]).all()


@torch.no_grad()
def test_matches_of_a_layer_that_rotates():
    """They are the scores of keys at the same position, with shared keys, too; a text may have padding, which is 0."""
    rg.circuits(made("olmoe")[0], inputs=X).writes(0, 0, 3)
    model, _ = made("llama", num_key_value_heads=2)
    layer = model.model.layers[1]
    x = layer.input_layernorm(model.model.embed_tokens.weight)
    q, k = (getattr(layer.self_attn, f"{name}_proj")(x).view(len(x), -1, 8) for name in "qk")
    scores = q[7, 3] @ k[:, 1].T / 8**0.5
    found = rg.circuits(model, inputs=X).matches(1, 3, 7, 64)
    assert [token for token, _ in found] == scores.argsort(descending=True).tolist()
    np.testing.assert_allclose([value for _, value in found], scores.sort(descending=True).values, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_of_regard(tied):
    """The parts add up to its logit, and the last block predicts what it predicts, also with tied embeddings."""
    torch.manual_seed(0)
    model = LanguageModel(Config(vocabulary=11, d_model=16, layers=2, heads=4, tied=tied)).eval()
    found, lens = (make(model, inputs=X["input_ids"]) for make in (rg.contributions, rg.logit_lens))
    logits = model(X["input_ids"])[0].detach()
    parts = found.heads.sum() + sum(found.rest.values()) + found.embedding + found.constant
    np.testing.assert_allclose([parts, found.logit], float(logits[-1].max()), rtol=1e-5)
    np.testing.assert_array_equal(lens.numbers[-1, :, 0], logits.argmax(-1))


def test_what_is_not_a_sum_is_refused():
    """Blocks that normalize their sum, or scale what attention adds; a model without a head; rows that do not exist."""
    for name, more, words in (
        ("bart", {}, "does not add it"),
        ("granite", {"residual_multiplier": 0.3}, "does not add it"),
        ("bloom", {}, "self_attention"),
    ):
        model, inputs = made(name, **more)
        with refusing(words):
            rg.contributions(model, inputs=inputs)
    model, _ = made("gpt2")
    other, _ = made("gpt2")
    other.transformer.h[0].ln_1 = torch.nn.Tanh()
    for words, call in {
        "a norm of it": lambda: rg.circuits(other, inputs=X).writes(0, 0, 3),
        "unembedding": lambda: rg.logit_lens(model.transformer, inputs=X),
        "no such token": lambda: rg.contributions(model, inputs=X, position=8),
        "not one token": lambda: rg.contributions(model, inputs=X, token=-1),
        "no such head": lambda: rg.circuits(model, inputs=X).writes(2, 0, 3),
        "W_k is not known": lambda: rg.circuits(made("qwen3")[0], inputs=X).composition("q"),
        "count=0": lambda: rg.logit_lens(model, inputs=X, count=0),
    }.items():
        with refusing(words):
            call()
