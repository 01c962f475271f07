"""Which call, head and row to show first: what was asked for, and otherwise the firmest look at a distant word."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...common.errors import Reason, Refused, refuse
from .axis import Axis
from .call import Call
from .labels import visible
from .run import Run

__all__ = ["Choice", "choose"]

SHORT = 1 << 18  # weights of a call that are all looked at


@dataclass(frozen=True)
class Choice:
    """A call by its number, a head, a row, and why these."""

    call: int
    head: int
    query: int
    why: str


def choose(run: Run, call: int | None = None, head: int | None = None, token: str | None = None) -> Choice:
    """The place to look at.

    The firmness of a row is the largest weight that it gives to an ordinary token at least two positions away, or to
    any ordinary token of another text; in long texts 0 where the largest weight of all lies elsewhere, so that no
    weight is computed again. A head is chosen by the mean firmness of its ordinary rows, or by that of the token's row
    alone; a row by its own, weighed with the logarithm of how many keys it sees.

    call: by its number · token: a position among the rows, or a word of their text. Refused: what is not there.

    >>> import numpy as np, regard as rg
    >>> from regard.lens.look import of_arrays
    >>> q = np.eye(4, dtype=np.float32)[None] * 9
    >>> choose(of_arrays(q, q[:, ::-1])).query
    0
    """
    where = "" if call is None else f"call {call}"
    reasons = []
    calls = range(len(run.calls)) if call is None else [call]
    if call is not None and not 0 <= call < len(run.calls):
        reasons.append(
            Reason(
                "no such call",
                given=where,
                expected=f"0 to {len(run.calls) - 1}",
                fix="count from 0, in the order of the table",
            )
        )
    elif head is not None and not any(0 <= head < run.calls[at].shape[0] for at in calls):
        reasons.append(
            Reason(
                "no such head",
                given=f"head {head}" + (f" of {where}" if where else ""),
                expected=f"0 to {max(run.calls[at].shape[0] for at in calls) - 1}",
                fix="count from 0",
            )
        )
    if reasons:
        raise Refused("look", reasons)
    rows = {} if token is None else _positions(run, sorted({run.calls[at].queries for at in calls}), token)
    calls = [at for at in calls if token is None or run.calls[at].queries in rows]
    places = [(at, h) for at in calls for h in range(run.calls[at].shape[0]) if head in (None, h)]
    firm = {at: _firmness(run, run.calls[at]) for at in calls}
    if token is None:
        scores = np.array([firm[at][h].sum() / max(1, _ordinary(run, run.calls[at]).sum()) for at, h in places])
    else:
        scores = np.array([firm[at][h, rows[run.calls[at].queries]] for at, h in places])
    best = int(np.argmax(scores))
    at, number = places[best]
    among = "of the heads asked for" if call is not None or head is not None else "of all heads"
    if len(places) == 1:
        why = "the head that was asked for" if among == "of the heads asked for" else "the only head"
    elif not scores[best] > 0:
        why = f"the first {among}: in none does an ordinary token look at another two or more away"
    elif token is None:
        why = f"{among}, words look most firmly at distant words in this one: {scores[best]:.0%} on average"
    else:
        why = f"{among}, this token looks most firmly at a distant word in this one: {scores[best]:.0%}"
    chosen = run.calls[at]
    if token is not None:
        return Choice(at, number, rows[chosen.queries], why)
    line = firm[at][number]
    if "attended" in chosen.rows:  # the first rows of a causal text see little else
        line = line * np.log1p(np.asarray(chosen.rows["attended"][number], np.float64))
    return Choice(at, number, int(line.argmax() if line.any() else _ordinary(run, chosen).argmax()), why)


def _ordinary(run: Run, call: Call) -> np.ndarray:
    """Which rows are words of the text."""
    return ~np.array(run.axes[call.queries].special)


def _firmness(run: Run, call: Call) -> np.ndarray:
    """The largest weight that each ordinary row gives to a distant ordinary key, (H, Q)."""
    H, Q, K = call.shape
    special, rows = np.array(run.axes[call.keys].special), _ordinary(run, call)
    here = call.start + np.arange(Q) if call.queries == call.keys else np.full(Q, -9)  # another text has no near keys
    if H * Q * K <= SHORT:
        near = special | (np.abs(np.arange(K) - here[:, None]) < 2)
        return np.where(rows, np.where(near, 0, np.nan_to_num(call.weights())).max(-1), 0)
    if not {"strongest", "maximum"} <= call.rows.keys():
        return np.zeros((H, Q))
    key = np.asarray(call.rows["strongest"], np.int64)
    far = (key >= 0) & (np.abs(key - here) >= 2) & ~special[np.maximum(key, 0)]
    return np.where(far & rows, np.nan_to_num(np.asarray(call.rows["maximum"], np.float64)), 0)


def _positions(run: Run, names: list[str], token: str) -> dict[str, int]:
    """Where the token stands on each of these axes that has it."""
    found = {name: at for name in names if (at := _position(run.axes[name], token)) is not None}
    if not found:
        words = " ".join(visible(part) for part in run.axes[names[0]].tokens[:40])
        raise refuse(
            "look",
            "no such token",
            given=f"{token!r}",
            expected=f"a position from 0 to {max(len(run.axes[name]) for name in names) - 1}, or a word of the text",
            fix=f"choose among: {words}",
        )
    return found


def _position(axis: Axis, token: str) -> int | None:
    """What is named: a number, else the first token of that spelling, else the end of a word of several tokens."""
    word = token.strip().casefold()
    if word.isascii() and word.isdecimal() and int(word) < len(axis):
        return int(word)
    spelled = [visible(part).casefold() for part in axis.tokens]
    if word in spelled:
        return spelled.index(word)
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", "".join(axis.tokens), re.IGNORECASE) if word else None
    return int(np.searchsorted(np.cumsum([len(part) for part in axis.tokens]), found.end())) if found else None
