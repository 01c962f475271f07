"""Frames: arrays as bytes for the page. Four bytes with the length of a JSON header, the header, then each array at an
offset that is a multiple of four.

{"exact": "exact", "parts": [{"name": "coarse", "dtype": "uint8", "shape": [256, 256]}, …]}
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np


def frame(header: dict, **parts: np.ndarray) -> bytes:
    """The header and the arrays as bytes.

    >>> unframed(frame({"exact": "exact"}, coarse=np.arange(3, dtype=np.uint8)))[1]["coarse"].tolist()
    [0, 1, 2]
    """
    described = [{"name": name, "dtype": part.dtype.name, "shape": part.shape} for name, part in parts.items()]
    begin = json.dumps(header | {"parts": described}, allow_nan=False).encode()
    pieces = [len(begin).to_bytes(4, "little"), begin]
    size = 4 + len(begin)
    for part in parts.values():
        pieces += [bytes(-size % 4), np.ascontiguousarray(part).tobytes()]
        size += -size % 4 + part.nbytes
    return b"".join(pieces)


def unframed(raw: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(the header, the arrays by name) of a frame."""
    at = 4 + int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4:at])
    found = {}
    for part in header["parts"]:
        at += -at % 4
        count = int(np.prod(part["shape"]))
        found[part["name"]] = np.frombuffer(raw, part["dtype"], count, at).reshape(part["shape"])
        at += found[part["name"]].nbytes
    return header, found
