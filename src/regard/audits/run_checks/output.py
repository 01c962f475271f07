"""The check output, and the checks of single arguments: whether outputs match the arguments of their calls, and if not,
which known mistake explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...common.text.units import counted
from ..finding import Finding, Result
from .audited_run import AuditedCall, AuditedRun, concluded
from .observed_call import REPORTED

# Compares an argument with what the layer declares: a finding, or whether they could be compared.
Compare = Callable[[AuditedCall], Finding | bool]


def rule(name: str, compare: Compare | None, run: AuditedRun) -> Iterator[Result]:
    """Results for one argument of the calls: whether it is what the layers declare, and whether outputs match it."""
    explained = list(_explained(name, run))
    compared = [] if compare is None else [compare(audited) for audited in run.calls]
    read, of = explained.count(True), compared.count(True)
    matches, has = "matches" if read == 1 else "match", "has" if of == 1 else "have"
    measured = [f"{read} of {counted(len(run.calls), 'output')} {matches} the arguments of the call"] if read else []
    measured += [f"{counted(of, 'call')} {has} the arguments that the layer declares"] if of else []
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
    answers = list(_unexplained(run))
    read = answers.count(True)
    measured = f"{read} of {len(run.calls)} outputs are softmax(scores) · v, or a known mistake explains them"
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    yield from concluded("output", findings, read, measured, "no values and outputs were recorded")


def _explained(name: str, run: AuditedRun) -> Iterator[Finding | bool]:
    """For every call: the finding, if a mistake of this check explains its output; otherwise whether the output could
    be compared.
    """
    for audited in run.calls:
        diagnosis = audited.diagnosis
        cause = diagnosis.cause
        if cause is None or name not in cause.checks:
            yield diagnosis.status in ("matches", "explained")
            continue
        yield audited.finding(
            name,
            "fault",
            f"over {counted(diagnosis.rows, 'row')} the output is that of attention with {cause.description}, "
            f"up to {cause.left:.1e}; it differs by up to {diagnosis.error:.1e} from the expected output, "
            f"where rounding explains at most {diagnosis.noise:.1e} (threshold: {REPORTED} times that)",
            cause.cause,
            cause.fix,
            heads=diagnosis.heads,
            row=diagnosis.row,
            numbers={
                "error": diagnosis.error,
                "left": cause.left,
                "noise": diagnosis.noise,
                "heads": list(diagnosis.heads),
                "expected_scale": audited.call.scale,
                "scale": cause.arguments.scale,
            },
        )


def _unexplained(run: AuditedRun) -> Iterator[Finding | bool]:
    """For every call: the finding, if no known mistake explains its output; otherwise whether the output could be
    compared.
    """
    for audited in run.calls:
        diagnosis = audited.diagnosis
        if diagnosis.status != "unexplained":
            yield diagnosis.status != "unknown"
            continue
        training = audited.declared.training
        yield audited.finding(
            "output",
            "fault",
            "the output is not softmax(scores) · v of the recorded inputs: it differs by up to "
            f"{diagnosis.error:.1e} over {counted(diagnosis.rows, 'row')}, where rounding explains at most "
            f"{diagnosis.noise:.1e} (threshold: {REPORTED} times that), and no known mistake explains it",
            "dropout, because the model is in training mode"
            if training
            else "the attention implementation ignores, adds or changes an argument without an error",
            "call model.eval()"
            if training
            else "compare the implementation with rg.attention on the recorded q, k, v, call by call",
            heads=diagnosis.heads,
            row=diagnosis.row,
            numbers={"error": diagnosis.error, "noise": diagnosis.noise, "heads": list(diagnosis.heads)},
        )
