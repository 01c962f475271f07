"""The checks implementation, arrived and implementation-difference: the configured attention implementation ran, every
layer has recorded calls, and a transformers model gives the same outputs on eager attention and on SDPA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import isroutine
from typing import Any

from ...common.module_settings import path_pattern
from ...common.text.units import counted
from ..difference import Difference, difference, listed, passed
from ..finding import Finding, NotApplicable, Passed, Result, Skipped, found
from ..subject import ADDED, Raised, Subject
from .audited_run import AuditedRun, concluded

# Words in the recorded kind of a call, by the attention implementation of transformers that makes such calls.
KINDS = {"eager": ("written out",), "sdpa": ("sdpa",), "flex_attention": ("flex",), "regard": ("regard",)}


def implementation(run: AuditedRun) -> Iterator[Result]:
    """The implementation that computed each call is the one that its layer is configured with."""
    read, findings = 0, []
    ran: dict[str, int] = {}
    for audited in run.calls:
        configured = getattr(getattr(audited.layer, "config", None), "_attn_implementation", None)
        call = audited.call
        kind = str(call.notes.get("kind") or call.engine)
        if configured not in KINDS or not kind:
            continue
        read += 1
        ran[kind] = ran.get(kind, 0) + 1
        if not any(word in kind.lower() for word in KINDS[configured]):
            findings.append(
                audited.finding(
                    "implementation",
                    "note",
                    f"the layer is configured with {configured!r}, but {kind} ran (threshold: they agree)",
                    "the layer computes its attention itself and ignores the setting",
                    "no fix is needed if the numbers are right; a setting such as a faster kernel has no effect",
                    numbers={"configured": configured, "ran": kind},
                )
            )
    shown = ", ".join(f"{kind} {count} times" for kind, count in ran.items())
    yield from concluded("implementation", findings, read, shown, "no layer has an implementation setting")


def arrived(run: AuditedRun) -> Iterator[Result]:
    """Layers without a recorded call, although other layers of the same type and settings have some."""
    if run.module is None:
        yield Skipped("arrived", "the model is not available")
        return
    left_out = run.run.facts.get("left_out")
    if left_out:
        yield Skipped("arrived", "some layers were not recorded on purpose")
        return
    recorded = {audited.call.name for audited in run.calls}
    kinds = {_kind(audited.call.name, audited.layer) for audited in run.calls}
    silent = [
        name
        for name, part in run.module.named_modules()
        if name and name not in recorded and _kind(name, part) in kinds
    ]
    if not silent:
        yield Passed(
            "arrived",
            f"calls of {counted(len(recorded), 'layer')} recorded; no other layer has this type and these settings",
        )
        return
    yield found(
        "arrived",
        "warning",
        f"layers {listed(silent)}",
        f"no attention call of {counted(len(silent), 'layer')} was recorded, but calls of "
        f"{counted(len(recorded), 'other layer')} of the same type and settings were (threshold: 0)",
        "the layers were skipped, or compute their attention in a way that cannot be recorded (a compiled graph, a "
        "custom kernel)",
        "run without torch.compile; for a transformers model, set one attention implementation for all layers",
        numbers={"layers": silent},
    )


def _kind(name: str, layer) -> tuple:
    """A key that is equal for layers that should compute the same: path, type, switches, and the types of the objects
    that they call, since one class may hold softmax attention in one layer and linear attention in another.
    """
    settings = {
        key: part if isinstance(part, bool | str) else type(part)
        for key, part in getattr(layer, "__dict__", {}).items()
        if key != "training" and not key.startswith("_") and not isroutine(part) and not _is_state(part)
    }
    return path_pattern(name), type(layer), frozenset(settings.items())


def _is_state(part) -> bool:
    """Whether an attribute of a layer may differ between layers that compute the same: numbers, arrays, names."""
    if isinstance(part, str):
        return any(character.isdigit() for character in part)
    is_number = isinstance(part, int | float | complex) and not isinstance(part, bool)
    return part is None or is_number or isinstance(part, list | tuple | dict | set) or hasattr(part, "shape")


KNOWN = ("eager", "sdpa")


def implementation_difference(subject: Subject) -> Finding | Passed:
    """Eager attention and SDPA give the same outputs as the attention implementation that the model is set to.

    This is compared with the given inputs, without a mask, and with padding after the tokens, because implementations
    may use another code path without one.
    """
    from ...common.module_settings import implementations

    own = implementations(subject.model) if subject.is_transformers else set()
    if len(own) != 1:
        raise NotApplicable("the model is not set to one attention implementation of transformers")
    (name,) = own
    others = [other for other in KNOWN if other != name]
    measured = {other: by_way for other in others if (by_way := _differences(subject, name, other)) is not None}
    if not measured:
        raise NotApplicable(f"the model supports {name} only")
    leaks = {
        (other, way): each for other, by_way in measured.items() for way, each in by_way.items() if each.significant
    }
    if not leaks:
        every = [each for by_way in measured.values() for each in by_way.values()]
        return passed("implementation-difference", f"{name} and {', '.join(measured)}", every)
    (other, _), worst = max(leaks.items(), key=lambda each: each[1].size)
    ways = [way for known, way in leaks if known == other]
    if ways == ["with padding"]:
        cause = "one of the two implementations drops the padding mask"
    elif "with padding" in measured[other] and "with padding" not in ways:
        cause = (
            "one of the two implementations lacks a causal mask that is built only if there is padding: is_causal of "
            "the layers contradicts it"
        )
    else:
        cause = "one of the two implementations drops an argument: mask, scale, position bias, softcap or sinks"
    return found(
        "implementation-difference",
        "fault",
        f"{worst.output}, {' and '.join(ways)}",
        f"between {name} and {other}, {worst}",
        cause,
        f"audit the model with model.set_attn_implementation({other!r}) and with {name!r}: the other checks "
        "show which one is wrong",
        row=worst.row,
        numbers=worst.numbers(other=other, ways=ways),
    )


def _differences(subject: Subject, name: str, other: str) -> dict[str, Difference] | None:
    """The difference between the two implementations in each case; None if the model does not support `other`."""
    ways: dict[str, Mapping[str, Any]] = {"as given": subject.inputs}
    if subject.mask is not None:
        if subject.mask.name in subject.inputs:
            ways |= subject.unmasked
        if subject.can_be_padded:
            ways["with padding"] = subject.padded(right=ADDED)
    here = {way: subject.run(inputs) for way, inputs in ways.items()}
    try:
        subject.model.set_attn_implementation(other)
        there = {way: subject.run(inputs) for way, inputs in ways.items()}
    except (ValueError, Raised) as error:
        if not isinstance(error.__cause__ or error, ValueError):  # transformers raises it for unsupported ones
            raise
        return None
    finally:
        subject.model.set_attn_implementation(name)
    return {way: difference(subject, there[way], outputs) for way, outputs in here.items()}
