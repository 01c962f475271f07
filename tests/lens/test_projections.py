"""The matrices of attention layers: found by comparison of numbers, and only taken if they give the model's output."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel, ViTConfig, ViTModel

import regard as rg
from regard.lens import look
from regard.lens.projections import watched
from regard.lens.projections.layer import LayerProjections, Projection, equal, heads_from, rounding
from regard.lens.recording import keeper
from regard.lens.recording.recorded_call import UNKNOWN
from regard.torch.hf.tiny_models import inputs, tiny_model

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {**SMALL, "vocab_size": 50}
IDS = {"input_ids": torch.arange(7)[None]}
SEVERAL = {"input_ids": torch.arange(14).reshape(2, 7)}
LAST = {"bos_token_id": 1, "eos_token_id": 1}


def bert(**more):
    return BertModel(BertConfig(**TEXT, **more))


def gpt2():
    return GPT2Model(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, **LAST))


def llama():
    return LlamaModel(LlamaConfig(**TEXT, num_key_value_heads=2, attention_bias=True))


def vit():
    return ViTModel(ViTConfig(**SMALL, image_size=16, patch_size=8))


MODELS = {
    "bert": (bert, IDS, "qkvo"),
    "bert, written out": (lambda: bert(attn_implementation="eager"), IDS, "qkvo"),
    "bert, a batch": (bert, SEVERAL, "qkvo"),
    "bert, bfloat16": (lambda: bert().bfloat16(), IDS, "qkvo"),
    "gpt2": (gpt2, IDS, "qkvo"),
    "gpt2, a batch": (gpt2, SEVERAL, "qkvo"),
    "llama": (llama, IDS, "vo"),  # its q and k are rotated after the product
    "vit": (vit, {"pixel_values": torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))}, "qkvo"),
    "torch": (lambda: nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), (torch.randn(1, 7, 32),), "qkvo"),
}


def random(model):
    """The model with biases that are not 0, as in a trained one."""
    torch.manual_seed(0)
    for weight in model.parameters():
        if weight.ndim == 1:
            nn.init.normal_(weight, std=0.3)
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_matrices_give_the_numbers_of_the_model(name):
    """q, k and v are W x + b; the output of the layer is W_o times the outputs of all heads, plus b_o."""
    make, given, known = MODELS[name]
    run = look(random(make()), inputs=given)
    close = 0.02 if "bfloat16" in name else 1e-6
    for call in run.calls:
        found = call.projections
        assert "".join(each for each in "qkvo" if getattr(found, each) is not None) == known
        assert set(found.missing) == set("qkvo") - set(known)
        for each in set(known) - {"o"}:
            made = getattr(found, each).of(call.x).swapaxes(0, 1)
            np.testing.assert_allclose(made, np.asarray(getattr(call, each), float), atol=close)
        heads = np.asarray(call.out, float).swapaxes(0, 1).reshape(call.shape[1], -1)
        np.testing.assert_allclose(found.o.of(heads), np.asarray(found.y, float), atol=close)
        assert call.notes["lengths"] == "‖v W_o‖" and UNKNOWN not in call.notes
        w = np.asarray(found.o.w, float).reshape(32, 4, 8)
        v = np.repeat(np.asarray(call.v, float), 4 // len(call.v), 0)
        lengths = [np.linalg.norm(v[head] @ w[:, head].T, axis=-1) for head in range(4)]
        np.testing.assert_allclose(call.lengths, lengths, rtol=1e-4)
    assert f"{UNKNOWN}s" not in run.facts


def test_the_output_is_that_of_the_module_in_transformers():
    """y is what BertSelfOutput.dense, GPT-2's c_proj and Llama's o_proj return."""
    for make, path in (
        (bert, "encoder.layer.1.attention.output.dense"),
        (gpt2, "h.1.attn.c_proj"),
        (llama, "layers.1.self_attn.o_proj"),
    ):
        model, seen = random(make()), []
        model.get_submodule(path).register_forward_hook(lambda module, args, out, seen=seen: seen.append(out))
        call = look(model, inputs=IDS).calls[-1]
        assert np.array_equal(call.projections.y, seen[-1][0].detach().numpy())
        weight = model.get_submodule(path).weight.detach().numpy()
        assert np.array_equal(call.projections.o.w, weight.T if make is gpt2 else weight)


class Gated(nn.Module):
    """Attention of which the heads, or the output of the layer, are multiplied by a gate."""

    def __init__(self, gate):
        super().__init__()
        self.gate, self.qkv, self.o_proj = gate, nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.qkv(x).view(1, 7, 3, 4, 8).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 7, 32)
        if self.gate == "heads":
            return self.o_proj(heads * torch.sigmoid(x))
        y = self.o_proj(heads)
        return y * torch.sigmoid(x) if self.gate == "output" else y


class Layers(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.attention = Gated(gate)

    def forward(self, x):
        return torch.tanh(self.attention(x))


@pytest.mark.parametrize(("gate", "why"), [("heads", watched.NO_OUTPUT), ("output", watched.CHANGED)])
def test_a_gated_output_leaves_w_o_unknown(gate, why):
    """Then a weight on a value adds something else than v W_o, so ‖v‖ is shown; the call and the run say so."""
    run = look(Layers(gate), inputs=(torch.randn(1, 7, 32),))
    (call,) = run.calls
    assert call.projections.o is None and call.projections.y is None and call.projections.missing == {"o": why}
    assert call.notes["lengths"] == "‖v‖" and call.notes[UNKNOWN] == why
    np.testing.assert_allclose(call.lengths, np.linalg.norm(call.v, axis=-1), rtol=1e-6)
    assert run.facts[f"{UNKNOWN}s"] == [{"call": "attention", "reason": why}]
    (plain,) = look(Layers(None), inputs=(torch.randn(1, 7, 32),)).calls
    assert plain.projections.o is not None and plain.notes["lengths"] == "‖v W_o‖"


def test_a_gated_model_of_transformers_leaves_w_o_unknown():
    """Qwen3-Next multiplies the heads by a gate before W_o; Bloom adds the input of the block to the product."""
    for name, why in (("qwen3_next", watched.NO_OUTPUT), ("bloom", watched.CHANGED)):
        model = tiny_model(name).eval()
        for call in look(model, inputs=next(iter(inputs(model)))).calls:
            assert call.projections.o is None and call.notes[UNKNOWN] == why and call.notes["lengths"] == "‖v‖"


def test_keys_of_another_text():
    """Cross-attention: k and v are not products of the input of their layer, which is said; its output is known."""
    model = tiny_model("bart").eval()
    run = look(model, inputs=next(iter(inputs(model))))
    crossing = [call for call in run.calls if call.queries != call.keys]
    assert len(crossing) == 2
    for call in crossing:
        assert call.projections.q is not None and call.projections.o is not None
        assert call.projections.missing == {each: watched.OTHER_TEXT.format(name=each) for each in "kv"}


def test_a_product_that_differs_is_not_taken():
    """A result that differs from W_o times the heads by more than rounding: W_o is left unknown."""
    call = look(random(bert()), inputs=IDS).calls[1]
    x, o = call.out.swapaxes(0, 1).reshape(7, -1), call.projections.o
    assert equal(call.projections.y, x, o, 2.0**-24)
    assert not equal(call.projections.y * (1 + 1e-4), x, o, 2.0**-24)
    assert not equal(np.full_like(call.projections.y, np.nan), x, o, 2.0**-24)


def test_rounding_is_a_bound():
    """The error of a float32 product is below the bound, and the bound is not a thousand times the error."""
    random = np.random.default_rng(0)
    x, w, b = (random.standard_normal(size, dtype=np.float32) for size in ((50, 384), (384, 384), 384))
    exact = Projection(w, b)
    error = np.abs((x @ w.T + b).astype(float) - exact.of(x))
    most = rounding(x, exact, 2.0**-24)
    assert (error <= most).all() and error.max() > 1e-3 * most.max()


@pytest.mark.parametrize("order", ["one after another", "by head"])
def test_heads_of_a_fused_matrix(order):
    """The rows of each head are found: q, k and v one after another, or side by side for each head."""
    random = np.random.default_rng(0)
    x, parts, b = (
        random.standard_normal((9, 16)),
        random.standard_normal((3, 2, 4, 16)),
        random.standard_normal((3, 2, 4)),
    )
    axes = (0, 1) if order == "one after another" else (1, 0)
    whole = Projection(parts.transpose(*axes, 2, 3).reshape(24, 16), b.transpose(*axes, 2).reshape(24))
    for part, bias in zip(parts, b, strict=True):
        heads = np.einsum("qm,hdm->hqd", x, part) + bias[:, None]
        found = heads_from(x, whole, heads, 2.0**-53)
        assert np.array_equal(found.w, part) and np.array_equal(found.b, bias)
    assert heads_from(x, whole, heads + 1e-9, 2.0**-53) is None
    assert heads_from(x[:, :8], whole, heads, 2.0**-53) is None and heads_from(x[:5], whole, heads, 2.0**-53) is None


def test_generation_has_the_output_of_every_row():
    """Later passes have the matrices of the first, and their own rows of the output."""
    from transformers import GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, **LAST)).eval()
    run = look(model, inputs=IDS, generate=4)
    for call in run.calls:
        assert call.shape[1] > 7 and call.projections.y.shape == (call.shape[1], 32)
        heads = call.out.swapaxes(0, 1).reshape(call.shape[1], -1)
        np.testing.assert_allclose(call.projections.o.of(heads), call.projections.y, atol=1e-6)
        np.testing.assert_allclose(call.projections.q.of(call.x).swapaxes(0, 1), call.q, atol=1e-6)
    first = LayerProjections(o=call.projections.o, y=call.projections.y)
    assert first.then([LayerProjections()]).o is None and "o" in first.then([None]).missing


def test_matrices_are_copies_up_to_a_limit(monkeypatch):
    """Training the model further does not change its run; matrices above the limit are left out, and why is said."""
    model = random(bert())
    call = look(model, inputs=IDS).calls[0]
    before = call.projections.q.w.copy()
    with torch.no_grad():
        model.encoder.layer[0].attention.self.query.weight += 1
    assert np.array_equal(call.projections.q.w, before)
    monkeypatch.setattr(keeper, "MATRICES", call.projections.nbytes)
    first, second = look(model, inputs=IDS).calls
    assert first.projections.q is not None and second.projections.q is None
    assert set(second.projections.missing) == set("qkvo") and second.notes["lengths"] == "‖v W_o‖"
    assert "record fewer layers" in second.projections.missing["q"]


def test_changed_rules_have_no_output_of_the_model():
    """W_q, W_k and W_v are the same; the output with which W_o was compared is that of the model's own rules."""
    run = look(random(bert()), inputs=IDS)
    call = run.changed(temperature=0.5).calls[0]
    assert call.projections.q is run.calls[0].projections.q
    assert call.projections.o is None and call.projections.y is None
    assert "changed rules" in call.projections.missing["o"]


def test_without_values_there_are_no_matrices():
    """They are kept with the layer's input, which they multiply; the lengths are those of v W_o all the same."""
    call = look(random(bert()), inputs=IDS, values=False).calls[0]
    assert call.projections is None and call.x is None and call.notes["lengths"] == "‖v W_o‖"


def test_the_default_model_has_all_matrices():
    """MiniLM: every number of q, k, v and of the layer's output follows from its own files."""
    for call in rg.look(text="The animal didn't cross the street because it was too tired.").calls:
        found = call.projections
        for each in "qkv":
            np.testing.assert_allclose(getattr(found, each).of(call.x).swapaxes(0, 1), getattr(call, each), atol=2e-5)
        heads = call.out.swapaxes(0, 1).reshape(call.shape[1], -1)
        np.testing.assert_allclose(found.o.of(heads), found.y, atol=1e-5)
        assert not found.missing and not found.o.w.flags.writeable
