"""Caches in files: one safetensors file, written to a draft and renamed, and validated before it is used.

The metadata describes the cache as JSON and has a checksum. The arrays are `table`, `first`, `lengths`, `start` and
`stepped` of the state, over the pages that are used, and their content: `k` and `v`, in 8 bits also `k.scales` and
`v.scales`. Rows of a page that no sequence uses are written as zeros.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused, first_line, refuse
from ...common.files.strict_json import loads, wrong
from ...common.files.tensors import LARGEST, read, write
from ...language.checks.numbers import LIMIT
from .pages import PAGE, Pages, columns
from .state import State, Stores

NAME, VERSION = "regard cache", "1"
FORM = {
    "kind": str,
    "heads": int,
    "depth": int,
    "value_depth": int,
    "dtype": str,
    "window": (int, None),
    "pages": (int, None),
    "storage": (str, None),
    "width": int,
    "ragged": bool,
}
FIX = "use an unchanged file of KVCache.save, or fill a new cache"
PARTS = ("", ".scales")  # of a store, in the order of its arrays


class Kept:
    """The pages of a store that are used, one after the other, for `write`; unused rows are zero."""

    def __init__(self, array: np.ndarray, pages: np.ndarray, rows: np.ndarray):
        self.array, self.pages, self.rows = array, pages, rows
        self.shape, self.dtype, self.ndim = (len(pages), *array.shape[1:]), array.dtype, array.ndim
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize

    def __iter__(self) -> Iterator[np.ndarray]:
        for page, rows in zip(self.pages, self.rows):
            part = self.array[page].copy()
            part[:, rows:] = 0
            yield part


def save(path: Path, kind: str, described: dict[str, Any], state: State) -> None:
    """Writes a cache of this class, description and state; the description has what the state lacks."""
    pages, filled = state.pages, columns(state.lengths)
    used = np.flatnonzero(pages.holders)
    place = np.zeros(len(pages.holders), np.int32)
    place[used] = np.arange(len(used))
    column = np.arange(int(filled.max(initial=0)))
    own = (column >= pages.first[:, None]) & (column < filled[:, None])
    table = pages.table[:, : len(column)]
    rows = np.zeros(len(pages.holders), np.int64)
    np.maximum.at(rows, table[own], np.minimum(state.lengths[:, None] - column * PAGE, PAGE)[own])
    renumbered = np.zeros(table.shape, np.int32)
    renumbered[own] = place[table[own]]
    arrays: dict[str, Any] = {
        "table": renumbered,
        "first": pages.first,
        "lengths": state.lengths,
        "start": state.start,
        "stepped": np.ones(len(own), np.bool_) if state.stepped is None else state.stepped,
    }
    for name, store in state.stores._asdict().items():
        arrays |= {name + part: Kept(array, used, rows[used]) for part, array in zip(PARTS, store.arrays)}
    text = json.dumps(described | {"kind": kind, "width": state.width, "ragged": state.ragged})
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        write(draft, arrays, {"format": NAME, "version": VERSION, "cache": text})
        os.replace(draft, path)
    except OSError as error:
        raise refuse(
            f"{kind}.save",
            "the file cannot be written",
            f"{path}: {error.strerror}",
            "a file in a folder that exists, with room on its disk",
            "check the path, its permissions and the disk",
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def load(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The validated description of a saved cache of this kind, and its arrays, which `state_of` validates."""
    where = f"{kind}.load"
    metadata, arrays = read(path, where, FIX)
    if metadata.get("format") != NAME or metadata.get("version") != VERSION:
        raise refuse(
            where,
            "not a cache that this version of regard saved",
            f"{path}: {metadata.get('format', 'no format')[:80]} {metadata.get('version', '')[:20]}".rstrip(),
            f"{NAME} {VERSION}",
            FIX,
        )
    try:
        described = loads(metadata.get("cache", "").encode())
    except ValueError as error:
        raise refuse(where, "a damaged description", f"{path}: {first_line(error)}", "JSON", FIX) from error
    reasons = list(wrong(described, FORM, f"{path}", FIX))
    if not reasons and described["kind"] != kind:
        reasons.append(
            Reason(
                "another kind of cache",
                f"{path}: {described['kind'][:80]}",
                kind,
                f"load it with {described['kind'][:80]}.load",
            )
        )
    if reasons:
        raise Refused(where, reasons)
    sizes = [described[name] for name in ("heads", "depth", "value_depth")]
    if (
        min(sizes) < 1
        or (described["window"] or 0) >= LARGEST
        or PAGE * math.prod(sizes) * max(described["pages"] or 1, 1) > LARGEST
    ):
        raise refuse(
            where,
            "impossible sizes",
            f"{path}: heads, depth and value_depth {sizes}, window {described['window']}, pages {described['pages']}",
            "at least 1, and a cache that fits into memory",
            FIX,
        )
    return described, arrays


def state_of(described: dict[str, Any], arrays: dict[str, np.ndarray], stores: Stores) -> State:
    """The state that was saved, in stores of this kind; every position and page that it names exists."""
    where = f"{described['kind']}.load"
    B, used = (_size(arrays, name, 0) for name in ("lengths", "k"))
    width = _size(arrays, "table", -1)
    integers, own = np.dtype(np.int64), [store.arrays for store in stores]
    expected = {
        "table": (np.dtype(np.int32), (B, width)),
        "first": (integers, (B,)),
        "lengths": (integers, (B,)),
        "start": (integers, (B,)),
        "stepped": (np.dtype(np.bool_), (B,)),
    }
    for name, parts in zip(Stores._fields, own):
        expected |= {name + part: (array.dtype, (used, *array.shape[1:])) for part, array in zip(PARTS, parts)}
    found = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    if found != expected:
        raise refuse(
            where, "the arrays are not those of this cache", _listed(found, expected), _listed(expected, found), FIX
        )
    table, first, lengths, start = (arrays[name] for name in ("table", "first", "lengths", "start"))
    size, window = described["pages"], described["window"]
    fits = all(store.array.shape[-1] == store.depth for store in stores)  # also where values are a part of the keys
    fits = fits and (not B or (lengths.min() >= 0 and lengths.max() < LIMIT and columns(lengths).max() == width))
    fits = fits and bool(((first >= 0) & (first <= columns(lengths)) & (start >= 0) & (start <= lengths)).all())
    unseen = np.zeros(B, np.int64) if window is None else np.maximum(start - window + 1, 0)
    fits = fits and bool((first * PAGE <= unseen).all())
    fits = fits and not (table.size and (table.min() < 0 or table.max() >= max(used, 1)))
    fits = fits and 0 <= described["width"] < LIMIT and (size is None or 0 <= used <= size)
    pages = Pages.of(table, first, lengths, used) if fits else None
    if pages is None or len(pages.free):
        raise refuse(
            where,
            "numbers that do not fit together",
            f"lengths, start, first, table and pages of {B} sequences",
            "positions and pages as a cache has them",
            FIX,
        )
    stores = stores.over(
        [arrays[name + part] for name, parts in zip(Stores._fields, own) for part, _ in zip(PARTS, parts)]
    )
    if size is not None and size > used:
        pages, stores = pages.grown(size), stores.grown(size)
    stepped = None if arrays["stepped"].all() else arrays["stepped"]
    return State(pages, stores, lengths, start, described["width"], described["ragged"], stepped)


def _size(arrays: dict[str, np.ndarray], name: str, axis: int) -> int:
    """The size of an axis of an array, which may be missing."""
    return arrays[name].shape[axis] if name in arrays and arrays[name].ndim else 0


def _listed(some: dict[str, Any], others: dict[str, Any]) -> str:
    """The arrays that are not the same in the others."""
    return (
        "; ".join(
            f"{name[:40]} {dtype} {list(shape)}"
            for name, (dtype, shape) in some.items()
            if others.get(name) != (dtype, shape)
        )
        or "no others"
    )
