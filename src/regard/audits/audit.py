"""`audit`: every check that applies to a model or a run, and what they found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import Reason, Refused, did_you_mean
from ..lens import Run
from . import recorded
from .behaviour import CHECKS, NEEDS, training
from .finding import SEVERITIES, Finding, Passed, Result, Skipped
from .given import of_module, of_transformers
from .subject import Subject

__all__ = ["NAMES", "Audit", "audit"]

NAMES = ("training-mode", *CHECKS, *recorded.CHECKS)


@dataclass(frozen=True)
class Audit:
    """What an audit of `model` found; findings: faults first · passed: checks that ran and found nothing · skipped: and why."""

    model: str
    findings: tuple[Finding, ...]
    passed: tuple[Passed, ...]
    skipped: tuple[Skipped, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is no fault and no warning."""
        return all(finding.severity == "note" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"model": self.model, "healthy": self.healthy, "findings": [finding.to_json() for finding in self.findings],
                "passed": [vars(each) for each in self.passed], "skipped": [vars(each) for each in self.skipped]}  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.model}: {'healthy' if self.healthy else 'not healthy'}", *map(str, self.findings)]
        lines += [f"passed: {each.check}: {each.measured}" for each in self.passed]
        lines += [f"skipped: {each.check}: {each.reason}" for each in self.skipped]
        return "\n".join(lines)


def audit(
    what, text: str | None = None, *, inputs=None, tokenizer=None, checks: Iterable[str] | None = None, causal: bool | None = None
) -> Audit:  # fmt: skip
    """Audit a model or a recorded run: measured, named, with the likely cause and what to do.

    what: a loaded transformers model · any torch module, with `inputs` · a Run.
    """
    names = _chosen(checks)
    if isinstance(what, Run):
        results = list(recorded.checks(what, None, [name for name in names if name in recorded.CHECKS]))
        return _audit(what.model, results)
    subject = _subject(what, text, inputs, tokenizer, causal)
    return _audit(subject.name, list(_behaviour(subject, names)))


def _audit(name: str, results: Iterable[Result]) -> Audit:
    kinds: dict[type, list] = {Finding: [], Passed: [], Skipped: []}
    for result in results:
        kinds[type(result)].append(result)
    return Audit(
        name,
        tuple(sorted(kinds[Finding], key=lambda each: SEVERITIES.index(each.severity))),
        *map(tuple, (kinds[Passed], kinds[Skipped])),
    )


def _chosen(checks: Iterable[str] | None) -> tuple[str, ...]:
    if checks is None:
        return NAMES
    chosen = tuple(checks)
    reasons = [
        Reason("no such check", repr(name), f"one of {len(NAMES)} checks", did_you_mean(name, NAMES))
        for name in chosen
        if name not in NAMES
    ]
    if reasons:
        raise Refused("audit", reasons)
    return tuple(name for name in NAMES if name in chosen)


def _subject(what, text, inputs, tokenizer, causal) -> Subject:
    if hasattr(what, "config") and hasattr(what, "can_generate"):
        return of_transformers(what, tokenizer, text, inputs, causal)
    return of_module(what, inputs, causal)


def _behaviour(subject: Subject, names: tuple[str, ...]) -> Iterator[Result]:
    """What the behavioural checks say; the model is set to evaluation meanwhile, and left as it was."""
    modes = {name: module for name, module in getattr(subject.model, "named_modules", list)() if module.training}
    try:
        for module in modes.values():
            module.training = False
        if "training-mode" in names:
            yield from training(modes)
        found: set[str] = set()
        for name in (name for name in CHECKS if name in names):
            spoiled = [need for need in NEEDS.get(name, ()) if need in found]
            results = [Skipped(name, f"{spoiled[0]} spoils it: mend that first")] if spoiled else _carried_out(name, subject)
            found |= {each.check for each in results if isinstance(each, Finding)}
            yield from results
    finally:
        for module in modes.values():
            module.training = True


def _carried_out(name: str, subject: Subject) -> list[Result]:
    try:
        return list(CHECKS[name](subject))
    except Refused:
        raise
    except Exception as error:  # somebody else's code, run in a way that it may not have been written for
        said = (str(error).strip() or "nothing said").splitlines()[0]
        return [Skipped(name, f"the model raised {type(error).__name__}: {said}")]
