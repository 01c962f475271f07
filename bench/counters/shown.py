"""Prints the numbers of a script side by side, and ends it: 0 only if the difference that it shows is still there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version

__all__ = ["pairs", "shown"]


def pairs(rows: int, keys: int, allowed: Callable[[int, int], bool]) -> int:
    """Pairs of query and key, tried one by one."""
    return sum(allowed(query, key) for query in range(rows) for key in range(keys))


def shown(packages: str, numbers: dict[str, int | str], *, wrong: bool, exact: bool) -> None:
    """Ends the script. wrong: the counter still gives the number that is shown · exact: regard and the brute-force
    count agree.
    """
    print(", ".join(f"{name} {version(name)}" for name in packages.split()))
    width = max(map(len, numbers))
    for name, number in numbers.items():
        print(f"{name:<{width}}  {number:>20,}" if isinstance(number, int) else f"{name:<{width}}  {number}")
    if not exact:
        sys.exit("regard and the brute-force count do not agree")
    if not wrong:
        sys.exit("the difference is gone: this version counts something else, so correct docs/explanation/counters.md")
