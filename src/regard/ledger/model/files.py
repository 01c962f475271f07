"""Files: what a folder of weights holds, from the headers of its safetensors files; no weight is read."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

from ...common.files.tensors import header_of, opened


class Held(NamedTuple):
    """Numbers and bytes of all tensors in a folder."""

    numbers: int
    bytes: int


def held_in(folder: Path) -> Held | None:
    """What the safetensors files of a folder hold; None without any. Raises Refused for a damaged file."""
    tensors: dict[str, tuple[int, int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        handle = opened(file)
        try:
            header, _ = header_of(handle, file.name, "cost")
        finally:
            os.close(handle)
        for name, entry in header.items():
            if entry["dtype"] == "I64":
                continue  # positions, which old files hold beside the weights
            begin, end = entry["data_offsets"]
            tensors[name] = (math.prod(entry["shape"]), end - begin)
    if not tensors:
        return None
    return Held(*(sum(each[at] for each in tensors.values()) for at in (0, 1)))
