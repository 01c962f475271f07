"""Chooses the call, head and row to show first: as requested, otherwise the rows that differ most from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...common.errors import refuse
from ...common.text.units import counted
from .axis import Axis, named
from .call import Call
from .figures import with_figures
from .run import Run

TIMES = 2  # how much more weight than in the other rows, and than with equal weights
# A head in which more of the rows have the same strongest key, or of those whose strongest key is an ordinary token, is
# shown first only if all heads are so.
HUB, HUB_OF_ORDINARY = 2 / 3, 1 / 2


@dataclass(frozen=True)
class Choice:
    """The number of a call, a head, a row, and the reason for the choice."""

    call: int
    head: int
    query: int
    why: str

    @property
    def place(self) -> dict[str, Any]:
        """What is shown first and why, as the page takes it."""
        return asdict(self)


def choose(
    run: Run,
    call: int | None = None,
    head: int | None = None,
    token: str | None = None,
    findings: Sequence[Mapping[str, Any]] = (),
) -> Choice:
    """The call, head and row to show first: what is requested; otherwise the head with the largest effect, in a run
    with effects; otherwise a head in which an audit found a fault; otherwise the head that tells most.

    A token to which every row attends says nothing about a row, nor do equal weights. The own weight of a row is its
    largest weight minus the mean weight of the other rows on that key, or the weight that every key would have if all
    had the same, if this is larger; if the key is an ordinary token at least two positions away, or any ordinary token
    of another text, and its weight is at least twice as much; otherwise it is 0. It counts times the logarithm of the
    distance. The head in which this is largest, on average over its ordinary rows, is chosen, or in
    the given token's row; then the row in which it is largest. Without a token, heads in which most rows have the same
    strongest key come last, and so do those of plain positions, such as an encoder of images has beside a text.

    call: the number of a call · token: a position among the rows, or a word of their text · findings: of an audit, as
    JSON. Refused: an unknown call, head or token.

    >>> import numpy as np, regard as rg
    >>> from regard.lens.look import of_arrays
    >>> q = np.eye(4, dtype=np.float32)[None] * 9
    >>> choose(of_arrays(q, q[:, ::-1])).query
    0
    """
    where = "" if call is None else f"call {call}"
    calls = range(len(run.calls)) if call is None else [call]
    if call is not None and not 0 <= call < len(run.calls):
        fix = "count attention calls from 0, as the page lists them"
        raise refuse("look", "no such call", where, f"0 to {len(run.calls) - 1}", fix)
    if head is not None and not any(0 <= head < run.calls[at].shape[0] for at in calls):
        given = f"head {head}" + (f" of {where}" if where else "")
        expected = f"0 to {max(run.calls[at].shape[0] for at in calls) - 1}"
        raise refuse("look", "no such head", given, expected, "count from 0")
    rows = {} if token is None else _positions(run, sorted({run.calls[at].queries for at in calls}), token)
    calls = [at for at in calls if token is None or run.calls[at].queries in rows]
    places = [(at, h) for at in calls for h in range(run.calls[at].shape[0]) if head in (None, h)]
    telling = {at: _telling(run, run.calls[at]) for at in calls}
    if call is None and head is None and (mattering := _mattering(run)):
        return replace(choose(run, mattering.call, mattering.head, token), why=mattering.why)
    if (call, head, token) == (None, None, None) and (faulty := _faulty(run, telling, findings)):
        return faulty
    if token is None:
        scores = np.array([telling[at].far[h].sum() / max(1, telling[at].rows.sum()) for at, h in places])
        plain = {name for name, axis in run.axes.items() if axis.tokens == Axis.of(len(axis)).tokens}
        apart = scores * [not telling[at].hub[h] and run.calls[at].queries not in plain for at, h in places]
        scores = apart if apart.any() else scores
    else:
        scores = np.array([telling[at].far[h, rows[run.calls[at].queries]] for at, h in places])
    best = int(np.argmax(scores))
    at, number = places[best]
    chosen, own = run.calls[at], telling[at].own[number]
    query = _row(chosen, telling[at], number) if token is None else rows[chosen.queries]
    limited = call is not None or head is not None
    among = f"of {'the requested' if limited else 'all'} heads"
    if len(places) == 1:
        why = "the requested head" if limited else "the only head"
    elif not scores[best] > 0:
        why = f"the first {among}: none of them has a row that is unlike the others"
    elif token is None:
        mean = own.sum() / max(1, telling[at].rows.sum())
        why = f"{among}, it attends most to far tokens that other rows attend to less: by {points(mean)}"
    else:
        what = "this token attends most here to a far token that other rows attend to less"
        why = f"{among}, {what}: by {points(own[query])}"
    return Choice(at, number, query, why)


def points(share: float) -> str:
    """A difference of two shares, in percentage points."""
    return counted(round(100 * share), "point")


def _mattering(run: Run) -> Choice | None:
    """The head with the largest effect, if the run has effects of heads."""
    effects = run.effects
    if effects is None or effects.of != "heads":
        return None
    rows = {name: row for row, name in enumerate(effects.layers)}
    changes = {
        (at, h): effects.values[rows[call.name], h]
        for at, call in enumerate(run.calls)
        if call.name in rows
        for h in range(call.shape[0])
    }
    best = max(changes, key=lambda place: np.nan_to_num(abs(changes[place])))
    return Choice(*best, 0, f"without it, {effects.measure} changes most: by {changes[best]:+.3g}")


def _faulty(run: Run, telling: Mapping[int, Telling], findings: Sequence[Mapping[str, Any]]) -> Choice | None:
    """The first head in which an audit found a fault, in the row of the fault if it is known."""
    for found in findings:
        several = found.get("numbers", {}).get("heads")
        heads = [found.get("head"), *(several if isinstance(several, Sequence) else ())]
        at, head = found.get("call"), next((each for each in heads if isinstance(each, int)), None)
        if found.get("severity") != "fault" or not isinstance(at, int) or at not in telling or head is None:
            continue
        head = min(head, run.calls[at].shape[0] - 1)
        row = found.get("row")
        call = run.calls[at]
        query = _row(call, telling[at], head) if row is None else min(row, call.shape[1] - 1)
        return Choice(at, head, query, f"the audit found a fault in this head: {found.get('check', '')}")
    return None


def _row(call: Call, telling: Telling, head: int) -> int:
    """The row that tells most; if none does, the first of the ordinary ones that may attend to the most keys."""
    far = telling.far[head]
    if far.any():
        return int(far.argmax())
    keys = call.rows["attended"].max(0) if "attended" in call.rows else 0
    return int(np.where(telling.rows, keys, -1).argmax())


class Telling(NamedTuple):
    """rows: which rows are ordinary tokens, that is, not special, (Q,) · own: the own weight of each of them, as
    `choose` describes it, (H, Q) · far: times the logarithm of the distance · hub: the heads in which most rows have
    the same strongest key, (H,).
    """

    rows: np.ndarray
    own: np.ndarray
    far: np.ndarray
    hub: np.ndarray


def _telling(run: Run, call: Call) -> Telling:
    if not {"strongest", "maximum", "attended"} <= call.rows.keys() or call.received is None:
        call = with_figures(call, run.axes[call.keys].special)
    assert call.received is not None
    H, Q, _ = call.shape
    special, rows = np.array(run.axes[call.keys].special), ~np.array(run.axes[call.queries].special)
    strongest, largest = call.rows["strongest"].astype(np.int64), call.rows["maximum"].astype(np.float64)
    place = np.arange(H)[:, None], np.maximum(strongest, 0)
    others = (call.received[place] - largest) / np.maximum(call.readers[place] - 1, 1)
    usual = np.maximum(others, 1 / np.maximum(call.rows["attended"], 1))
    same_text = call.queries == call.keys
    distance = np.abs(strongest - call.start - np.arange(Q)) if same_text else np.full((H, Q), 2)
    keys = run.axes[call.keys]
    if keys.grid is not None and not keys.image:  # patches have rows and columns, not a distance along a text
        distance = np.where(distance, 2, 0)
    ordinary = rows & (strongest >= 0) & ~special[place[1]]
    own = ordinary & (distance >= 2) & (largest >= TIMES * usual)
    own = np.where(own, largest - usual, 0)
    hub = [
        _most_common(line[rows & (line >= 0)]) > HUB or _most_common(line[those]) > HUB_OF_ORDINARY
        for line, those in zip(strongest, ordinary, strict=True)
    ]
    return Telling(rows, own, own * np.log2(np.maximum(distance, 2)), np.array(hub))


def _most_common(keys: np.ndarray) -> float:
    """The share of the most common one."""
    return np.bincount(keys).max(initial=0) / max(1, len(keys))


def _positions(run: Run, names: list[str], token: str) -> dict[str, int]:
    """The position of the token on each of these axes that contains it."""
    found = {name: at for name in names if (at := position_of(run.axes[name], token)) is not None}
    if not found:
        words = " ".join(named(run.axes[names[0]], i) for i in range(min(40, len(run.axes[names[0]]))))
        raise refuse(
            "look",
            "no such token",
            f"{token!r}",
            f"a position from 0 to {max(len(run.axes[name]) for name in names) - 1}, or a word of the text",
            f"choose among: {words}",
        )
    return found


def position_of(axis: Axis, token: str) -> int | None:
    """The position: a number, else the first one of the word."""
    number = token.strip()
    if number.isascii() and number.isdecimal() and int(number) < len(axis):
        return int(number)
    return next(iter(axis.positions(token)), None)
