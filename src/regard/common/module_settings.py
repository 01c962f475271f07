"""What modules of torch and transformers declare: heads, attention settings, implementations; read without torch."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .arrays import is_tensor

# Attributes of modules that hold their number of heads.
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
SCALES = ("scaling", "scale", "softmax_scale")


@dataclass(frozen=True)
class LayerSettings:
    """What an attention layer declares; None is unknown. scale: of q·k · window: how many keys a row attends to, itself
    included, by the layer's own attribute · configured_window: the same by its configuration, if the layer has no such
    attribute · groups: heads of keys and values · causal: its is_causal · sinks: its tensor of sinks.
    """

    scale: float | None
    softcap: float | None
    window: Any
    configured_window: Any
    groups: float | None
    causal: bool | None
    sinks: Any
    training: bool


def layer_settings(layer: Any) -> LayerSettings:
    """The settings of a layer; some default to those of its configuration.

    >>> from types import SimpleNamespace
    >>> layer = SimpleNamespace(scaling=0.125, is_causal=True, config=SimpleNamespace(num_key_value_heads=2))
    >>> found = layer_settings(layer)
    >>> found.scale, found.groups, found.causal, found.window
    (0.125, 2, True, None)
    """
    config = setting(layer, "config")
    causal, sinks = setting(layer, "is_causal"), setting(layer, "sinks")
    return LayerSettings(
        scale=_first_number(layer, *SCALES),
        softcap=_first_number(layer, "attn_logit_softcapping") or _first_number(config, "attn_logit_softcapping"),
        window=None if _is_global(layer) else _first_number(layer, "sliding_window"),
        configured_window=None
        if hasattr(layer, "sliding_window") or _is_global(layer)
        else _configured_window(layer, settings_of(config)),
        groups=_first_number(layer, "num_key_value_heads") or _first_number(config, "num_key_value_heads"),
        causal=causal if isinstance(causal, bool) else None,
        sinks=sinks if is_tensor(sinks) else None,
        training=bool(setting(layer, "training")),
    )


def number_of_heads(module: Any) -> int | None:
    """How many heads a module or its configuration declares.

    >>> from types import SimpleNamespace
    >>> number_of_heads(SimpleNamespace(config=SimpleNamespace(n_head=4)))
    4
    """
    owners = (module, setting(module, "config"))
    return next((found for owner in owners for name in HEADS if type(found := setting(owner, name)) is int), None)


def is_transformers_model(value: Any) -> bool:
    """Whether this is a model of transformers; transformers is not imported for this."""
    return any(base.__name__ == "PreTrainedModel" for base in type(value).__mro__)


def setting(owner: Any, name: str) -> Any:
    """An attribute, or None if it is missing or undefined, as in configurations whose layers differ."""
    try:
        return getattr(owner, name, None)
    except RuntimeError:
        return None


def settings_of(config: Any) -> Mapping[str, Any]:
    """All values of a configuration, those that differ between layers included."""
    return getattr(config, "__dict__", {})


def _configured_window(layer: Any, own: Mapping[str, Any]) -> Any:
    """The window of the configuration, if it applies to the layer."""
    kinds, at = own.get("layer_types"), getattr(layer, "layer_idx", None)
    if own.get("use_sliding_window") is False or not _reads_window(layer):
        return None
    first = own.get("max_window_layers")  # of the layers with a window, where no list of types says which they are
    if kinds is None and isinstance(first, int) and isinstance(at, int) and at < first:
        return None
    everywhere = kinds is None or (isinstance(at, int) and at < len(kinds) and kinds[at] == "sliding_attention")
    return own.get("sliding_window") if everywhere else None


def _is_global(layer: Any) -> bool:
    """Whether the layer says that it does not use the window that it or its configuration holds."""
    return any(setting(layer, name) is False for name in ("is_sliding", "use_sliding_window", "is_local_attention"))


def _reads_window(layer: Any) -> bool:
    """Whether the code of the layer mentions a sliding window. A configuration may hold one that its architecture does
    not have; only the code of transformers says so, because other code may have forgotten it.
    """
    name = type(layer).__module__
    if not name.startswith("transformers.models."):
        return True
    try:
        return "sliding_window" in inspect.getsource(sys.modules[name])
    except (OSError, KeyError):  # installed without its source
        return True


def _first_number(owner: Any, *names: str) -> float | None:
    """The first of these attributes that is a number."""
    values = (setting(owner, name) for name in names)
    return next((value for value in values if isinstance(value, int | float) and not isinstance(value, bool)), None)


def path_pattern(name: str) -> str:
    """The path of a layer without its numbers, which is the same for layers of the same type in a stack.

    >>> path_pattern("layers.11.attn")
    'layers.#.attn'
    """
    return re.sub(r"\d+", "#", name)


def implementations(model: Any, besides: Collection[Any] = ()) -> set[str]:
    """The attention implementations that the model and the models inside it are set to, apart from those of `besides`.

    Modules without parameters, such as rotary angles, are ignored: they compute no attention.
    """
    left_out = {inner for part in besides for inner in part.modules()}
    configs = [
        getattr(module, "config", None)
        for module in model.modules()
        if module not in left_out and next(module.parameters(), None) is not None
    ]
    return {name for config in configs if isinstance(name := getattr(config, "_attn_implementation", None), str)}


def layer_number(module: Any, name: str) -> int | None:
    """The module's layer_idx, or the first number in its name, or None."""
    known: Any = getattr(module, "layer_idx", None)
    if isinstance(known, int):
        return known
    return next((int(part) for part in name.split(".") if part.isdigit()), None)
