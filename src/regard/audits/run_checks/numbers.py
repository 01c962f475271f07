"""The checks numbers, overflow and empty-rows: NaN and infinity, scores out of range in 16 bits, fully masked rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...common.text.units import counted
from ...lens import Call
from ..finding import Passed, Result
from .audited_run import AuditedRun, concluded
from .observed_call import roundoff, rows_to_read

LARGEST = 65504.0  # of float16
COARSE = 0.25  # spacing of scores, in nats; a step of that size changes a weight by about a quarter
HALF = 2.0**-11
Nonfinite = tuple[int, tuple[int, ...]]  # how many values are NaN or infinite, and the index of the first


def numbers(run: AuditedRun) -> Iterator[Result]:
    """The first NaN or infinity, in the order of computation; later calls with some are only counted."""
    affected = [(audited, first) for audited in run.calls if (first := _first(audited.call))]
    if not affected:
        yield Passed("numbers", f"{counted(len(run.calls), 'call')}: every recorded value is finite")
        return
    audited, arrays = affected[0]
    name, (count, at) = next(iter(arrays.items()))
    of_head = len(at) == 3 and name in ("q", "out", "scores", "given")
    cause, fix = _cause(audited.call, list(arrays))
    more = "" if len(affected) == 1 else f"; {len(affected) - 1} later calls have some, too"
    measured = "; ".join(
        f"{name} has {count:,} values that are NaN or infinite, the first at index {list(at)}"
        for name, (count, at) in arrays.items()
    )
    yield audited.finding(
        "numbers",
        "fault",
        f"{measured} (threshold: 0){more}",
        cause,
        fix,
        heads=at[:1] if of_head else (),
        row=at[1] if of_head else at[0] if name == "x" else None,
        numbers={
            "array": name,
            "arrays": list(arrays),
            "count": count,
            "at": list(at),
            "calls": [each.number for each, _ in affected],
        },
    )


def _first(call: Call) -> dict[str, Nonfinite]:
    """The first arrays, by name, that are not finite; q, k and v are checked together, because none is computed from
    another.
    """
    for together in (("x",), ("q", "k", "v")):
        if found := {name: values for name in together if (values := _nonfinite(getattr(call, name))) is not None}:
            return found
    if call.given is None and "wrong" in call.rows and (wrong := np.asarray(call.rows["wrong"])).any():
        at = np.argwhere(wrong > 0)[0]
        return {"scores": (int(wrong.sum()), (int(at[0]), int(at[1]), 0))}
    for name in ("given", "out"):
        if (values := _nonfinite(getattr(call, name), call.rows.get("attended"))) is not None:
            return {name: values}
    return {}


def _nonfinite(array, attended=None) -> Nonfinite | None:
    """The number of NaN and infinite values, and the index of the first; fully masked rows do not count (see
    `empty_rows`).
    """
    count, first = 0, None
    for at in range(0 if array is None else len(array)):  # head by head, because the arrays of long texts are on disk
        off = ~np.isfinite(np.asarray(array[at], np.float32 if array.dtype.itemsize < 8 else np.float64))
        if attended is not None:
            off &= np.asarray(attended[at])[:, None] > 0
        if off.any():
            count += int(off.sum())
            first = first or (at, *(int(place) for place in np.argwhere(off)[0]))
    return None if first is None else (count, first)


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
    """The largest magnitude of q·k before the scale, from the statistics of the rows where they suffice."""
    if call.q is None or call.k is None or not call.scale:
        return 0.0
    if call.score is None and "high" in call.rows:
        with np.errstate(all="ignore"):
            ends = np.abs(np.stack([call.rows["high"], call.rows["low"]]).astype(np.float64))
        return float(np.max(ends, where=np.isfinite(ends), initial=0) / abs(call.scale))
    group = call.shape[0] // call.groups
    rows = rows_to_read(call)
    most = [
        np.abs(np.asarray(call.q[h][rows], np.float64) @ np.asarray(call.k[h // group], np.float64).T).max(initial=0)
        for h in range(call.shape[0])
    ]
    return float(max(most, default=0))


def overflow(run: AuditedRun) -> Iterator[Result]:
    """q·k beyond the range of float16, and scores so large that 16-bit numbers cannot resolve their differences."""
    read, largest, findings = 0, 0.0, []
    for audited in run.calls:
        call = audited.call
        u = roundoff(call)
        if u < HALF or call.q is None:
            continue
        read += 1
        top = _largest(call)
        largest = max(largest, top)
        if u == HALF and top > LARGEST:
            broken = call.out is not None and not np.isfinite(np.asarray(call.out, np.float32)).all()
            findings.append(
                audited.finding(
                    "overflow",
                    "fault" if broken else "warning",
                    f"q·k reaches {top:.3g}, beyond the largest float16, {LARGEST:.0f} (threshold)"
                    + (": the output is not finite" if broken else ""),
                    "q and k are large in float16: the product overflows before the scale is applied",
                    "scale q before the product q·k, or run the attention in bfloat16 or float32",
                    numbers={"largest": top},
                )
            )
        share = _coarse(call, u)
        if share > 0.5:
            findings.append(
                audited.finding(
                    "overflow",
                    "warning",
                    f"in {share:.0%} of the rows the spacing of 16-bit numbers at the size of the scores is "
                    f"more than {COARSE} and more than a quarter of the range of the scores (threshold: half of the "
                    "rows)",
                    "all scores of a row contain a large common offset, which uses up the precision",
                    "compute the scores in float32, or subtract the common offset",
                    numbers={"share": share},
                )
            )
    yield from concluded(
        "overflow",
        findings,
        read,
        f"{counted(read, 'call')} in 16 bits: q·k reaches {largest:.3g}",
        "no call is in 16 bits",
    )


def _coarse(call: Call, u: float) -> float:
    """The share of rows in which the scores, rounded to 16 bits, lose their differences."""
    if not {"high", "low", "attended"} <= set(call.rows):
        return 0.0
    high, low, several = (np.asarray(call.rows[name], np.float64) for name in ("high", "low", "attended"))
    rows = (several > 1) & np.isfinite(high) & np.isfinite(low)
    if not rows.any():
        return 0.0
    step = 2 * u * np.maximum(np.abs(high), np.abs(low))
    return float(((step > COARSE) & (step > (high - low) / 4))[rows].mean())


def empty_rows(run: AuditedRun) -> Iterator[Result]:
    """Fully masked rows, and their output, which depends on the implementation: 0, the mean of all values, or NaN."""
    read, findings = 0, []
    for audited in run.calls:
        call = audited.call
        if "attended" not in call.rows:
            continue
        read += 1
        empty = np.asarray(call.rows["attended"]) == 0
        if not empty.any():
            continue
        row = int(np.argwhere(empty)[0, 1])
        heads = tuple(np.flatnonzero(empty.any(1)).tolist())
        convention = _convention(call, empty)
        count = int(empty.any(0).sum())
        findings.append(
            audited.finding(
                "empty-rows",
                "fault" if convention == "NaN" else "note",
                f"{count} of {counted(call.shape[1], 'row')} {'is' if count == 1 else 'are'} fully masked "
                f"(threshold: 0); {'its' if count == 1 else 'their'} output is {convention}",
                "rows of padding, or a mask that allows no key in some rows",
                "let every row attend to at least its own key, or set the output of fully masked rows to 0"
                if convention == "NaN"
                else (
                    "no fix is needed if these rows are unused padding; otherwise let every row attend to at "
                    "least its own key"
                ),
                heads=heads,
                row=row,
                numbers={"rows": count, "convention": convention, "heads": list(heads)},
            )
        )
    yield from concluded(
        "empty-rows",
        findings,
        read,
        f"{counted(read, 'call')}: no row is fully masked",
        "no statistics of rows were recorded",
    )


def _convention(call: Call, empty: np.ndarray) -> str:
    if call.out is None:
        return "not recorded"
    out = np.asarray(call.out, np.float64)[empty]
    if np.isnan(out).any():
        return "NaN"
    if not out.any():
        return "0"
    if call.v is None:
        return "neither 0 nor NaN"
    heads = np.argwhere(empty)[:, 0]
    v = np.asarray(call.v, np.float64)
    mean = v.mean(1)[heads // (call.shape[0] // len(v))]
    near = np.abs(out - mean) <= 64 * roundoff(call) * (np.abs(v).max(initial=0) + np.abs(mean))
    return "the mean of all values" if near.all() else "neither 0, NaN nor the mean of all values"
