"""`regard train`: trains a small model on texts, over several processes if wanted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import Reason, Refused, refuse_all
from ..common.optional import needs
from ..common.text.units import counted
from .arguments import Device, Heads, LearningRate, Precision, Seed, Vocabulary, flag, option
from .terminal import Console, bar, emit_json, interruptible

if TYPE_CHECKING:
    from ..models.training.over_ranks import Alone
    from ..models.training.run import Run

SECONDS = 300.0  # that a rank waits for the others; one that ends is noticed at once


@contextlib.contextmanager
def together(ranks: int | None, divide: str | None) -> Iterator[Alone]:
    """The team of this process. Without torchrun, several ranks are started, and the command exits with their status.

    What all ranks refuse is printed by one of them. Where a rank is lost, each of the others says so.
    """
    from ..models.training.over_ranks import Alone, Ranks
    from ..parallel.exchange import Lost
    from ..parallel.torchrun import joined, run_as_ranks, under_torchrun

    started = under_torchrun()
    refuse_all("train", _problems(ranks, divide, started))
    if started is None and ranks is not None and ranks > 1:
        raise typer.Exit(run_as_ranks(ranks, sys.argv[1:]))
    if started in (None, 1):
        yield Alone()
        return
    with joined(SECONDS) as transport:
        team = Ranks(transport, divide or "batch")
        try:
            yield team
        except Refused as refused:
            if team.first:
                raise
            raise typer.Exit(2) from refused
        except Lost as lost:
            print(
                f"regard: rank {transport.rank}: {lost}. The last checkpoint is complete: continue with --resume.",
                file=sys.stderr,
            )
            raise typer.Exit(1) from lost


def _problems(ranks: int | None, divide: str | None, started: int | None) -> Iterator[Reason]:
    """What is wrong with numbers of ranks that cannot be, and with --divide without ranks."""
    if ranks is not None and ranks < 1:
        yield Reason("--ranks is too small", f"{ranks}", "1 or more", "omit it for one process")
    if started is not None and ranks not in (None, started):
        yield Reason(
            "--ranks differs from the processes of torchrun",
            f"--ranks {ranks}, {started} processes",
            f"--ranks {started}",
            "omit it under torchrun",
        )
    if divide not in (None, "batch", "tokens"):
        yield Reason("--divide is unknown", f"{divide}", "batch or tokens", "choose one of them")
    elif divide is not None and (started or ranks or 1) == 1:
        yield Reason(
            "there is nothing to divide",
            f"--divide {divide} with one process",
            "several ranks",
            "add --ranks 2, or omit --divide",
        )


APART = ("files", "out", "resume", "ranks", "divide", "as_json")  # arguments that are not settings of a run


def train(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="UTF-8 text files, folders, or quoted patterns.", show_default=False),
    ] = None,
    *,
    out: Annotated[Path, option("Folder of the run.")] = Path("run"),
    resume: Annotated[bool, flag("--resume", "Resume the run in the folder.")] = False,
    tokenizer: Annotated[str | None, option("Tokenizer: bytes, or bpe (byte pair encoding).", "bytes")] = None,
    vocabulary: Vocabulary = None,
    style: Annotated[
        str | None,
        option("Architecture: llama (rotary, RMSNorm, SwiGLU) or gpt (learned positions, LayerNorm, GELU).", "llama"),
    ] = None,
    layers: Annotated[int | None, option("Number of blocks.", "4")] = None,
    width: Annotated[int | None, option("Model width (d_model).", "256")] = None,
    heads: Heads = None,
    kv_heads: Annotated[int | None, option("Number of key/value heads.", "same as --heads")] = None,
    context: Annotated[int | None, option("Context length, in tokens.", "256")] = None,
    window: Annotated[int | None, option("Sliding window of the attention, in tokens.", "unlimited")] = None,
    batch: Annotated[int | None, option("Sequences per batch.", "16")] = None,
    accumulate: Annotated[int | None, option("Batches per step (gradient accumulation).", "1")] = None,
    steps: Annotated[int | None, option("Number of optimizer steps.", "1000")] = None,
    learning_rate: LearningRate = None,
    warmup: Annotated[int | None, option("Warmup steps of the learning rate.", "100")] = None,
    weight_decay: Annotated[float | None, option("Weight decay of matrices.", "0.1")] = None,
    clip: Annotated[float | None, option("Maximum gradient norm.", "1.0")] = None,
    dropout: Annotated[float | None, option("Dropout probability.", "0.0")] = None,
    seed: Seed = None,
    precision: Precision = None,
    device: Device = None,
    eval_every: Annotated[int | None, option("Steps between evaluations and checkpoints.", "100")] = None,
    ranks: Annotated[
        int | None, option("Processes on this machine that train together, through torchrun.", "1")
    ] = None,
    divide: Annotated[
        str | None,
        option(
            "What ranks divide: batch (each computes some sequences of it) or tokens (some tokens of each sequence).",
            "batch",
        ),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print sizes and losses as JSON at the end.")] = False,
) -> None:
    """Train a language model on text files.

    Ctrl-C saves a checkpoint and exits; --resume continues the run, also with another number of ranks. With --json the
    lines go to standard error.
    """
    options = {name: value for name, value in locals().items() if name not in APART and value is not None}

    needs("train", "train", "torch", "safetensors", *(["tokenizers"] if tokenizer == "bpe" else []))
    with together(ranks, divide) as team:
        _train(out, files or [], resume, options, team, as_json)


def _train(out: Path, files: list[str], resume: bool, options: dict[str, Any], team: Alone, as_json: bool) -> None:
    """Trains, as one of the ranks of a team; the first of them prints."""
    from ..models.training import run as runs
    from ..parallel.torchrun import stop_requested

    console = Console(soft_wrap=True, stderr=as_json, quiet=not team.first)
    with Console(stderr=True, quiet=not team.first).status("reading the text"):
        run = (runs.resume if resume else runs.begin)(out, files, options, team)
    _print_header(console, run)

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
            if team.any(interrupt.is_set() or stop_requested()):
                run.save()
                break
    if team.first:
        _print_summary(console, run, out)
        if as_json:
            emit_json(_result(run))


def _result(run: Run) -> dict[str, Any]:
    """What --json prints: the sizes, and a line per step as in metrics.jsonl."""
    return {
        "folder": str(run.folder),
        "parameters": sum(weight.numel() for weight in run.model.parameters()),
        "training_tokens": len(run.learned),
        "held_out_tokens": len(run.held),
        "steps": run.settings.recipe.steps,
        "done": run.done,
        "metrics": run.metrics,
    }


def _print_header(console: Console, run: Run) -> None:
    """Prints the sizes of the data and the model."""
    weights = sum(weight.numel() for weight in run.model.parameters())
    console.print(
        f"text    {counted(len(run.files), 'file')}, {len(run.learned):,} training tokens, "
        f"{len(run.held):,} held-out tokens"
    )
    console.print(
        f"model   {weights:,} parameters, {counted(run.settings.layers, 'layer')}, vocabulary {run.vocabulary.size}"
    )
    console.print(f"folder  {run.folder}" + (f", resuming from step {run.done}" if run.done else ""))
    console.print()


def _print_summary(console: Console, run: Run, out: Path) -> None:
    """Prints the loss curve and the commands for the next steps."""
    from ..models.training.run import curve, plot

    learned = [(line["step"], line["loss"]) for line in run.metrics]
    held = [(line["step"], line["held_out"]) for line in run.metrics if "held_out" in line]
    console.print()
    for row in curve(learned, held, width=min(console.width, 100), unicode=console.encoding.startswith("utf")):
        console.print(row, markup=False)
    console.print()
    try:
        plot(run.folder / "loss.png", learned, held)
        console.print(f"Loss plot: {run.folder / 'loss.png'}", markup=False)
    except ImportError as error:
        console.print(f"No loss plot: {error}. Install matplotlib: pip install 'regard[train]'.", markup=False)
    except OSError as error:  # the model is saved
        console.print(f"No loss plot: {error.strerror}.", markup=False)
    best = min(held, key=lambda point: point[1], default=None)
    if best and best[0] < held[-1][0]:
        console.print(f"The held-out loss was lowest at step {best[0]} ({best[1]:.3f}): use more text or fewer steps.")
    if run.done < run.settings.recipe.steps:
        console.print(
            f"Saved at step {run.done} of {run.settings.recipe.steps}. To resume: regard train --resume --out {out}"
        )
    console.print(f'To generate text: regard generate {out} "…"', markup=False)
    console.print(f"To show its attention: regard look {out}", markup=False)
