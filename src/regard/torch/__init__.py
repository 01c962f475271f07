"""What regard does in the world of torch.

functional     attention of tensors, as an operator that torch compiles, transforms and casts
layers         attention as layers, put together from small parts
positions      sinusoidal, learned, rotary, ALiBi, T5, relative
hf             transformers models on regard
observe        profile: what each attention call of a model costs; trace: what it was given, and what goes wrong first
"""

from __future__ import annotations

import importlib

from .functional import attention, attention_with_lse

# What few need (`hf` loads transformers) is loaded by the first who asks for it.
ROOMS = ("hf", "layers", "positions")
NAMES = {
    "profile": "observe",
    "trace": "observe",
    **dict.fromkeys(
        (
            "Attention",
            "DifferentialAttention",
            "LatentAttention",
            "LatentCache",
            "LinearAttention",
            "LinearState",
            "Linformer",
            "MultiHeadAttention",
            "Performer",
            "SegmentMemory",
            "SelfAttention",
            "TransformerXL",
            "deviation",
        ),
        "layers",
    ),
}

__all__ = [
    "Attention",
    "DifferentialAttention",
    "LatentAttention",
    "LatentCache",
    "LinearAttention",
    "LinearState",
    "Linformer",
    "MultiHeadAttention",
    "Performer",
    "SegmentMemory",
    "SelfAttention",
    "TransformerXL",
    "attention",
    "attention_with_lse",
    "deviation",
    "hf",
    "layers",
    "positions",
    "profile",
    "trace",
]


def __getattr__(name: str):
    if name in NAMES:
        return getattr(importlib.import_module(f".{NAMES[name]}", __name__), name)
    if name in ROOMS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
