"""One pass over the weights of a run: the statistics and the codes of every layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import refuse
from .codes import Coded, Coder
from .run import Run
from .stats import Statistics, Tally

__all__ = ["Survey", "survey"]

MOST = 100_000_000  # weights, a byte each before packing: a page of more takes browsers long to open
SECOND_BYTE = 4_000_000  # up to so many weights, a second byte tells them to within 0.02 %


@dataclass(frozen=True)
class Survey:
    """What is kept of one layer."""

    figures: Statistics
    codes: Coded


def survey(run: Run, track=iter) -> tuple[Survey, ...]:
    """Every layer of the run, its weights computed once, by blocks of rows. track: goes through the layers, may show progress.

    Refused: more than 100 million weights, H · n² summed over the layers.
    """
    n = len(run.tokens)
    heads = sum(part.heads for part in run.layers)
    if heads * n * n > MOST:
        raise refuse("survey", "too much for one page", f"{heads} heads of {n} × {n} weights", f"at most {MOST:,} weights",
                     f"give a text of at most {math.isqrt(MOST // heads)} tokens")  # fmt: skip
    found = []
    for part in track(run.layers):
        tally, coder = Tally(part.heads, run.special), Coder(part.heads, n, fine=heads * n * n <= SECOND_BYTE)
        for rows, weights, allowed in part.blocks(n):
            tally.add(rows, weights, allowed)
            coder.add(rows, weights, allowed)
        found.append(Survey(tally.result(), coder.result()))
    return tuple(found)
