"""No false alarm: healthy tiny architectures pass every check, those of their behaviour and those of a recorded run."""

import pytest
import torch

from regard.audits import audit
from regard.torch.hf.tiny_models import tiny_model
from tests.audits.small_audits import healthy

HEALTHY = {
    "text decoder": [
        "bloom",
        "deepseek_v3",
        "falcon",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "llama",
        "mistral",
        "mixtral",
        "mpt",
        "opt",
        "qwen2",
        "qwen3",
        "qwen3_moe",
    ],
    "text encoder": ["albert", "bert", "deberta-v2", "distilbert", "esm", "modernbert", "roberta"],
    "encoder–decoder": ["bart", "dia", "m2m_100", "marian", "pegasus", "t5"],
    "other": ["beit", "dinov2", "hubert", "fnet", "siglip_vision_model", "vit", "wav2vec2", "whisper"],
}


def audited(name, dtype=torch.float32):
    """The audit of a tiny random model, on the attention that transformers chooses."""
    model = tiny_model(name).to(dtype)
    if model._supports_sdpa:
        model.set_attn_implementation("sdpa")
    return audit(model)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name for names in HEALTHY.values() for name in names])
def test_a_healthy_architecture_is_silent(name):
    """No fault and no warning, and what applies to its kind was checked."""
    passed = {"training-mode", "finite", "determinism", "batch-dependence"}
    if name in HEALTHY["text decoder"] + HEALTHY["encoder–decoder"]:
        passed |= {"future-leak", "padding-leak", "cache"}
    if name in HEALTHY["text decoder"]:
        passed.add("position-offset")
    if name != "fnet":
        passed |= {"numbers", "empty-rows", "arrived"}
    healthy(audited(name), *passed)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["llama", "mixtral", "t5", "whisper"])
def test_sixteen_bits_are_no_fault(name, dtype):
    """What 16 bits round away, choices of experts included, is no finding."""
    healthy(audited(name, dtype))
