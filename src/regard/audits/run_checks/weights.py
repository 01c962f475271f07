"""Weights that were handed over as they are: rows that do not sum to 1, negative weights, weight where the mask forbids
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...common.dtypes import FLOATS
from ...lens import Call, Run
from ..finding import Finding, Result
from .expected_output import roundoff, rows_to_read, unit
from .layer_settings import declared
from .wording import concluded, place

__all__ = ["weights"]


class Fault(NamedTuple):
    """What may be wrong with weights: by how much, (H, R), and how much rounding explains."""

    what: str
    amount: np.ndarray
    limit: float
    cause: str
    mend: str
    severity: str = "fault"


def weights(run: Run, module=None) -> Iterator[Result]:
    """Given weights against what a softmax over the allowed keys gives; with sinks rows may sum to less than 1."""
    read, found = 0, []
    for number, call in enumerate(run.calls):
        if call.given is None:
            continue
        read += 1
        rows = rows_to_read(call)
        named = np.zeros((call.shape[0], len(rows)), bool)  # rows in which a worse fault explains what is less
        for fault in _faults(call, rows, module):
            wrong = (fault.amount > fault.limit) & ~named
            if not wrong.any():
                continue
            named |= wrong
            heads = tuple(np.flatnonzero(wrong.any(1)).tolist())
            row, most = int(rows[np.argwhere(wrong)[0, 1]]), float(fault.amount[wrong].max())
            found.append(
                Finding(
                    check="weights",
                    severity=fault.severity,
                    where=place(run, number, heads, row),
                    measured=f"{fault.what} in {int(wrong.sum())} of {wrong.size} rows that were read, by up "
                    f"to {most:.3g} "
                    f"(threshold: {fault.limit:.1e})",
                    cause=fault.cause,
                    mend=fault.mend,
                    call=number,
                    head=heads[0] if len(heads) == 1 else None,
                    row=row,
                    numbers={"most": most, "what": fault.what, "heads": list(heads)},
                )
            )
            if fault.what.startswith("rows that sum"):
                break  # dropout makes some sums larger and others smaller: one cause, named once
    yield from concluded(
        "weights",
        found,
        read,
        f"{read} calls that came as weights: their rows sum to 1, on allowed keys",
        "no call came as weights; those of the others sum to 1 as they are made",
    )


def _faults(call: Call, rows: np.ndarray, module) -> Iterator[Fault]:
    """The worst first, because what is less follows from it. NaN is left to the check of numbers."""
    given, allowed = np.nan_to_num(call.weights(rows)), call.allowed(rows)
    assert call.given is not None
    dtype, coarse = _held(np.asarray(call.given[:, rows]))
    u, steps = (
        max(coarse, roundoff(call)),
        4 * (math.sqrt(call.shape[2]) + 4),
    )  # one rounding of each weight, and a sum of K
    bound = u * steps
    whole = allowed.any(-1) & np.isfinite(call.weights(rows)).all(-1)
    known = declared(call, module)
    yield Fault(
        "weight on keys that the mask forbids",
        np.where(whole, np.where(allowed, 0, np.abs(given)).sum(-1), 0),
        bound,
        "the mask is ignored, off by one, or added with too small a number",
        "mask the scores with −infinity before the softmax",
    )
    yield Fault(
        "negative weights",
        -given.min(-1, initial=0),
        u,
        "these are scores, or something was subtracted from the weights",
        "give the weights that the softmax returned",
    )
    over = given.sum(-1) - 1
    yield Fault(
        "rows that sum to more than 1",
        np.where(whole, over, 0),
        bound,
        "dropout was on, the softmax ran along another axis, or these are no weights",
        "model.eval(); softmax over the keys",
    )
    if call.sinks is not None or not (known.sinks is None or known.sinks is False):
        return
    part = str(call.notes.get("unread", "")).startswith(
        "a step"
    )  # the model may weigh other keys besides, in the same sum
    yield Fault(
        "rows that sum to less than 1",
        np.where(whole, -over, 0),
        bound,
        "dropout was on, or the mask came after the softmax",
        "model.eval(); mask before the softmax",
        "note" if part else "fault",
    )
    yield Fault(
        "rows that sum to 1 no nearer than few bits do",
        np.where(whole, np.abs(over), 0),
        roundoff(call) * steps,
        f"every weight is a number of {dtype}: the softmax was made, or rounded, in it",
        "make the softmax in float32",
        "note",
    )


def _held(given: np.ndarray) -> tuple[str, float]:
    """The dtype of 16 bits that holds all these weights as they are, and how it rounds; their own where there is
    none.
    """
    own = str(given.dtype), unit(given.dtype)
    for row in sorted((row for row in FLOATS.values() if row.bits == 16), key=lambda row: row.digits):
        with np.errstate(over="ignore"):
            if (given.astype(row.numpy).astype(given.dtype) == given).all():
                return row.name, max(own[1], row.roundoff)
    return own
