"""How findings describe places and lists in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...lens import Run
from ..finding import Finding, Passed, Result, Skipped

SHOWN = 8


def place(run: Run, call: int, heads: Sequence[int] = (), row: int | None = None) -> str:
    """A place in words: "call 3 (layers.1.self_attn), head 0, row 17"."""
    words = [f"call {call} ({run.calls[call].name})"]
    if heads and len(heads) < run.calls[call].shape[0]:
        words.append(f"head{'s' if len(heads) > 1 else ''} {listed(heads)}")
    return ", ".join([*words, *([] if row is None else [f"row {row}"])])


def finding_at(run: Run, call: int, heads: Sequence[int] = (), row: int | None = None, **fields: Any) -> Finding:
    """A finding about a call, or about some of its heads and the first row where it shows."""
    head = heads[0] if len(heads) == 1 else None
    return Finding(where=place(run, call, heads, row), call=call, head=head, row=row, **fields)


def listed(things: Sequence) -> str:
    """The first 8 entries, and the number of the others.

    >>> listed(range(12))
    '0, 1, 2, 3, 4, 5, 6, 7 and 4 more'
    """
    more = len(things) - SHOWN
    return ", ".join(map(str, things[:SHOWN])) + (f" and {more} more" if more > 0 else "")


def concluded(check: str, findings: Iterable[Finding], read: int, measured: str, reason: str) -> Iterator[Result]:
    """The findings; without any, `Passed` with what was measured, or `Skipped` with the reason if nothing was read."""
    results: list[Result] = list(findings)
    yield from results or [Passed(check, measured) if read else Skipped(check, reason)]
