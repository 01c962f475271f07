"""Mean, standard deviation and the largest values of numbers that come one after another, in constant memory."""

from __future__ import annotations

import numpy as np

LARGEST = 3  # how many of the largest values are kept


class Running:
    """The statistics of every element of arrays (H,) that come one after another, each with a name. NaN does not count.

    mean ← mean + (x − mean) / n,  squares ← squares + (x − old mean)(x − new mean)

    Source: Welford 1962.

    >>> found = Running(1)
    >>> for name, value in (("a", 1.0), ("b", 3.0), ("c", np.nan)):
    ...     found.add(name, np.array([value]))
    >>> found.mean.tolist(), found.deviation.round(3).tolist(), found.count.tolist(), found.most[0][0]
    ([2.0], [1.414], [2], (3.0, 'b'))
    """

    def __init__(self, size: int):
        self.count = np.zeros(size, np.int64)
        self._mean, self._squares = np.zeros(size), np.zeros(size)
        self.most: list[list[tuple[float, str]]] = [[] for _ in range(size)]  # in descending order

    def add(self, name: str, values: np.ndarray) -> None:
        """Adds the value of every element."""
        known = np.isfinite(values)
        self.count += known
        away = np.where(known, values - self._mean, 0)
        self._mean += away / np.maximum(self.count, 1)
        self._squares += away * np.where(known, values - self._mean, 0)
        for at in np.flatnonzero(known).tolist():
            best = self.most[at]
            if len(best) < LARGEST or values[at] > best[-1][0]:
                best.append((float(values[at]), name))
                best.sort(key=lambda pair: -pair[0])  # stable: of equal values, the first stays first
                del best[LARGEST:]

    @property
    def mean(self) -> np.ndarray:
        """NaN where every value is NaN."""
        return np.where(self.count > 0, self._mean, np.nan)

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation, √(Σ (x − mean)² / (n − 1)); NaN where there are fewer than two values."""
        return np.where(self.count > 1, np.sqrt(self._squares / np.maximum(self.count - 1, 1)), np.nan)
