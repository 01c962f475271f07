"""A recorded run, its calls and what their layers declare, as the checks read them; and the words of findings."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...common.arrays import read_array
from ...common.module_settings import LayerSettings, layer_settings, setting
from ...lens import Call, Run
from ..difference import listed
from ..finding import Finding, Passed, Result, Skipped, found
from .observed_call import Diagnosis, diagnose

NORMS = ("q_norm", "q_layernorm", "query_norm", "query_layernorm")


class AuditedRun:
    """A recorded run, with the model that was recorded, where it is available."""

    def __init__(self, run: Run, module: Any = None):
        self.run, self.module = run, module
        self.calls = [AuditedCall(self, number, call) for number, call in enumerate(run.calls)]


@dataclass(frozen=True, eq=False)
class AuditedCall:
    """One call of a run."""

    of: AuditedRun
    number: int
    call: Call

    @cached_property
    def layer(self) -> Any:
        """The module that made the call; None where it is not available."""
        module, name = self.of.module, self.call.name
        if module is None:
            return None
        try:
            return module.get_submodule(name)
        except AttributeError:  # a run names the root module by its class
            return module if name == type(module).__name__ else None

    @cached_property
    def declared(self) -> LayerSettings:
        """The settings in the notes of the call; those that are missing there are read from the layer. Sinks are their
        values, or whether there are some.
        """
        layer, notes = self.layer, self.call.notes
        known = layer_settings(layer)
        causal = notes.get("causal")
        sinks = notes.get("sinks") if known.sinks is None else read_array(known.sinks.detach().float().cpu(), "sinks")
        return LayerSettings(
            scale=_positive(float, notes.get("scale") if layer is None else known.scale),
            softcap=_positive(float, notes.get("softcap"), known.softcap),
            window=_positive(int, notes.get("window"), known.window, known.configured_window),
            configured_window=known.configured_window,
            causal=causal if isinstance(causal, bool) else known.causal,
            groups=_positive(int, notes.get("groups"), known.groups),
            sinks=True if known.sinks is None and _has_sinks(layer) else sinks,
            training=bool(notes.get("training", known.training)),
        )

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What is known about the output."""
        return diagnose(self.call)

    @property
    def configured(self) -> bool:
        """Whether the layer or the model has a configuration."""
        return any(setting(owner, "config") is not None for owner in (self.layer, self.of.module))

    def finding(
        self,
        check: str,
        severity: str,
        measured: str,
        cause: str,
        fix: str,
        *,
        heads: Sequence[int] = (),
        row: int | None = None,
        numbers: Mapping[str, Any] | None = None,
    ) -> Finding:
        """A finding about the call, or about some of its heads and the first row where it shows.

        Its place is in words, such as "call 3 (layers.1.self_attn), head 0, row 17".
        """
        words = [f"call {self.number} ({self.call.name})"]
        if heads and len(heads) < self.call.shape[0]:
            words.append(f"head{'s' if len(heads) > 1 else ''} {listed(heads)}")
        where = ", ".join([*words, *([] if row is None else [f"row {row}"])])
        head = heads[0] if len(heads) == 1 else None
        more = {"call": self.number, "head": head, "row": row, "numbers": numbers or {}}
        return found(check, severity, where, measured, cause, fix, **more)


def concluded(check: str, findings: Iterable[Finding], read: int, measured: str, reason: str) -> Iterator[Result]:
    """The findings; without any, `Passed` with what was measured, or `Skipped` with the reason if nothing was read."""
    results: list[Result] = list(findings)
    yield from results or [Passed(check, measured) if read else Skipped(check, reason)]


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


def _positive(kind: type, *values) -> Any:
    """The first of some values that is a positive number; integers are also numbers of kind float."""
    numbers: list[Any] = [each for each in values if isinstance(each, (int, kind)) and not isinstance(each, bool)]
    return next((kind(number) for number in numbers if number > 0), None)
