"""What the layer that made a call says about its attention: in the notes of the run, or on the module itself."""

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
ROWS, FEWEST = 64, 4  # rows whose lengths are compared, and below which they tell nothing
STEADY = 0.005  # lengths are in one proportion, up to the rounding of 16-bit numbers


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What is known; None is unknown. causal: the layer calls itself causal · window: keys that a row sees, itself
    included · groups: heads of keys and values · sinks: its own, or whether it has some · configured: whether a
    configuration came with the module.
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
    layer, notes = layer_of(call, module), call.notes
    known = layer_settings(layer)
    causal = notes.get("causal")
    sinks = notes.get("sinks") if known.sinks is None else read_array(known.sinks.detach().float().cpu(), "sinks")
    return Declared(
        scale=_number(notes.get("scale") if layer is None else known.scale),
        softcap=_number(notes.get("softcap"), known.softcap),
        window=_whole(notes.get("window"), known.window, known.configured_window),
        causal=causal if isinstance(causal, bool) else known.causal,
        groups=_whole(notes.get("groups"), known.groups),
        sinks=True if known.sinks is None and _has_sinks(layer) else sinks,
        configured=setting(layer, "config") is not None or setting(module, "config") is not None,
        training=bool(notes.get("training", known.training)),
    )


def has_norms(layer) -> bool:
    """Whether the layer norms its queries on their way."""
    return any(getattr(layer, name, None) is not None for name in NORMS)


def scaled_before(call: Call, module) -> float | None:
    """What q·k was multiplied by before the call: how much longer q and k are than the layer's own projections of x.

    A head's vectors are D neighbouring columns of a projection; rotations leave their lengths alone. None where it
    cannot be told: x was not kept, q or k is normed on its way, or is no projection of x.
    """
    layer = layer_of(call, module)
    if layer is None or call.x is None or call.q is None or call.k is None:
        return None
    if not len(call.x) == call.q.shape[1] == call.k.shape[1]:
        return None
    lengths = list(_projected(layer, np.asarray(call.x[:ROWS], np.float64), call.q.shape[2]))
    factors = [_factor(_lengths(np.asarray(part[0, :ROWS], np.float64)), lengths) for part in (call.q, call.k)]
    return None if None in factors else factors[0] * factors[1]  # type: ignore[operator]


def _projected(layer, x: np.ndarray, D: int) -> Iterator[np.ndarray]:
    """The lengths (rows,) of each D neighbouring columns of every projection of x."""
    held = dict(layer.named_parameters())
    for name, parameter in held.items():
        if (
            not name.endswith("weight")
            or parameter.ndim != 2
            or parameter.shape[1] != x.shape[1]
            or parameter.shape[0] % D
        ):
            continue
        own = x @ read_array(parameter.detach().double().cpu(), name).T
        bias = held.get(name.removesuffix("weight") + "bias")
        if bias is not None:
            own += read_array(bias.detach().double().cpu(), name)
        yield from _lengths(own.reshape(len(x), -1, D)).T


def _lengths(vectors: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(vectors).sum(-1))


def _factor(found: np.ndarray, lengths: Iterable[np.ndarray]) -> float | None:
    """The one proportion in which these lengths stand to some projection's; None without one, and where all are equally
    long.
    """
    if len(found) < FEWEST or not np.isfinite(found).all() or np.ptp(found) <= 4 * STEADY * found.max():
        return None
    for own in lengths:
        with np.errstate(all="ignore"):
            ratio = found / own
        if np.ptp(ratio) <= STEADY * ratio.mean():
            return float(ratio.mean())
    return None


def _has_sinks(layer) -> bool:
    """Whether the layer makes sinks in some other way, such as a projection that gives one for each query."""
    return layer is not None and any(
        "sink" in name for name, _ in (*layer.named_parameters(recurse=False), *layer.named_children())
    )


def _number(*values) -> float | None:
    return next(
        (
            float(value)
            for value in values
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        ),
        None,
    )


def _whole(*values) -> int | None:
    return next(
        (value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0), None
    )
