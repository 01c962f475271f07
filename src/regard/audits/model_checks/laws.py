"""The check laws: an attention function of q, k and v, as `regard conform` judges it."""

from __future__ import annotations

from ...common.errors import Refused
from ...conformance import conform
from ..finding import Finding, NotApplicable, Passed, found
from ..subject import Subject


def laws(subject: Subject) -> Finding | Passed:
    """A function of q, k and v keeps the laws that `regard conform` judges: its output is softmax(q·kᵀ/√D) v for other
    numbers of positions, heads and batch entries than the given ones, within rounding.

    Names known mistakes, and kernels that are right within one tile of keys only. Cannot see conventions other
    than the scale, such as a causal mask that the function always applies, nor functions that take one shape only.
    """
    from ..make_subject import JoinedHeads  # loads torch

    if not isinstance(subject.model, JoinedHeads):
        raise NotApplicable("the model is not a function of q, k and v")
    attend = subject.model.attend
    try:
        report = conform(lambda q, k, v: attend(q, k, v), level=1)
    except Refused as refused:
        raise NotApplicable(f"it takes the given shapes only: {refused.reasons[0].what}") from refused
    ran = [each.answer.status for each in report.results if each.answer is not None]
    if "ok" not in ran or "raised" in ran[:2]:
        raise NotApplicable("it takes the given shapes only")
    broken = [each for each in report.findings if each.kind == "law" or each.declares.startswith("scale")]
    if not broken:
        return Passed("laws", f"{len(ran)} calls of other shapes give softmax(q·kᵀ/√D) v, within rounding")
    first = next((each for each in broken if each.mistake and "+" not in each.mistake), None)
    small = any(each.case.id == "law-01[plain]" and each.status == "pass" for each in report.results)
    tiles = (
        "calls of few keys are right, larger ones are not: partial sums are not rescaled where the maximum grows from "
        "one tile of keys to the next, or the tail of the keys, after the last whole tile, is dropped",
        "multiply the sum and the output by exp(old maximum − new maximum) in every tile, and run one for the rest",
    )
    other = (
        "another kind of attention than softmax(q·kᵀ/√D) v, such as with a window or without a softmax, or a mistake "
        "that is not known",
        "compare it with rg.attention on a few keys; no fix is needed if it is meant",
    )
    cause = (first.cause, first.fix) if first else tiles if small else other
    return found(
        "laws",
        "fault" if first or small else "note",
        subject.name,
        f"{(first or broken[-1]).measured} (threshold: the bound on rounding)",
        *cause,
        confidence="certain" if first else "likely" if small else "possible",
    )
