"""Numbers and counts as people read them."""

from __future__ import annotations


def unit(number: float, name: str) -> str:
    """A number with three digits and its unit: 1.23 GFLOP, 4 kB."""
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(number) >= 10**power:
            return f"{number / 10**power:.3g} {prefix}{name}"
    return f"{number:.3g} {name}"


def seconds(number: float) -> str:
    """A time with three digits and its unit: 1.23 ms."""
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if number * factor >= 1:
            return f"{number * factor:.3g} {name}"
    return f"{number * 1e9:.3g} ns"


def counted(count: int, one: str, several: str = "") -> str:
    """The number and the noun in singular or plural.

    >>> counted(1, "head"), counted(1200, "head"), counted(0, "entry", "entries")
    ('1 head', '1200 heads', '0 entries')
    """
    return f"{count} {one if count == 1 else several or one + 's'}"
