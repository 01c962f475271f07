"""The attention settings that a layer declares, in the notes of the recorded call or on the module itself."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import numpy as np

from ...common.arrays import read_array
from ...common.module_settings import layer_settings, setting
from ...lens import Call

NORMS = ("q_norm", "q_layernorm", "query_norm", "query_layernorm")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The declared settings; None is unknown. causal: whether the layer declares itself causal · window: the number of
    keys that a row attends to, itself included · groups: the number of key/value heads · sinks: the values, or whether
    there are some · configured: whether the module has a configuration.
    """

    scale: float | None = None
    softcap: float | None = None
    window: int | None = None
    causal: bool | None = None
    groups: int | None = None
    sinks: np.ndarray | bool | None = None
    configured: bool = False
    training: bool = False


def declared(call: Call, layer, module) -> Declared:
    """The settings in the notes of the call; those that are missing there are read from the layer of the module."""
    known, notes = layer_settings(layer), call.notes
    causal = notes.get("causal")
    sinks = notes.get("sinks") if known.sinks is None else read_array(known.sinks.detach().float().cpu(), "sinks")
    return Declared(
        scale=_positive_number(notes.get("scale") if layer is None else known.scale),
        softcap=_positive_number(notes.get("softcap"), known.softcap),
        window=_positive_int(notes.get("window"), known.window, known.configured_window),
        causal=causal if isinstance(causal, bool) else known.causal,
        groups=_positive_int(notes.get("groups"), known.groups),
        sinks=True if known.sinks is None and _has_sinks(layer) else sinks,
        configured=setting(layer, "config") is not None or setting(module, "config") is not None,
        training=bool(notes.get("training", known.training)),
    )


def has_norms(layer) -> bool:
    """Whether the layer normalizes its queries."""
    return any(getattr(layer, name, None) is not None for name in NORMS)


def scaled_before(call: Call) -> float | None:
    """The scale applied to q·k before the call: the ratio of the lengths of q and k to those of the products that the
    model computed before; None where it is unknown."""
    found = call.notes.get("scaled_before")
    return float(found) if isinstance(found, float) else None


def built_scale(layer) -> float | None:
    """The scale that a layer of transformers has when its class builds it from its configuration; None if unknown."""
    config = setting(layer, "config")
    given = {"config": config, "layer_idx": setting(layer, "layer_idx")}
    needed = inspect.signature(type(layer)).parameters.values() if config is not None else ()
    if not needed or any(each.default is each.empty and each.name not in given for each in needed):
        return None
    import torch  # the layer is one of torch

    with torch.device("meta"):
        fresh = type(layer)(**{each.name: given[each.name] for each in needed if each.name in given})
    return layer_settings(fresh).scale


def _has_sinks(layer) -> bool:
    """Whether the layer has sinks in another form, such as a projection that computes one for each query."""
    return layer is not None and any(
        "sink" in name for name, _ in (*layer.named_parameters(recurse=False), *layer.named_children())
    )


def _positive_number(*values) -> float | None:
    return next(
        (
            float(value)
            for value in values
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        ),
        None,
    )


def _positive_int(*values) -> int | None:
    return next(
        (value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0), None
    )
