"""Text classification: trains a classifier on a table, evaluates it on held-out rows, and predicts labels of texts.

The report has accuracy, baseline accuracy, confusion matrix, and precision, recall and F1 per class.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...common.errors import Reason, refuse, refuse_all
from ..data.tables import Table
from ..data.vocabulary import Vocabulary
from ..encoder import ClassifierConfig, SequenceClassifier
from . import checkpoint, loop
from .loop import Recipe, Step, Training, check_device, precision_of

HELD = 0.2  # held-out fraction of the rows of each class
FEWEST = 10  # minimum number of rows to split


@dataclass(frozen=True)
class Settings(loop.Settings):
    """Settings of a classifier and its training; of texts that are longer than `context` the rest is ignored.

    Without `steps`, there are ten epochs, but at least 200 steps.

    Examples:
        >>> Settings().recipe.batch
        32
    """

    where = "classify"

    tokenizer: str = "bpe"
    layers: int = 2
    width: int = 128
    dropout: float = 0.1
    recipe: Recipe = field(default_factory=lambda: Recipe(batch=32))


class Classification:
    """Trains a classifier on a table: iterating over it performs the remaining optimizer steps.

    Args:
        table: the training table.
        test: the table to evaluate on. None: hold out a fifth of each class of `table`; equal texts stay together.
        wishes: fields of `Settings` and their values.

    Raises:
        Refused: invalid settings, a table with one class or too few rows, or unknown classes in `test`.
    """

    def __init__(self, table: Table, test: Table | None, wishes: Mapping[str, Any]):
        self.settings = Settings().changed(wishes)
        recipe = self.settings.recipe
        check_device(recipe.device, "classify")
        self.table, learn, held = table, table, test
        if held is None:
            learn, held = split(table, recipe.seed)
        assert learn.labels is not None and held.labels is not None
        counts = Counter(learn.labels)
        self.classes = sorted(counts)
        if len(self.classes) < 2:
            raise refuse(
                "classify",
                "only one class",
                f"every row of {table.name} has the label {self.classes[0]!r}",
                "two or more classes",
                "add rows of another class, or choose another column with --label",
            )
        self.majority = self.classes.index(counts.most_common(1)[0][0])
        self.held, self.held_labels = held, _numbers(held, self.classes)
        self.learned, labels = learn, torch.tensor(_numbers(learn, self.classes))
        steps = wishes.get("steps", max(200, 10 * len(labels) // recipe.batch))
        self.recipe = replace(recipe, steps=steps, warmup=steps // 10)
        self.settings = replace(self.settings, recipe=self.recipe)
        self.vocabulary = self.settings.make_vocabulary(learn.texts)
        torch.manual_seed(recipe.seed)
        self.model = SequenceClassifier(
            ClassifierConfig(vocabulary=self.vocabulary.size, classes=len(self.classes), **self.settings.sizes())
        ).to(recipe.device)
        texts, self.cut = _encoded(learn.texts, self.vocabulary, self.settings.context)
        self.training = Training(self.model, self.recipe, lambda number: self._loss(texts, labels, number))

    def __iter__(self) -> Iterator[Step]:
        """Performs the remaining steps."""
        return iter(self.training)

    def report(self) -> Report:
        """Evaluates the classifier on the held-out rows."""
        probabilities = _probabilities(self.model, self.vocabulary, self.held.texts, self.recipe)
        return Report.of(self.held_labels, probabilities.argmax(1).tolist(), self.classes, self.majority)

    def save(self, folder: Path, report: Report) -> None:
        """Saves the classifier with its classes and a report; raises `Refused` if the folder cannot be written."""
        try:
            checkpoint.save(
                folder,
                self.model,
                vocabulary=self.vocabulary,
                classes=self.classes,
                majority=self.majority,
                columns=self.table.columns,
                settings=self.settings.flat(),
                report=report.to_dict(),
                held_out={
                    "file": str(Path(self.held.name).resolve()),
                    "column": self.held.columns[0],
                    "line": self.held.lines[0],
                },
            )
        except OSError as error:
            raise refuse(
                "classify",
                "the model cannot be written",
                f"{folder}: {error.strerror}",
                "a writable folder with free space",
                "choose another folder with --out",
            ) from error

    def _loss(self, texts: list[torch.Tensor], labels: torch.Tensor, number: int) -> torch.Tensor:
        """The loss of a batch. Each epoch is shuffled; the order depends on the seed and the batch number only."""
        size, count = self.recipe.batch, len(texts)
        rows = []
        for index in range(number * size, (number + 1) * size):
            if index == number * size or index % count == 0:
                generator = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + index // count)
                order = torch.randperm(count, generator=generator)
            rows.append(int(order[index % count]))
        return _packed(self.model, [texts[row] for row in rows], labels[rows])[1]


def split(table: Table, seed: int = 0) -> tuple[Table, Table]:
    """Splits a table into a training set and a held-out set: a fifth of each class; equal texts stay together.

    Args:
        table: a table with labels.
        seed: seed of the random choice.

    Returns:
        The training rows and the held-out rows.

    Raises:
        Refused: too few rows.
    """
    assert table.labels is not None
    if len(table.texts) < FEWEST:
        raise refuse(
            "classify",
            "too few rows",
            f"{len(table.texts)} rows in {table.name}",
            f"{FEWEST} or more, of which a fifth is held out",
            "add rows, or pass a table to evaluate on with --test",
        )
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(table.texts):
        rows_of[text].append(row)
    groups: dict[str, list[list[int]]] = defaultdict(list)
    for rows in rows_of.values():
        groups[table.labels[rows[0]]].append(rows)
    generator = random.Random(seed)
    held: set[int] = set()
    for label in sorted(groups):
        room = HELD * sum(map(len, groups[label]))
        for rows in generator.sample(groups[label], len(groups[label])):
            if len(rows) <= room + 0.5:
                held.update(rows)
                room -= len(rows)
    if not held:
        raise refuse(
            "classify",
            "too few rows",
            f"{table.name} has too few rows of each class",
            "enough rows of one class to hold out a fifth",
            "add rows, or pass a table to evaluate on with --test",
        )
    return _part(table, [row for row in range(len(table.texts)) if row not in held]), _part(table, sorted(held))


def predict(saved: checkpoint.Saved, texts: Sequence[str]) -> torch.Tensor:
    """Predicts the classes of texts.

    Args:
        saved: a loaded classifier.
        texts: the texts.

    Returns:
        (texts, classes) probabilities, on the CPU.
    """
    recipe = Recipe(device=str(next(saved.model.parameters()).device))
    return _probabilities(saved.model, saved.vocabulary, texts, recipe)


def judge(saved: checkpoint.Saved, table: Table) -> Report:
    """Evaluates a classifier on a table.

    Args:
        saved: a loaded classifier.
        table: a table with labels.

    Returns:
        The report.

    Raises:
        Refused: labels that are not classes of the classifier.
    """
    classes = saved.about["classes"]
    true = _numbers(table, classes)
    return Report.of(true, predict(saved, table.texts).argmax(1).tolist(), classes, saved.about["majority"])


def _part(table: Table, rows: Sequence[int]) -> Table:
    labels = None if table.labels is None else [table.labels[row] for row in rows]
    return replace(
        table, texts=[table.texts[row] for row in rows], labels=labels, lines=[table.lines[row] for row in rows]
    )


def _numbers(table: Table, classes: Sequence[str]) -> list[int]:
    """The labels as indices into the list of classes."""
    indices = {name: number for number, name in enumerate(classes)}
    unknown = {
        label: line for label, line in reversed(list(zip(table.labels or [], table.lines))) if label not in indices
    }
    known = ", ".join(classes[:12])
    refuse_all(
        "classify",
        [
            Reason(
                "unknown class",
                f"{label!r} in line {line} of {table.name}",
                f"a class of the training table: {known}",
                "add rows of this class to the training table, or remove them from this one",
            )
            for label, line in sorted(unknown.items())[:5]
        ],
    )
    return [indices[label] for label in table.labels or []]


def _encoded(texts: Sequence[str], vocabulary: Vocabulary, context: int) -> tuple[list[torch.Tensor], int]:
    """The tokens of each text, truncated to `context`, and the number of truncated texts."""
    encoded = [torch.from_numpy(vocabulary.encode(text)) for text in texts]
    return [tokens[:context] for tokens in encoded], sum(len(tokens) > context for tokens in encoded)


def _packed(model: Any, texts: Sequence[torch.Tensor], labels: torch.Tensor | None = None) -> Any:
    """The output of the model for packed texts."""
    device = next(model.parameters()).device
    targets = None if labels is None else labels.to(device)
    return model.packed(torch.cat(list(texts)).to(device), [len(text) for text in texts], targets)


@torch.no_grad()
def _probabilities(model: Any, vocabulary: Vocabulary, texts: Sequence[str], recipe: Recipe) -> torch.Tensor:
    """Probabilities (texts, classes), on the CPU."""
    model.eval()
    encoded, _ = _encoded(texts, vocabulary, model.config.context)
    parts = []
    for first in range(0, len(encoded), 64):
        with precision_of(recipe):
            parts.append(_packed(model, encoded[first : first + 64]).float().softmax(-1).cpu())
    return torch.cat(parts)


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
