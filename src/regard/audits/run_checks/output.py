"""The check output, and the checks of single arguments: whether outputs match the arguments of their calls, and if not,
which known mistake explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...common.text.units import counted
from ..finding import Finding, Result
from .audited_run import AuditedCall, AuditedRun, concluded

# Compares an argument with what the layer declares: a finding, or whether they could be compared.
Compare = Callable[[AuditedCall], Finding | bool]


def rule(name: str, compare: Compare | None, run: AuditedRun) -> Iterator[Result]:
    """Results for one argument of the calls: whether it is what the layers declare, and whether outputs match it."""
    explained = [_explained(name, audited) for audited in run.calls]
    compared = [] if compare is None else [compare(audited) for audited in run.calls]
    read, of = explained.count(True), compared.count(True)
    measured = [f"outputs that match the arguments of their call: {read} of {len(run.calls)}"] if read else []
    measured += [f"calls with the arguments that their layer declares: {of}"] if of else []
    wide = [
        window
        for audited in run.calls
        if (window := audited.declared.window) is not None and window >= audited.call.shape[2]
    ]
    if name == "mask" and wide:
        measured.append(
            f"the text does not exceed the sliding windows of {counted(len(wide), 'call')}, the smallest of which is "
            f"{counted(min(wide), 'key')}: use a longer text"
        )
    yield from concluded(
        name,
        [answer for answer in explained + compared if isinstance(answer, Finding)],
        read + of,
        "; ".join(measured),
        "no values and outputs were recorded, and no layer declares this argument",
    )


def output(run: AuditedRun) -> Iterator[Result]:
    """Outputs that no known mistake explains."""
    answers = [_unexplained(audited) for audited in run.calls]
    read = answers.count(True)
    measured = f"{read} of {len(run.calls)} outputs are softmax(scores) · v, or a known mistake explains them"
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    yield from concluded("output", findings, read, measured, "no values and outputs were recorded")


def _explained(name: str, audited: AuditedCall) -> Finding | bool:
    """The finding, if a mistake of this check explains the output; otherwise whether the output could be compared."""
    diagnosis, cause = audited.diagnosis, audited.diagnosis.cause
    if cause is None or name not in cause.checks:
        return diagnosis.status in ("matches", "explained")
    return audited.finding(
        name,
        "fault",
        f"the output is that of attention with {cause.description}; {diagnosis}",
        cause.cause,
        cause.fix,
        heads=diagnosis.heads,
        row=diagnosis.row,
    )


def _unexplained(audited: AuditedCall) -> Finding | bool:
    """The finding, if no known mistake explains the output; otherwise whether the output could be compared."""
    diagnosis, training = audited.diagnosis, audited.declared.training
    if diagnosis.status != "unexplained":
        return diagnosis.status != "unknown"
    return audited.finding(
        "output",
        "fault",
        f"the output is not softmax(scores) · v of the recorded inputs, and no known mistake explains it; {diagnosis}",
        "dropout, because the model is in training mode"
        if training
        else "the attention implementation ignores, adds or changes an argument without an error",
        "call model.eval()"
        if training
        else "compare the implementation with rg.attention on the recorded q, k, v, call by call",
        heads=diagnosis.heads,
        row=diagnosis.row,
    )
