"""Which layer, head and token to show first: what was asked for, and otherwise the firmest look at a distant word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import refuse
from .labels import visible
from .run import Run
from .stats import Statistics, distant

__all__ = ["Choice", "choose"]


@dataclass(frozen=True)
class Choice:
    """A layer, a head, a query token, and why these."""

    layer: int
    head: int
    token: int
    why: str


def choose(
    run: Run, figures: Sequence[Statistics], layer: int | None = None, head: int | None = None, token: str | None = None
) -> Choice:
    """The place to look at. token: a position, or a word of the text. Refused: what is not there.

    A head is chosen by the largest weight, averaged over its rows, from an ordinary token to an ordinary token at least two
    away; where the token is given, by that token's row alone. A token is chosen by the same weight within the head.
    """
    places = [(i, j) for i, part in enumerate(run.layers) for j in range(part.heads)
              if layer in (None, i) and head in (None, j)]  # fmt: skip
    if not places:
        raise refuse("look", "no such head", f"layer {layer}, head {head}".replace("None", "any"),
                     f"layers 0 to {len(run.layers) - 1}, heads 0 to {max(part.heads for part in run.layers) - 1}", "count from 0")  # fmt: skip
    row = None if token is None else _position(run, token)
    marked = np.asarray(run.special, bool)
    if row is None:
        scores = [figures[i].reach[j] for i, j in places]
    else:
        reach = {i: distant(run.layers[i].weights(slice(row, row + 1)), np.array([row]), marked).max((1, 2)) for i, _ in places}
        scores = [reach[i][j] for i, j in places]
    best = int(np.argmax(np.nan_to_num(scores)))
    at, number = places[best]
    if row is not None:
        looker, firmest = "this token", f"{100 * scores[best]:.0f} %"
    else:
        looker, firmest = "an ordinary token", f"{100 * scores[best]:.0f} % on average"
        row = _firmest_row(run, at, number, marked)
    among = " of all" if len(places) == sum(part.heads for part in run.layers) else " of those asked for"
    if len(places) == 1:
        why = "the head that was asked for"
    elif not scores[best] > 0:
        why = f"the first head{among}: none looks at an ordinary token two or more away"
    else:
        why = f"the head in which {looker} looks most firmly at a distant word ({firmest}){among}"
    return Choice(at, number, row, why)


def _firmest_row(run: Run, layer: int, head: int, marked: np.ndarray) -> int:
    """The ordinary token with the largest weight on an ordinary token at least two away; else the first ordinary token."""
    best, found = 0.0, int(np.argmin(marked))
    for rows, p, _ in run.layers[layer].blocks(len(run.tokens)):
        queries = np.arange(rows.start, rows.stop)
        firm = np.nan_to_num(distant(p[head : head + 1], queries, marked)[0].max(-1)) * ~marked[queries]
        if firm.max() > best:
            best, found = firm.max(), int(queries[firm.argmax()])
    return found


def _position(run: Run, token: str) -> int:
    n = len(run.tokens)
    if token.isdecimal() and int(token) < n:
        return int(token)
    spelled = [visible(part).casefold() for part in run.tokens]
    if token.strip().casefold() in spelled:
        return spelled.index(token.strip().casefold())
    raise refuse("look", "no such token", f"{token!r}", f"a position from 0 to {n - 1}, or a token of the text",
                 f"choose among: {' '.join(visible(part) for part in run.tokens[:40])}")  # fmt: skip
