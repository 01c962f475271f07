"""Wording: places and lists as findings say them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...lens import Run
from ..finding import Finding, Passed, Result, Skipped

__all__ = ["concluded", "listed", "place", "shape_of"]

SHOWN = 8


def place(run: Run, call: int, heads: Sequence[int] = (), row: int | None = None) -> str:
    """Where it is: "call 3 (layers.1.self_attn), head 0, row 17"."""
    words = [f"call {call} ({run.calls[call].name})"]
    if heads and len(heads) < run.calls[call].shape[0]:
        words.append(f"head{'s' if len(heads) > 1 else ''} {listed(heads)}")
    return ", ".join([*words, *([] if row is None else [f"row {row}"])])


def listed(things: Sequence) -> str:
    """The first few, and how many more.

    >>> listed(range(12))
    '0, 1, 2, 3, 4, 5, 6, 7 and 4 more'
    """
    more = len(things) - SHOWN
    return ", ".join(map(str, things[:SHOWN])) + (f" and {more} more" if more > 0 else "")


def shape_of(name: str) -> str:
    """The path of a layer without its numbers: equal for layers like one another.

    >>> shape_of("layers.11.attn")
    'layers.#.attn'
    """
    return re.sub(r"\d+", "#", name)


def concluded(check: str, found: Iterable[Finding], read: int, measured: str, otherwise: str) -> Iterator[Result]:
    """The findings; if there are none, that the check passed, or was skipped because it could read nothing."""
    findings: list[Result] = list(found)
    yield from findings or [Passed(check, measured) if read else Skipped(check, otherwise)]
