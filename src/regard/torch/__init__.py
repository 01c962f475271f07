"""What regard does in the world of torch: attention for tensors, layers, positions, and transformers models on regard."""

from __future__ import annotations

import importlib

from .functional import attention, attention_with_lse

__all__ = ["attention", "attention_with_lse", "hf", "layers", "positions"]


def __getattr__(name: str):
    # What few need (`hf` loads transformers) is loaded by the first who asks for it.
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
