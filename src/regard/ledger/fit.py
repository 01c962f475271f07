"""Fit: the longest context and the largest batch that a memory holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..common.errors import Refused, refuse
from ..common.text.terminal_text import printable
from ..common.text.units import unit
from .build import Subject
from .cost import longest, priced
from .inputs import reads_tokens

MOST = 1 << 30  # tokens or sequences


@printable
@dataclass(frozen=True)
class Fit:
    """What a memory holds in one phase. least: bytes for one token · given: tokens, or None for a model that reads
    none, and sequences · tokens: the most tokens of so many sequences · batch: the most sequences of so many tokens;
    None where not even one fits · limit: the positions of the model.
    """

    phase: str
    memory: int
    least: int
    given: tuple[int | None, int]
    tokens: int | None
    batch: int | None
    limit: int

    def __str__(self) -> str:
        start = f"{self.phase} in {unit(self.memory, 'B')}: "
        if self.least > self.memory:
            return f"{start}nothing fits: one token needs {unit(self.least, 'B')}"
        length, sequences = self.given
        parts = []
        if length is not None:
            most = "none" if self.tokens is None else f"{self.tokens:,} tokens"
            every = ", all positions of the model," * (self.tokens == self.limit)
            parts.append(f"{most}{every} in {sequences:,} sequence{'s' * (sequences > 1)}")
        of = "" if length is None else f" of {length:,} tokens"
        return start + ", or ".join([*parts, f"{self.batch or 0:,} sequences{of}"])


def size(text: str) -> int:
    """Bytes: 24GB, 24 GiB, 24e9.

    >>> size("24GB"), size("1.5 GiB")
    (24000000000, 1610612736)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,2})?)\s*(?:([kMGTP])(i?B)?|B)?\s*", text)
    base = 1024 if match and match[3] == "iB" else 1000
    found = int(float(match[1]) * base ** " kMGTP".index(match[2] or " ")) if match else 0
    if found < 1:
        raise refuse("cost", "the memory cannot be read", repr(text), "such as 24GB or 80 GiB", "write a unit")
    return found


def fit(made: Subject, memory: int, phase: str, tokens: int, batch: int) -> Fit:
    """The most tokens of `batch` sequences, and the most sequences of `tokens`, for which everything that is held fits.

    Held are weights, and in training gradients, Adam's numbers and activations (with checkpoints, where the model can),
    otherwise caches and the largest product's arrays. A context is not longer than the model's positions.
    """

    def held(length: int | None, sequences: int) -> int:
        return priced(made, length, sequences, phase).memory.held

    reads = reads_tokens(made.model)
    least = held(1 if reads else None, 1)
    limit = longest(made) or MOST
    context = _largest(lambda length: held(length, batch), memory, limit) if reads else None
    sequences = _largest(lambda count: held(tokens if reads else None, count), memory, MOST)
    return Fit(phase, memory, least, (tokens if reads else None, batch), context, sequences, limit)


def _largest(held: Callable[[int], int], memory: int, limit: int) -> int | None:
    """The largest number for which `held`, which grows with it, is at most `memory`. A straight line through two known
    points says where to look next, so a handful of tries is enough where memory grows evenly.
    """
    low, below = 1, float(held(1))
    if below > memory:
        return None
    high = min(2, limit)
    above = float(held(high))
    while above <= memory and high < limit:
        slope = max((above - below) / (high - low), 1e-9)
        low, below = high, above
        guess = int(high + (memory - above) / slope) + 1
        high = min(max(guess, high + 1), limit)
        above = _or_infinite(held, high)
    if above <= memory:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if above < float("inf") and above > below:
            middle = min(max(low + int((memory - below) * (high - low) / (above - below)), low + 1), high - 1)
        found = _or_infinite(held, middle)
        if found <= memory:
            low, below = middle, found
            if low + 1 < high and _or_infinite(held, low + 1) > memory:
                break
        else:
            high, above = middle, found
    return low


def _or_infinite(held: Callable[[int], int], number: int) -> float:
    """What is held, or infinity if the model cannot be run with so many, as with a table of positions."""
    try:
        return held(number)
    except Refused:
        return float("inf")
