"""`regard classify`: learn labels from a table of texts, or ask a classifier that has learned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..common.errors import refuse
from .progress import bar, interruptible, needs
from .train import option

__all__ = ["classify"]


def classify(
    source: Annotated[
        str,
        typer.Argument(
            help="A table (.csv, .tsv, .jsonl); with --model also a text, or - for lines.", show_default=False
        ),
    ],
    *,
    text: Annotated[str | None, option("The column of the texts.", "found")] = None,
    label: Annotated[str | None, option("The column of the labels.", "found")] = None,
    test: Annotated[Path | None, option("A table to judge by.", "a fifth of the first")] = None,
    out: Annotated[Path | None, option("The folder for the classifier.", "classifier")] = None,
    model: Annotated[Path | None, option("Ask the classifier in this folder instead.", "none")] = None,
    tokenizer: Annotated[str | None, option("bytes, or bpe: pieces that the texts repeat.", "bpe")] = None,
    vocabulary: Annotated[int | None, option("Tokens of a bpe.", "2048")] = None,
    layers: Annotated[int | None, option("Blocks.", "2")] = None,
    width: Annotated[int | None, option("Numbers per token (d_model).", "128")] = None,
    heads: Annotated[int | None, option("Attention heads.", "4")] = None,
    context: Annotated[int | None, option("Tokens that are read of a text.", "256")] = None,
    dropout: Annotated[float | None, option("Of embeddings, parts and attention weights.", "0.1")] = None,
    steps: Annotated[int | None, option("Steps of the optimizer.", "ten times through, at least 200")] = None,
    batch: Annotated[int | None, option("Texts per step.", "32")] = None,
    learning_rate: Annotated[float | None, option("The highest.", "0.001")] = None,
    precision: Annotated[str | None, option("float32 or bfloat16.", "float32")] = None,
    seed: Annotated[int | None, option("Of weights, order, dropout and what is held out.", "0")] = None,
    device: Annotated[str | None, option("cpu or cuda.", "cpu")] = None,
) -> None:
    """Train a classifier on a table of texts and labels and judge it, or ask one: --model FOLDER "a text"."""
    given = {name: value for name, value in locals().items() if value is not None}
    wishes = {
        name: value for name, value in given.items() if name not in ("source", "text", "label", "test", "out", "model")
    }

    if model is not None:
        learns = [f"--{name.replace('_', '-')}" for name in given if name in {"test", "out", *wishes} - {"device"}]
        if learns:
            raise refuse(
                "classify",
                "a finished classifier does not learn",
                given=f"--model and {', '.join(learns)}",
                expected="one of them",
                fix="leave out --model to train, or the others to ask",
            )
        needs("classify", "torch", "safetensors")
        _ask(model, source, text, label, device or "cpu")
    else:
        needs("classify", "torch", "safetensors", *(["tokenizers"] if tokenizer != "bytes" else []))
        _learn(Path(source), text, label, test, out or Path("classifier"), wishes)


def _learn(
    source: Path, text: str | None, label: str | None, test: Path | None, out: Path, wishes: dict[str, Any]
) -> None:
    """Trains, judges, and saves both."""
    from rich.console import Console

    from ..models.data import tables
    from ..models.training import checkpoint

    console = Console(highlight=False, soft_wrap=True)
    checkpoint.check_free(out, "classify", "choose another with --out")
    table = tables.read(source, text, label)
    judged = None if test is None else tables.read(test, *table.columns)

    from ..models.training.classification import Classification
    from .classifier_report import show

    learning = Classification(table, judged, wishes)
    console.print(f"columns  text {table.columns[0]!r}, label {table.columns[1]!r}", markup=False)
    console.print(
        f"rows     {len(learning.learned.texts):,} to learn from, {len(learning.held.texts):,} to judge by, "
        f"{len(learning.classes)} classes"
    )
    if learning.cut:
        console.print(
            f"         {learning.cut:,} texts are longer than {learning.settings.context} tokens: only these are read"
        )
    console.print(
        f"model    {sum(weight.numel() for weight in learning.model.parameters()):,} weights, "
        f"vocabulary {learning.vocabulary.size}"
    )
    console.print()
    loss = None
    with interruptible() as interrupt, bar(console, ("loss",), learning.recipe.steps, 0) as move:
        for step in learning:
            loss = step.loss if loss is None else 0.95 * loss + 0.05 * step.loss
            move(step.number, loss=f"loss {loss:.3f}")
            if interrupt.asked:
                break
    if learning.training.done < learning.recipe.steps:
        console.print(f"stopped after {learning.training.done} of {learning.recipe.steps} steps")
    report = learning.report()
    show(console, report, "rows that were not learned")
    learning.save(out, report)
    console.print()
    console.print(f'Saved. To ask it: regard classify --model {out} "a text"', markup=False)


def _ask(folder: Path, source: str, text: str | None, label: str | None, device: str) -> None:
    """Prints class, probability and text for each text; for a table whose labels are named, the report."""
    from ..models.data import tables
    from ..models.training import checkpoint
    from ..models.training.loop import check_device

    check_device(device, "classify")
    saved = checkpoint.load(folder, "classify", device)
    if saved.kind != "SequenceClassifier":
        raise refuse(
            "classify",
            "the model does not classify",
            given=f"{folder} holds a {saved.kind}",
            expected="a classifier",
            fix="train one with regard classify FILE",
        )
    from ..models.training.classification import judge, predict

    table = None
    if Path(source).suffix in tables.KINDS:
        table = tables.read(Path(source), text, label, labelled=label is not None)
    elif text is not None or label is not None:
        raise refuse(
            "classify",
            "columns without a table",
            given=f"--text or --label, and {source!r:.40}",
            expected="a table, or no columns",
            fix=f"give a file that ends in {', '.join(tables.KINDS)}, or leave them out",
        )
    if table is not None and label is not None:
        from rich.console import Console

        from .classifier_report import show

        show(Console(highlight=False, soft_wrap=True), judge(saved, table), f"rows of {source}")
        return
    texts = table.texts if table is not None else _lines(source)
    for words, chances in zip(texts, predict(saved, texts)):
        best = int(chances.argmax())
        print(saved.about["classes"][best], f"{chances[best]:.3f}", " ".join(words.split())[:100], sep="\t")


def _lines(source: str) -> list[str]:
    """The text that was given, or the lines of standard input."""
    raw = sys.stdin.buffer.read() if source == "-" else source.encode("utf-8", "surrogateescape")
    try:
        texts = raw.decode("utf-8").splitlines() if source == "-" else [raw.decode("utf-8")]
    except UnicodeDecodeError as error:
        raise refuse(
            "classify",
            "the text is not UTF-8",
            given=f"byte {error.start}",
            expected="UTF-8",
            fix="convert it, with iconv for example",
        ) from error
    texts = [words for words in texts if words.strip()]
    if not texts:
        raise refuse("classify", "no text", given="nothing but blanks", expected="a text", fix="give some words")
    return texts
