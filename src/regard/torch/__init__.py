"""What regard does in the world of torch: transformers models on regard, and a recorder of their attention."""

from __future__ import annotations

import importlib

__all__ = ["hf"]


def __getattr__(name: str):
    # Only `regard.torch.hf` needs transformers, so it is loaded by the first who asks for it.
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
