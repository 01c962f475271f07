"""The arrays of a call: their names in files, the sizes that must agree, and bytes as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...common.errors import Reason, refuse
from ...common.files.strict_json import FIX
from ..runs.call import Call, Overview

# One character per axis; the same character means the same size in all arrays of a call.
AXES = {
    "q": "HQD",
    "k": "GKD",
    "lse": "HQ",
    "sinks": "HS",
    "given": "HQK",
    "v": "GKE",
    "x": "QM",
    "out": "HQE",
    "received": "HK",
    "lengths": "HK",
    "overview.share": "HRC",
    "overview.largest": "HRC",
}
ROW = "rows."


def arrays_of(call: Call) -> dict[str, np.ndarray]:
    """Every array of the call by name."""
    found = {name: getattr(call, name) for name in AXES if "." not in name}
    if call.overview is not None:
        found |= {"overview.share": call.overview.share, "overview.largest": call.overview.largest}
    found |= {ROW + name: array for name, array in call.rows.items()}
    return {name: array for name, array in found.items() if array is not None}


def fields_of(arrays: Mapping[str, np.ndarray], exact: str | None) -> dict[str, Any]:
    """The fields of a call from its arrays; exact: the `exact` text of its overview."""
    found: dict[str, Any] = {name: array for name, array in arrays.items() if name in AXES and "." not in name}
    found["rows"] = {name.removeprefix(ROW): array for name, array in arrays.items() if name.startswith(ROW)}
    if exact is not None:
        found["overview"] = Overview(arrays["overview.share"], arrays["overview.largest"], exact)
    return found


def faults(name: str, shapes: Mapping[str, tuple[int, ...]]) -> list[Reason]:
    """A reason for every array of the call `name` that is unknown or does not fit the others."""
    sizes: dict[str, tuple[int, str]] = {}
    found = []
    for array, shape in shapes.items():
        axes = "HQ" if array.startswith(ROW) else AXES.get(array)
        given = f"{name[:80]}: {array[:80]} of {list(shape)}"
        if axes is None:
            found.append(Reason("an unknown array", given, f"one of {', '.join(AXES)}, {ROW}…", FIX))
        elif len(axes) != len(shape):
            found.append(Reason("an array of the wrong shape", given, f"({', '.join(axes)})", FIX))
        else:
            for axis, size in zip(axes, shape, strict=True):
                known, other = sizes.setdefault(axis, (size, array))
                if known != size:
                    found.append(
                        Reason("arrays that do not fit each other", given, f"{axis} = {known}, as in {other}", FIX)
                    )
    if sizes.get("G", (1, ""))[0] < 1 or sizes.get("H", (0, ""))[0] % sizes.get("G", (1, ""))[0]:
        found.append(
            Reason(
                "the number of heads is not a multiple of the key heads",
                f"{name[:80]}: {sizes['H'][0]} of queries, {sizes['G'][0]} of keys",
                "H a multiple of G",
                FIX,
            )
        )
    missing = [one for one in ("lse",) if one not in shapes]
    if ("given" in shapes) == ("q" in shapes and "k" in shapes):
        missing.append("either q and k, or given")
    if ("overview.share" in shapes) != ("overview.largest" in shapes):
        missing.append("both parts of the overview")
    return found + [Reason("missing arrays", f"{name[:80]}: {', '.join(shapes)}", one, FIX) for one in missing]


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
