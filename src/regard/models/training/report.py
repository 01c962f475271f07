"""Classification metrics: accuracy, baseline accuracy, confusion matrix, and precision, recall and F1 per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Report:
    """Classification metrics, computed from a confusion matrix.

    precision = TP / (TP + FP),  recall = TP / (TP + FN),  F1 = 2 TP / (2 TP + FP + FN); NaN if the denominator is 0.

    Args:
        classes: the names of the C classes.
        confusion: (C, C) number of rows of each true class (axis 0) and predicted class (axis 1).
        majority: index of the most frequent class of the training data.

    Examples:
        >>> report = Report.of([0, 0, 1, 1], [0, 1, 1, 1], ["cat", "dog"], majority=0)
        >>> report.accuracy, report.baseline, report.recall.tolist()
        (0.75, 0.5, [0.5, 1.0])
    """

    classes: list[str]
    confusion: np.ndarray
    majority: int

    @classmethod
    def of(cls, true: Sequence[int], found: Sequence[int], classes: Sequence[str], majority: int) -> Report:
        """Builds a report from predictions.

        Args:
            true: (N,) true labels, as indices into `classes`.
            found: (N,) predicted labels.
            classes: the names of the classes.
            majority: index of the most frequent class of the training data.

        Returns:
            The report.
        """
        confusion = np.zeros((len(classes), len(classes)), int)
        np.add.at(confusion, (np.asarray(true, int), np.asarray(found, int)), 1)
        return cls(list(classes), confusion, majority)

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.confusion.sum())

    @property
    def support(self) -> np.ndarray:
        """The number of rows of each class, (C,)."""
        return self.confusion.sum(1)

    @property
    def accuracy(self) -> float:
        """The fraction of rows that are classified correctly."""
        return float(self.confusion.trace() / self.count)

    @property
    def baseline(self) -> float:
        """The accuracy of always predicting the most frequent class of the training data."""
        return float(self.support[self.majority] / self.count)

    @property
    def precision(self) -> np.ndarray:
        """The precision of each class, (C,)."""
        return _ratio(self.confusion.diagonal(), self.confusion.sum(0))

    @property
    def recall(self) -> np.ndarray:
        """The recall of each class, (C,)."""
        return _ratio(self.confusion.diagonal(), self.support)

    @property
    def f1(self) -> np.ndarray:
        """The F1 score of each class, (C,)."""
        return _ratio(2 * self.confusion.diagonal(), self.confusion.sum(0) + self.support)

    @property
    def macro_f1(self) -> float:
        """The mean F1 score of the classes that occur or were predicted."""
        return float(np.nanmean(self.f1))

    def to_dict(self) -> dict[str, Any]:
        """Converts the metrics to a dict that can be written as JSON."""
        return {
            "rows": self.count,
            "accuracy": self.accuracy,
            "baseline": self.baseline,
            "macro_f1": self.macro_f1,
            "classes": self.classes,
            "confusion": self.confusion.tolist(),
        }


def _ratio(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.divide(part, total, out=np.full(len(part), np.nan), where=total > 0)
