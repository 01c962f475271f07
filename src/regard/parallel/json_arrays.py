"""Arrays of integers in JSON: deflated, in base64, little-endian; every bit returns."""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np

FORM = {"dtype": str, "length": int, "deflated": str}


def packed(array: np.ndarray) -> dict[str, str | int]:
    """An array of one axis, int32 or int64, as an object of JSON."""
    raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = base64.b64encode(zlib.compress(raw.tobytes(), 6)).decode()
    return {"dtype": raw.dtype.str, "length": len(raw), "deflated": text}


def unpacked(found: dict[str, str | int], dtype: str, most: int) -> np.ndarray:
    """The array. ValueError: it is damaged, of another dtype, or longer than `most`.

    >>> unpacked(packed(np.arange(3, dtype=np.int32)), "<i4", 3).tolist()
    [0, 1, 2]
    """
    length = int(found["length"])
    if found["dtype"] != dtype or not 0 <= length <= most:
        raise ValueError(f"{found['dtype']} × {length}, expected {dtype} × at most {most}")
    size = length * np.dtype(dtype).itemsize
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(base64.b64decode(str(found["deflated"]), validate=True), size + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"its data are damaged: {error}") from error
    if len(raw) != size:
        raise ValueError(f"its data have {len(raw)} bytes, or more; expected {size}")
    return np.frombuffer(raw, dtype).astype(np.dtype(dtype).newbyteorder("="))
