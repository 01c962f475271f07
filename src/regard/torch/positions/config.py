"""Reads the rotary position settings of a transformers config into arguments of `Rotary`."""

from __future__ import annotations

from typing import Any

from ...common.errors import did_you_mean, refuse
from .scaling import DynamicNTK, Linear, Llama3, LongRoPE, Scaling, YaRN


def read_config(config: Any, layer_type: str | None = None) -> dict[str, Any]:
    """The arguments depth, base, fraction and scaling of `Rotary` for a config."""
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = {name: part for name, part in given.items() if isinstance(part, dict)}
    if not nested and layer_type is not None:
        raise refuse(
            "Rotary.from_config",
            "all layers have the same angles",
            f"layer_type={layer_type!r}",
            "layer_type=None: rope_parameters are the same for all layer types",
            "omit layer_type",
        )
    if nested and layer_type in given and layer_type not in nested:
        raise refuse(
            "Rotary.from_config",
            "layers of this type have no rotary positions",
            f"{layer_type!r}: {given[layer_type]}",
            f"one of {', '.join(map(repr, nested))}",
            "construct these layers with positions=None",
        )
    if nested and layer_type not in nested:
        raise refuse(
            "Rotary.from_config",
            "layer_type is missing or unknown",
            f"layer_type={layer_type!r}",
            f"one of {', '.join(map(repr, nested))}",
            "pass layer_type=…: each type has its own angles",
        )
    if nested:
        given = nested[str(layer_type)]
    depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    base = given.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0
    fraction = given.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    return {"depth": depth, "base": base, "fraction": fraction, "scaling": _scaling(config, given)}


def _scaling(config: Any, given: dict[str, Any]) -> Scaling | None:
    kind = "mrope" if "mrope_section" in given else given.get("rope_type") or given.get("type") or "default"
    longest = getattr(config, "max_position_embeddings", None)
    trained = (
        getattr(config, "original_max_position_embeddings", None)
        or given.get("original_max_position_embeddings")
        or longest
    )
    factor = given.get("factor") or (longest / trained if longest and trained else None)

    def some(*names: str) -> dict[str, Any]:
        return {name: given[name] for name in names if given.get(name) is not None}

    def all_of(**needed: Any) -> tuple:
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            raise refuse(
                "Rotary.from_config",
                f"the config does not specify {', '.join(missing)}",
                f"{given}",
                f"every setting that rope_type={kind!r} needs",
                "complete rope_parameters",
            )
        return tuple(needed.values())

    def required(*names: str) -> tuple:
        return all_of(**{name: given.get(name) for name in names})

    if kind == "default":
        return None
    if kind == "linear":
        return Linear(*required("factor"))
    if kind == "dynamic":
        return DynamicNTK(*all_of(factor=given.get("factor"), max_position_embeddings=longest))
    trained_for = {"factor": factor, "original_max_position_embeddings": trained}
    if kind == "yarn":
        more = some("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")
        return YaRN(*all_of(**trained_for), **more)
    if kind == "llama3":
        bands = {name: given.get(name) for name in ("low_freq_factor", "high_freq_factor")}
        return Llama3(*all_of(factor=given.get("factor"), original_max_position_embeddings=trained, **bands))
    if kind == "longrope":
        return LongRoPE(
            *all_of(**trained_for), *map(tuple, required("short_factor", "long_factor")), **some("attention_factor")
        )
    known = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")
    raise refuse(
        "Rotary.from_config",
        "this type of rotary positions is not supported",
        f"rope_type={kind!r}",
        ", ".join(known),
        did_you_mean(kind, known),
    )
