"""Texts to labels: a classifier learned from a table, judged on rows that it never saw, and asked about new texts."""

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

__all__ = ["Classification", "Settings", "judge", "predict", "split"]

HELD = 0.2  # of the rows of each class
FEWEST = 10  # rows that can be split


@dataclass(frozen=True)
class Settings:
    """What was asked for. steps: of the optimizer; by default ten times through the rows, but at least 200."""

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
                "classify",
                "no such tokenizer",
                given=repr(self.tokenizer),
                expected="'bytes' or 'bpe'",
                fix="choose one of them",
            )
        if self.context < 1:
            raise refuse(
                "classify",
                "context is too small",
                given=repr(self.context),
                expected="1 or more",
                fix="raise --context",
            )
        self.recipe(1)

    def recipe(self, rows: int) -> Recipe:
        """The training of so many rows."""
        steps = max(200, 10 * rows // max(1, self.batch)) if self.steps is None else self.steps
        same = {one.name for one in fields(Recipe)} & {one.name for one in fields(self)} - {"steps"}
        return Recipe(steps=steps, warmup=steps // 10, **{name: getattr(self, name) for name in same})


class Classification:
    """A classifier that learns `table`; iterating takes the steps that are left.

    `test` judges it; without one, a fifth of each class is held out of the table, equal texts on the same side.
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
                "one class only",
                given=f"every row of {table.name} is {self.classes[0]!r}",
                expected="two classes or more",
                fix="add rows of another class, or choose another column with --label",
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
        return iter(self.training)

    def report(self) -> Report:
        """What the classifier makes of the rows that are held out."""
        found = _found(self.model, self.vocabulary, self.held.texts, self.recipe)
        return Report.of(self.held_labels, found.argmax(1).tolist(), self.classes, self.majority)

    def save(self, folder: Path, report: Report) -> None:
        """The classifier with its classes and its report."""
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
            )
        except OSError as error:
            raise refuse(
                "classify",
                "the model cannot be written",
                given=f"{folder}: {error.strerror}",
                expected="a folder with room in it",
                fix="choose another with --out",
            ) from error

    def _loss(self, texts: list[torch.Tensor], labels: torch.Tensor, number: int) -> torch.Tensor:
        """Each epoch in an order of its own; the order follows from the seed and the batch's number alone."""
        size, count = self.recipe.batch, len(texts)
        rows = []
        for place in range(number * size, (number + 1) * size):
            if place == number * size or place % count == 0:
                chance = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + place // count)
                order = torch.randperm(count, generator=chance)
            rows.append(int(order[place % count]))
        return _packed(self.model, [texts[row] for row in rows], labels[rows])[1]


def split(table: Table, seed: int = 0) -> tuple[Table, Table]:
    """The rows to learn from, and a fifth of each class held out; rows with the same text stay together."""
    assert table.labels is not None
    if len(table.texts) < FEWEST:
        raise refuse(
            "classify",
            "too few rows",
            given=f"{table.name} has {len(table.texts)}",
            expected=f"{FEWEST} or more, of which a fifth is held out",
            fix="add rows, or name a table to judge by with --test",
        )
    places: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(table.texts):
        places[text].append(row)
    groups: dict[str, list[list[int]]] = defaultdict(list)
    for rows in places.values():
        groups[table.labels[rows[0]]].append(rows)
    chance = random.Random(seed)
    held: set[int] = set()
    for label in sorted(groups):
        room = HELD * sum(map(len, groups[label]))
        for rows in chance.sample(groups[label], len(groups[label])):
            if len(rows) <= room + 0.5:
                held.update(rows)
                room -= len(rows)
    if not held:
        raise refuse(
            "classify",
            "too few rows",
            given=f"{table.name} has few of each class",
            expected="enough of one class to hold a fifth out",
            fix="add rows, or name a table to judge by with --test",
        )
    return _part(table, [row for row in range(len(table.texts)) if row not in held]), _part(table, sorted(held))


def predict(saved: checkpoint.Saved, texts: Sequence[str]) -> torch.Tensor:
    """The probability of each class for each text, (texts, classes)."""
    return _found(saved.model, saved.vocabulary, texts, Recipe(device=str(next(saved.model.parameters()).device)))


def judge(saved: checkpoint.Saved, table: Table) -> Report:
    """What a saved classifier makes of a table whose labels are known."""
    classes = saved.about["classes"]
    true = _numbers(table, classes)
    return Report.of(true, predict(saved, table.texts).argmax(1).tolist(), classes, saved.about["majority"])


def _part(table: Table, rows: Sequence[int]) -> Table:
    labels = None if table.labels is None else [table.labels[row] for row in rows]
    return replace(
        table, texts=[table.texts[row] for row in rows], labels=labels, lines=[table.lines[row] for row in rows]
    )


def _numbers(table: Table, classes: Sequence[str]) -> list[int]:
    """The labels as places in the list of classes."""
    places = {name: number for number, name in enumerate(classes)}
    strange = {
        label: line for label, line in reversed(list(zip(table.labels or [], table.lines))) if label not in places
    }
    if strange:
        known = ", ".join(classes[:12])
        raise Refused(
            "classify",
            [
                Reason(
                    "a class that was not learned",
                    given=f"{label!r} in line {line} of {table.name}",
                    expected=f"one of {known}",
                    fix="add rows of it to the table that is learned, or remove it here",
                )
                for label, line in sorted(strange.items())[:5]
            ],
        )
    return [places[label] for label in table.labels or []]


def _encoded(texts: Sequence[str], vocabulary: Vocabulary, context: int) -> tuple[list[torch.Tensor], int]:
    """Tokens of each text, cut at the context, and how many were cut."""
    found = [torch.from_numpy(vocabulary.encode(text)) for text in texts]
    return [tokens[:context] for tokens in found], sum(len(tokens) > context for tokens in found)


def _packed(model, texts: Sequence[torch.Tensor], labels: torch.Tensor | None = None):
    """The model on texts side by side, without padding."""
    where = next(model.parameters()).device
    targets = None if labels is None else labels.to(where)
    return model.packed(torch.cat(list(texts)).to(where), [len(text) for text in texts], targets)


@torch.no_grad()
def _found(model, vocabulary: Vocabulary, texts: Sequence[str], recipe: Recipe) -> torch.Tensor:
    """Probabilities (texts, classes), on the CPU."""
    model.eval()
    encoded, _ = _encoded(texts, vocabulary, model.config.context)
    parts = []
    for first in range(0, len(encoded), 64):
        with precision_of(recipe):
            parts.append(_packed(model, encoded[first : first + 64]).float().softmax(-1).cpu())
    return torch.cat(parts)
