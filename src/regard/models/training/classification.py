"""Text classification: trains a classifier on a table, evaluates it on held-out rows, and predicts labels of texts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from ...common.errors import Reason, Refused, refuse
from ..classifier import ClassifierConfig, SequenceClassifier
from ..data.tables import Table
from ..data.vocabulary import Bytes, Pairs, Vocabulary
from . import checkpoint
from .loop import Recipe, Step, Training, check_device, precision_of
from .report import Report

HELD = 0.2  # held-out fraction of the rows of each class
FEWEST = 10  # minimum number of rows to split


@dataclass(frozen=True)
class Settings:
    """Settings of a classifier and its training.

    Args:
        tokenizer: "bytes" or "bpe".
        vocabulary: maximum number of tokens of a "bpe" vocabulary.
        layers: number of blocks.
        width: model width.
        heads: number of attention heads.
        context: maximum number of tokens per text; the rest is ignored.
        dropout: dropout probability.
        steps: number of optimizer steps. None: ten epochs, but at least 200 steps.
        batch: number of texts per step.
        learning_rate: the maximum learning rate.
        precision: "float32" or "bfloat16".
        seed: seed of the weights, the held-out rows, the order of the data, and dropout.
        device: "cpu" or "cuda".

    Raises:
        Refused: invalid values.

    Examples:
        >>> Settings(batch=32).recipe(rows=6400).steps
        2000
    """

    tokenizer: str = "bpe"
    vocabulary: int = 2048
    layers: int = 2
    width: int = 128
    heads: int = 4
    context: int = 256
    dropout: float = 0.1
    steps: int | None = None
    batch: int = 32
    learning_rate: float = 1e-3
    precision: str = "float32"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.tokenizer not in ("bytes", "bpe"):
            raise refuse(
                "classify", "unknown tokenizer", repr(self.tokenizer), "'bytes' or 'bpe'", "choose one of them"
            )
        if self.context < 1:
            raise refuse("classify", "context is too small", repr(self.context), "1 or more", "increase --context")
        self.recipe(1)

    def recipe(self, rows: int) -> Recipe:
        """Returns the recipe for a number of training rows."""
        steps = max(200, 10 * rows // max(1, self.batch)) if self.steps is None else self.steps
        shared = {field.name for field in fields(Recipe)} & {field.name for field in fields(self)} - {"steps"}
        return Recipe(steps=steps, warmup=steps // 10, **{name: getattr(self, name) for name in shared})


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
        self.settings = replace(Settings(), **wishes)
        check_device(self.settings.device, "classify")
        self.table, learn, held = table, table, test
        if held is None:
            learn, held = split(table, self.settings.seed)
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
        settings = self.settings
        self.vocabulary: Vocabulary = (
            Bytes() if settings.tokenizer == "bytes" else Pairs.train(learn.texts, settings.vocabulary)
        )
        self.recipe = settings.recipe(len(labels))
        torch.manual_seed(settings.seed)
        self.model = SequenceClassifier(
            ClassifierConfig(
                vocabulary=self.vocabulary.size,
                classes=len(self.classes),
                d_model=settings.width,
                layers=settings.layers,
                heads=settings.heads,
                context=settings.context,
                dropout=settings.dropout,
            )
        ).to(settings.device)
        texts, self.cut = _encoded(learn.texts, self.vocabulary, settings.context)
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
                settings=asdict(self.settings),
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
    if unknown:
        known = ", ".join(classes[:12])
        raise Refused(
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
