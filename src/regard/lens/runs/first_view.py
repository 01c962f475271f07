"""Chooses the call, head and row to show first: as requested, otherwise the largest weight on a distant token."""

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

SHORT = 1 << 18  # weights of a call: below this, all of them are computed


@dataclass(frozen=True)
class Choice:
    """The number of a call, a head, a row, and the reason for the choice."""

    call: int
    head: int
    query: int
    why: str


def choose(run: Run, call: int | None = None, head: int | None = None, token: str | None = None) -> Choice:
    """The call, head and row to show first.

    The distant weight of a row is its largest weight on an ordinary token at least two positions away, or on any
    ordinary token of another text. In long texts it is 0 if the largest weight of the row is on another token, so that
    no weights are computed again. The head with the largest mean distant weight of its ordinary rows is chosen, or
    that of the given token's row; then the row with the largest distant weight times the logarithm of the number of
    keys that it attends to.

    call: the number of a call · token: a position among the rows, or a word of their text. Refused: an unknown call,
    head or token.

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
    distant = {at: _distant_weight(run, run.calls[at]) for at in calls}
    if token is None:
        scores = np.array([distant[at][h].sum() / max(1, _ordinary(run, run.calls[at]).sum()) for at, h in places])
    else:
        scores = np.array([distant[at][h, rows[run.calls[at].queries]] for at, h in places])
    best = int(np.argmax(scores))
    at, number = places[best]
    among = "of the requested heads" if call is not None or head is not None else "of all heads"
    if len(places) == 1:
        why = "the requested head" if among == "of the requested heads" else "the only head"
    elif not scores[best] > 0:
        why = f"the first {among}: none of them attends to an ordinary token at a distance of two or more"
    elif token is None:
        why = f"{among}, this one has the largest weights on distant tokens: {scores[best]:.0%} on average"
    else:
        why = f"{among}, this token has its largest weight on a distant token in this one: {scores[best]:.0%}"
    chosen = run.calls[at]
    if token is not None:
        return Choice(at, number, rows[chosen.queries], why)
    line = distant[at][number]
    if "attended" in chosen.rows:  # the first rows of a causal text have few other keys
        line = line * np.log1p(np.asarray(chosen.rows["attended"][number], np.float64))
    return Choice(at, number, int(line.argmax() if line.any() else _ordinary(run, chosen).argmax()), why)


def _ordinary(run: Run, call: Call) -> np.ndarray:
    """Which rows are ordinary tokens, that is, not special."""
    return ~np.array(run.axes[call.queries].special)


def _distant_weight(run: Run, call: Call) -> np.ndarray:
    """The largest weight of each ordinary row on a distant ordinary key, (H, Q)."""
    H, Q, K = call.shape
    special, rows = np.array(run.axes[call.keys].special), _ordinary(run, call)
    here = call.start + np.arange(Q) if call.queries == call.keys else np.full(Q, -9)  # in another text, no key is near
    if H * Q * K <= SHORT:
        near = special | (np.abs(np.arange(K) - here[:, None]) < 2)
        return np.where(rows, np.where(near, 0, np.nan_to_num(call.weights())).max(-1), 0)
    if not {"strongest", "maximum"} <= call.rows.keys():
        return np.zeros((H, Q))
    key = np.asarray(call.rows["strongest"], np.int64)
    far = (key >= 0) & (np.abs(key - here) >= 2) & ~special[np.maximum(key, 0)]
    return np.where(far & rows, np.nan_to_num(np.asarray(call.rows["maximum"], np.float64)), 0)


def _positions(run: Run, names: list[str], token: str) -> dict[str, int]:
    """The position of the token on each of these axes that contains it."""
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
    """The position: a number, else the first token of that spelling, else the end of a word of several tokens."""
    word = token.strip().casefold()
    if word.isascii() and word.isdecimal() and int(word) < len(axis):
        return int(word)
    spelled = [visible(part).casefold() for part in axis.tokens]
    if word in spelled:
        return spelled.index(word)
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", "".join(axis.tokens), re.IGNORECASE) if word else None
    return int(np.searchsorted(np.cumsum([len(part) for part in axis.tokens]), found.end())) if found else None
