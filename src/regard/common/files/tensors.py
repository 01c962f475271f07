"""Arrays in safetensors files: written once, memory-mapped, and the header validated before an array is created.

    8 bytes: length of the header, little-endian · the header: {name: {dtype, shape, data_offsets}} · the numbers,
    without gaps

Source: the format section of the safetensors repository (huggingface/safetensors, README).
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..dtypes import FLOATS, row_of
from ..errors import Reason, Refused, refuse, refuse_all
from . import output as system
from .strict_json import FIX, loads, wrong

PLAIN = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
}
ADDED = {row.stored: row for row in FLOATS.values() if row.added}  # floats that ml_dtypes adds to NumPy
PLAIN |= {row.stored: f"<f{row.itemsize}" for row in sorted(FLOATS.values(), key=lambda row: row.bits) if not row.added}
SUM = "sum"  # the name of the checksum in the metadata
LONGEST = 100_000_000  # bytes of a header, from the format
LARGEST = 2**60  # elements of an array: more than fits on any disk
ENTRY = {"dtype": str, "shape": [int], "data_offsets": [int]}


def system_error(text: str, path: Path) -> OSError:
    """The error of the system in the message of the safetensors library, which has its number in the text only.

    >>> system_error("I/O error: No space left on device (os error 28)", Path("a"))
    OSError(28, 'No space left on device')
    """
    number = re.search(r"os error (\d+)", text)
    code = errno.EIO if number is None else int(number[1])
    return OSError(code, os.strerror(code), str(path))


def dtype_name(dtype: np.dtype) -> str:
    """The name of a dtype in the format; "" for unsupported dtypes.

    >>> dtype_name(np.dtype(np.float32)), dtype_name(np.dtype(complex))
    ('F32', '')
    """
    row = row_of(dtype)
    if row is not None:
        return row.stored
    return next((name for name, code in PLAIN.items() if np.dtype(code) == dtype.newbyteorder("<")), "")


def _dtype_of(name: str) -> np.dtype:
    return ADDED[name].numpy if name in ADDED else np.dtype(PLAIN[name])


def write(path: Path, arrays: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Writes these arrays to a new file and syncs it. Wide dtypes come first, so that each array is aligned.

    With metadata the file has a checksum of the metadata, the names and the numbers, which `read` compares.
    """
    ordered = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    header: dict[str, Any] = {}
    end = 0
    for name in ordered:
        begin, end = end, end + arrays[name].nbytes
        header[name] = {
            "dtype": dtype_name(arrays[name].dtype),
            "shape": list(arrays[name].shape),
            "data_offsets": [begin, end],
        }
    if metadata is not None:
        total = _sum(header, metadata)
        for name in ordered:
            for block in blocks(arrays[name]):
                total = zlib.crc32(block, total)
        header["__metadata__"] = metadata | {SUM: str(total)}
    text = json.dumps(header).encode()
    text += b" " * ((56 - len(text)) % 64)  # with the 8 bytes of its length, the arrays begin at a multiple of 64
    with open(system.create(path), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            for block in blocks(arrays[name]):
                file.write(block)
        file.flush()
        os.fsync(file.fileno())


def blocks(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array in C order and little-endian; parts with another layout are copied."""
    for part in array if array.ndim > 1 else (array,):
        packed = np.ascontiguousarray(part.astype(part.dtype.newbyteorder("<"), copy=False))
        yield packed.reshape(-1).view(np.uint8).data


def opened(path: Path) -> int:
    """A file descriptor of a regular file. Links are not followed, and opening does not block.

    Raises:
        ValueError: the path is missing, a link, or not a regular file.
    """
    try:
        handle = system.open_plain(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist") from error
    except OSError as error:
        raise ValueError(f"{path} is a link" if path.is_symlink() else f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{path} is not a regular file")
    return handle


def mapped(path: Path, where: str) -> dict[str, np.ndarray]:
    """The arrays of a file by name, memory-mapped and read-only; only the header is read. Refused: a damaged file."""
    try:
        handle = opened(path)
        try:
            header, start = header_of(handle, str(path), where)
            memory = np.frombuffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ), np.uint8)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        if isinstance(error, Refused):
            raise
        raise refuse(where, "a file that cannot be read", str(error), "a regular file of a run", FIX) from error
    return {
        name: memory[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
        .view(_dtype_of(entry["dtype"]))
        .reshape(entry["shape"])
        for name, entry in header.items()
    }


def read(path: Path, where: str, fix: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The metadata and the arrays of a file that `write` has written with metadata. Refused: any other content."""

    def damaged(how: str) -> Refused:
        return refuse(where, "the file is damaged", how, "an unchanged file", fix)

    try:
        handle = opened(path)
    except ValueError as error:
        raise refuse(where, "a file that cannot be read", str(error), "a regular file", fix) from error
    with open(handle, "rb", buffering=0) as file:
        try:
            header, start, metadata = _header(handle, str(path), where, fix)
            if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
                raise damaged(f"{path} without metadata")
            total, arrays = _sum(header, {name: metadata[name] for name in metadata if name != SUM}), {}
            for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                arrays[name] = np.empty(entry["shape"], _dtype_of(entry["dtype"]))
                memory = arrays[name].reshape(-1).view(np.uint8).data
                file.seek(start + entry["data_offsets"][0])
                while len(memory) and (count := file.readinto(memory)):
                    total, memory = zlib.crc32(memory[:count], total), memory[count:]
                if len(memory):
                    raise damaged(f"{path} ends early")
        except OSError as error:
            raise damaged(f"{path}: {error.strerror}") from error
    if metadata.pop(SUM, None) != str(total):
        raise damaged(f"{path}: the checksum differs")
    return metadata, arrays


def _sum(header: dict[str, Any], metadata: dict[str, str]) -> int:
    """The checksum of everything but the numbers."""
    return zlib.crc32(json.dumps([header, metadata], sort_keys=True).encode())


def header_of(handle: int, name: str, where: str) -> tuple[dict[str, Any], int]:
    """(the validated header, the offset of the arrays). The header is checked against the size of the file."""
    return _header(handle, name, where, FIX)[:2]


def _header(handle: int, name: str, where: str, fix: str) -> tuple[dict[str, Any], int, Any]:
    """`header_of`, and the metadata, which may be anything."""
    size = os.fstat(handle).st_size
    length = int.from_bytes(system.read_at(handle, 8, 0), "little")
    room = min(LONGEST, size - 8)
    if not 2 <= length <= room:
        raise refuse(
            where,
            "not a safetensors file",
            f"{name}: a header of {length} bytes in a file of {size}",
            f"2 to {max(room, 2)} bytes",
            fix,
        )
    try:
        header = loads(system.read_at(handle, length, 8))
    except ValueError as error:
        raise refuse(where, "a damaged header", f"{name}: {error}", "JSON", fix) from error
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    refuse_all(where, _faults(header, size - 8 - length, name, fix))
    return header, 8 + length, metadata


def _faults(header: Any, size: int, name: str, fix: str) -> Iterator[Reason]:
    if not isinstance(header, dict):
        yield Reason("a damaged header", f"{name}: {str(header)[:80]}", "an object of arrays", fix)
        return
    spans = []
    for key, entry in header.items():
        at = f"{name}: {key[:80]}"
        if found := list(wrong(entry, ENTRY, at, fix)):
            yield from found
        elif entry["dtype"] not in (*ADDED, *PLAIN):
            yield Reason(
                "an unknown dtype", f"{at} of {entry['dtype'][:20]}", f"one of {', '.join((*ADDED, *PLAIN))}", fix
            )
        elif (
            len(entry["data_offsets"]) != 2
            or len(entry["shape"]) > 16
            or min(entry["shape"], default=0) < 0
            or math.prod(max(one, 1) for one in entry["shape"]) > LARGEST
        ):
            yield Reason(
                "an impossible array", f"{at}: {str(entry)[:200]}", "two offsets, and a shape that fits in a file", fix
            )
        else:
            begin, end = entry["data_offsets"]
            claimed = math.prod(entry["shape"]) * _dtype_of(entry["dtype"]).itemsize
            if end - begin != claimed:
                yield Reason(
                    "the offsets do not match the shape",
                    f"{at} of {claimed} bytes from {begin} to {end}",
                    "as many bytes as its shape has",
                    fix,
                )
            spans.append((begin, end, key))
    at_byte = 0
    for begin, end, key in sorted(spans):
        if begin != at_byte:
            yield Reason(
                "arrays that overlap" if begin < at_byte else "a gap between arrays",
                f"{name}: {key[:80]} begins at {begin}",
                f"the end of the one before, {at_byte}",
                fix,
            )
        at_byte = max(end, begin)
    if at_byte != size:
        yield Reason(
            "a file that is too short" if size < at_byte else "a file that is too long",
            f"{name} has {size} bytes of arrays",
            f"{at_byte}, as in its header",
            fix,
        )
