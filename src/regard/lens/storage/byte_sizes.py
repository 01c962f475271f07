"""Sizes in bytes as text, such as "2GB", "500 MB" and "1.5 GiB": parsing and formatting."""

from __future__ import annotations

import math
import re

from ...common.errors import refuse

UNITS = (
    {"": 1, "b": 1}
    | {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)}
    | {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
)


def size_of(given: int | str, where: str) -> int:
    """The number of bytes: kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024. Refused: anything that
    is not a size above 0.

    >>> size_of("2GB", "look"), size_of("1.5 KiB", "look"), size_of(10, "look")
    (2000000000, 1536, 10)
    """
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([a-zA-Z]{0,3})\s*", str(given))
    if (
        isinstance(given, bool)
        or found is None
        or found[2].lower() not in UNITS
        or not (size := math.floor(float(found[1]) * UNITS[found[2].lower()]))
    ):
        raise refuse(
            where,
            "not a size in bytes",
            repr(given),
            "bytes, or a number with kB, MB, GB or TB",
            "write it as in limit='2GB'",
        )
    return size


def shown(size: float) -> str:
    """A size as text with three significant digits.

    >>> shown(999), shown(1234567), shown(2e9)
    ('999 bytes', '1.23 MB', '2 GB')
    """
    power = 0
    while float(f"{size:.3g}") >= 1000 and power < 4:
        size, power = size / 1000, power + 1
    return f"{size:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"
