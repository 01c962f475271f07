"""Copies rows of keys or values from anywhere in an array next to each other; later ones are prefetched meanwhile."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ...common.arrays import address
from . import threads
from .code import build
from .code.arguments import Block
from .code.ir import BYTE, I32, I64, Code, vector
from .code.target import host
from .kernels.parts.tasks import begun, each_task
from .launch import Workspace

SLOTS = ("next", "tasks", "array", "places", "out", "n", "parts", "heads", "shared", "rows", "of_batch", "of_head",
         "of_row", "places_of_entry", "places_of_head")  # fmt: skip
KEYS = 256  # of a task
AHEAD = 6  # rows that are prefetched
LINE, MOST = 64, 40  # bytes of a cache line, and lines of a row that are prefetched
SMALL = 1 << 17  # bytes below which a single thread is faster


def gather(array: np.ndarray, places: np.ndarray, rows: int) -> np.ndarray:
    """found[entry, head, i] = array[entry // rows, head · G // heads, places[entry, head or 0, i]].

    array (B, G, K, depth) · places (B · rows, 1 or heads, n) int32, contiguous. Found are (B · rows, heads, n, depth),
    with as many heads as the array has, or as the places have.
    """
    entries, selections, n = places.shape
    G, depth = array.shape[1], array.shape[3]
    heads, width = max(G, selections), depth * array.itemsize
    array = array if array.strides[3] == array.itemsize or depth == 1 else np.ascontiguousarray(array)
    found = np.empty((entries, heads, n, depth), array.dtype)
    kernel = build.compiled(f"gather {width}", host(), lambda: _write(width), "gather")
    counter, parts = np.zeros(1, np.int64), -(-n // KEYS)
    block = np.array([
        address(counter), entries * heads * parts, address(array), address(places), address(found), n, parts, heads,
        heads // G, rows, *array.strides[:3], 4 * n * selections, 4 * n * (selections > 1),
    ], np.int64)  # fmt: skip
    workers = 1 if found.nbytes < SMALL else min(threads.count(), int(block[1]))
    Workspace(kernel, block, 0, workers, (array, places, found, counter)).run()
    return found


def _write(width: int) -> ir.Module:
    """The kernel `gather(arguments, scratch, budget)` for rows of so many bytes; its slots are `SLOTS`."""
    module, code, (arguments, _, budget) = begun("gather")
    arg = Block(code, arguments, [], [], True, SLOTS)
    with each_task(code, arg, budget) as number:
        pair, part = code.sdiv(number, arg["parts"]), code.srem(number, arg["parts"])
        entry, h = code.sdiv(pair, arg["heads"]), code.srem(pair, arg["heads"])
        own = code.add(
            code.mul(code.sdiv(entry, arg["rows"]), arg["of_batch"]),
            code.mul(code.sdiv(h, arg["shared"]), arg["of_head"]),
        )
        rows = arg.at("array", own)
        places = arg.at("places", code.add(code.mul(entry, arg["places_of_entry"]), code.mul(h, arg["places_of_head"])))
        out = arg.at("out", code.mul(code.mul(pair, arg["n"]), width))
        first, last = code.mul(part, KEYS), code.sub(arg["n"], 1)

        def row_at(i):
            place = code.sext(code.get(code.at(places, i, 4), I32, 4), I64)
            return code.at(rows, code.mul(place, arg["of_row"]))

        with code.loop(first, code.smaller_int(code.add(first, KEYS), arg["n"])) as key:
            ahead = row_at(code.smaller_int(code.add(key.index, AHEAD), last))
            for line in range(0, min(width, MOST * LINE), LINE):
                code.prefetch(code.at(ahead, line))
            _copy(code, row_at(key.index), code.at(out, key.index, width), width)
    code.ret_void()
    return module


def _copy(code: Code, source, target, width: int) -> None:
    """A row, in pieces of powers of two bytes."""
    done = 0
    for size in (32, 16, 8, 4, 2, 1):
        while width - done >= size:
            code.put(code.get(code.at(source, done), vector(BYTE, size)), code.at(target, done))
            done += size
