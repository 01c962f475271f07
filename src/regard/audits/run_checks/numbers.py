"""Numbers: NaN and infinity in what a call was given and gave, scores that 16 bit cannot hold, and rows that attend
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...lens import Call, Run
from ..finding import Finding, Passed, Result
from .expected_output import roundoff, rows_to_read
from .wording import concluded, place

__all__ = ["empty_rows", "numbers", "overflow"]

LARGEST = 65504.0  # of float16
COARSE = 0.25  # steps of scores, in nats: each changes a weight by a quarter
HALF = 2.0**-11
Spoiled = tuple[int, tuple[int, ...]]  # how many numbers are NaN or infinite, and where the first is


def numbers(run: Run, module=None) -> Iterator[Result]:
    """Where NaN or infinity first stands, in the order of the computation; what comes after it is only counted."""
    spoiled = [(number, first) for number, call in enumerate(run.calls) if (first := _first(call))]
    if not spoiled:
        yield Passed("numbers", f"{len(run.calls)} calls: every number that was kept is finite")
        return
    number, arrays = spoiled[0]
    call, (name, (count, at)) = run.calls[number], next(iter(arrays.items()))
    head, row = (
        (at[0], at[1])
        if len(at) == 3 and name in ("q", "out", "scores", "given")
        else (None, at[0] if name == "x" else None)
    )
    cause, mend = _cause(call, list(arrays))
    more = "" if len(spoiled) == 1 else f"; {len(spoiled) - 1} later calls have some too"
    held = "; ".join(
        f"{name} holds {count:,} numbers that are NaN or infinite, the first at {list(at)}"
        for name, (count, at) in arrays.items()
    )
    yield Finding(
        check="numbers",
        severity="fault",
        where=place(run, number, () if head is None else (head,), row),
        measured=f"{held} (threshold: 0){more}",
        cause=cause,
        mend=mend,
        call=number,
        head=head,
        row=row,
        numbers={
            "array": name,
            "arrays": list(arrays),
            "count": count,
            "at": list(at),
            "calls": [number for number, _ in spoiled],
        },
    )


def _first(call: Call) -> dict[str, Spoiled]:
    """The first arrays, by name, that are not finite; q, k and v stand side by side, because none is made of
    another.
    """
    for together in (("x",), ("q", "k", "v")):
        if found := {name: spoiled for name in together if (spoiled := _spoiled(getattr(call, name))) is not None}:
            return found
    if call.given is None and "wrong" in call.rows and (wrong := np.asarray(call.rows["wrong"])).any():
        at = np.argwhere(wrong > 0)[0]
        return {"scores": (int(wrong.sum()), (int(at[0]), int(at[1]), 0))}
    for name in ("given", "out"):
        if (spoiled := _spoiled(getattr(call, name), call.rows.get("attended"))) is not None:
            return {name: spoiled}
    return {}


def _spoiled(array, attended=None) -> Spoiled | None:
    """How many numbers are NaN or infinite, and where the first is; rows that attend nothing do not count (see
    `empty_rows`).
    """
    count, first = 0, None
    for at in range(0 if array is None else len(array)):  # head by head, because arrays of long texts lie on disk
        off = ~np.isfinite(np.asarray(array[at], np.float32 if array.dtype.itemsize < 8 else np.float64))
        if attended is not None:
            off &= np.asarray(attended[at])[:, None] > 0
        if off.any():
            count += int(off.sum())
            first = first or (at, *(int(place) for place in np.argwhere(off)[0]))
    return None if first is None else (count, first)


def _cause(call: Call, names: list[str]) -> tuple[str, str]:
    name, largest = names[0], _largest(call)
    before = "x, which was not kept, or" if call.x is None else "x is finite where it was kept:"
    if name == "out" and roundoff(call) == HALF and largest > LARGEST:
        return (
            (
                f"q, k and v are finite, but scores reach {largest:.3g} before they are scaled, beyond float16's "
                f"{LARGEST:.0f}"
            ),
            "scale q before the product, or run the attention in bfloat16 or float32",
        )
    return {
        "x": ("the layers before this one", "look for the first of them: regard.torch.trace names the operation"),
        "scores": (
            "a bias, a slope or another number that the score rule reads is NaN or infinite",
            "look at the tables of the score; −infinity is allowed, NaN and +infinity are not",
        ),
        "given": (
            "scores that are NaN or +infinity, or rows whose every score is −infinity",
            "look at the scores before the softmax",
        ),
        "out": (
            "q, k, v and scores are finite: the implementation itself overflows, or divides by zero",
            "compare it with rg.attention on the same q, k, v",
        ),
    }.get(
        name,
        (
            f"{before} the projection that makes {' and '.join(names)}, or what is done after it (norm, positions)",
            "look at its weights: torch.isfinite(parameter).all()",
        ),
    )


def _largest(call: Call) -> float:
    """The largest product q·k, before it is scaled, as the figures of the rows bound it."""
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


def overflow(run: Run, module=None) -> Iterator[Result]:
    """Scores that float16 cannot hold, and scores so large that 16 bit no longer tells their differences."""
    read, largest, found = 0, 0.0, []
    for number, call in enumerate(run.calls):
        u = roundoff(call)
        if u < HALF or call.q is None:
            continue
        read += 1
        top = _largest(call)
        largest = max(largest, top)
        if u == HALF and top > LARGEST:
            broken = call.out is not None and not np.isfinite(np.asarray(call.out, np.float32)).all()
            found.append(
                Finding(
                    check="overflow",
                    severity="fault" if broken else "warning",
                    where=place(run, number),
                    measured=f"q·k reaches {top:.3g}, and float16 ends at {LARGEST:.0f} (threshold)"
                    + (": the output is not finite" if broken else ""),
                    cause="large q and k in float16; the product overflows before the scale makes it small",
                    mend="scale q before the product, or run the attention in bfloat16 or float32",
                    call=number,
                    numbers={"largest": top},
                )
            )
        share = _coarse(call, u)
        if share > 0.5:
            found.append(
                Finding(
                    check="overflow",
                    severity="warning",
                    where=place(run, number),
                    measured=f"in {share:.0%} of the rows the step between scores that 16 bit can tell apart "
                    f"is more than {COARSE} and more than a "
                    "quarter of their whole range (threshold: half of the rows)",
                    cause="scores share a large common part, which uses up the bits",
                    mend="compute the scores in float32, or take the common part away",
                    call=number,
                    numbers={"share": share},
                )
            )
    yield from concluded(
        "overflow", found, read, f"{read} calls in 16 bit: q·k reaches {largest:.3g}", "no call is in 16 bit"
    )


def _coarse(call: Call, u: float) -> float:
    """The share of rows whose scores, rounded in 16 bit, lose their differences."""
    if not {"high", "low", "attended"} <= set(call.rows):
        return 0.0
    high, low, several = (np.asarray(call.rows[name], np.float64) for name in ("high", "low", "attended"))
    rows = (several > 1) & np.isfinite(high) & np.isfinite(low)
    if not rows.any():
        return 0.0
    step = 2 * u * np.maximum(np.abs(high), np.abs(low))
    return float(((step > COARSE) & (step > (high - low) / 4))[rows].mean())


def empty_rows(run: Run, module=None) -> Iterator[Result]:
    """Rows that may attend nothing, and what the implementation makes of them: 0, the mean of all values, or NaN."""
    read, found = 0, []
    for number, call in enumerate(run.calls):
        if "attended" not in call.rows:
            continue
        read += 1
        empty = np.asarray(call.rows["attended"]) == 0
        if not empty.any():
            continue
        head, row = (int(at) for at in np.argwhere(empty)[0])
        heads = tuple(np.flatnonzero(empty.any(1)).tolist())
        held = _convention(call, empty)
        count = int(empty.any(0).sum())
        found.append(
            Finding(
                check="empty-rows",
                severity="fault" if held == "NaN" else "note",
                where=place(run, number, heads, row),
                measured=f"{count} of {call.shape[1]} rows may attend no key (threshold: 0); "
                f"the output there is {held}",
                cause="padded rows, or a mask that leaves a row nothing",
                mend="let every row attend at least itself, or make rows without keys 0"
                if held == "NaN"
                else (
                    "nothing, if these rows are padding that nobody reads; otherwise let every row attend "
                    "at least itself"
                ),
                call=number,
                head=head if len(heads) == 1 else None,
                row=row,
                numbers={"rows": count, "convention": held, "heads": list(heads)},
            )
        )
    yield from concluded(
        "empty-rows", found, read, f"{read} calls: every row may attend something", "no figures of rows were kept"
    )


def _convention(call: Call, empty: np.ndarray) -> str:
    if call.out is None:
        return "not kept"
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
