"""The checks numbers, overflow and empty-rows: NaN and infinity, scores out of range in 16 bits, fully masked rows; and
the checks saturated, uniform, dead, duplicate and sink: heads with unusual statistics. Healthy models, random or
trained, have such heads too, so those findings are notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ...common.text.units import counted
from ...lens import Call
from ..finding import Finding, Passed, Result, listed
from .audited_run import AuditedCall, AuditedRun, concluded, roundoff, rows_to_read

LARGEST = 65504.0  # of float16
COARSE = 0.25  # spacing of scores, in nats; a step of that size changes a weight by about a quarter
HALF = 2.0**-11
Nonfinite = tuple[int, tuple[int, ...]]  # how many values are NaN or infinite, and the index of the first


def numbers(run: AuditedRun) -> Iterator[Result]:
    """The first NaN or infinity, in the order of computation; later calls with some are only counted.

    Cannot see numbers outside of attention calls, nor in fully masked rows: `finite` and `empty-rows` read those.
    """
    affected = [(audited, first) for audited in run.calls if (first := _first(audited.call))]
    if not affected:
        yield Passed("numbers", f"{counted(len(run.calls), 'call')}: every recorded value is finite")
        return
    audited, arrays = affected[0]
    name, (count, at) = next(iter(arrays.items()))
    of_head = len(at) == 3 and name in ("q", "out", "scores", "given")
    more = "" if len(affected) == 1 else f"; {len(affected) - 1} later calls have some, too"
    measured = "; ".join(
        f"{name} has {count:,} values that are NaN or infinite, the first at index {list(at)}"
        for name, (count, at) in arrays.items()
    )
    yield audited.finding(
        "numbers",
        "fault",
        f"{measured} (threshold: 0){more}",
        *_cause(audited.call, list(arrays)),
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
    name = names[0]
    before = "x, which was not recorded, or" if call.x is None else "x is finite where it was recorded:"
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
    from_rows = call.score is None and "high" in call.rows
    ends = np.stack([call.rows["high"], call.rows["low"]]) if from_rows else call.logits(rows_to_read(call))
    with np.errstate(all="ignore"):
        sizes = np.abs(ends.astype(np.float64)) / abs(call.scale)
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0))


def overflow(run: AuditedRun) -> Iterator[Result]:
    """q·k beyond the range of float16, and scores so large that 16-bit numbers cannot resolve their differences.

    Cannot see other inputs than the recorded one, whose q·k may be larger, nor models in 32 bits that will run in 16.
    """
    short = [audited for audited in run.calls if roundoff(audited.call) >= HALF and audited.call.q is not None]
    largest = [_largest(audited.call) for audited in short]
    answers = (answer for audited, top in zip(short, largest) for answer in _overflows(audited, top))
    measured = f"{{}} in 16 bits: q·k reaches {max(largest, default=0):.3g}"
    yield from concluded("overflow", answers, measured, "no call is in 16 bits")


def _overflows(audited: AuditedCall, top: float) -> Iterator[Finding | bool]:
    yield True
    call, u = audited.call, roundoff(audited.call)
    if u == HALF and top > LARGEST:
        broken = call.out is not None and not np.isfinite(np.asarray(call.out, np.float32)).all()
        yield audited.finding(
            "overflow",
            "fault" if broken else "warning",
            f"q·k reaches {top:.3g}, beyond the largest float16, {LARGEST:.0f} (threshold)"
            + (": the output is not finite" if broken else ""),
            "q and k are large in float16: the product overflows before the scale is applied",
            "scale q before the product q·k, or run the attention in bfloat16 or float32",
            numbers={"largest": top},
        )
    share = _coarse(call, u)
    if share > 0.5:
        yield audited.finding(
            "overflow",
            "warning",
            f"in {share:.0%} of the rows the spacing of 16-bit numbers at the size of the scores is more than {COARSE} "
            "and more than a quarter of the range of the scores (threshold: half of the rows)",
            "all scores of a row contain a large common offset, which uses up the precision",
            "compute the scores in float32, or subtract the common offset",
            numbers={"share": share},
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


def empty_rows(audited: AuditedCall) -> Iterator[Finding | bool]:
    """Fully masked rows, and their output, which depends on the implementation: 0, the mean of all values, or NaN.
    A call all of whose rows are is a fault.

    Cannot see whether such rows are padding, or read by something.
    """
    call = audited.call
    if "attended" not in call.rows:
        return
    yield True
    empty = np.asarray(call.rows["attended"]) == 0
    if not empty.any():
        return
    row = int(np.argwhere(empty)[0, 1])
    heads = tuple(np.flatnonzero(empty.any(1)).tolist())
    convention = _convention(call, empty)
    count = int(empty.any(0).sum())
    cause = "rows of padding, or a mask that allows no key in some rows"
    yield audited.finding(
        "empty-rows",
        "fault" if convention == "NaN" or audited.blind else "note",
        f"{count} of {counted(call.shape[1], 'row')} {'is' if count == 1 else 'are'} fully masked "
        f"(threshold: 0); {'its' if count == 1 else 'their'} output is {convention}",
        "the mask hides every key from every row: it is inverted, or marks all as padding" if audited.blind else cause,
        "let every row attend to at least its own key, or set the output of fully masked rows to 0"
        if convention == "NaN" or audited.blind
        else "no fix is needed if these rows are unused padding; otherwise let every row attend to its own key",
        heads=heads,
        row=row,
        numbers={"rows": count, "convention": convention, "heads": list(heads)},
    )


def _convention(call: Call, empty: np.ndarray) -> str:
    if call.out is None:
        return "not recorded"
    out = np.asarray(call.out, np.float64)[empty]
    if call.v is None or not out.any() or np.isnan(out).any():
        return "NaN" if np.isnan(out).any() else "neither 0 nor NaN" if out.any() else "0"
    v = np.asarray(call.v, np.float64)
    mean = v.mean(1)[np.argwhere(empty)[:, 0] // (call.shape[0] // len(v))]
    near = np.abs(out - mean) <= 64 * roundoff(call) * (np.abs(v).max(initial=0) + np.abs(mean))
    return "the mean of all values" if near.all() else "neither 0, NaN nor the mean of all values"


SEVERAL = 8  # keys that a row must attend to for its pattern to count
SURE, MOST = 0.99, 0.9  # a weight that leaves almost nothing for other keys · the share of rows with such a weight
LARGE = 20.0  # nats between the smallest and the largest score; e⁻²⁰ is below the resolution of float32 at 1
EVEN = 0.9999  # share of the largest possible entropy
MOSTLY = 0.5
NOTHING = 1e-6  # share of the output of the other heads
SAME = 1e-3  # total variation distance between two patterns


class HeadPattern(NamedTuple):
    """Heads of one call with the same property, and the words of the finding."""

    heads: list[int]
    measured: str
    cause: str
    fix: str


def notes(check: str, run: AuditedRun) -> Iterator[Result]:
    """One note per call, for all its heads with the property of the check."""
    pattern, passed = PATTERNS[check]
    matches = [(audited, match) for audited in run.calls if (match := pattern(run, audited.call)) is not None]
    notes = (
        not match.heads
        or audited.finding(
            check,
            "note",
            match.measured,
            match.cause,
            match.fix,
            heads=match.heads,
            numbers={"heads": match.heads},
        )
        for audited, match in matches
    )
    skipped = f"no row attends to {SEVERAL} keys or more, or no finite output was recorded"
    yield from concluded(check, notes, f"{{}}: {passed}", skipped)


def _rows_with_several_keys(call: Call) -> np.ndarray | None:
    """(H, Q): the rows that attend to several keys; None without any."""
    if "attended" not in call.rows:
        return None
    several = np.asarray(call.rows["attended"]) >= SEVERAL
    return several if several.any() else None


def _mean(call: Call, name: str, rows: np.ndarray) -> np.ndarray:
    return np.where(rows, call.rows[name], 0).sum(1, dtype=np.float64) / np.maximum(rows.sum(1), 1)


def _saturated(_: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads whose softmax selects a single key, because scores are large: their gradients vanish. Heads that select by
    position, such as the previous token, are clean on purpose and do not count.

    A note: cannot see whether training wants it.
    """
    rows = _rows_with_several_keys(call)
    if rows is None or call.given is not None:  # without scores the cause is unknown
        return None
    with np.errstate(invalid="ignore"):
        wide = np.asarray(call.rows["high"], np.float64) - call.rows["low"] > LARGE
    share = (rows & wide & (np.asarray(call.rows["maximum"]) > SURE)).sum(1) / np.maximum(rows.sum(1), 1)
    heads = [head for head in np.flatnonzero(share > MOST).tolist() if not _by_position(call, head)]
    return HeadPattern(
        heads,
        f"in at least {share[heads].min(initial=1):.0%} of the rows (threshold: {MOST:.0%}) one key has a weight above "
        f"{SURE}, and scores differ by more than {LARGE:g} nats",
        f"large scores: q and k have large norms, or the scale of q·k, {call.scale:.4g}, is wrong (check scale)",
        "check the scale; normalize q and k or use a softcap; no fix is needed if the head is trained to select single "
        "keys",
    )


def _by_position(call: Call, head: int) -> bool:
    """Whether most rows select the key at the same distance from their own position."""
    at = rows_to_read(call)
    distance = call.start + at - call.weights(at, None, [head])[0].argmax(-1)
    return bool((distance == np.bincount(distance - distance.min()).argmax() + distance.min()).mean() > MOST)


def _uniform(_: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads whose weights are nearly equal over all visible keys: they compute a mean.

    A note: cannot see whether the model is trained.
    """
    rows = _rows_with_several_keys(call)
    if rows is None:
        return None
    spread = np.min(np.where(rows, call.rows["spread"], 1), axis=1)
    heads = np.flatnonzero((spread > EVEN) & rows.any(1)).tolist()
    return HeadPattern(
        heads,
        f"the entropy of every row is more than {EVEN} of the largest possible entropy (threshold)",
        "scores hardly differ: an untrained head, q or k near 0, or a scale that is much too small",
        "no fix is needed in an untrained model; otherwise check the norms of q and k",
    )


def _dead(_: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads whose output is 0, or far smaller than that of the others.

    A note: cannot see whether they were pruned on purpose.
    """
    if call.out is None or 0 in call.shape:
        return None
    size = np.array([np.abs(np.asarray(out, np.float64)).max() for out in call.out])
    if not np.isfinite(size).all():
        return None
    heads = np.flatnonzero(size <= NOTHING * size.max()).tolist()
    return HeadPattern(
        heads,
        f"the largest output value is {size[heads].max(initial=0):.1e}, that of the other heads is {size.max():.1e} "
        f"(threshold: {NOTHING:g} of that)",
        "values near 0: a head that was pruned, or that became inactive during training",
        "no fix is needed; the head can be removed without changing the output",
    )


def _sink(run: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads that put most of their weight on the first key or on special tokens.

    A note: trained heads do. Cannot see sinks on other keys.
    """
    special = np.array(run.run.axes[call.keys].special)
    rows = _rows_with_several_keys(call)
    if rows is None:
        return None
    first, others = _mean(call, "first", rows), _mean(call, "special", rows)
    if special.mean() > MOSTLY:  # then most of the text is special tokens
        others = np.zeros_like(others)
    most = np.maximum(first, others)
    heads = np.flatnonzero(most > MOSTLY).tolist()
    where = "the first key" if (first[heads] >= others[heads] - 1e-6).all() else "special tokens"
    return HeadPattern(
        heads,
        f"on average at least {most[heads].min(initial=1):.0%} of the weight is on {where} (threshold: {MOSTLY:.0%})",
        "an attention sink: trained heads put unused weight there",
        "no fix is needed; hide that key in the attention map to inspect the other weights",
    )


def _duplicate(_: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads of one call with the same pattern; uniform heads and sinks are similar anyway and do not count.

    A note: cannot see heads of different layers.
    """
    rows = _rows_with_several_keys(call)
    if rows is None:
        return None
    at = rows_to_read(call)
    at = at[rows[:, at].all(0)][-64:]
    if not len(at):
        return None
    weights = call.weights(at)
    chosen = np.zeros(rows.shape, bool)
    chosen[:, at] = True
    distinctive = (
        (_mean(call, "spread", chosen) < 0.95)
        & (_mean(call, "maximum", chosen) < 0.95)
        & (_mean(call, "first", chosen) < MOSTLY)
    )
    limit = max(SAME, 64 * roundoff(call))
    candidates = np.flatnonzero(distinctive).tolist()
    every = combinations(candidates, 2)
    pairs = [(a, b) for a, b in every if np.abs(weights[a] - weights[b]).sum(-1).max() / 2 < limit]
    shown = listed([f"{a} and {b}" for a, b in pairs])
    return HeadPattern(
        sorted({head for pair in pairs for head in pair}),
        f"the weights of heads {shown} differ by less than {limit:.1e} in total variation (threshold) in each of "
        f"{counted(len(at), 'row')}",
        "copied weights, or heads that were initialized identically",
        "no fix is needed; one head of each pair can be merged into the other",
    )


# The property of a head by the name of its check, and what is said where no head has it.
PATTERNS = {
    "saturated": (_saturated, "no head gives all its weight to a single key in most rows"),
    "uniform": (_uniform, "no head has nearly equal weights in all its rows"),
    "dead": (_dead, "every head contributes to the output"),
    "duplicate": (_duplicate, "all patterns differ"),
    "sink": (_sink, "no head puts most of its weight on the first key or on special tokens"),
}
