"""Weights that were handed over as they are: rows that do not sum to 1, negative weights, weight where the mask forbids it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...lens import Run
from ..finding import Finding, Result
from .declared import declared
from .told import roundoff, rows_to_read
from .words import concluded, place

__all__ = ["weights"]


def weights(run: Run, module=None) -> Iterator[Result]:
    """Given weights against what a softmax over the allowed keys gives; with sinks rows may sum to less than 1."""
    read, worst, found = 0, 0.0, []
    for number, call in enumerate(run.calls):
        if call.given is None:
            continue
        read += 1
        rows = rows_to_read(call)
        given, allowed = call.weights(rows), call.allowed(rows)
        K = call.shape[2]
        u = _roundoff(call)
        bound = 4 * u * (math.sqrt(K) + 4)
        sums, seen = given.sum(-1), allowed.any(-1)
        known = declared(call, module)
        off = np.where(seen, sums - 1, 0)
        if call.sinks is not None or known.sinks is not None:
            off = np.maximum(off, 0)
        finite = np.isfinite(sums)
        worst = max(worst, float(np.abs(off[finite]).max(initial=0)))
        leak = np.where(seen, np.where(allowed, 0, np.abs(given)).sum(-1), 0)
        for what, amount, limit, cause, mend in (
            ("NaN or infinite weights", np.where(finite, 0.0, 1.0), 0.0, "scores that are NaN or +infinity, or rows without keys",
             "look at the scores before the softmax"),
            ("weight on keys that the mask forbids", leak, bound, "the mask is ignored, off by one, or added with too small a number",
             "mask the scores with −infinity before the softmax"),
            ("negative weights", -given.min(-1, initial=0), u, "these are scores, or something was subtracted from the weights",
             "give the weights that the softmax returned"),
            ("rows that do not sum to 1", np.abs(off), bound, "dropout was on, the mask came after the softmax, or these are no weights",
             "model.eval(); mask before the softmax"),
        ):  # fmt: skip
            wrong = np.nan_to_num(amount, nan=0.0) > limit
            if not wrong.any():
                continue
            head, row = (int(at) for at in np.argwhere(wrong)[0])
            heads = tuple(np.flatnonzero(wrong.any(1)).tolist())
            most = float(np.nanmax(amount))
            found.append(Finding(
                "weights", "fault", place(run, number, heads, int(rows[row])),
                f"{what} in {int(wrong.sum())} of {wrong.size} rows that were read, by up to {most:.3g} (threshold: {limit:.1e})",
                cause, mend, number, head if len(heads) == 1 else None, int(rows[row]), {"most": most, "what": what, "heads": list(heads)},
            ))  # fmt: skip
            break  # what follows from it is the same mistake
    yield from concluded(
        "weights",
        found,
        read,
        f"{read} calls: rows sum to 1 within {worst:.1e}",
        "no call came as weights; those of the others sum to 1 as they are made",
    )


def _roundoff(call) -> float:
    from ml_dtypes import finfo

    return max(float(finfo(call.given.dtype).eps) / 2, roundoff(call))
