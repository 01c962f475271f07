"""Whether the output that came is what the call was told to compute, and if not, which known mistake explains it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from ...lens import Call
from .expected_output import Answer, answer, rows_to_read
from .known_mistakes import Mistake, Rules, mistakes, scaled
from .weighing import Weigh, normalised

__all__ = ["DOUBT", "Verdict", "fits", "verdict"]

MARGIN = 1  # times the noise, within which an output fits
DOUBT = 4  # times the noise, up to which nothing is said
AT_ONCE = 1 << 21  # weights computed at once, so that long texts need no more memory than short ones
FEW = 1 << 14  # weights computed to rule a mistake out


@dataclass(frozen=True, eq=False)
class Verdict:
    """Of one call.

    ruled: "fits", "explained" (by the mistake), "unexplained", or "open" (values or outputs were not kept, or the
    difference is neither clearly rounding nor clearly more)
    error: the largest difference between the output and what follows · noise: what rounding may make there · heads:
    which differ · row: the first · left: the error that the mistake leaves · rows: how many rows were read
    """

    ruled: str
    error: float = 0.0
    noise: float = 0.0
    heads: tuple[int, ...] = ()
    row: int = 0
    rows: int = 0
    mistake: Mistake | None = None
    left: float = 0.0


_known: WeakKeyDictionary[Call, Verdict] = WeakKeyDictionary()


def verdict(call: Call) -> Verdict:
    """The verdict on a call; computed once."""
    if call not in _known:
        _known[call] = _judged(call)
    return _known[call]


def fits(call: Call) -> bool | None:
    """Whether the output follows from these rules; None where it cannot be told."""
    if call.out is None or call.v is None or call.q is None:
        return None
    ratio, _ = _compared(call, rows_to_read(call), np.arange(call.shape[0]))
    return None if np.isnan(ratio).all() else not bool((ratio > MARGIN).any())


def _judged(call: Call) -> Verdict:
    if call.v is None or call.out is None or 0 in call.shape:
        return Verdict("open")
    rows, heads = rows_to_read(call), np.arange(call.shape[0])
    ratio, error = _compared(call, rows, heads)
    if np.isnan(ratio).all():
        return Verdict("open")
    wrong = ratio > DOUBT
    worst = int(np.nanargmax(np.where(np.isnan(ratio), -1, ratio)))
    found = Verdict(
        "fits",
        error=float(np.nanmax(error)),
        noise=float(error.flat[worst] / max(ratio.flat[worst], 1e-300)),
        rows=len(rows),
    )
    if not wrong.any():
        return replace(found, ruled="open") if (ratio > MARGIN).any() else found
    at = np.flatnonzero(wrong.any(1))
    found = replace(
        found,
        ruled="unexplained",
        error=float(error.flat[worst]),
        heads=tuple(at.tolist()),
        row=int(rows[np.argwhere(wrong)[:, 1].min()]),
    )
    explained = _explained(call, rows, at)
    if explained is None:
        return found
    mistake, left = explained
    return replace(found, ruled="explained", mistake=mistake, left=left)


def _rules(call: Call) -> Rules:
    """What a call with q, k and v was told."""
    assert call.v is not None
    H, Q, K = call.shape
    return Rules(
        mask=call.mask,
        score=call.score,
        scale=call.scale,
        start=call.start,
        sinks=call.sinks,
        heads=H,
        queries=Q,
        keys=K,
        depth=1 if call.q is None else call.q.shape[2],
        key_heads=np.arange(call.groups),
        value_heads=np.arange(len(call.v)),
    )


def _told(call: Call, rules: Rules) -> Call:
    """The call as it would be if it had been told these rules."""
    return replace(
        call,
        mask=rules.mask,
        score=rules.score,
        scale=rules.scale,
        start=rules.start,
        sinks=rules.sinks,
        k=_taken(call.k, rules.key_heads),
        v=_taken(call.v, rules.value_heads),
    )


def _taken(part: np.ndarray | None, heads: np.ndarray) -> np.ndarray | None:
    """These heads of an array, which is not copied where they are its own."""
    return part if part is None or np.array_equal(heads, np.arange(len(part))) else part[heads]


def _compared(
    call: Call, rows: np.ndarray, heads: np.ndarray, weigh: Weigh = normalised
) -> tuple[np.ndarray, np.ndarray]:
    """(largest difference as a multiple of the noise, largest difference), (heads, rows) each; NaN for rows that say
    nothing.
    """
    step = max(1, AT_ONCE // max(1, len(rows) * call.shape[2]))
    parts = [heads[first : first + step] for first in range(0, len(heads), step)]
    found = [_against(call, answer(call, rows, part, weigh), rows, part) for part in parts]
    return np.concatenate([ratio for ratio, _ in found]), np.concatenate([error for _, error in found])


def _against(call: Call, found: Answer, rows: np.ndarray, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    came = np.asarray(call.out[heads][:, rows], np.float64)  # type: ignore[index]
    with np.errstate(all="ignore"):
        error = np.abs(came - found.out)
        ratio = (error / found.noise).max(-1)
    sure = found.sure & np.isfinite(came).all(-1)
    return np.where(sure, ratio, np.nan), np.where(sure, error.max(-1), np.nan)


def _explained(call: Call, rows: np.ndarray, heads: np.ndarray) -> tuple[Mistake, float] | None:
    """The first mistake that explains the heads that are wrong, and the error that it leaves: a usual one alone, a
    scale that fits, heads that changed places, two usual ones at once.
    """
    some = heads[:4]
    count = min(len(rows), max(8, FEW // max(1, len(some) * call.shape[2])))
    few = rows[np.linspace(0, len(rows) - 1, count).round().astype(int)]

    def compared(rules: Rules, at: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _compared(_told(call, rules), at, which, rules.weigh)

    def clears(mistake: Mistake) -> bool:
        return all(_within(compared(mistake.rules, at, which)[0]) for at, which in ((few, some), (rows, heads)))

    alone = [] if call.given is not None else list(mistakes(_rules(call)))
    found = next(filter(clears, itertools.chain(alone, _fitted(call, few, some) if alone else ())), None)
    if found is None:
        moved = _permuted(call, rows, heads)
        if moved is not None:
            return moved
        pairs = (
            second.after(first)
            for first in alone
            if first.rules.weigh is normalised
            for second in mistakes(first.rules)
            if not set(first.checks) & set(second.checks)
        )
        found = next(filter(clears, pairs), None)
    return None if found is None else (found, float(np.nanmax(compared(found.rules, rows, heads)[1])))


def _within(ratio: np.ndarray) -> bool:
    """Whether rounding explains what was compared, and that was at least half."""
    known = ~np.isnan(ratio)
    return bool(known.sum() * 2 >= known.size and known.any() and not (ratio[known] > MARGIN).any())


def _fitted(call: Call, rows: np.ndarray, heads: np.ndarray) -> Iterator[Mistake]:
    """The scale that comes nearest to the output, by a coarse search over its size and a fine one around the best."""

    def off(power: float) -> float:
        error = _compared(replace(call, scale=call.scale * 2.0**power), rows, heads)[1]
        return float(np.nansum(error**2)) if not np.isnan(error).all() else np.inf

    coarse = np.linspace(-8, 8, 65)
    best = coarse[int(np.argmin([off(power) for power in coarse]))]
    low, high = best - 0.25, best + 0.25
    golden = (5**0.5 - 1) / 2
    for _ in range(50):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if off(a) < off(b) else (a, high)
    factor = 2.0 ** ((low + high) / 2)
    yield scaled(_rules(call), call.scale * factor, f"a scale {factor:.4g} times as large", "the scale is another one")


def _permuted(call: Call, rows: np.ndarray, heads: np.ndarray) -> tuple[Mistake, float] | None:
    """Outputs that are those of other heads, or of which heads and rows changed places."""
    assert call.out is not None
    every, (H, Q, _) = np.arange(call.shape[0]), call.shape
    found = answer(call, rows, every)
    sources, left = [], 0.0
    for head in heads:
        moved = replace(call, out=np.broadcast_to(call.out[head], call.out.shape))
        ratio, error = _against(moved, found, rows, every)
        source = next((int(h) for h in every if h != head and _within(ratio[h])), None)
        if source is None:
            break
        sources.append(source)
        left = max(left, float(np.nanmax(error[source])))
    if len(sources) == len(heads):
        shown = ", ".join(f"{source} in place of {head}" for head, source in list(zip(heads.tolist(), sources))[:8])
        return Mistake(
            ("heads",),
            f"other heads ({shown})",
            "heads are put back in another order than they were taken apart",
            "split and join the heads with the same view and transpose",
            _rules(call),
        ), left
    if len(rows) < Q or 1 in (H, Q):
        return None
    mixed = found._replace(
        out=found.out.swapaxes(0, 1).reshape(found.out.shape), noise=found.noise.swapaxes(0, 1).reshape(found.out.shape)
    )
    ratio, error = _against(call, mixed, rows, every)
    return (
        (
            Mistake(
                ("heads",),
                "heads and rows that changed places",
                "a reshape stands where a transpose belongs",
                "transpose(1, 2) before reshape",
                _rules(call),
            ),
            float(np.nanmax(error)),
        )
        if _within(ratio)
        else None
    )
