"""The messages between the two processes: a length, then the content.

The child runs code of others, so what it sends is never unpickled: it is a JSON object, with the plain numbers of
float64 arrays or without.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

HEAD = struct.Struct(">Q")


def framed(content: bytes) -> bytes:
    """A message: the length of its content, and the content."""
    return HEAD.pack(len(content)) + content


def read_frame(stream: BinaryIO) -> bytes | None:
    """Waits for one message; None if the other process has closed its end."""
    head = stream.read(HEAD.size)
    return stream.read(HEAD.unpack(head)[0]) if len(head) == HEAD.size else None


def packed(fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """A JSON object and float64 arrays by name, as the content of a message."""
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    head = json.dumps({"fields": fields, "shapes": shapes}).encode()
    return b"".join([framed(head), *(array.astype("<f8").tobytes() for array in arrays.values())])


def unpacked(content: bytes | bytearray) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON object and the arrays of a message. Raises ValueError for everything that `packed` does not write."""
    try:
        start = HEAD.size + HEAD.unpack_from(content)[0]
        message = json.loads(bytes(content[HEAD.size : start]))
        fields, arrays = dict(message["fields"]), {}
        for name, shape in message["shapes"].items():
            count = math.prod(shape)
            arrays[name] = np.frombuffer(content, "<f8", count, start).reshape(shape)
            start += 8 * count
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError, struct.error) as error:
        raise ValueError(str(error)) from error
    return fields, arrays
