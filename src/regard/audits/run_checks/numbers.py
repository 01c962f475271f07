"""The checks numbers, overflow and empty-rows: NaN and infinity, scores out of range in 16 bits, fully masked rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...common.text.units import counted
from ...lens import Call
from ..finding import Finding, Passed, Result
from .audited_run import AuditedCall, AuditedRun
from .observed_call import roundoff, rows_to_read

LARGEST = 65504.0  # of float16
HALF = 2.0**-11
Index = tuple[int, ...]


def numbers(run: AuditedRun) -> Iterator[Result]:
    """The first NaN or infinity, in the order of computation; later calls follow from it."""
    for audited in run.calls:
        arrays = _first(audited.call)
        if not arrays:
            continue
        name, at = next(iter(arrays.items()))
        of_head = len(at) == 3 and name in ("q", "out", "scores", "given")
        shown = "; ".join(f"{name} has some, the first at index {list(at)}" for name, at in arrays.items())
        yield audited.finding(
            "numbers",
            "fault",
            f"values that are NaN or infinite (threshold: 0): {shown}",
            *_cause(audited.call, list(arrays)),
            heads=at[:1] if of_head else (),
            row=at[1] if of_head else at[0] if name == "x" else None,
        )
        return
    yield Passed("numbers", f"{counted(len(run.calls), 'call')}: every recorded value is finite")


def _first(call: Call) -> dict[str, Index]:
    """The first arrays that are not finite, by name, each with the index of its first such value; q, k and v are
    checked together, because none is computed from another. Fully masked rows do not count (see `empty_rows`).
    """
    wrong = None if call.given is not None else call.rows.get("wrong")  # counts of scores
    scores = None if wrong is None else np.where(np.asarray(wrong)[:, :, None] > 0, np.nan, 0)
    for together in (("x",), ("q", "k", "v"), ("scores",), ("given", "out")):
        arrays = {name: scores if name == "scores" else getattr(call, name) for name in together}
        attended = call.rows.get("attended") if "out" in together else None
        if found := {name: at for name, part in arrays.items() if (at := _nonfinite(part, attended)) is not None}:
            return found
    return {}


def _nonfinite(array: Any, attended: Any) -> Index | None:
    """The index of the first value that is NaN or infinite."""
    for at in range(0 if array is None else len(array)):  # head by head, because the arrays of long texts are on disk
        off = ~np.isfinite(np.asarray(array[at], np.float32 if array.dtype.itemsize < 8 else np.float64))
        if attended is not None:
            off &= np.asarray(attended[at])[:, None] > 0
        if off.any():
            return (at, *np.argwhere(off)[0].tolist())
    return None


def _cause(call: Call, names: list[str]) -> tuple[str, str]:
    name, largest = names[0], _largest(call)
    before = "x, which was not recorded, or" if call.x is None else "x is finite where it was recorded:"
    if name == "out" and roundoff(call) == HALF and largest > LARGEST:
        return (
            (
                f"q, k and v are finite, but q·k reaches {largest:.3g} before the scale, beyond the largest float16 of "
                f"{LARGEST:.0f}"
            ),
            "scale q before the product q·k, or run the attention in bfloat16 or float32",
        )
    return {
        "x": ("an earlier layer", "find the first operation with regard.torch.trace, which names it"),
        "scores": (
            "a bias, a slope or another number that is added to the scores is NaN or infinite",
            "check the tables of the score rule; −infinity is allowed, NaN and +infinity are not",
        ),
        "given": (
            "scores that are NaN or +infinity, or rows in which every score is −infinity",
            "check the scores before the softmax",
        ),
        "out": (
            "q, k, v and scores are finite: the attention implementation overflows, or divides by zero",
            "compare it with rg.attention on the same q, k, v",
        ),
    }.get(
        name,
        (
            f"{before} the projection that computes {' and '.join(names)}, or an operation after it (norm, rotary)",
            "check its weights: torch.isfinite(parameter).all()",
        ),
    )


def _largest(call: Call) -> float:
    """The largest magnitude of q·k before the scale in the rows that are read."""
    if call.q is None or not call.scale:
        return 0.0
    rows = rows_to_read(call)
    with np.errstate(all="ignore"):
        sizes = [np.abs(call.logits(rows, None, [head])).max(initial=0) for head in range(call.shape[0])]
        return float(np.nan_to_num(max(sizes, default=0) / abs(call.scale)))


def overflow(audited: AuditedCall) -> list[Finding] | None:
    """q·k beyond the range of float16."""
    call, top = audited.call, _largest(audited.call)
    if call.q is None or roundoff(call) < HALF:
        return None
    if roundoff(call) > HALF or top <= LARGEST:
        return []
    broken = call.out is not None and not np.isfinite(np.asarray(call.out, np.float32)).all()
    return [
        audited.finding(
            "overflow",
            "fault" if broken else "warning",
            f"q·k reaches {top:.3g}, beyond the largest float16, {LARGEST:.0f} (threshold)"
            + (": the output is not finite" if broken else ""),
            "q and k are large in float16: the product overflows before the scale is applied",
            "scale q before the product q·k, or run the attention in bfloat16 or float32",
        )
    ]


def empty_rows(audited: AuditedCall) -> list[Finding] | None:
    """Fully masked rows, and their output, which depends on the implementation: 0, the mean of all values, or NaN."""
    call = audited.call
    if "attended" not in call.rows:
        return None
    empty = np.asarray(call.rows["attended"]) == 0
    if not empty.any():
        return []
    broken = call.out is not None and bool(np.isnan(np.asarray(call.out, np.float64)[empty]).any())
    return [
        audited.finding(
            "empty-rows",
            "fault" if broken else "note",
            f"{int(empty.any(0).sum())} of {counted(call.shape[1], 'row')} are fully masked (threshold: 0); their "
            f"output is {'NaN' if broken else 'a number, which other implementations may not give'}",
            "rows of padding, or a mask that allows no key in some rows",
            "let every row attend to at least its own key, or set the output of fully masked rows to 0; that of unused "
            "padding may be any number",
            heads=np.flatnonzero(empty.any(1)).tolist(),
            row=int(np.argwhere(empty)[0, 1]),
        )
    ]
