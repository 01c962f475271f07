"""Tiny models of transformers, one of each kind that is recorded."""

import functools

import torch

from regard.torch.hf.tiny_models import tiny_model

NAMES = "bert", "llama", "mistral", "gemma2", "gpt-oss", "t5", "bart"
# What a tiny model needs besides its small sizes: grouped heads; a first token.
SETTINGS = {"llama": {"num_key_value_heads": 2}, "t5": {"decoder_start_token_id": 0}}
MODELS = {name: functools.partial(tiny_model, name.replace("-", "_"), **SETTINGS.get(name, {})) for name in NAMES}


def sharpened(model):
    """The model with weights large enough that attention is far from even."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(4)
    return model
