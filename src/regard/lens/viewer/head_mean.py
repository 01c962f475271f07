"""The mean of several heads: its weights and figures, computed from those of the heads when they are requested."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..runs.call import Call, Part, places
from ..runs.codes import ABOVE
from ..runs.figures import figures_of
from ..runs.run import Run
from .queries import tracks

MEANS = ("mean", "all")  # of the heads of a call; of those of all calls between the same axes
PAIRS = 1 << 20  # weights of single heads that are computed at a time
COUNTED = 1 << 28  # weights of single heads: with more, the figures that need every weight are left out
LINEAR = ("special", "ordinary", "received")  # figures whose mean over the heads is the figure of the mean


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
