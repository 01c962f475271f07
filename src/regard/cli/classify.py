"""`regard classify`: trains a text classifier on a table, or predicts labels with a trained one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from ..common.errors import refuse
from ..common.optional import needs
from ..common.text.units import counted
from .arguments import Device, Heads, LearningRate, Precision, Seed, Vocabulary, flag, option, typed_text
from .terminal import Console, bar, emit_json, interruptible

if TYPE_CHECKING:
    from rich.table import Table

    from ..models.training.classification import Report


def classify(
    source: Annotated[
        str,
        typer.Argument(
            help="Table (.csv, .tsv, .jsonl). With --model also a text, or - for lines of standard input.",
            show_default=False,
        ),
    ],
    *,
    text: Annotated[str | None, option("Text column.", "detected")] = None,
    label: Annotated[str | None, option("Label column.", "detected")] = None,
    test: Annotated[Path | None, option("Table to evaluate on.", "a fifth of the rows, held out")] = None,
    out: Annotated[Path | None, option("Folder for the trained classifier.", "classifier")] = None,
    model: Annotated[Path | None, option("Predict with the classifier in this folder.", "train one")] = None,
    tokenizer: Annotated[str | None, option("Tokenizer: bytes, or bpe (byte pair encoding).", "bpe")] = None,
    vocabulary: Vocabulary = None,
    layers: Annotated[int | None, option("Number of blocks.", "2")] = None,
    width: Annotated[int | None, option("Model width (d_model).", "128")] = None,
    heads: Heads = None,
    context: Annotated[int | None, option("Maximum tokens per text; the rest is ignored.", "256")] = None,
    dropout: Annotated[float | None, option("Dropout probability.", "0.1")] = None,
    steps: Annotated[int | None, option("Number of optimizer steps.", "10 epochs, at least 200 steps")] = None,
    batch: Annotated[int | None, option("Texts per step.", "32")] = None,
    learning_rate: LearningRate = None,
    precision: Precision = None,
    seed: Seed = None,
    device: Device = None,
    as_json: Annotated[bool, flag("--json", "Print the metrics or the predictions as JSON.")] = False,
) -> None:
    """Train a text classifier on a table, or predict with one.

    Training prints metrics on held-out rows and saves the classifier. With --model, prints class, probability and text
    for each text, or metrics if --label names the labels of a table. With --json the lines of a training go to standard
    error.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    options = {
        name: value
        for name, value in given.items()
        if name not in ("source", "text", "label", "test", "out", "model", "as_json")
    }

    if model is not None:
        training = [f"--{name.replace('_', '-')}" for name in given if name in {"test", "out", *options} - {"device"}]
        if training:
            raise refuse(
                "classify",
                "training options cannot be combined with --model",
                f"--model and {', '.join(training)}",
                "--model to predict, or the other options to train",
                "omit --model, or the other options",
            )
        needs("classify", "train", "torch", "safetensors")
        _predict(model, source, text, label, device or "cpu", as_json)
    else:
        needs("classify", "train", "torch", "safetensors", *(["tokenizers"] if tokenizer != "bytes" else []))
        _train(Path(source), text, label, test, out or Path("classifier"), options, as_json)


def _train(
    source: Path,
    text: str | None,
    label: str | None,
    test: Path | None,
    out: Path,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """Trains a classifier, prints its report, and saves both."""
    from ..models.data import tables
    from ..models.training import checkpoint

    console = Console(soft_wrap=True, stderr=as_json)
    checkpoint.check_free(out, "classify", "choose another folder with --out")
    table = tables.read(source, text, label)
    test_table = None if test is None else tables.read(test, *table.columns)

    from ..models.training.classification import Classification

    learning = Classification(table, test_table, options)
    console.print(f"columns  text {table.columns[0]!r}, label {table.columns[1]!r}", markup=False)
    console.print(
        f"rows     {len(learning.learned.texts):,} training, {len(learning.held.texts):,} test, "
        f"{len(learning.classes)} classes"
    )
    if learning.cut:
        texts, most = f"{learning.cut:,} text{'s' * (learning.cut != 1)}", counted(learning.settings.context, "token")
        console.print(f"         {texts} truncated to {most}")
    console.print(
        f"model    {sum(weight.numel() for weight in learning.model.parameters()):,} parameters, "
        f"vocabulary {learning.vocabulary.size}"
    )
    console.print()
    loss = None
    with interruptible() as interrupt, bar(console, ("loss",), learning.recipe.steps) as update:
        for step in learning:
            loss = step.loss if loss is None else 0.95 * loss + 0.05 * step.loss
            update(step.number, loss=f"loss {loss:.3f}")
            if interrupt.is_set():
                break
    if learning.training.done < learning.recipe.steps:
        console.print(f"interrupted after {learning.training.done} of {learning.recipe.steps} steps")
    report = learning.report()
    show(console, report, "test rows")
    learning.save(out, report)
    console.print()
    console.print(f'Saved. To predict: regard classify --model {out} "a text"', markup=False)
    console.print(f"To show its attention: regard look {out}", markup=False)
    if as_json:
        emit_json(
            {"folder": str(out), "steps": learning.recipe.steps, "done": learning.training.done, **report.to_dict()}
        )


def _predict(folder: Path, source: str, text: str | None, label: str | None, device: str, as_json: bool) -> None:
    """Prints class, probability and text for each text; for a table with labels, the report."""
    from ..models.data import tables
    from ..models.training import checkpoint
    from ..models.training.loop import check_device

    check_device(device, "classify")
    saved = checkpoint.load(folder, "classify", device)
    if saved.kind != "SequenceClassifier":
        raise refuse(
            "classify",
            "not a text classifier",
            f"{folder} contains a {saved.kind}",
            "a text classifier",
            "train one with regard classify TABLE",
        )
    from ..models.training.classification import judge, predict

    table = None
    if Path(source).suffix in tables.KINDS:
        table = tables.read(Path(source), text, label, labelled=label is not None)
    elif text is not None or label is not None:
        raise refuse(
            "classify",
            "--text and --label require a table",
            f"the text {source!r:.40}",
            "a table",
            f"pass a file with the extension {', '.join(tables.KINDS)}, or omit the columns",
        )
    if table is not None and label is not None:
        report = judge(saved, table)
        if as_json:
            emit_json(report.to_dict())
        else:
            show(Console(soft_wrap=True), report, f"rows of {source}")
        return
    texts, classes, found = table.texts if table is not None else _lines(source), saved.about["classes"], []
    for words, probabilities in zip(texts, predict(saved, texts)):
        best = int(probabilities.argmax())
        if as_json:
            shares = dict(zip(classes, map(float, probabilities), strict=True))
            found.append({"text": words, "class": classes[best], "probabilities": shares})
        else:
            print(classes[best], f"{probabilities[best]:.3f}", " ".join(words.split())[:100], sep="\t")
    if as_json:
        emit_json(found)


def _lines(source: str) -> list[str]:
    """The text itself, or the lines of standard input for "-"."""
    text, _ = typed_text("classify", source, "the argument")
    texts = [words for words in (text.splitlines() if source == "-" else [text]) if words.strip()]
    if not texts:
        raise refuse("classify", "no text", "only white space", "a text", "pass a text")
    return texts


SQUARE = 12  # maximum number of classes in a confusion matrix; for more, the most frequent errors are listed


def show(console: Console, report: Report, rows: str) -> None:
    """Prints accuracy and baseline, a line per class, and the confusion matrix."""
    console.print(f"accuracy {report.accuracy:.1%} of {report.count} {rows}", markup=False)
    console.print(
        f"baseline {report.baseline:.1%}: always predicting {report.classes[report.majority]!r}", markup=False
    )
    console.print()
    table = _table(("class",), ("precision", "recall", "F1", "rows"))
    for number, name in enumerate(report.classes):
        metrics = (report.precision[number], report.recall[number], report.f1[number])
        table.add_row(_plain(name), *map(_format, metrics), str(report.support[number]))
    table.add_row(
        "mean",
        *map(_format, (_mean(report.precision), _mean(report.recall), report.macro_f1)),
        str(report.count),
        style="dim",
    )
    console.print(table)
    console.print()
    console.print(_matrix(report) if len(report.classes) <= SQUARE else _errors(report))


def _matrix(report: Report) -> Table:
    """The confusion matrix: rows are true classes, columns predicted classes."""
    table = _table(("true \\ predicted",), map(_plain, report.classes))
    for number, name in enumerate(report.classes):
        cells = [
            f"[bold]{count}[/]" if column == number else str(count) if count else "[dim]·[/]"
            for column, count in enumerate(report.confusion[number])
        ]
        table.add_row(_plain(name), *cells)
    return table


def _errors(report: Report, most: int = 10) -> Table:
    """The most frequent errors."""
    wrong = report.confusion * (1 - np.eye(len(report.classes), dtype=int))
    table = _table(("most frequent errors: true", "predicted"), ("rows",))
    for index in np.argsort(-wrong, axis=None, kind="stable")[:most]:
        true, predicted = divmod(int(index), len(report.classes))
        if wrong[true, predicted]:
            table.add_row(_plain(report.classes[true]), _plain(report.classes[predicted]), str(wrong[true, predicted]))
    return table


def _table(left: Iterable[str], right: Iterable[str]) -> Table:
    """A table without lines. left, right: the columns, by the side to which they are aligned"""
    from rich.table import Table

    table = Table(*left, box=None, header_style="", pad_edge=False)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _plain(name: str) -> str:
    """A class name for a table cell: shortened, with markup escaped."""
    return escape(name if len(name) <= 24 else name[:23] + "…")


def _format(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
