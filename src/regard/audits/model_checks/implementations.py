"""The check implementation-difference: a transformers model gives the same outputs on eager attention and on SDPA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..difference import Difference, difference, passed
from ..finding import Finding, NotApplicable, Passed, found
from ..subject import ADDED, Raised, Subject

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
