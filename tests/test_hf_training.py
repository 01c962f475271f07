"""Transformers models learn on regard as they learn on their own attention code."""

import pytest

torch = pytest.importorskip("torch", reason="transformers models run on torch")
T = pytest.importorskip("transformers", reason="the models come from transformers")

from regard.torch import hf  # noqa: E402
from regard.torch.architectures import Doubled  # noqa: E402

T.logging.set_verbosity_error()

GROUPED = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
           "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 8}  # fmt: skip
BART = {"vocab_size": 64, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64}  # fmt: skip

MODELS = {
    "llama": lambda **more: T.LlamaForCausalLM(T.LlamaConfig(**GROUPED, **more)),
    "gemma2, softcap, windows": lambda **more: T.Gemma2ForCausalLM(
        T.Gemma2Config(**GROUPED, sliding_window=4, query_pre_attn_scalar=8, attn_logit_softcapping=2.0, **more)),
    "gpt-oss, sinks": lambda **more: T.GptOssForCausalLM(
        T.GptOssConfig(**GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1, **more)),
    "t5, learned position bias": lambda **more: T.T5ForConditionalGeneration(
        T.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
                   decoder_start_token_id=0, **more)),
    "bart, cross-attention": lambda **more: T.BartForConditionalGeneration(
        T.BartConfig(**BART, dropout=0.0, **more)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _registered():
    hf.register()


def built(name: str, **more):
    """The tiny model, on regard, with weights large enough that attention matters."""
    torch.manual_seed(0)
    model = MODELS[name](**more)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(4)
    model.set_attn_implementation("regard")
    if hasattr(model.config, "num_local_experts"):
        model.set_experts_implementation("eager")  # the fast one knows no float64
    return model


def batch(padding: str = "right"):
    """Two sequences, of which the second is padded; nobody asks what follows on padding."""
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1, slice(6, None) if padding == "right" else slice(3)] = 0
    asked = mask * torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(asked == 0, -100)}


def learned(model, inputs) -> dict[str, torch.Tensor]:
    """The gradient of every parameter."""
    model.zero_grad()
    model(**inputs).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def apart(found, want) -> float:
    """The largest difference of a gradient, as a share of the largest gradient of the model."""
    assert found.keys() == want.keys() and found
    return max((found[name] - want[name]).abs().max() for name in want) / max(part.abs().max() for part in want.values())


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_eagers_gradient(name, padding):
    """Against eager in float64, regard's gradients err no more than four times what eager's own in float32 do."""
    model, inputs = built(name).train(), batch(padding)
    found = learned(model, inputs)
    model.set_attn_implementation("eager")
    usual = learned(model, inputs)
    with Doubled():
        exact = learned(model.double(), inputs)
    assert apart(found, exact) <= 4 * apart(usual, exact)
