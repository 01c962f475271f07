"""Heads: what the statistics of a head alone say. All of it is a note: random models and trained ones have such heads in health."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...lens import Run
from ...lens.call import Call
from ..finding import Finding, Result
from .told import roundoff, rows_to_read
from .words import concluded, listed, place

__all__ = ["dead", "duplicate", "saturated", "sink", "uniform"]

SEVERAL = 8  # keys that a row must see before its pattern says something
SURE, MOST = 0.99, 0.9  # a weight that leaves nothing to others · of the rows
LARGE = 20.0  # nats between the smallest and the largest score: e⁻²⁰ is below what float32 adds to 1
EVEN = 0.9999  # of the largest possible entropy
HALF = 0.5
NOTHING = 1e-6  # of what the other heads give
SAME = 1e-3  # total variation between two patterns


def _noted(check: str, run: Run, number: int, heads: Sequence[int], measured: str, cause: str, mend: str, **numbers) -> Finding:
    return Finding(check, "note", place(run, number, heads), measured, cause, mend, number, heads[0] if len(heads) == 1 else None,
                   numbers={"heads": list(heads), **numbers})  # fmt: skip


def _over(check: str, run: Run, look, passed: str, skipped: str) -> Iterator[Result]:
    """One note per call, for all its heads of this kind."""
    read, found = 0, []
    for number, call in enumerate(run.calls):
        answer = look(call)
        if answer is None:
            continue
        read += 1
        heads, measured, cause, mend, numbers = answer
        if len(heads):
            found.append(_noted(check, run, number, [int(head) for head in heads], measured, cause, mend, **numbers))
    yield from concluded(check, found, read, f"{read} calls: {passed}", skipped)


def _rows(call: Call) -> np.ndarray | None:
    """(H, Q): the rows that see enough keys; None where no row does, or no figures were kept."""
    if "attended" not in call.rows:
        return None
    several = np.asarray(call.rows["attended"]) >= SEVERAL
    return several if several.any() else None


def _share(call: Call, true: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of the rows of each head, how many; 0 where it has none."""
    return np.where(rows, true, False).sum(1) / np.maximum(rows.sum(1), 1)


def saturated(run: Run, module=None) -> Iterator[Result]:
    """Heads whose softmax is a choice of one key, because scores are large: their gradients vanish."""

    def look(call):
        rows = _rows(call)
        if rows is None or not {"maximum", "high", "low"} <= set(call.rows):
            return None
        with np.errstate(invalid="ignore"):
            wide = np.asarray(call.rows["high"], np.float64) - call.rows["low"] > LARGE
        share = _share(call, (np.asarray(call.rows["maximum"]) > SURE) & wide, rows)
        heads = np.flatnonzero(share > MOST)
        return heads, (f"in {share[heads].min(initial=1):.0%} of the rows or more one key has a weight above {SURE}, with scores more than "
                       f"{LARGE:g} apart (threshold: {MOST:.0%})"), "scores are large: a scale that is missing, or very long q and k", \
            "if the scale is right, norms of q and k, or a softcap, keep scores small", {"shares": share[heads].tolist()}  # fmt: skip

    return _over("saturated", run, look, "no head chooses a single key throughout", f"no row sees {SEVERAL} keys")


def uniform(run: Run, module=None) -> Iterator[Result]:
    """Heads that spread their weight evenly over all that they may see: they compute a mean."""

    def look(call):
        rows = _rows(call)
        if rows is None or "spread" not in call.rows:
            return None
        spread = np.min(np.where(rows, call.rows["spread"], 1), axis=1)
        heads = np.flatnonzero((spread > EVEN) & rows.any(1))
        return heads, f"the entropy of every row is more than {EVEN} of the largest possible (threshold)", \
            "scores hardly differ: an untrained head, q or k near 0, or a scale that is much too small", \
            "nothing, in an untrained model; otherwise look at the norms of q and k", {"least": spread[heads].tolist()}  # fmt: skip

    return _over("uniform", run, look, "no head is even over all its rows", f"no row sees {SEVERAL} keys")


def dead(run: Run, module=None) -> Iterator[Result]:
    """Heads that give nothing: their output is 0, or far below that of the others."""

    def look(call):
        if call.out is None or call.shape[1] == 0:
            return None
        size = np.abs(np.nan_to_num(np.asarray(call.out, np.float64))).max((1, 2), initial=0)
        heads = np.flatnonzero(size <= NOTHING * size.max(initial=0))
        return heads, f"no number of the output is larger than {size[heads].max(initial=0):.1e}, and other heads reach "\
                f"{size.max(initial=0):.1e} (threshold: {NOTHING:g} of that)", "values near 0: a head that was pruned, or died while training", \
            "it can be taken out without a difference", {"sizes": size[heads].tolist()}  # fmt: skip

    return _over("dead", run, look, "every head gives something", "no output was kept")


def sink(run: Run, module=None) -> Iterator[Result]:
    """Heads that put most of their weight on the first key, or on special tokens: attention that has nothing better to do."""

    def look(call):
        rows = _rows(call)
        if rows is None or not {"first", "special"} <= set(call.rows):
            return None
        count = np.maximum(rows.sum(1), 1)
        first, special = (np.where(rows, call.rows[name], 0).sum(1, dtype=np.float64) / count for name in ("first", "special"))
        if all(run.axes[call.keys].special):
            special = np.zeros_like(special)
        most = np.maximum(first, special)
        heads = np.flatnonzero(most > HALF)
        where = "the first key" if (first[heads] >= special[heads] - 1e-6).all() else "special tokens"
        return heads, f"on average {most[heads].min(initial=1):.0%} of the weight or more lies on {where} (threshold: {HALF:.0%})", \
            "an attention sink: trained heads rest there when nothing in the text concerns them", \
            "nothing; when reading the map, hide that key and see the rest", \
            {"first": first[heads].tolist(), "special": special[heads].tolist()}  # fmt: skip

    return _over("sink", run, look, "no head rests on the first key or on special tokens", f"no row sees {SEVERAL} keys")


def duplicate(run: Run, module=None) -> Iterator[Result]:
    """Heads of one call with the same pattern; even heads and sinks resemble each other anyway and do not count."""

    def look(call):
        rows = _rows(call)
        if rows is None or call.shape[0] < 2:
            return None
        at = rows_to_read(call)
        at = at[rows[:, at].all(0)][-64:]
        if not len(at):
            return None
        weights = call.weights(at)
        plain = ~((_mean(call, "spread", at) > 0.95) | (_mean(call, "maximum", at) > 0.95) | (_mean(call, "first", at) > HALF))
        limit = max(SAME, 64 * roundoff(call))
        pairs = [(a, b) for a in range(len(weights)) for b in range(a) if plain[a] and plain[b]
                 and np.abs(weights[a] - weights[b]).sum(-1).max() / 2 < limit]  # fmt: skip
        heads = sorted({head for pair in pairs for head in pair})
        shown = listed([f"{b} and {a}" for a, b in pairs])  # type: ignore[misc]
        return heads, f"heads {shown} differ by less than {limit:.1e} of their weight in each of {len(at)} rows (threshold)", \
            "copied weights, or heads that were never told apart", "one of each pair can be merged into the other", \
            {"pairs": [[b, a] for a, b in pairs]}  # fmt: skip

    return _over("duplicate", run, look, "all patterns differ", f"no row sees {SEVERAL} keys")


def _mean(call: Call, name: str, rows: np.ndarray) -> np.ndarray:
    return np.asarray(call.rows[name], np.float64)[:, rows].mean(1)
