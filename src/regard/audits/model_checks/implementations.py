"""Whether a model of transformers computes the same on each of its attention implementations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..difference import Gap, gap
from ..finding import Finding, Passed, Result, Skipped
from ..subject import Outputs, Raised, Subject

__all__ = ["implementation_difference"]

KNOWN = ("eager", "sdpa")
PADDING = 3


def implementation_difference(subject: Subject) -> Iterator[Result]:
    """The model's own (eager) attention and torch's SDPA give the same outputs as the implementation that it is set to.

    Once as given, once without a mask, once with padding behind, because implementations take other ways where there is
    no mask.
    """
    from ...torch.hf.recorder import implementations

    own = implementations(subject.model) if subject.whole else set()
    if len(own) != 1:
        yield Skipped(
            "implementation-difference", "the model is not set to one attention implementation of transformers"
        )
        return
    (name,) = own
    found: dict[str, dict[str, Gap]] = {}
    for other in KNOWN:
        if other != name:
            gaps = _gaps(subject, name, other)
            if gaps is not None:
                found[other] = gaps
    if not found:
        yield Skipped("implementation-difference", f"the model runs on {name} alone")
        return
    leaks = {(other, way): each for other, gaps in found.items() for way, each in gaps.items() if each.open}
    if not leaks:
        largest = max((each for gaps in found.values() for each in gaps.values()), key=lambda each: each.size)
        yield Passed("implementation-difference", f"{name} and {', '.join(found)}: {largest}")
        return
    (other, _), worst = max(leaks.items(), key=lambda each: each[1].size)
    ways = [way for known, way in leaks if known == other]
    if ways == ["with padding"]:
        cause = "one of the two loses the mask of the padding"
    elif "with padding" in found[other] and "with padding" not in ways:
        cause = (
            "one of the two loses a mask that is built only where there is padding: is_causal of its "
            "layers says something else"
        )
    else:
        cause = "one of the two loses an argument: a mask, a scale, a bias, a softcap, sinks"
    yield Finding(
        check="implementation-difference",
        severity="fault",
        where=f"{worst.output}, {' and '.join(ways)}",
        measured=f"{name} against {other}: {worst}",
        cause=cause,
        mend=f"audit both, model.set_attn_implementation({other!r}) and {name!r}: the other checks tell which is wrong",
        row=worst.rows[0] if worst.rows else None,
        numbers={**worst.numbers(), "other": other, "ways": ways},
    )


def _gaps(subject: Subject, name: str, other: str) -> dict[str, Gap] | None:
    """How far the outputs of the two lie apart, by way; None if the model does not run on the other."""
    given: dict[str, Mapping[str, Any]] = {"as given": subject.given}
    if subject.mask is not None:
        if subject.mask.name in subject.given:
            given["without a mask"] = {key: part for key, part in subject.given.items() if key != subject.mask.name}
        given["with padding"] = subject.lengthened(right=PADDING)
    here = {way: subject.run(each) for way, each in given.items()}
    try:
        subject.model.set_attn_implementation(other)
        there = {way: subject.run(each) for way, each in given.items()}
    except (ValueError, Raised) as error:
        if not isinstance(error.__cause__ or error, ValueError):  # how transformers says that an architecture has none
            raise
        return None
    finally:
        subject.model.set_attn_implementation(name)
    return {way: gap(subject, _real(subject, there[way]), _real(subject, outputs)) for way, outputs in here.items()}


def _real(subject: Subject, outputs: Outputs) -> Outputs:
    """The outputs without the rows of padding: what these see is nobody's business, and each implementation has its own
    answer.
    """
    if subject.mask is None:
        return outputs
    length = subject.given[subject.mask.of].shape[1]
    return {
        name: part[:, :length] if part.ndim > 1 and part.shape[1] == length + PADDING else part
        for name, part in outputs.items()
    }
