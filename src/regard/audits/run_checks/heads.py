"""The checks saturated, uniform, dead, duplicate and sink: heads with unusual statistics. Healthy models, random or
trained, have such heads too, so all findings are notes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...common.text.units import counted
from ...lens import Call
from ..difference import listed
from ..finding import Result
from .audited_run import AuditedRun, concluded
from .observed_call import roundoff, rows_to_read

SEVERAL = 8  # keys that a row must attend to for its pattern to count
SURE, MOST = 0.99, 0.9  # a weight that leaves almost nothing for other keys · the share of rows with such a weight
LARGE = 20.0  # nats between the smallest and the largest score; e⁻²⁰ is below the resolution of float32 at 1
EVEN = 0.9999  # share of the largest possible entropy
HALF = 0.5
NOTHING = 1e-6  # share of the output of the other heads
SAME = 1e-3  # total variation distance between two patterns


class HeadPattern(NamedTuple):
    """Heads of one call with the same property, and the words of the finding."""

    heads: list[int]
    measured: str
    cause: str
    fix: str
    numbers: dict[str, Any]


def notes(check: str, run: AuditedRun) -> Iterator[Result]:
    """One note per call, for all its heads with the property of the check."""
    pattern, passed = PATTERNS[check]
    skipped = f"no row attends to {SEVERAL} keys or more, or no finite output was recorded"
    read, findings = 0, []
    for audited in run.calls:
        match = pattern(run, audited.call)
        read += match is not None
        if match is not None and match.heads:
            heads = match.heads
            findings.append(
                audited.finding(
                    check,
                    "note",
                    match.measured,
                    match.cause,
                    match.fix,
                    heads=heads,
                    numbers={"heads": heads, **match.numbers},
                )
            )
    yield from concluded(check, findings, read, f"{counted(read, 'call')}: {passed}", skipped)


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
    """
    rows = _rows_with_several_keys(call)
    if rows is None or call.given is not None:  # without scores the cause is unknown
        return None
    with np.errstate(invalid="ignore"):
        wide = np.asarray(call.rows["high"], np.float64) - call.rows["low"] > LARGE
    share = (rows & wide & (np.asarray(call.rows["maximum"]) > SURE)).sum(1) / np.maximum(rows.sum(1), 1)
    heads = [head for head in np.flatnonzero(share > MOST).tolist() if not _by_position(call, head)]
    missing = call.q is not None and call.q.shape[2] > 1 and math.isclose(call.scale, 1, rel_tol=1e-3)
    return HeadPattern(
        heads,
        f"in at least {share[heads].min(initial=1):.0%} of the rows (threshold: {MOST:.0%}) one key has a weight above "
        f"{SURE}, and scores differ by more than {LARGE:g} nats",
        "large scores: the scale of q·k is 1, so 1/√D may be missing, or q and k have large norms"
        if missing
        else f"q and k have large norms; the scale of q·k is {call.scale:.4g}",
        "check the scale; if it is right, normalize q and k or use a softcap"
        if missing
        else "normalize q and k or use a softcap; no fix is needed if the head is trained to select single keys",
        {"shares": share[heads].tolist()},
    )


def _by_position(call: Call, head: int) -> bool:
    """Whether most rows select the key at the same distance from their own position."""
    at = rows_to_read(call)
    distance = call.start + at - call.weights(at, None, [head])[0].argmax(-1)
    return bool((distance == np.bincount(distance - distance.min()).argmax() + distance.min()).mean() > MOST)


def _uniform(_: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads whose weights are nearly equal over all visible keys: they compute a mean."""
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
        {"least": spread[heads].tolist()},
    )


def _dead(_: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads whose output is 0, or far smaller than that of the others."""
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
        {"sizes": size[heads].tolist()},
    )


def _sink(run: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads that put most of their weight on the first key or on special tokens."""
    special = np.array(run.run.axes[call.keys].special)
    rows = _rows_with_several_keys(call)
    if rows is None:
        return None
    first, others = _mean(call, "first", rows), _mean(call, "special", rows)
    if special.mean() > HALF:  # then most of the text is special tokens
        others = np.zeros_like(others)
    most = np.maximum(first, others)
    heads = np.flatnonzero(most > HALF).tolist()
    where = "the first key" if (first[heads] >= others[heads] - 1e-6).all() else "special tokens"
    return HeadPattern(
        heads,
        f"on average at least {most[heads].min(initial=1):.0%} of the weight is on {where} (threshold: {HALF:.0%})",
        "an attention sink: trained heads put unused weight there",
        "no fix is needed; hide that key in the attention map to inspect the other weights",
        {"first": first[heads].tolist(), "special": others[heads].tolist()},
    )


def _duplicate(_: AuditedRun, call: Call) -> HeadPattern | None:
    """Heads of one call with the same pattern; uniform heads and sinks are similar anyway and do not count."""
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
        & (_mean(call, "first", chosen) < HALF)
    )
    limit = max(SAME, 64 * roundoff(call))
    candidates = np.flatnonzero(distinctive).tolist()
    pairs = [
        (a, b)
        for a in candidates
        for b in candidates
        if a < b and np.abs(weights[a] - weights[b]).sum(-1).max() / 2 < limit
    ]
    shown = listed([f"{a} and {b}" for a, b in pairs])
    return HeadPattern(
        sorted({head for pair in pairs for head in pair}),
        f"the weights of heads {shown} differ by less than {limit:.1e} in total variation (threshold) in each of "
        f"{counted(len(at), 'row')}",
        "copied weights, or heads that were initialized identically",
        "no fix is needed; one head of each pair can be merged into the other",
        {"pairs": [list(pair) for pair in pairs]},
    )


# The property of a head by the name of its check, and what is said where no head has it.
PATTERNS = {
    "saturated": (_saturated, "no head gives all its weight to a single key in most rows"),
    "uniform": (_uniform, "no head has nearly equal weights in all its rows"),
    "dead": (_dead, "every head contributes to the output"),
    "duplicate": (_duplicate, "all patterns differ"),
    "sink": (_sink, "no head puts most of its weight on the first key or on special tokens"),
}
