"""What a page asks a server, as words of an address, checked against the runs, and answered in bytes.

    tile/n/call/head/pool/level/row/column · row/n/call/head/i · column/n/call/head/j · pair/n/queries/keys/i/j
    tracks/n/call/head · walk/n/call/head/i · picture/n/call

n is the number of the run. The walk is JSON, all others are frames.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from ...common.errors import Reason, Refused, refuse
from ..runs.call import Call, Overview
from ..runs.codes import encode
from ..runs.labels import visible
from ..runs.run import Run
from ..runs.tiles import PATIENCE, Tile, coded, halvings, overview, tile
from . import queries as answers
from .frames import frame

__all__ = ["QUESTIONS", "Desk"]

QUESTIONS = {
    "tile": ("n", "call", "head", "pool", "level", "row", "column"),
    "row": ("n", "call", "head", "i"),
    "column": ("n", "call", "head", "j"),
    "pair": ("n", "queries", "keys", "i", "j"),
    "tracks": ("n", "call", "head"),
    "walk": ("n", "call", "head", "i"),
    "picture": ("n", "call"),
}
POOLS = ("share", "largest")
CELLS = 128  # along the side of a picture that a run does not hold
KEPT = 1 << 26  # bytes of tiles and pictures


class Desk:
    """Answers questions about the runs, from any number of threads."""

    def __init__(self, runs: Sequence[Run]):
        self.runs = runs
        self.kept = Kept(KEPT)

    def answer(self, question: str, *words: str) -> bytes:
        """The answer to one of `QUESTIONS`. Refused: what is not there, before anything is computed."""
        return getattr(self, f"_{question}")(**dict(zip(QUESTIONS[question], words, strict=True)))

    def _tile(self, *, n: str, call: str, head: str, pool: str, level: str, row: str, column: str) -> bytes:
        at, h = self._head(n, call, head)
        if pool not in POOLS:
            raise refuse("tile", "no such pool", given=pool[:40], expected=" or ".join(POOLS), fix="choose one of them")
        z = _number("level", level, max(at.shape[1:]).bit_length() + 1)
        r, c = _number("row", row, at.shape[1]), _number("column", column, at.shape[2])
        found: Tile = self.kept.get(("tile", n, call, head, level, row, column), lambda: tile(at, h, z, r, c))
        return _codes(getattr(found, pool), found.allowed, found.exact, found.wrong)

    def _row(self, n: str, call: str, head: str, i: str) -> bytes:
        at, h = self._head(n, call, head)
        coarse, fine = answers.row(at, h, _number("row", i, at.shape[1]))
        return frame({"exact": "exact"}, coarse=coarse, fine=fine)

    def _column(self, n: str, call: str, head: str, j: str) -> bytes:
        at, h = self._head(n, call, head)
        coarse, fine = answers.column(at, h, _number("column", j, at.shape[2]))
        return frame({"exact": "exact"}, coarse=coarse, fine=fine)

    def _pair(self, n: str, queries: str, keys: str, i: str, j: str) -> bytes:
        run = self._run(n)
        calls = [call for call in run.calls if (visible(call.queries), visible(call.keys)) == (queries, keys)]
        if not calls:
            raise refuse(
                "pair",
                "no such axes",
                given=f"{queries[:40]}, {keys[:40]}",
                expected=f"two of {', '.join(run.axes)}",
                fix="name those of a call",
            )
        _, Q, K = calls[0].shape
        found = answers.pair(run, calls[0].queries, calls[0].keys, _number("row", i, Q), _number("column", j, K))
        weights, allowed = (np.concatenate([one[name] for one in found]) for name in ("weights", "allowed"))
        return _codes(weights, allowed, "exact", calls=[one["call"] for one in found])

    def _tracks(self, n: str, call: str, head: str) -> bytes:
        return frame({"exact": "exact"}, **answers.tracks(*self._head(n, call, head)))

    def _walk(self, n: str, call: str, head: str, i: str) -> bytes:
        at, h = self._head(n, call, head)
        return json.dumps(answers.walk(at, h, _number("row", i, at.shape[1])), allow_nan=False).encode()

    def _picture(self, n: str, call: str) -> bytes:
        at = self._call(n, call)
        found: Overview = self.kept.get(
            ("picture", n, call), lambda: at.overview or overview(at, CELLS, sample=_sample(at, CELLS))
        )
        return frame({"exact": found.exact}, codes=coded(at, found))

    def _run(self, n: str) -> Run:
        return self.runs[_number("run", n, len(self.runs))]

    def _call(self, n: str, call: str) -> Call:
        calls = self._run(n).calls
        return calls[_number("call", call, len(calls))]

    def _head(self, n: str, call: str, head: str) -> tuple[Call, int]:
        at = self._call(n, call)
        return at, _number("head", head, at.shape[0])


class Kept:
    """What was computed last, up to so many bytes; what was not asked for the longest goes first."""

    def __init__(self, most: int):
        self.most, self.size = most, 0
        self.held: OrderedDict[tuple, Tile | Overview] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, name: tuple, make: Callable[[], Tile | Overview]):
        with self.lock:
            if name in self.held:
                self.held.move_to_end(name)
                return self.held[name]
        made = make()
        with self.lock:
            if name not in self.held:
                self.held[name] = made
                self.size += _bytes(made)
            while self.size > self.most:
                self.size -= _bytes(self.held.popitem(last=False)[1])
        return made


def _bytes(made: Tile | Overview) -> int:
    return 2 * made.share.nbytes + (2 * made.allowed.nbytes if isinstance(made, Tile) else 0)


def _sample(call: Call, cells: int) -> int | None:
    """One row in so many, where the picture of all heads would take longer than about a second."""
    H, Q, K = call.shape
    depth = 0 if call.q is None else call.q.shape[2]
    every = halvings(H * Q * K * (depth + 64) / 2 / PATIENCE, max(1, Q // cells))
    return None if every == 1 else every


def _codes(
    weights: np.ndarray, allowed: np.ndarray, exact: str, worst: np.ndarray | int | None = None, **header
) -> bytes:
    coarse, fine = encode(weights, allowed, worst)
    return frame({"exact": exact, **header}, coarse=coarse, fine=fine)


def _number(name: str, word: str, count: int) -> int:
    """The whole number from 0 to count − 1 that a word of the address is."""
    if not (word.isascii() and word.isdecimal() and len(word) < 10 and int(word) < count):
        raise Refused(
            "desk", [Reason(f"no such {name}", given=word[:40], expected=f"0 to {count - 1}", fix="count from 0")]
        )
    return int(word)
