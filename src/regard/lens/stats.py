"""Statistics of each head, from the exact weights: how wide it looks, how far, and at what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .run import Layer, Run

__all__ = ["Statistics", "Tally", "distant", "of_layer", "statistics"]


@dataclass(frozen=True)
class Statistics:
    """Means over the rows of each head, (H,) float64. Rows that may see nothing are left out; NaN if there are no others.

    entropy   −Σ p ln p, in nats                       spread    entropy as a share of ln(visible keys), 0 where one key is visible
    special   weight on special tokens                 distance  Σ p |query − key|, in tokens
    itself    weight on the token itself               previous  weight on the token before it
    maximum   the largest weight of the row            distant   weight on ordinary tokens at least two away
    reach     the largest weight that an ordinary token gives to an ordinary token at least two away (0 for special tokens)
    """

    entropy: np.ndarray
    spread: np.ndarray
    special: np.ndarray
    distance: np.ndarray
    itself: np.ndarray
    previous: np.ndarray
    maximum: np.ndarray
    distant: np.ndarray
    reach: np.ndarray


class Tally:
    """Adds up the rows of one layer, a block at a time. special: (n,) booleans."""

    def __init__(self, heads: int, special):
        self.marked = np.asarray(special, bool)
        self.sums = {name: np.zeros(heads) for name in Statistics.__dataclass_fields__}
        self.count = np.zeros(heads)

    def add(self, rows: slice, weights: np.ndarray, allowed: np.ndarray) -> None:
        """weights and allowed: (H, rows, n)."""
        seeing = allowed.any(-1)
        self.count += seeing.sum(-1)
        for name, value in _of_rows(weights, allowed, np.arange(rows.start, rows.stop), self.marked).items():
            self.sums[name] += np.where(seeing, value, 0).sum(-1)

    def result(self) -> Statistics:
        with np.errstate(divide="ignore", invalid="ignore"):
            return Statistics(**{name: total / self.count for name, total in self.sums.items()})


def of_layer(layer: Layer, special) -> Statistics:
    """The statistics of one layer. special: (n,) booleans. Memory is bounded: rows are read in blocks.

    >>> import numpy as np
    >>> found = of_layer(Layer.of(np.full((1, 4, 4), 0.25)), [True, False, False, False])
    >>> found.entropy.round(4).tolist(), found.spread.tolist(), found.special.tolist()
    ([1.3863], [1.0], [0.25])
    """
    tally = Tally(layer.heads, special)
    for block in layer.blocks(len(tally.marked)):
        tally.add(*block)
    return tally.result()


def distant(p: np.ndarray, queries: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """The weights (H, r, n) with everything but ordinary keys at least two away put to 0."""
    away = np.abs(queries[:, None] - np.arange(p.shape[-1]))
    return p * ((away > 1) & ~marked)


def _of_rows(p: np.ndarray, allowed: np.ndarray, queries: np.ndarray, marked: np.ndarray) -> dict[str, np.ndarray]:
    """Every statistic of every row, (H, r)."""
    n = len(marked)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.einsum("hrk,hrk->hr", p, np.log(np.where(p == 0, 1, p)))
        most = np.log(allowed.sum(-1))
        spread = np.where(most > 0, entropy / most, 0)
    rows = np.arange(len(queries))
    far = distant(p, queries, marked)
    return {
        "entropy": entropy,
        "spread": spread,
        "special": p @ marked.astype(float),
        "distance": np.einsum("hrk,rk->hr", p, np.abs(queries[:, None] - np.arange(n)).astype(float)),
        "itself": p[:, rows, queries],
        "previous": np.where(queries > 0, p[:, rows, queries - 1], 0),
        "maximum": p.max(-1),
        "distant": far.sum(-1),
        "reach": far.max(-1) * ~marked[queries],
    }


def statistics(run: Run) -> tuple[Statistics, ...]:
    """The statistics of every layer of a run."""
    return tuple(of_layer(layer, run.special) for layer in run.layers)
