"""Model: builds a model without data from its configuration; no weights are read, and no memory is taken for them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..common.errors import Reason, Refused, did_you_mean, first_line, page, refuse, refuse_all
from ..torch.hf.load_model import near_model
from ..torch.hf.readiness import quiet
from ..torch.hf.tiny_models import config_class, mappings, model_class
from .stand_ins import NAME, register, set_experts

MOST_LAYERS = 10_000  # each is built: more would take hours


@dataclass(frozen=True, eq=False)
class Subject:
    """A model without data. name: as it was given · config: its configuration, or None · own_attention: whether it
    computes attention itself, outside transformers' interface · folder: where its weights are, or None · origin: where
    its configuration is from · inputs: what its forward takes, by name, or None: what it accepts is made.
    """

    name: str
    model: nn.Module
    config: Any
    own_attention: bool
    folder: Path | None = None
    origin: str = "the module itself"
    inputs: dict[str, Any] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """That of the first weights."""
        return next((each.dtype for each in self.model.parameters()), torch.float32)

    @property
    def text(self) -> Any:
        """The part of the configuration that is about text."""
        return self.config.get_text_config() if hasattr(self.config, "get_text_config") else self.config


def subject(given: Any, dtype: torch.dtype | None = None) -> Subject:
    """The model to be counted. given: a model, a configuration, or the name of an architecture, a folder, a config.json
    or a hub id, of which only the configuration is read.
    """
    register()
    if isinstance(given, nn.Module):
        return _copied(given, dtype)
    if isinstance(given, str | Path):
        return _named(str(given), dtype)
    if isinstance(given, dict):
        return _built("configuration", _read(given, "a dict"), dtype)
    if hasattr(given, "model_type"):
        return _built(given.model_type or type(given).__name__, given, dtype)
    raise refuse(
        "cost",
        "this is not a model",
        f"{type(given).__name__}",
        "a torch module, a configuration of transformers, or a name or path",
        "pass the model itself or its config",
    )


def _named(name: str, dtype: torch.dtype | None) -> Subject:
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        found = _built(path.parent.resolve().name, _read(_json(path), str(path)), dtype)
        return replace(found, folder=path.parent, origin=str(path))
    if name in mappings():
        found = _built(name, config_class(name)(), dtype)
        return replace(found, origin=f"transformers' default for {name}")
    if path.suffix == ".json" or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise refuse(
            "cost",
            "no such model",
            repr(name),
            "an architecture of transformers, a folder with config.json, a config.json, or a hub id",
            did_you_mean(name, sorted(mappings()), page("Supported architectures")),
        )
    import transformers

    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, KeyError, ValueError, RuntimeError, ImportError) as error:
        raise refuse(
            "cost",
            "the configuration cannot be loaded",
            f"{name}: {first_line(error).rstrip('.')}",
            "a model on the hub that transformers knows, with network or in its cache",
            near_model(name, "check the name, or download its config.json and pass this file"),
        ) from error
    return replace(_built(name, config, dtype), origin=f"{name} on the hub")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what, expected = f"{path}: {first_line(error)}", "a configuration of transformers as JSON"
        raise refuse("cost", "the file cannot be read", what, expected, "download it again") from error
    if not isinstance(found, dict):
        what, expected = f"{path}: {type(found).__name__}", "a JSON object with model_type"
        raise refuse("cost", "this is not a configuration", what, expected, "pass config.json")
    return found


def _read(fields: dict[str, Any], where: str) -> Any:
    """The configuration of some fields."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise refuse(
            "cost",
            "the type of the model is unknown" if kind else "the configuration does not say the type of the model",
            f"model_type = {kind!r} in {where}",
            "a model_type that transformers knows",
            did_you_mean(str(kind), sorted(CONFIG_MAPPING), page("Supported architectures")),
        )
    try:
        with quiet():
            return CONFIG_MAPPING[kind].from_dict(fields)
    except Exception as error:  # third-party code, which checks fields in many ways
        raise _unbuilt(f"{kind} in {where}", error) from error


def _unbuilt(what: str, error: Exception) -> Refused:
    return refuse(
        "cost",
        "no model can be built from the configuration",
        f"{what}: {type(error).__name__}: {first_line(error)}",
        "fields that fit together",
        "correct this field",
    )


def _built(name: str, config: Any, dtype: torch.dtype | None) -> Subject:
    import transformers

    config = copy.deepcopy(config)
    set_experts(config)
    refuse_all("cost", _impossible(config))
    try:
        kind = getattr(transformers, (getattr(config, "architectures", None) or [""])[0], None) or _class(config)
        own = not kind._can_set_attn_implementation()
        with quiet(), torch.device("meta"):
            dtype = dtype or _dtype(config)
            try:
                model = kind._from_config(config, attn_implementation="eager" if own else NAME, dtype=dtype)
            except KeyError as error:  # its code knows a fixed list of implementations
                if error.args != (NAME,):
                    raise
                own, model = True, kind._from_config(config, attn_implementation="eager", dtype=dtype)
    except Refused:
        raise
    except Exception as error:  # third-party code: a configuration may be wrong in any way
        raise _unbuilt(name, error) from error
    return Subject(name, model, config, own)


def _impossible(config: Any) -> Iterator[Reason]:
    """A reason for every number of layers of a configuration and its parts that no model has."""
    for field, value in vars(config).items():
        if hasattr(value, "model_type"):
            yield from _impossible(value)
        elif re.search("layers?$", field) and type(value) is int and value > MOST_LAYERS:
            given, expected = f"{field} = {value:,}", f"at most {MOST_LAYERS:,}"
            yield Reason("a number of layers that no model has", given, expected, "correct the configuration")


def _class(config: Any) -> Any:
    if config.model_type in mappings():
        return model_class(config.model_type)
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    found = MODEL_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _dtype(config: Any) -> torch.dtype:
    found = getattr(config, "dtype", None)
    return found if isinstance(found, torch.dtype) else torch.float32


def _copied(model: nn.Module, dtype: torch.dtype | None) -> Subject:
    """A copy of a model without its data; the model stays as it is."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for name, each in (*module._parameters.items(), *module._buffers.items()):
            if each is not None and id(each) not in memo:
                kind = dtype if dtype is not None and each.is_floating_point() else each.dtype
                made = torch.empty_like(each, device="meta", dtype=kind)
                memo[id(each)] = nn.Parameter(made, each.requires_grad) if name in module._parameters else made
    copied = copy.deepcopy(model, memo)
    config = getattr(copied, "config", None)
    own = True
    if hasattr(copied, "set_attn_implementation") and type(copied)._can_set_attn_implementation():
        set_experts(config)
        copied.set_attn_implementation(NAME)
        own = False
    return Subject(type(model).__name__, copied, config, own)
