"""Which layer, head and token to show first: what was asked for, and otherwise the firmest look at a distant word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import refuse
from .labels import visible
from .run import Run
from .stats import distant
from .survey import Survey

__all__ = ["Choice", "choose"]


@dataclass(frozen=True)
class Choice:
    """A layer, a head, a query token, and why these."""

    layer: int
    head: int
    token: int
    why: str


def choose(
    run: Run, surveys: Sequence[Survey], layer: int | None = None, head: int | None = None, token: str | None = None
) -> Choice:
    """The place to look at. token: a position, or a word of the text. Refused: what is not there.

    A head is chosen by the largest weight, averaged over its rows, from an ordinary token to an ordinary token at least two
    away; where the token is given, by that token's row alone. A token is chosen by the same weight within the head.
    """
    row = None if token is None else _position(run, token)
    marked = np.asarray(run.special, bool)
    everywhere = [(i, j) for i, part in enumerate(run.layers) for j in range(part.heads)]
    places = [(i, j) for i, j in everywhere if layer in (None, i) and head in (None, j)]
    if not places:
        asked = ", ".join(f"{name} {number}" for name, number in (("layer", layer), ("head", head)) if number is not None)
        last = max(part.heads for part in run.layers) - 1
        raise refuse("look", "no such head", asked, f"layers 0 to {len(run.layers) - 1}, heads 0 to {last}", "count from 0")
    if row is None:
        scores = np.nan_to_num([surveys[i].figures.reach[j] for i, j in places])
    else:
        scores = np.array([_firmness(surveys[i], j, np.array([row]), marked)[0] for i, j in places])
    best = int(np.argmax(scores))
    at, number = places[best]
    among = "of all heads" if len(places) == len(everywhere) else "of the heads asked for"
    if len(places) == 1:
        why = "the head that was asked for"
    elif not scores[best] > 0:
        why = f"the first {among}: in none does an ordinary token look at another two or more away"
    elif row is None:
        why = f"{among}, words look most firmly at distant words in this one: {scores[best]:.0%} on average"
    else:
        why = f"{among}, this token looks most firmly at a distant word in this one: {scores[best]:.0%}"
    if row is None:
        firm = _firmness(surveys[at], number, np.arange(len(marked)), marked) * ~marked
        row = int(firm.argmax()) if firm.any() else int(marked.argmin())
    return Choice(at, number, row, why)


def _firmness(found: Survey, head: int, rows: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """The largest weight that each row gives to an ordinary token at least two away."""
    weights = np.nan_to_num(found.codes.weights(head, slice(rows[0], rows[-1] + 1)))
    return distant(weights[None], rows, marked)[0].max(-1)


def _position(run: Run, token: str) -> int:
    """The position that is named: a number, else the first token of that spelling, else the end of a word of several tokens."""
    n = len(run.tokens)
    word = token.strip().casefold()
    if word.isdecimal() and int(word) < n:
        return int(word)
    spelled = [visible(part).casefold() for part in run.tokens]
    if word in spelled:
        return spelled.index(word)
    ends = np.cumsum([len(part) for part in run.tokens])
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", "".join(run.tokens), re.IGNORECASE) if word else None
    if found:
        return int(np.searchsorted(ends, found.end()))
    raise refuse("look", "no such token", f"{token!r}", f"a position from 0 to {n - 1}, or a word of the text",
                 f"choose among: {' '.join(visible(part) for part in run.tokens[:40])}")  # fmt: skip
