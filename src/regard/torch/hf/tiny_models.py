"""Tiny random models of every architecture of transformers, and inputs for them.

The configuration is the default of the architecture with every size reduced by the name of its field, with the same
rules for all. Exceptions are listed in `SPECIAL`.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch

from ...common.errors import refuse

LARGEST = 8_000_000  # parameters

# The first pattern that matches a field's name limits its size.
SIZES: list[tuple[re.Pattern, int]] = [
    (re.compile(pattern), size)
    for pattern, size in {
        r"(image|video|audio|frame|vision|speech|boi|eoi|boa|eoa|mask|user|start|end|blank|prompt|latent|pad)"
        r"\w*_token_(id|index)$": 60,
        r"token_(id|index)$": 2,
        r"vocab|codebook_size|num_embeddings$|num_buckets$": 64,
        r"per_tok$|top_?k$|moe_k$": 2,
        r"experts$": 4,
        r"n_group$|topk_group$": 1,
        r"query_pre_attn_scalar": 8,
        r"(key_value|kv)_heads?$|multi_query_group_num": 2,
        r"heads?$": 4,
        r"head_dim$|head_size$|d_kv$|dim_head$|d_head$|rotary_dim$": 8,
        r"lora_rank$": 16,
        r"layers?$|^depth$|_depth$|num_blocks$": 2,
        r"intermediate|ffn|mlp_dim|d_ff$|dff$|n_inner|feed_?forward|linear_units": 64,
        r"max_source_positions": 20,
        r"position|n_ctx$|max_seq_len$|context_length$|max_(text_)?len": 64,
        r"mel_bins$|mel_dim$": 16,
        r"sliding_window|window_size$|local_attention$|attention_window$|chunk_size$": 4,
        r"image_size$|img_size$|resolution$|spec_size$|crop_size": 32,
        r"patch_size$": 8,
        r"num_(queries|query_tokens)|num_latents$": 8,
        r"num_frames$": 2,
        r"embd$|hidden|embed|width|_dim$|^dim$|d_model$|channels?$|_size$|num_filters$": 32,
    }.items()
]

# Fields that are lists: one entry per stage or layer, each limited to this size.
LISTS: dict[str, int] = {
    "depths": 1,
    "hidden_sizes": 32,
    "conv_dim": 32,
    "num_heads": 4,
    "num_attention_heads": 4,
    "embed_dims": 32,
    "neck_hidden_sizes": 32,
    "tdnn_dim": 32,
}

# Values for fields whose default is None.
OPEN = {"head_dim": 8, "num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "sliding_window": 4, "pad_token_id": 0}

# Additional settings by architecture.
_THREE_AXES = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}
SPECIAL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        (
            "glm4v_text",
            "glm_image_text",
            "glm_ocr_text",
            "paddleocr_vl_text",
            "qwen2_vl_text",
            "qwen2_5_vl_text",
            "qwen2_5_omni_text",
        ),
        _THREE_AXES,
    ),
    "glm4v_moe_text": {"rope_parameters": _THREE_AXES["rope_parameters"] | {"mrope_section": [1, 0, 1]}},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": {"attn_layer_indices": [1]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    # With short chunks its eager code adds the booleans of its chunk mask to the scores, which masks nothing.
    "seamless_m4t_v2": {"speech_encoder_chunk_size": 20000},
    "esm": {"vocab_size": 64},
    "gemma4": {"audio_config": None},  # an architecture of its own, which computes its attention itself
    "qwen2_5_vl_vision": {"window_size": 16},
    "step3p7": {"sliding_window": 4},
    "speech_to_text": {"input_feat_per_channel": 16},
    "mimi": {"upsample_groups": 32},
    "videomae": {"num_frames": 2},
    "yolos": {"image_size": [32, 32]},
    "dbrx": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "deepseek_v2": {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 2},
    "zamba": {"num_hidden_layers": 2, "layer_types": ["linear_attention", "hybrid"]},
    "markuplm": {"max_xpath_tag_unit_embeddings": 256, "max_xpath_subs_unit_embeddings": 1024},
    "swin": {"window_size": 2},
}

# The mappings of model classes, in order of preference, and the family of such models.
FAMILIES = {
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING": "multimodal",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING": "speech",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING": "encoder–decoder",
    "MODEL_FOR_MASKED_LM_MAPPING": "text encoder",
    "MODEL_FOR_CAUSAL_LM_MAPPING": "text decoder",
    "MODEL_MAPPING": "other",
}


def mappings() -> dict[str, str]:
    """Every architecture by its model_type: the mapping with its model class. Loads nothing else."""
    from transformers.models.auto import configuration_auto, modeling_auto

    found: dict[str, str] = {}
    for mapping in FAMILIES:
        for name in getattr(modeling_auto, f"{mapping}_NAMES"):
            if name in configuration_auto.CONFIG_MAPPING_NAMES:
                found.setdefault(name, mapping)
    return found


def config_class(name: str) -> Any:
    """The configuration class of an architecture."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[name]


def tiny_config(kind: Any, like: Any = None, **more: Any):
    """The configuration `kind` with every size made small. like: a configuration whose options (words and booleans) it
    has; without one, those are the default.
    """
    own = {field.name: field.default for field in dataclasses.fields(kind)}
    small = {name: found for name, value in own.items() if (found := _small(name, value, own)) is not value}
    small |= {} if like is None else _options(like, own)
    special = {**SPECIAL.get(kind.model_type, {}), **more}
    parts: dict[str, Any] = {}
    for name, part in getattr(kind, "sub_configs", {}).items():
        if name in own and not (name in special and special[name] is None):
            sub = getattr(like, name, None)
            chosen = part if dataclasses.is_dataclass(part) else type(sub or getattr(kind(**small), name))
            if like is not None and sub is None:
                parts[name] = None  # a part that the model does not have
            elif dataclasses.is_dataclass(chosen):  # otherwise the default is None
                parts[name] = tiny_config(chosen, sub, **special.pop(name, {}))
    made = kind(**{**small, **parts, **special})
    layers = getattr(made, "layer_types", None)
    if isinstance(layers, list) and len(layers) > 1 and all("linear" in layer or "mamba" in layer for layer in layers):
        made.layer_types = [*layers[:-1], "full_attention"]  # as in the last of many layers
    return made


def _options(like: Any, own: dict[str, Any]) -> dict[str, Any]:
    """The words and booleans of a configuration, except the dtype of its weights."""
    options = {name: getattr(like, name, None) for name in own if name != "dtype"}
    return {name: value for name, value in options.items() if isinstance(value, str | bool)}


def _small(name: str, value: Any, own: dict[str, Any]) -> Any:
    if isinstance(value, bool) or name in ("num_channels", "num_labels"):
        return value
    if isinstance(value, list | tuple) and name in LISTS:
        return [min(part, LISTS[name]) for part in value]
    if "attn" in name and "softcap" in name and value is not None:
        return 1.0  # so that small scores are affected
    if value is None:
        return OPEN.get(name)
    if not isinstance(value, int):
        return value
    size = next((size for pattern, size in SIZES if pattern.search(name)), None)
    if size == 2 and "heads" in name and value == own.get("num_attention_heads"):
        size = 4
    return value if size is None or value <= size else size


def model_class(name: str):
    """The model class that represents the architecture."""
    from transformers.models.auto import modeling_auto

    found = getattr(modeling_auto, mappings()[name])[config_class(name)]
    return found[0] if isinstance(found, tuple) else found


def tiny_model(name: str, **more: Any):
    """A random model of the architecture; `more` are settings of its configuration."""
    return random_model(model_class(name), tiny_config(config_class(name), **more))


def random_model(kind: Any, config: Any):
    """A random model of a class, from torch's generator; its parameters are large, so attention matters."""
    with torch.device("meta"):
        size = sum(weight.numel() for weight in kind._from_config(copy.deepcopy(config)).parameters())
    if size > LARGEST:
        raise refuse(
            "tiny_model",
            "the model cannot be made small",
            f"{kind.__name__} with {size / 1e6:.0f} million parameters",
            f"at most {LARGEST / 1e6:.0f} million",
            "add its sizes to SPECIAL",
        )
    config._experts_implementation = "eager"  # the fast one does not support float64
    model = kind._from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point():
                weight.mul_(4 if weight.ndim > 1 else 1).add_(torch.randn(weight.shape) / 20)
    return model.eval()


def accepted(model) -> dict[str, torch.Tensor]:
    """The first inputs that the model accepts on the attention it is set to."""
    failed: Exception | None = None
    for given in inputs(model):
        try:
            with torch.no_grad():
                model(**given)
        except Exception as error:  # third-party code may reject an input with any error
            failed = failed or error
        else:
            return given
    raise failed or LookupError("no inputs are known for it")


def inputs(model) -> Iterator[dict[str, torch.Tensor]]:
    """Candidate inputs, to be tried in this order: images, sound, and two sequences of 9 tokens, the second padded."""
    takes = inspect.signature(model.forward).parameters
    config = model.config
    ids = torch.randint(3, 50, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    text = {"input_ids": ids, "attention_mask": mask}
    if "decoder_input_ids" in takes:
        text["decoder_input_ids"] = ids.flip(1)
    channels, size = getattr(config, "num_channels", 3), _size(config)
    image = {"pixel_values": torch.randn(2, channels, *size)}
    video = {
        name: torch.randn(2, getattr(config, "num_frames", 2), channels, *size)
        for name in ("pixel_values", "pixel_values_videos")
    }
    sound = [{"input_values": torch.randn(2, 1600)}, {"input_values": torch.randn(2, 1, 1600)}]
    sound += [
        {"input_features": torch.randn(2, *shape)} for shape in ((16, 40), (40, 16), (40, 32), (32, 40), (40, 128))
    ]
    tried: list[dict[str, torch.Tensor]] = []
    if "input_ids" in takes and "pixel_values" in takes and hasattr(model, "get_image_features"):
        tried += _image_and_text(model, text, image)
        tried += [] if hasattr(config, "image_token_id") else [text | image]
    if "grid_thw" in takes:  # a vision tower that takes patches
        depth = getattr(config, "in_channels", getattr(config, "in_chans", channels)) * getattr(
            config, "temporal_patch_size", 1
        )
        patches = torch.randn(32, depth * getattr(config, "patch_size", 8) ** 2)
        grid = torch.tensor([[1, 4, 4], [1, 4, 4]])
        tried += [{"hidden_states": patches, "grid_thw": grid}, {"pixel_values": patches, "grid_thw": grid}]
    tried += [image, video, *sound]
    tried += [{**each, "decoder_input_ids": ids} for each in tried if "decoder_input_ids" in takes]
    tried += [text, {name: part for name, part in text.items() if name != "attention_mask"}, text | image]
    for each in tried:
        kept = {name: part for name, part in each.items() if name in takes}
        if any(
            name in kept
            for name in ("input_ids", "pixel_values", "pixel_values_videos", "hidden_states", *sound[0], *sound[2])
        ):
            yield kept


def _image_and_text(model, text, image) -> list[dict[str, torch.Tensor]]:
    """An image before each sequence, with as many image tokens as the model's vision tower returns."""
    token = getattr(model.config, "image_token_id", getattr(model.config, "image_token_index", None))
    if not isinstance(token, int):
        return []
    try:
        with torch.no_grad():
            found = model.get_image_features(**image)
    except Exception:  # third-party code: some models need another form of images
        return []
    found = getattr(found, "pooler_output", found)
    count = sum(part.shape[:-1].numel() for part in (found if isinstance(found, list | tuple) else [found])) // 2
    before = {"input_ids": torch.full((2, count), token), "attention_mask": torch.ones(2, count, dtype=torch.long)}
    made = {name: torch.cat([before[name], text[name]], 1) for name in before}
    made["token_type_ids"] = (made["input_ids"] == token).long()
    made["mm_token_type_ids"] = made["token_type_ids"]
    return [made | image]


def _size(config) -> tuple[int, int]:
    """Height and width of the images that a model reads."""
    found = getattr(getattr(config, "vision_config", config), "image_size", 32)
    return (found, found) if isinstance(found, int) else tuple(found)[-2:]
