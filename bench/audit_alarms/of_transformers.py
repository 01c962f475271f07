"""Healthy tiny random models of transformers with inputs and masks that their users pass: (random choices) -> (model,
arguments of `audit`).
"""

from __future__ import annotations

import random
from typing import Any

import torch
import transformers

from regard.torch.hf.tiny_models import random_model, tiny_model

Made = tuple[Any, dict[str, Any]]

# Architectures, each with settings of its configuration of which one is chosen.
DECODERS: dict[str, list[dict[str, Any]]] = {
    **{
        name: [{}]
        for name in [
            "gemma3_text",
            "bloom",
            "qwen2_moe",
            "gpt_neo",
            "gptj",
            "codegen",
            "mpt",
            "cohere",
            "cohere2",
            "olmo2",
            "olmo3",
            "gpt_oss",
            "stablelm",
            "smollm3",
            "exaone4",
            "deepseek_v3",
            "xglm",
            "biogpt",
            "nemotron",
            "persimmon",
            "phi",
            "glm4",
        ]
    },
    **{name: [{}, {"sliding_window": None}] for name in ("mistral", "mixtral", "phi3", "starcoder2")},
    "llama": [{}, {"attention_bias": True}, {"num_key_value_heads": 1}],
    "gpt2": [
        {},
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
    ],
    "gemma2": [{}, {"query_pre_attn_scalar": 32}],
    "qwen2": [
        {},
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        {"use_sliding_window": False, "sliding_window": 4},
    ],
    "qwen3": [{}, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}],
    "jamba": [{}, {"sliding_window": 4}],
    "gpt_neox": [{}, {"use_parallel_residual": False}],
    "opt": [{}, {"do_layer_norm_before": False}],
    "falcon": [{}, {"alibi": True}, {"new_decoder_architecture": True}],
    "granite": [{}, {"attention_multiplier": 0.2}],
    "gpt_bigcode": [{}, {"multi_query": False}],
}
ENCODERS = [
    "bert",
    "roberta",
    "albert",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "deberta-v2",
    "esm",
    "camembert",
    "layoutlm",
    "xlm-roberta",
    "longformer",
    "megatron-bert",
    "roformer",
]
PAIRS = [
    "t5",
    "bart",
    "marian",
    "m2m_100",
    "pegasus",
    "mbart",
    "led",
    "umt5",
    "blenderbot",
    "longt5",
    "mt5",
    "nllb-moe",
    "switch_transformers",
    "plbart",
]

# What models predict with; without one they are as their architecture is.
HEADS = [
    None,
    None,
    transformers.AutoModelForSequenceClassification,
    transformers.AutoModelForTokenClassification,
    transformers.AutoModelForQuestionAnswering,
]


def of_transformers(choose: random.Random) -> Made:
    """A decoder, an encoder, or both."""
    kind = choose.choices(["decoder", "encoder", "pair"], [5, 2, 3])[0]
    name = choose.choice({"decoder": sorted(DECODERS), "encoder": ENCODERS, "pair": PAIRS}[kind])
    torch.manual_seed(choose.randrange(1 << 30))
    model = tiny_model(name, **choose.choice(DECODERS.get(name, [{}])))
    if kind != "pair":
        model = _headed(model, choose.choice(HEADS))
    if model._supports_sdpa and choose.random() < 0.6:
        model.set_attn_implementation("sdpa")
    if choose.random() < 0.1 and kind == "decoder":
        model = model.to(torch.bfloat16)
    if choose.random() < 0.15:
        return model, {}
    inputs = _tokens(choose, "", model)
    if kind == "pair" and choose.random() < 0.8:  # otherwise the model or the audit makes the input of the decoder
        inputs |= _tokens(choose, "decoder_", model, left=False)
    return model, {"inputs": inputs}


def _headed(model: Any, head: Any) -> Any:
    """A model with another head, if its architecture has one."""
    kind = head._model_mapping.get(type(model.config), None) if head else None
    return model if kind is None else random_model(kind, model.config)


def _tokens(choose: random.Random, prefix: str, model: Any, left: bool = True) -> dict[str, torch.Tensor]:
    """Tokens as a tokenizer returns them: with a mask, often with padding at either end, or without a mask."""
    n = choose.choice([9, 12, 15, 19])
    ids = torch.randint(3, 50, (1, n))
    if choose.random() < 0.15:
        return {f"{prefix}input_ids": ids}
    mask, count = torch.ones(1, n, dtype=torch.long), choose.choice([0, 1, 3, 4])
    if count:
        at = slice(0, count) if left and choose.random() < 0.5 else slice(n - count, n)
        pad = getattr(model.config.get_text_config(), "pad_token_id", None)
        mask[:, at], ids[:, at] = 0, pad if isinstance(pad, int) and pad >= 0 else 0
    return {f"{prefix}input_ids": ids, f"{prefix}attention_mask": mask}
