"""The attention settings that a layer declares, in the notes of the recorded call or on the module itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.arrays import read_array
from ...common.module_settings import layer_settings, setting
from ...lens import Call

__all__ = ["Declared", "declared", "has_norms", "layer_of", "scaled_before"]

NORMS = ("q_norm", "q_layernorm", "query_norm", "query_layernorm")
ROWS, FEWEST = 64, 4  # rows whose norms are compared, and the smallest number for which they mean anything
STEADY = 0.005  # relative tolerance for a constant ratio of norms, which allows for 16-bit rounding


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


def layer_of(call: Call, module) -> Any:
    """The module that made the call; None where it is not available."""
    if module is None:
        return None
    try:
        return module.get_submodule(call.name)
    except AttributeError:  # a run names the root module by its class
        return module if call.name == type(module).__name__ else None


def declared(call: Call, module=None) -> Declared:
    """The settings in the notes of the call; those that are missing there are read from the module."""
    layer, notes = layer_of(call, module), call.notes
    known = layer_settings(layer)
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


def scaled_before(call: Call, module) -> float | None:
    """The scale applied to q·k before the call: the ratio of the norms of q and k to those of the projections of x.

    The vectors of a head are D adjacent columns of a projection; rotary positions keep their norms. None where the
    scale is unknown: x was not recorded, or q or k is normalized or not a projection of x.
    """
    layer = layer_of(call, module)
    if layer is None or call.x is None or call.q is None or call.k is None:
        return None
    if not len(call.x) == call.q.shape[1] == call.k.shape[1]:
        return None
    norms = list(_projected(layer, np.asarray(call.x[:ROWS], np.float64), call.q.shape[2]))
    factors = [_ratio(_norms(np.asarray(part[0, :ROWS], np.float64)), norms) for part in (call.q, call.k)]
    return None if None in factors else factors[0] * factors[1]  # type: ignore[operator]


def _projected(layer, x: np.ndarray, D: int) -> Iterator[np.ndarray]:
    """The norms (rows,) of each D adjacent columns of every projection of x."""
    parameters = dict(layer.named_parameters())
    for name, parameter in parameters.items():
        if (
            not name.endswith("weight")
            or parameter.ndim != 2
            or parameter.shape[1] != x.shape[1]
            or parameter.shape[0] % D
        ):
            continue
        projection = x @ read_array(parameter.detach().double().cpu(), name).T
        bias = parameters.get(name.removesuffix("weight") + "bias")
        if bias is not None:
            projection += read_array(bias.detach().double().cpu(), name)
        yield from _norms(projection.reshape(len(x), -1, D)).T


def _norms(vectors: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(vectors).sum(-1))


def _ratio(actual: np.ndarray, projected: Iterable[np.ndarray]) -> float | None:
    """The constant ratio of these norms to those of a projection; None without one, and if all norms are equal."""
    if len(actual) < FEWEST or not np.isfinite(actual).all() or np.ptp(actual) <= 4 * STEADY * actual.max():
        return None
    for norms in projected:
        with np.errstate(all="ignore"):
            ratio = actual / norms
        if np.ptp(ratio) <= STEADY * ratio.mean():
            return float(ratio.mean())
    return None


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
