"""Sequences of different lengths that are packed into one axis, as rules over their positions."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch

from ..language.expr import Expr, key, query, table


class Sequences(NamedTuple):
    """own: which pairs are of one sequence · place: the position of each row on the axis of the keys · of_rows: the
    sequence of each row, −1 for none.
    """

    own: Expr
    place: Expr
    of_rows: torch.Tensor


def sequences(
    rows: tuple[int, ...],
    keys: tuple[int, ...],
    sizes: tuple[int, int],
    *,
    counts: list[int] | None = None,
    last: bool = True,
) -> Sequences:
    """The rules of sequences that begin at `rows` and `keys`, which end with where the last sequence ends.

    sizes: of both axes. counts: keys of each sequence, where there is padding after them. last: whether the last row of
    a sequence is at its last key; otherwise the first row is at its first key.
    """
    many, others = sizes
    lengths = [end - start for start, end in pairwise(keys)] if counts is None else counts
    of_rows = _numbers(rows, [end - start for start, end in pairwise(rows)], many, -1)
    if rows == keys and counts is None and many == others == rows[-1] and not rows[0]:
        number = table(of_rows, "document")
        return Sequences(number[query] == number[key], query, of_rows)
    of_keys = _numbers(keys, lengths, others, -2)
    shifts = [
        begin - start + (length - (end - start) if last else 0)
        for (start, end), begin, length in zip(pairwise(rows), keys, lengths)
    ]
    place = torch.arange(len(of_rows)) + torch.tensor(shifts or [0])[of_rows.clamp(min=0)]
    own = table(of_rows, "document")[query] == table(of_keys, "other_document")[key]
    return Sequences(own, table(place, "place")[query], of_rows)


def _numbers(starts: tuple[int, ...], lengths: list[int], size: int, none: int) -> torch.Tensor:
    """The number of the sequence of each position; `none` where there is none, and one element for an empty axis."""
    found = torch.full((max(size, 1),), none)
    for number, (start, length) in enumerate(zip(starts, lengths)):
        found[start : start + length] = number
    return found


def band(place: Expr, left: int | None, right: int | None) -> Expr | None:
    """Which keys are at most so many before and after the place of a row; None for no limit."""
    after = None if right is None else key <= place + right if right else key <= place
    before = None if left is None else key >= place - left
    return before if after is None else after if before is None else after & before
