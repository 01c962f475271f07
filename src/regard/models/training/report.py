"""How well labels were found: accuracy, precision, recall and F1 per class, confusions, and a baseline beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """Counts of (true class, predicted class), and the class that was most frequent in training.

    precision = TP / (TP + FP),  recall = TP / (TP + FN),  F1 = 2 TP / (2 TP + FP + FN); NaN where nothing is counted.

    >>> report = Report.of([0, 0, 1, 1], [0, 1, 1, 1], ["cat", "dog"], majority=0)
    >>> report.accuracy, report.baseline, report.recall.tolist()
    (0.75, 0.5, [0.5, 1.0])
    """

    classes: list[str]
    confusion: np.ndarray
    majority: int

    @classmethod
    def of(cls, true: Sequence[int], found: Sequence[int], classes: Sequence[str], majority: int) -> Report:
        confusion = np.zeros((len(classes), len(classes)), int)
        np.add.at(confusion, (np.asarray(true, int), np.asarray(found, int)), 1)
        return cls(list(classes), confusion, majority)

    @property
    def count(self) -> int:
        return int(self.confusion.sum())

    @property
    def support(self) -> np.ndarray:
        """How many rows of each class there are."""
        return self.confusion.sum(1)

    @property
    def accuracy(self) -> float:
        return float(self.confusion.trace() / self.count)

    @property
    def baseline(self) -> float:
        """The accuracy of always answering with the class that was most frequent in training."""
        return float(self.support[self.majority] / self.count)

    @property
    def precision(self) -> np.ndarray:
        return _share(self.confusion.diagonal(), self.confusion.sum(0))

    @property
    def recall(self) -> np.ndarray:
        return _share(self.confusion.diagonal(), self.support)

    @property
    def f1(self) -> np.ndarray:
        return _share(2 * self.confusion.diagonal(), self.confusion.sum(0) + self.support)

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over the classes that occur or were predicted."""
        return float(np.nanmean(self.f1))

    def to_dict(self) -> dict:
        """The figures as JSON takes them."""
        return {
            "rows": self.count,
            "accuracy": self.accuracy,
            "baseline": self.baseline,
            "macro_f1": self.macro_f1,
            "classes": self.classes,
            "confusion": self.confusion.tolist(),
        }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
