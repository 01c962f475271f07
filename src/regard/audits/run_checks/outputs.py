"""The checks output and weights, and those of single arguments: whether outputs match the arguments of their calls, and
if not, which known mistake explains them; and whether recorded weights are a softmax: rows sum to 1, no weight is
negative, masked keys have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...common.dtypes import FLOATS
from ...common.text.units import counted
from ..finding import Finding, Result
from .audited_run import AuditedCall, AuditedRun, concluded
from .observed_call import REPORTED, roundoff, rows_to_read, unit

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


class Fault(NamedTuple):
    """A possible fault of weights. amount (H, R): its size in each row · limit: how much rounding explains."""

    what: str
    amount: np.ndarray
    limit: float
    cause: str
    fix: str
    severity: str = "fault"


def weights(run: AuditedRun) -> Iterator[Result]:
    """Recorded weights against the properties of a softmax over the allowed keys; with sinks rows may sum to less than
    1.
    """
    read, findings = 0, []
    for audited in run.calls:
        call = audited.call
        if call.given is None:
            continue
        read += 1
        rows = rows_to_read(call)
        reported = np.zeros((call.shape[0], len(rows)), bool)  # rows with a worse fault, which explains the others
        for fault in _faults(audited, rows):
            wrong = (fault.amount > fault.limit) & ~reported
            if not wrong.any():
                continue
            reported |= wrong
            heads = tuple(np.flatnonzero(wrong.any(1)).tolist())
            row, most = int(rows[np.argwhere(wrong)[0, 1]]), float(fault.amount[wrong].max())
            findings.append(
                audited.finding(
                    "weights",
                    fault.severity,
                    f"{fault.what} in {int(wrong.sum())} of {counted(wrong.size, 'row')}, by up to {most:.3g} "
                    f"(threshold: {fault.limit:.1e})",
                    fault.cause,
                    fault.fix,
                    heads=heads,
                    row=row,
                    numbers={"most": most, "what": fault.what, "heads": list(heads)},
                )
            )
            if fault.what.startswith("rows that sum"):
                break  # dropout causes both kinds of sums: report it only once
    yield from concluded(
        "weights",
        findings,
        read,
        f"{counted(read, 'call')} with recorded weights: rows sum to 1, on allowed keys",
        "no call was recorded as weights; the others are computed by a softmax",
    )


def _faults(audited: AuditedCall, rows: np.ndarray) -> Iterator[Fault]:
    """The worst first, because it explains the others. NaN is left to the check numbers."""
    call = audited.call
    given, allowed = np.nan_to_num(call.weights(rows)), call.allowed(rows)
    assert call.given is not None
    dtype, coarse = _storage_dtype(np.asarray(call.given[:, rows]))
    # One rounding of each weight, and a sum of K.
    u, steps = max(coarse, roundoff(call)), 4 * (math.sqrt(call.shape[2]) + 4)
    bound = u * steps
    complete = allowed.any(-1) & np.isfinite(call.weights(rows)).all(-1)
    yield Fault(
        "weight on masked keys",
        np.where(complete, np.where(allowed, 0, np.abs(given)).sum(-1), 0),
        bound,
        "the mask is ignored, off by one, or added as a number that is not negative enough",
        "mask the scores with −infinity before the softmax",
    )
    if "combined" in call.notes:  # weights of several heads or softmaxes, as in talking heads or differential attention
        return
    yield Fault(
        "negative weights",
        -given.min(-1, initial=0),
        u,
        "these are scores, or a number was subtracted from the weights",
        "pass the weights that the softmax returned",
    )
    over = given.sum(-1) - 1
    yield Fault(
        "rows that sum to more than 1",
        np.where(complete, over, 0),
        bound,
        "dropout is active, the softmax is taken over the wrong axis, or these are not weights",
        "call model.eval(); take the softmax over the keys",
    )
    if call.sinks is not None or not (audited.declared.sinks is None or audited.declared.sinks is False):
        return
    part = str(call.notes.get("unread", "")).startswith(
        "a step"
    )  # the model may have weights for further keys in the same softmax
    yield Fault(
        "rows that sum to less than 1",
        np.where(complete, -over, 0),
        bound,
        "dropout is active, or the mask is applied after the softmax",
        "call model.eval(); mask the scores before the softmax",
        "note" if part else "fault",
    )
    yield Fault(
        "rows that sum to 1 only to the precision of few bits",
        np.where(complete, np.abs(over), 0),
        roundoff(call) * steps,
        f"every weight is representable in {dtype}: the softmax was computed in it, or rounded to it",
        "compute the softmax in float32",
        "note",
    )


def _storage_dtype(given: np.ndarray) -> tuple[str, float]:
    """(name, unit roundoff) of the 16-bit dtype that represents all these weights exactly, or of their own dtype."""
    for row in sorted((row for row in FLOATS.values() if row.bits == 16), key=lambda row: row.digits):
        with np.errstate(over="ignore"):
            if (given.astype(row.numpy).astype(given.dtype) == given).all():
                return row.name, max(unit(given.dtype), row.roundoff)
    return str(given.dtype), unit(given.dtype)
