"""The messages between the two processes: a length, then the content.

The child runs code of others, so what it sends is never unpickled: it is a JSON object, with the plain numbers of
float64 arrays or without.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

HEAD = struct.Struct(">Q")


def framed(content: bytes) -> bytes:
    """A message: the length of its content, and the content."""
    return HEAD.pack(len(content)) + content


def read_frame(descriptor: int) -> bytes | None:
    """Waits for one message; None if the other process has closed its end."""
    head = _read(descriptor, HEAD.size)
    return None if head is None else _read(descriptor, HEAD.unpack(head)[0])


def _read(descriptor: int, size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        piece = os.read(descriptor, min(size - len(content), 1 << 20))
        if not piece:
            return None
        content += piece
    return bytes(content)


def write_frame(descriptor: int, content: bytes) -> None:
    """Sends one message."""
    message = memoryview(framed(content))
    while message:
        message = message[os.write(descriptor, message) :]


def packed(fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """A JSON object and float64 arrays by name, as the content of a message."""
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    head = json.dumps({"fields": fields, "shapes": shapes}).encode()
    return b"".join([HEAD.pack(len(head)), head, *(_numbers(array) for array in arrays.values())])


def _numbers(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, "<f8").tobytes()


def unpacked(content: bytes | bytearray) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON object and the arrays of a message. Raises ValueError for everything that `packed` does not write."""
    try:
        start = HEAD.size + HEAD.unpack_from(content)[0]
        message = json.loads(bytes(content[HEAD.size : start]))
        fields, shapes = dict(message["fields"]), {str(name): tuple(shape) for name, shape in message["shapes"].items()}
        arrays = {}
        for name, shape in shapes.items():
            if not all(type(length) is int and length >= 0 for length in shape):
                raise ValueError(f"a shape of {name}")
            count = int(np.prod(shape, dtype=object))
            arrays[name] = np.frombuffer(content, "<f8", count, start).reshape(shape)
            start += 8 * count
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError, struct.error) as error:
        raise ValueError(str(error)) from error
    return fields, arrays
