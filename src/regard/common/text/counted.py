"""A number with its noun."""

from __future__ import annotations


def counted(count: int, one: str, several: str = "") -> str:
    """The number and the noun in singular or plural.

    >>> counted(1, "head"), counted(1200, "head"), counted(0, "entry", "entries")
    ('1 head', '1200 heads', '0 entries')
    """
    return f"{count} {one if count == 1 else several or one + 's'}"
