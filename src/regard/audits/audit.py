"""`audit`: every check that applies to a model or a recorded run, and what they found."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..common.errors import Reason, Refused, refuse
from ..common.module_settings import is_transformers_model
from ..lens import Call, Run
from ..lens.look import look
from ..lens.storage.reader import is_run
from .causality import BY_CALLER
from .checks import OfModel, OfRule, OfRun, names, of_model, of_run
from .difference import Incomparable
from .finding import SEVERITIES, Finding, Passed, Result, Skipped
from .subject import Raised, Subject

__all__ = ["Audit", "audit"]


@dataclass(frozen=True)
class Audit:
    """What an audit of `model` found; findings: faults first · passed: checks that ran and found nothing · skipped: and
    why.
    """

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
        return {
            "model": self.model,
            "healthy": self.healthy,
            "findings": [finding.to_json() for finding in self.findings],
            "passed": [dict(vars(each)) for each in self.passed],
            "skipped": [dict(vars(each)) for each in self.skipped],
        }

    def __str__(self) -> str:
        counts = [
            f"{number} {name}{'s' * (number != 1)}"
            for name in SEVERITIES
            if (number := sum(finding.severity == name for finding in self.findings))
        ]
        lines = [f"{self.model}: {', '.join(counts) or 'healthy'}", *map(str, self.findings)]
        lines += [f"passed: {each.check}: {each.measured}" for each in self.passed]
        lines += [f"did not apply: {each.check}: {each.reason}" for each in self.skipped]
        return "\n".join(lines)


def audit(
    what: Any = None,
    text: str | None = None,
    *,
    inputs: Any = None,
    tokenizer: Any = None,
    causal: bool | None = None,
    checks: Iterable[str] | None = None,
) -> Audit:
    """What is wrong with the attention of a model: each finding measured, named, with the likely cause and what to do.

    A fault is a difference beyond 8 × what the model's outputs move when every sum in it is rounded another way.

    what: a loaded model of transformers, or the name of one (a folder, a hub id, None for MiniLM), with a text, with
    inputs, or with tokens drawn at random · any torch module or function with its inputs, tensors, batch first, one
    entry · a Run, or the folder of one. A named model is audited in float32, on the attention that transformers chooses
    for it; a loaded one as it is.

    text: read by `tokenizer`, or by the model's own · inputs: a tensor, several in order, or by name · causal: whether
    outputs may depend on earlier positions only, where the model does not say so itself · checks: names of those to
    carry out

    The model runs some fifty times in evaluation mode, without gradients, and is left as it was. Random numbers are
    those of fixed seeds, and the caller's are not used up.

    Refused: names that are no model, checks that are not known, a text without a tokenizer, inputs that the model does
    not take, arguments that have no meaning for what is given.

    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    >>> found = audit(layer.eval(), inputs=torch.randn(1, 9, 16), causal=True, checks=["future-leak"])
    >>> found.healthy, found.findings[0].check
    (False, 'future-leak')
    """
    chosen = _chosen(checks)
    named = isinstance(what, str | Path)
    if isinstance(what, Run) or (named and is_run(what)):
        _without("a recorded run", text=text, inputs=inputs, tokenizer=tokenizer, causal=causal)
        run = look(what) if named else what
        return _audit(run.model, _of_run(run, None, of_run(chosen)))
    try:
        from . import make_subject
    except ImportError as error:
        raise refuse(
            "audit",
            "models cannot be run",
            given=f"{error}",
            expected="torch and transformers",
            fix="pip install 'regard[hf]'",
        ) from error
    if what is None or named:
        _without("a model that is opened here", inputs=inputs, tokenizer=tokenizer)
        subject = make_subject.of_name(what, text, causal)
    elif is_transformers_model(what):
        subject = make_subject.of_transformers(what, tokenizer, text, inputs, causal)
    else:
        _without("a torch module", text=text, tokenizer=tokenizer)
        subject = make_subject.of_module(what, inputs, causal)
    return _audit(subject.name, _of_model(subject, chosen))


def _audit(name: str, results: Iterable[Result]) -> Audit:
    kinds: dict[type, list] = {Finding: [], Passed: [], Skipped: []}
    for result in results:
        kinds[type(result)].append(result)
    findings = sorted(kinds[Finding], key=lambda each: SEVERITIES.index(each.severity))
    return Audit(name, tuple(findings), tuple(kinds[Passed]), tuple(kinds[Skipped]))


def _chosen(checks: Iterable[str] | None) -> tuple[str, ...]:
    """The names of the checks to carry out, in the order in which they run."""
    known = names()
    chosen = known if checks is None else [checks] if isinstance(checks, str) else list(checks)
    reasons = []
    for name in chosen:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            reasons.append(
                Reason(
                    "no such check",
                    given=repr(name),
                    expected=f"one of {', '.join(known)}",
                    fix=f"write {close[0]!r}" if close else "leave checks out, and all that apply are carried out",
                )
            )
    if reasons:
        raise Refused("audit", reasons)
    return tuple(name for name in known if name in chosen)


def _without(what: str, **given) -> None:
    """Refuses arguments that have no meaning for what is audited."""
    reasons = [
        Reason(
            f"{name}= has no meaning for {what}",
            given=f"{name}={type(value).__name__}",
            expected="it is left out",
            fix="leave it out",
        )
        for name, value in given.items()
        if value is not None
    ]
    if reasons:
        raise Refused("audit", reasons)


def _of_model(subject: Subject, chosen: tuple[str, ...]) -> Iterator[Result]:
    """What all checks say; the model is set to evaluation meanwhile, and left as it was."""
    modes = {name: module for name, module in getattr(subject.model, "named_modules", list)() if module.training}
    subject = replace(subject, training=modes)
    for module in modes.values():
        module.training = False
    try:
        try:
            subject.run(subject.given)
        except Raised as error:
            raise refuse(
                "audit",
                "the model does not run",
                given=f"{subject.name}: {error}",
                expected="inputs that its forward takes",
                fix="give inputs=, tensors by name, batch first",
            ) from error
        faults: set[str] = set()
        for check in of_model(chosen):
            spoiled = [name for name in check.after if name in faults]
            results: list[Result] = (
                [Skipped(check.name, f"{spoiled[0]} spoils it: mend that first")]
                if spoiled
                else _carried_out(check, subject)
            )
            faults |= {each.check for each in results if isinstance(each, Finding) and each.severity == "fault"}
            yield from results
        yield from _recorded(subject, of_run(chosen))
    finally:
        for module in modes.values():
            module.training = True


def _carried_out(check: OfModel, subject: Subject) -> list[Result]:
    try:
        return list(check.judge(subject))
    except Incomparable as error:
        return [Skipped(check.name, str(error))]
    except Raised as error:  # what a model of transformers needs besides is guessed
        return [
            Finding(
                check=check.name,
                severity="note" if subject.whole else "warning",
                where=subject.name,
                measured=f"the model raised {error} (threshold: it runs with the inputs that were given)",
                cause=(
                    "this check runs it in a way that it was not written for: other content, padding with "
                    "its mask, several entries, or a cache"
                ),
                mend="if it is to be used so, mend that; otherwise leave this check out",
            )
        ]


def _recorded(subject: Subject, checks: list[OfRun | OfRule]) -> Iterator[Result]:
    """What the checks of a recorded run say about one run of the model."""
    if not checks:
        return
    by_place, named = subject.arguments(subject.given)
    try:
        try:
            run = look(subject.model, inputs=by_place or named, values=True)
        except Refused:  # too large with values: the checks that need none can still be made
            run = look(subject.model, inputs=by_place or named, values=False)
    except Refused as refused:
        yield from (Skipped(check.name, f"nothing was recorded: {refused.reasons[0].what}") for check in checks)
        return
    if subject.causal and subject.why == BY_CALLER:
        run = replace(run, calls=tuple(_causal(subject, call) for call in run.calls))
    module = subject.model if hasattr(subject.model, "named_modules") else None  # functions declare nothing
    yield from _of_run(run, module, checks)


def _of_run(run: Run, module: Any, checks: list[OfRun | OfRule]) -> Iterator[Result]:
    for check in checks:
        yield from check.judge(run, module)


def _causal(subject: Subject, call: Call) -> Call:
    """A call over the positions of the sequence declares what the caller says, if its layer does not."""
    alike = call.queries == call.keys and call.shape[1:] == (subject.length, subject.length)
    return replace(call, notes={"causal": True, **call.notes}) if alike else call
