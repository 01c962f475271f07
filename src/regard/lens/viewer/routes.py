"""The routes of the server: URL paths that the page requests, checked against the runs, and their responses as bytes.

    tile/n/call/head/pool/level/row/column · row/n/call/head/i · column/n/call/head/j
    pair/n/call/i/j · tracks/n/call/head · walk/n/call/head/i · overview/n/call
    matrices/n/call/head · products/n/call/head/i/j

n is the number of the run. head may also be "mean", the mean of the heads of the call, or "all", that of all calls with
its axes (`HeadMean`). The response of walk is JSON; the others are frames.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused, refuse
from ..runs.call import Call, Overview, Part, places
from ..runs.codes import ABOVE, encode
from ..runs.figures import figures_of
from ..runs.run import Run
from ..runs.tiles import PATIENCE, Tile, Weights, coded, halvings, overview, tile
from . import queries as answers
from .embed import frame
from .queries import matrices, products, tracks

# The number of words of each route.
ROUTES = {
    "tile": 7,
    "row": 4,
    "column": 4,
    "pair": 4,
    "tracks": 3,
    "walk": 4,
    "matrices": 3,
    "products": 5,
    "overview": 2,
}
POOLS = ("share", "largest")
CELLS = 128  # along each side of an overview that the run does not contain
TILES, OVERVIEWS = 96, 16  # that are kept: about 64 MB
HELD = 16  # runs that were made on request; those that were not used for the longest time are forgotten
MEAN_BUDGET = 1 << 27  # weights of single heads in one tile of their mean: about two seconds; larger tiles are sampled


class Responder:
    """Computes the responses to requests about the runs, from any number of threads."""

    def __init__(self, runs: Sequence[Run] | HeldRuns):
        self.runs = runs
        self.tiles, self.overviews = (
            lru_cache(TILES)(self._computed_tile),
            lru_cache(OVERVIEWS)(self._computed_overview),
        )

    def answer(self, route: str, *words: str) -> bytes:
        """The response to one of `ROUTES`. Refused: arguments outside the run, before anything is computed."""
        return getattr(self, f"_{route}")(*words)

    def _tile(self, n: str, call: str, head: str, pool: str, *place: str) -> bytes:
        if pool not in POOLS:
            raise refuse("tile", "no such pool", pool[:40], " or ".join(POOLS), "choose one of them")
        self._run(n)  # a run that is looked at is not forgotten
        found: Tile = self.tiles(n, call, head, *place)
        return _codes(getattr(found, pool), found.allowed, found.exact, found.wrong)

    def _computed_tile(self, n: str, call: str, head: str, level: str, row: str, column: str) -> Tile:
        at, h = self._head(n, call, head)
        z = index("level", level, max(at.shape[1:]).bit_length() + 1)
        r, c = index("row", row, at.shape[1]), index("column", column, at.shape[2])
        return tile(at, h, z, r, c, budget=None if isinstance(at, Call) else MEAN_BUDGET // at.count)

    def _row(self, n: str, call: str, head: str, i: str) -> bytes:
        at, h = self._head(n, call, head)
        return _exact(at, heads=[h], rows=[index("row", i, at.shape[1])])

    def _column(self, n: str, call: str, head: str, j: str) -> bytes:
        at, h = self._head(n, call, head)
        return _exact(at, heads=[h], keys=[index("column", j, at.shape[2])])

    def _pair(self, n: str, call: str, i: str, j: str) -> bytes:
        at = self._call(n, call)
        return _exact(at, rows=[index("row", i, at.shape[1])], keys=[index("column", j, at.shape[2])])

    def _tracks(self, n: str, call: str, head: str) -> bytes:
        at, h = self._head(n, call, head)
        return frame({"exact": "exact"}, **(answers.tracks(at, h) if isinstance(at, Call) else at.tracks()))

    def _walk(self, n: str, call: str, head: str, i: str) -> bytes:
        at, h = self._one_head(n, call, head)
        return json.dumps(answers.walk(at, h, index("row", i, at.shape[1])), allow_nan=False).encode()

    def _matrices(self, n: str, call: str, head: str) -> bytes:
        return frame({}, **matrices(*self._one_head(n, call, head)))

    def _products(self, n: str, call: str, head: str, i: str, j: str) -> bytes:
        at, h = self._one_head(n, call, head)
        row, key = index("row", i, at.shape[1]), index("column", j, at.shape[2])
        return frame({}, **products(at, h, row, key))

    def _overview(self, n: str, call: str) -> bytes:
        found: Overview = self.overviews(n, call)
        return frame({"exact": found.exact}, codes=coded(self._call(n, call), found))

    def _computed_overview(self, n: str, call: str) -> Overview:
        at = self._call(n, call)
        return at.overview or overview(at, CELLS, sample=_sample(at))

    def _run(self, n: str) -> Run:
        return self.runs[index("run", n, len(self.runs))]

    def _call(self, n: str, call: str) -> Call:
        calls = self._run(n).calls
        return calls[index("call", call, len(calls))]

    def _one_head(self, n: str, call: str, head: str) -> tuple[Call, int]:
        at, h = self._head(n, call, head)
        if not isinstance(at, Call):
            raise refuse("walk", "steps of a mean", head, "one head", "choose a head")
        return at, h

    def _head(self, n: str, call: str, head: str) -> tuple[Call | HeadMean, int]:
        at = self._call(n, call)
        if head in MEANS:
            return mean_of(self._run(n), at, head), 0
        return at, index("head", head, at.shape[0])


class HeldRuns:
    """The runs of a served page by number: the given ones, and the last of those that were made on request. Numbers are
    never used twice, so that the page can cache what it knows about a run.
    """

    def __init__(self, given: Sequence[Run]):
        self._runs = dict(enumerate(given))  # those that were used last come last
        self._given = self._count = len(given)
        self._lock = threading.Lock()

    def add(self, run: Run) -> int:
        """The number of a new run."""
        with self._lock:
            number, self._count = self._count, self._count + 1
            self._runs[number] = run
            for forgotten in [each for each in self._runs if each >= self._given][:-HELD]:
                del self._runs[forgotten]
            return number

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Run:
        with self._lock:
            if type(number) is int and number in self._runs:
                self._runs[number] = self._runs.pop(number)
                return self._runs[number]
        raise refuse(
            "run",
            "no such run",
            str(number)[:40],
            "the number of a run that the server holds",
            "enter the text again, or load the page again",
        )


def _sample(call: Call) -> int:
    """The sampling rate of rows so that the overview of all heads takes no longer than about a second."""
    H, Q, K = call.shape
    depth = 0 if call.q is None else call.q.shape[2]
    return halvings(H * Q * K * (depth + 64) / 2 / PATIENCE, max(1, Q // CELLS))


def _exact(call: Weights, **part: list[int]) -> bytes:
    """The weights of some heads, rows and keys, one after another."""
    return _codes(call.weights(**part).ravel(), call.allowed(**part).ravel(), "exact")


def _codes(
    weights: np.ndarray, allowed: np.ndarray, exact: str, worst: np.ndarray | int | None = None, **header
) -> bytes:
    coarse, fine = encode(weights, allowed, worst)
    return frame({"exact": exact, **header}, coarse=coarse, fine=fine)


def index(name: str, word: str, count: int) -> int:
    """A part of the URL path as an integer from 0 to count − 1."""
    if not (word.isascii() and word.isdecimal() and len(word) < 10 and int(word) < count):
        raise Refused("request", [Reason(f"no such {name}", word[:40], f"0 to {count - 1}", "count from 0")])
    return int(word)


MEANS = ("mean", "all")  # of the heads of a call; of those of all calls between the same axes
PAIRS = 1 << 20  # weights of single heads that are computed at a time
COUNTED = 1 << 28  # weights of single heads: with more, the figures that need every weight are left out
LINEAR = ("special", "received")  # figures whose mean over the heads is the figure of the mean


class HeadMean:
    """The mean of all heads of some calls with rows and keys of the same sizes, as a call with one head.

    p[0, i, j] = (1 / N) Σ p_h[i, j] over the N heads; a masked pair counts as 0.
    """

    def __init__(self, calls: Sequence[Call]):
        self.calls = tuple(calls)
        self.count = sum(call.shape[0] for call in calls)
        self.shape = (1, *calls[0].shape[1:])

    def weights(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """(heads, rows, keys) float64. The mean with an invalid weight, NaN or out of range, is NaN."""
        h, i, j = places(self.shape, heads, rows, keys)
        total = np.zeros((len(i), len(j)))
        for call in self.calls:
            some = max(1, PAIRS // max(1, total.size))
            for first in range(0, call.shape[0], some):
                p = call.weights(i, j, slice(first, first + some))
                if call.given is not None:
                    p = np.where((p < 0) | (p > ABOVE), np.nan, p)
                total += p.sum(0)
        return (total / self.count)[None][h]

    def allowed(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """(heads, rows, keys) booleans: where a mask allows a head to attend, and no mask forbids a weight that a head
        has.
        """
        h, i, j = places(self.shape, heads, rows, keys)
        free, leaks = np.zeros((2, len(i), len(j)), bool)
        seen: list[Call] = []
        for call in self.calls:
            given = call.given is not None
            if not given and any(call.mask is each.mask and call.start == each.start for each in seen):
                continue  # layers have the same mask
            seen.append(call)
            allowed = call.allowed(i, j)
            free |= allowed.any(0)
            if given:
                leaks |= ((call.weights(i, j) != 0) & ~allowed).any(0)
        return (free & ~leaks)[None][h]

    def tracks(self) -> dict[str, np.ndarray]:
        """The figures along the axes of the map, as `queries.tracks` gives them for one head, without lengths: a mean
        of heads has no values. Entropy and maximum are NaN if there are more than 2²⁸ weights of single heads.
        """
        single = [tracks(call, head) for call in self.calls for head in range(call.shape[0])]
        found = {
            name: np.mean([each[name] for each in single], 0).astype(np.float32)
            for name in LINEAR
            if all(name in each for each in single)
        }
        _, Q, K = self.shape
        computed = Q * K * self.count <= COUNTED
        figures = {name: np.zeros(Q, np.float32) for name in ("entropy", "spread", "maximum", "attended")}
        figures["readers"] = np.zeros(K, np.float32)
        nowhere = np.zeros(K, bool)
        for first in range(0, Q, max(1, PAIRS // K)):
            rows = np.arange(Q)[first : first + max(1, PAIRS // K)]
            allowed = self.allowed(rows)[0]
            figures["readers"] += allowed.sum(0)
            p = self.weights(rows)[0] if computed else np.full(allowed.shape, np.nan)
            own = figures_of(p, allowed, nowhere, nowhere)
            for name in figures.keys() & own.keys():
                figures[name][rows] = own[name]
        return found | figures


def mean_of(run: Run, call: Call, kind: str) -> HeadMean:
    """The mean of the heads of a call ("mean"), or of all calls with its axes and sizes ("all").

    >>> import numpy as np, regard as rg
    >>> run = rg.look(np.eye(2)[:, None], k=np.eye(2)[:, None])
    >>> mean_of(run, run.calls[0], "mean").weights().tolist()
    [[[1.0]]]
    """
    if kind == "mean":
        return HeadMean([call])
    place = call.queries, call.keys, call.shape[1:], call.start
    return HeadMean([each for each in run.calls if (each.queries, each.keys, each.shape[1:], each.start) == place])
