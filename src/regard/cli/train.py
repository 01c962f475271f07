"""`regard train`: a language model on the user's own text, which can be stopped, killed and taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .progress import bar, interruptible, needs

__all__ = ["train"]


def option(help: str, default: str):
    """An option that is None where it was not given, so that a run taken up again knows what it was asked to change."""
    return typer.Option(help=help, show_default=default)


def train(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Texts in UTF-8: files, folders, or patterns in quotes.", show_default=False),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The folder of the run.")] = Path("run"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder, exactly where it was saved.")
    ] = False,
    tokenizer: Annotated[str | None, option("bytes, or bpe: pieces that the text repeats.", "bytes")] = None,
    vocabulary: Annotated[int | None, option("Tokens of a bpe.", "2048")] = None,
    style: Annotated[
        str | None, option("llama (rotary, RMSNorm, SwiGLU) or gpt (learned positions, LayerNorm, GELU).", "llama")
    ] = None,
    layers: Annotated[int | None, option("Blocks.", "4")] = None,
    width: Annotated[int | None, option("Numbers per token (d_model).", "256")] = None,
    heads: Annotated[int | None, option("Attention heads.", "4")] = None,
    kv_heads: Annotated[int | None, option("Heads of keys and values.", "as many as heads")] = None,
    context: Annotated[int | None, option("Tokens that are seen at once.", "256")] = None,
    window: Annotated[int | None, option("A token sees so many, itself included.", "all")] = None,
    batch: Annotated[int | None, option("Windows of text per step and device pass.", "16")] = None,
    accumulate: Annotated[int | None, option("Batches per step.", "1")] = None,
    steps: Annotated[int | None, option("Steps of the optimizer.", "1000")] = None,
    learning_rate: Annotated[float | None, option("The highest, after the warmup.", "0.001")] = None,
    warmup: Annotated[int | None, option("Steps until then.", "100")] = None,
    weight_decay: Annotated[float | None, option("Of matrices.", "0.1")] = None,
    clip: Annotated[float | None, option("The longest gradient.", "1.0")] = None,
    dropout: Annotated[float | None, option("Of embeddings, parts and attention weights.", "0.0")] = None,
    seed: Annotated[int | None, option("Of weights, order and dropout.", "0")] = None,
    precision: Annotated[
        str | None, option("float32, or bfloat16 (products only; sums and weights stay float32).", "float32")
    ] = None,
    device: Annotated[str | None, option("cpu or cuda.", "cpu")] = None,
    eval_every: Annotated[int | None, option("Steps between evaluations; each also saves.", "100")] = None,
) -> None:
    """Train a language model on your text. Ctrl-C saves; --resume goes on."""
    wishes = {
        name: value for name, value in locals().items() if name not in ("files", "out", "resume") and value is not None
    }

    from rich.console import Console  # here and below: what is heavy loads after the arguments are known

    needs("train", "torch", "safetensors", *(["tokenizers"] if tokenizer == "bpe" else []))
    console = Console(highlight=False, soft_wrap=True)
    with Console(stderr=True).status("reading the text"):
        from ..models.training import run as runs

        run = runs.resume(out, files or [], wishes) if resume else runs.begin(out, files or [], wishes)
    _introduce(console, run)

    recipe = run.settings.recipe
    with interruptible() as interrupt, bar(console, ("loss", "held", "speed"), recipe.steps, run.done) as show:
        loss = speed = None
        for line in run:
            loss = line["loss"] if loss is None else 0.9 * loss + 0.1 * line["loss"]
            now = run.tokens_per_step / line["seconds"]
            speed = now if speed is None else 0.9 * speed + 0.1 * now
            show(line["step"], loss=f"loss {loss:.3f}", speed=f"{speed:,.0f} tokens/s")
            if "held_out" in line:
                show(line["step"], held=f"held out {line['held_out']:.3f}")
                console.print(
                    f"step {line['step']:>6}   loss {loss:.3f}   held out {line['held_out']:.3f} "
                    f"({line['bits_per_byte']:.3f} bits per byte)   {speed:,.0f} tokens/s"
                )
            if interrupt.asked:
                run.save()
                break
    _conclude(console, run, out)


def _introduce(console, run) -> None:
    """What is trained on what."""
    weights = sum(weight.numel() for weight in run.model.parameters())
    console.print(
        f"text    {len(run.files)} {'file' if len(run.files) == 1 else 'files'}, {len(run.learned):,} tokens "
        "to learn from, "
        f"{len(run.held):,} held out"
    )
    console.print(f"model   {weights:,} weights, {run.settings.layers} layers, vocabulary {run.vocabulary.size}")
    console.print(f"folder  {run.folder}" + (f", from step {run.done} on" if run.done else ""))
    console.print()


def _conclude(console, run, out: Path) -> None:
    """The curve, and how to go on."""
    from ..models.training.curve import curve
    from ..models.training.loss_plot import picture

    learned = [(line["step"], line["loss"]) for line in run.metrics]
    held = [(line["step"], line["held_out"]) for line in run.metrics if "held_out" in line]
    console.print()
    for row in curve(learned, held, width=min(console.width, 100), letters=console.encoding.startswith("utf")):
        console.print(row, markup=False)
    console.print()
    try:
        picture(run.folder / "loss.png", learned, held)
        console.print(f"The same as a picture: {run.folder / 'loss.png'}", markup=False)
    except ImportError as error:
        console.print(
            f"No picture of it: {error}. It is drawn by matplotlib: pip install 'regard[train]'.", markup=False
        )
    best = min(held, key=lambda point: point[1], default=None)
    if best and best[0] < held[-1][0]:
        console.print(
            f"The held-out loss was lowest at step {best[0]} ({best[1]:.3f}): more text or fewer steps would help."
        )
    if run.done < run.settings.recipe.steps:
        console.print(
            f"Saved at step {run.done} of {run.settings.recipe.steps}. To go on: regard train --resume --out {out}"
        )
    console.print(f'To write: regard generate {out} "…"', markup=False)
