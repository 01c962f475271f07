"""The matrices of attention layers: found by comparison of numbers, and only taken if they give the model's output."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.lens import look
from regard.lens.recording import keeper
from regard.lens.recording import products as watched
from regard.lens.recording.keeper import UNKNOWN
from regard.lens.runs.projections import LayerProjections, Projection, equal, heads_from
from regard.torch.hf.tiny_models import inputs, tiny_model
from tests.support.tensors import normal

IDS = {"input_ids": torch.arange(7)[None]}
SEVERAL = {"input_ids": torch.arange(14).reshape(2, 7)}
PIXELS = {"pixel_values": normal(1, 3, 32, 32)}
ROWS = (normal(1, 7, 32, seed=1),)
MODELS = {
    "bert": ("bert", IDS, "qkvo"),
    "bert, written out": ("bert", IDS, "qkvo"),
    "bert, a batch": ("bert", SEVERAL, "qkvo"),
    "bert, bfloat16": ("bert", IDS, "qkvo"),
    "gpt2": ("gpt2", IDS, "qkvo"),
    "gpt2, a batch": ("gpt2", SEVERAL, "qkvo"),
    "llama": ("llama", IDS, "vo"),  # its q and k are rotated after the product
    "vit": ("vit", PIXELS, "qkvo"),
    "torch": ("torch", ROWS, "qkvo"),
}


def made(name, kind="bert"):
    """A model with biases that are not 0, as in a trained one."""
    torch.manual_seed(0)
    if kind == "torch":
        model = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True).eval()
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.3)
        return model
    model = tiny_model(kind, **({"num_key_value_heads": 2, "attention_bias": True} if kind == "llama" else {}))
    model.set_attn_implementation("eager" if "written out" in name else "sdpa")
    return model.bfloat16() if "bfloat16" in name else model


def heads_of(call):
    """The outputs of all heads side by side, (Q, H · E)."""
    return np.asarray(call.out, float).swapaxes(0, 1).reshape(call.shape[1], -1)


@pytest.mark.parametrize("name", MODELS)
def test_matrices_give_the_numbers_of_the_model(name):
    """q, k and v are W x + b; the output of the layer is W_o times the outputs of all heads, plus b_o."""
    kind, given, known = MODELS[name]
    run = look(made(name, kind), inputs=given)
    close = {"rtol": 0.02, "atol": 0.05} if "bfloat16" in name else {"rtol": 1e-5, "atol": 1e-5}
    for call in run.calls:
        found = call.projections
        assert set(found.missing) == set("qkvo") - set(known)
        for each in set("qkv") - set(found.missing):
            product = getattr(found, each).of(call.x).swapaxes(0, 1)
            np.testing.assert_allclose(product, getattr(call, each).astype(float), **close)
        np.testing.assert_allclose(found.o.of(heads_of(call)), found.y.astype(float), **close)
        assert call.notes["lengths"] == "‖v W_o‖" and UNKNOWN not in call.notes
        v, w = np.repeat(call.v.astype(float), 4 // len(call.v), 0), found.o.w.astype(float).reshape(32, 4, 8)
        np.testing.assert_allclose(call.lengths, np.linalg.norm(np.einsum("hke,mhe->hkm", v, w), axis=-1), rtol=1e-4)
    assert f"{UNKNOWN}s" not in run.facts


@pytest.mark.parametrize(("name", "why"), [("qwen3_next", watched.NO_OUTPUT), ("bloom", watched.CHANGED)])
def test_a_gated_model_of_transformers_leaves_w_o_unknown(name, why):
    """Qwen3-Next multiplies the heads by a gate before W_o; Bloom adds the input of the block to the product. Then a
    weight on a value adds something else than v W_o, so ‖v‖ is shown; the call and the run say so.
    """
    model = tiny_model(name)
    run = look(model, inputs=next(inputs(model)))
    assert run.facts[f"{UNKNOWN}s"] == [{"call": call.name, "reason": why} for call in run.calls]
    for call in run.calls:
        found = call.projections
        assert found.o is None and found.y is None and found.missing["o"] == why
        assert call.notes["lengths"] == "‖v‖" and call.notes[UNKNOWN] == why
        own = np.repeat(call.v, len(call.lengths) // len(call.v), 0)
        np.testing.assert_allclose(call.lengths, np.linalg.norm(own, axis=-1), rtol=1e-6)


def test_keys_of_another_text():
    """Cross-attention: k and v are not products of the input of their layer, which is said; its output is known."""
    model = tiny_model("bart")
    crossing = [call for call in look(model, inputs=next(inputs(model))).calls if call.queries != call.keys]
    assert len(crossing) == 2
    for call in crossing:
        assert call.projections.q is not None and call.projections.o is not None
        assert call.projections.missing == {each: watched.OTHER_TEXT.format(name=each) for each in "kv"}


def test_a_product_that_differs_is_not_taken():
    """A result that differs from W_o times the heads by more than rounding: W_o is left unknown."""
    call = look(made("bert"), inputs=IDS).calls[1]
    found = call.projections
    for y, taken in ((found.y, True), (found.y * (1 + 1e-3), False), (found.y * np.nan, False)):
        assert equal(y, heads_of(call), found.o, 2.0**-24) == taken


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)], ids=["one after another", "by head"])
def test_heads_of_a_fused_matrix(axes):
    """The rows of each head are found: q, k and v one after another, or side by side for each head."""
    random = np.random.default_rng(0)
    x, parts, b = (random.standard_normal(sizes) for sizes in ((9, 16), (3, 2, 4, 16), (3, 2, 4)))
    whole = Projection(parts.transpose(*axes, 2, 3).reshape(24, 16), b.transpose(*axes, 2).reshape(24))
    for part, bias in zip(parts, b):
        heads = np.einsum("qm,hdm->hqd", x, part) + bias[:, None]
        found, rotated = heads_from(x, whole, heads, 2.0**-53)
        assert np.array_equal(found.w, part) and np.array_equal(found.b, bias) and not rotated
        turned = np.concatenate([heads[:, :1], heads[:, 1:, [1, 0, 3, 2]]], 1)
        assert heads_from(x, whole, turned, 2.0**-53)[1]
    for rows, others in ((x, heads + 1e-9), (x[:, :8], heads), (x[:5], heads)):
        assert heads_from(rows, whole, others, 2.0**-53) is None


def test_generation_has_the_output_of_every_row():
    """Later passes have the matrices of the first, and their own rows of the output."""
    model = tiny_model("gpt2")
    model.generation_config.eos_token_id = None
    for call in look(model, inputs=IDS, generate=4).calls:
        found = call.projections
        assert call.shape[1] == 11
        np.testing.assert_allclose(found.o.of(heads_of(call)), found.y, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.q.of(call.x).swapaxes(0, 1), call.q, rtol=1e-5, atol=1e-5)
    first = LayerProjections(o=found.o, y=found.y)
    assert first.then([LayerProjections()]).o is None and "o" in first.then([None]).missing


def test_matrices_are_copies_up_to_a_limit(monkeypatch):
    """Training the model further does not change its run; matrices above the limit are left out, and why is said."""
    model = made("bert")
    found = look(model, inputs=IDS).calls[0].projections
    before = found.q.w.copy()
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.self.query.weight += 1
    assert np.array_equal(found.q.w, before)
    monkeypatch.setattr(keeper, "MATRICES", found.nbytes)
    first, second = look(model, inputs=IDS).calls
    assert first.projections.q is not None and second.projections.q is None
    assert second.projections.missing.keys() == {*"qkvo"} and second.notes["lengths"] == "‖v W_o‖"
    assert "record fewer layers" in second.projections.missing["q"]
    bare = look(model, inputs=IDS, values=False).calls[0]  # matrices are kept with the input, which they multiply
    assert bare.projections is None and bare.x is None and bare.notes["lengths"] == "‖v W_o‖"


def test_changed_rules_have_no_output_of_the_model():
    """W_q, W_k and W_v are the same; the output with which W_o was compared is that of the model's own rules."""
    run = look(made("bert"), inputs=IDS)
    found = run.changed(temperature=0.5).calls[0].projections
    assert found.q is run.calls[0].projections.q and found.o is None and found.y is None
    assert "changed rules" in found.missing["o"]
