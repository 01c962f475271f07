"""Heads: what the statistics of a head alone say. All of it is a note: random models and trained ones have such heads
in health.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...lens import Call, Run
from ..finding import Finding, Result
from .expected_output import roundoff, rows_to_read
from .wording import concluded, listed, place

__all__ = ["dead", "duplicate", "saturated", "sink", "uniform"]

SEVERAL = 8  # keys that a row must see before its pattern says something
SURE, MOST = 0.99, 0.9  # a weight that leaves nothing to others · of the rows
LARGE = 20.0  # nats between the smallest and the largest score: e⁻²⁰ is below what float32 adds to 1
EVEN = 0.9999  # of the largest possible entropy
HALF = 0.5
NOTHING = 1e-6  # of what the other heads give
SAME = 1e-3  # total variation between two patterns


class Alike(NamedTuple):
    """Heads of one call that share a trait, and the words for it."""

    heads: list[int]
    measured: str
    cause: str
    mend: str
    numbers: dict[str, Any]


def saturated(run: Run, module=None) -> Iterator[Result]:
    """Heads whose softmax is a choice of one key, because scores are large: their gradients vanish."""
    yield from _noted(
        "saturated", run, _saturated, "no head chooses a single key throughout", f"no row sees {SEVERAL} keys"
    )


def uniform(run: Run, module=None) -> Iterator[Result]:
    """Heads that spread their weight evenly over all that they may see: they compute a mean."""
    yield from _noted("uniform", run, _uniform, "no head is even over all its rows", f"no row sees {SEVERAL} keys")


def dead(run: Run, module=None) -> Iterator[Result]:
    """Heads that give nothing: their output is 0, or far below that of the others."""
    yield from _noted("dead", run, _dead, "every head gives something", "no finite output was kept")


def sink(run: Run, module=None) -> Iterator[Result]:
    """Heads that put most of their weight on the first key, or on special tokens: attention that has nothing better to
    do.
    """

    def look(call):
        return _sink(call, np.array(run.axes[call.keys].special))

    yield from _noted(
        "sink", run, look, "no head rests on the first key or on special tokens", f"no row sees {SEVERAL} keys"
    )


def duplicate(run: Run, module=None) -> Iterator[Result]:
    """Heads of one call with the same pattern; even heads and sinks resemble each other anyway and do not count."""
    yield from _noted("duplicate", run, _duplicate, "all patterns differ", f"no row sees {SEVERAL} keys")


def _noted(check: str, run: Run, look: Callable[[Call], Alike | None], passed: str, skipped: str) -> Iterator[Result]:
    """One note per call, for all its heads of this kind."""
    read, found = 0, []
    for number, call in enumerate(run.calls):
        alike = look(call)
        read += alike is not None
        if alike is not None and alike.heads:
            heads = alike.heads
            found.append(
                Finding(
                    check=check,
                    severity="note",
                    where=place(run, number, heads),
                    measured=alike.measured,
                    cause=alike.cause,
                    mend=alike.mend,
                    call=number,
                    head=heads[0] if len(heads) == 1 else None,
                    row=None,
                    numbers={"heads": heads, **alike.numbers},
                )
            )
    yield from concluded(check, found, read, f"{read} calls: {passed}", skipped)


def _telling(call: Call) -> np.ndarray | None:
    """(H, Q): the rows that see enough keys; None where there are none."""
    if "attended" not in call.rows:
        return None
    several = np.asarray(call.rows["attended"]) >= SEVERAL
    return several if several.any() else None


def _mean(call: Call, name: str, rows: np.ndarray) -> np.ndarray:
    return np.where(rows, call.rows[name], 0).sum(1, dtype=np.float64) / np.maximum(rows.sum(1), 1)


def _saturated(call: Call) -> Alike | None:
    rows = _telling(call)
    if rows is None or call.given is not None:  # without scores there is no telling why
        return None
    with np.errstate(invalid="ignore"):
        wide = np.asarray(call.rows["high"], np.float64) - call.rows["low"] > LARGE
    share = (rows & wide & (np.asarray(call.rows["maximum"]) > SURE)).sum(1) / np.maximum(rows.sum(1), 1)
    heads = np.flatnonzero(share > MOST).tolist()
    return Alike(
        heads,
        f"in {share[heads].min(initial=1):.0%} of the rows or more (threshold: {MOST:.0%}) one key has a weight above "
        f"{SURE}, with scores more than {LARGE:g} apart",
        "scores are large: a scale that is missing, or very long q and k",
        "if the scale is right, norms of q and k, or a softcap, keep scores small",
        {"shares": share[heads].tolist()},
    )


def _uniform(call: Call) -> Alike | None:
    rows = _telling(call)
    if rows is None:
        return None
    spread = np.min(np.where(rows, call.rows["spread"], 1), axis=1)
    heads = np.flatnonzero((spread > EVEN) & rows.any(1)).tolist()
    return Alike(
        heads,
        f"the entropy of every row is more than {EVEN} of the largest possible (threshold)",
        "scores hardly differ: an untrained head, q or k near 0, or a scale that is much too small",
        "nothing, in an untrained model; otherwise look at the norms of q and k",
        {"least": spread[heads].tolist()},
    )


def _dead(call: Call) -> Alike | None:
    if call.out is None or 0 in call.shape:
        return None
    size = np.array([np.abs(np.asarray(out, np.float64)).max() for out in call.out])
    if not np.isfinite(size).all():
        return None
    heads = np.flatnonzero(size <= NOTHING * size.max()).tolist()
    return Alike(
        heads,
        f"no number of the output is larger than {size[heads].max(initial=0):.1e}, and other heads reach "
        f"{size.max():.1e} (threshold: {NOTHING:g} of that)",
        "values near 0: a head that was pruned, or died while training",
        "it can be taken out without a difference",
        {"sizes": size[heads].tolist()},
    )


def _sink(call: Call, special: np.ndarray) -> Alike | None:
    rows = _telling(call)
    if rows is None:
        return None
    first, others = _mean(call, "first", rows), _mean(call, "special", rows)
    if special.mean() > HALF:  # then special tokens are most of the text
        others = np.zeros_like(others)
    most = np.maximum(first, others)
    heads = np.flatnonzero(most > HALF).tolist()
    where = "the first key" if (first[heads] >= others[heads] - 1e-6).all() else "special tokens"
    return Alike(
        heads,
        f"on average {most[heads].min(initial=1):.0%} of the weight or more lies on {where} (threshold: {HALF:.0%})",
        "an attention sink: trained heads rest there when nothing in the text concerns them",
        "nothing; when reading the map, hide that key and see the rest",
        {"first": first[heads].tolist(), "special": others[heads].tolist()},
    )


def _duplicate(call: Call) -> Alike | None:
    rows = _telling(call)
    if rows is None:
        return None
    at = rows_to_read(call)
    at = at[rows[:, at].all(0)][-64:]
    if not len(at):
        return None
    weights = call.weights(at)
    chosen = np.zeros(rows.shape, bool)
    chosen[:, at] = True
    plain = (
        (_mean(call, "spread", chosen) < 0.95)
        & (_mean(call, "maximum", chosen) < 0.95)
        & (_mean(call, "first", chosen) < HALF)
    )
    limit = max(SAME, 64 * roundoff(call))
    candidates = np.flatnonzero(plain).tolist()
    pairs = [
        (a, b)
        for a in candidates
        for b in candidates
        if a < b and np.abs(weights[a] - weights[b]).sum(-1).max() / 2 < limit
    ]
    shown = listed([f"{a} and {b}" for a, b in pairs])
    return Alike(
        sorted({head for pair in pairs for head in pair}),
        f"heads {shown} differ by less than {limit:.1e} of their weight (threshold) in each of {len(at)} rows",
        "copied weights, or heads that were never told apart",
        "one of each pair can be merged into the other",
        {"pairs": [list(pair) for pair in pairs]},
    )
