"""The check weights: recorded weights are a softmax. Rows sum to 1, no weight is negative, masked keys have none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...common.dtypes import FLOATS
from ...common.text.units import counted
from ..finding import Result
from .audited_run import AuditedCall, AuditedRun, concluded
from .observed_call import roundoff, rows_to_read, unit


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
