"""Declared: what the layer that made a call says about its attention: in the notes of the run, or on the module itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import read_array
from ...lens.call import Call

__all__ = ["Declared", "declared", "has_norms", "layer_of", "scaled_before"]

SCALES = ("scaling", "scale", "softmax_scale")
QUERIES = ("q_proj", "query", "wq", "q_lin", "q")
NORMS = ("q_norm", "q_layernorm", "query_norm", "query_layernorm")


@dataclass(frozen=True)
class Declared:
    """What is known; None is unknown. causal: the layer calls itself causal · window: keys that a row sees, itself included ·
    groups: heads of keys and values · sinks: whether the layer has some · configured: whether a configuration came with the module.
    """

    scale: float | None = None
    softcap: float | None = None
    window: int | None = None
    causal: bool | None = None
    groups: int | None = None
    sinks: np.ndarray | bool | None = None
    configured: bool = False
    training: bool = False


def layer_of(call: Call, module) -> Any:
    """The module that made the call; None where it is not at hand."""
    if module is None:
        return None
    try:
        return module.get_submodule(call.name)
    except AttributeError:  # the run names the root by its class
        return module if call.name == type(module).__name__ else None


def declared(call: Call, module=None) -> Declared:
    """What the notes of the call say, and where they are silent, the module."""
    layer = layer_of(call, module)
    config = getattr(layer, "config", None)
    own = {} if config is None else vars(config)  # not by attribute: configurations that vary by layer refuse to be asked
    notes = call.notes
    sinks: Any = getattr(layer, "sinks", None)
    return Declared(
        _number(*([notes.get("scale")] if layer is None else (getattr(layer, name, None) for name in SCALES))),
        _number(notes.get("softcap"), getattr(layer, "attn_logit_softcapping", None), own.get("attn_logit_softcapping")),
        _whole(notes.get("window"), _window(layer, own)),
        next((flag for flag in (notes.get("causal"), getattr(layer, "is_causal", None)) if isinstance(flag, bool)), None),
        _whole(notes.get("groups"), getattr(layer, "num_key_value_heads", None), own.get("num_key_value_heads")),
        read_array(sinks.detach().float().cpu(), "sinks") if hasattr(sinks, "detach") else _has_sinks(layer) or notes.get("sinks"),
        config is not None or getattr(module, "config", None) is not None,
        bool(notes.get("training", getattr(layer, "training", False))),
    )  # fmt: skip


def has_norms(layer) -> bool:
    """Whether the layer norms its queries on their way."""
    return any(getattr(layer, name, None) is not None for name in NORMS)


def scaled_before(call: Call, module) -> float | None:
    """How much longer or shorter q is than the layer's own projection of x: the scale that was applied before the call.

    None where it cannot be told: x was not kept, there is no plain projection, or q is normalised on its way.
    """
    layer = layer_of(call, module)
    projection = next((part for name in QUERIES if hasattr(part := getattr(layer, name, None), "weight")), None)
    if projection is None or call.x is None or call.q is None or has_norms(layer):
        return None
    weight = read_array(projection.weight.detach().double().cpu(), "weight")
    x = np.asarray(call.x, np.float64)
    if weight.ndim != 2 or weight.shape != (call.q.shape[0] * call.q.shape[2], x.shape[-1]) or len(x) != call.q.shape[1]:
        return None
    own = x @ weight.T
    if getattr(projection, "bias", None) is not None:
        own = own + read_array(projection.bias.detach().double().cpu(), "bias")
    before, after = (np.sqrt(np.square(np.asarray(part, np.float64)).sum()) for part in (own, call.q))
    return float(after / before) if before > 0 and math.isfinite(after / before) else None


def _window(layer, own: Mapping[str, Any]) -> int | None:
    """The layer's own window, or that of its configuration where this is meant for the layer."""
    kinds, at = own.get("layer_types"), getattr(layer, "layer_idx", None)
    everywhere = kinds is None or (isinstance(at, int) and at < len(kinds) and kinds[at] == "sliding_attention")
    return getattr(layer, "sliding_window", own.get("sliding_window") if everywhere else None)


def _has_sinks(layer) -> bool:
    """Whether the layer makes sinks in some other way, such as a projection that gives one for each query."""
    return layer is not None and any(
        "sink" in name for name, _ in (*layer.named_parameters(recurse=False), *layer.named_children())
    )


def _number(*values) -> float | None:
    return next(
        (float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool) and value > 0), None
    )


def _whole(*values) -> int | None:
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0), None)
