"""PyTorch: attention as an operator, attention layers, positions, transformers models, profiling and tracing.

functional     attention of tensors, as an operator that supports torch.compile, torch.func and autocast
layers         attention layers (torch.nn.Module)
positions      position encodings: sinusoidal, learned, rotary, ALiBi, T5 buckets, relative
invariance     invariant: rows of linear layers that have the same bits alone and in every batch
replaced_sdpa  replace_sdpa: torch's own attention, computed by regard in programs that are not edited
replaced_operators  kernels of torch's operators that are replaced in a block
hf             transformers models that run on regard
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..common.optional import requires_extra
from ..common.public import no_attribute

with requires_extra("regard.torch", "torch"):
    from .functional import attention, attention_with_lse

if TYPE_CHECKING:  # for editors and type checkers; at run time these are loaded on first access
    from ..observe import profile, trace
    from . import hf, layers, positions
    from .invariance import invariant
    from .layers import (
        Attention,
        DifferentialAttention,
        LatentAttention,
        LatentCache,
        LinearAttention,
        LinearState,
        Linformer,
        MultiHeadAttention,
        Performer,
        SegmentMemory,
        SelfAttention,
        TransformerXL,
        deviation,
    )
    from .replaced_sdpa import replace_sdpa

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
    "invariant",
    "layers",
    "positions",
    "profile",
    "replace_sdpa",
    "trace",
]

PLACES = {
    "invariant": ".invariance",
    "profile": "..observe",
    "replace_sdpa": ".replaced_sdpa",
    "trace": "..observe",
}


def __getattr__(name: str):
    """Loaded on first access: packages (`hf` imports transformers, which is slow), and names from two of them."""
    if name in ("hf", "layers", "positions"):
        with requires_extra(f"regard.torch.{name}", "hf" if name == "hf" else "torch"):
            return importlib.import_module(f".{name}", __name__)
    if name in (*__all__, "MultiheadAttention"):  # torch's spelling
        place = PLACES.get(name, ".layers")
        return getattr(importlib.import_module(place, __name__), name)
    raise no_attribute(__name__, name)
