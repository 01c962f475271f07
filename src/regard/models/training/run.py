"""Training runs of language models: starts, saves and resumes a run in a folder.

The folder contains `model.safetensors` (weights, optimizer, random generator states, settings, vocabulary) and
`metrics.jsonl` (one line per step). Its loss over the steps is plotted as text, and as an image.
"""

from __future__ import annotations

import json
import math
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...common.errors import Reason, refuse, refuse_all
from ..data import batches
from ..data.batches import Document, Windows, tokens_of
from ..data.vocabulary import Vocabulary
from . import checkpoint
from .loop import TextSettings, Training, check_device, precision_of
from .over_ranks import Alone, checksum

LOG = "metrics.jsonl"
EVALUATED = 128  # windows per evaluation: cheap compared with a hundred steps
ALONE = Alone()
FREE = ("steps", "eval_every", "device")  # settings that may change when a run is resumed


class Run:
    """A training run; create it with `begin` or `resume`.

    Iterating over it performs the remaining steps and yields the log line of each: "step", "loss", "rate" (learning
    rate), "norm" (of the gradient), "seconds", and after an evaluation "held_out" (nats per token), "bits_per_byte".

    Args:
        folder: the folder of the run.
        settings: the settings.
        documents: the texts.
        tokens: the training tokens, the held-out tokens, and the number of bytes per held-out token.
        model: the model.
        vocabulary: the vocabulary.
        ranks: the processes that train together.
    """

    def __init__(
        self,
        folder: Path,
        settings: TextSettings,
        documents: Sequence[Document],
        tokens: tuple[torch.Tensor, torch.Tensor, float],
        model: Any,
        vocabulary: Vocabulary,
        *,
        ranks: Alone,
    ):
        recipe = settings.recipe
        ranks.check(settings)
        self.folder, self.settings, self.vocabulary = folder, settings, vocabulary
        self.files = [str(Path(document.name).resolve()) for document in documents]
        self.learned, self.held, self.bytes_per_token = tokens
        self.ranks, self.model = ranks, model.to(recipe.device)
        ranks.divide(self.model, settings)
        self.windows = Windows(self.learned, settings.context, recipe.batch, recipe.seed)
        self.held_windows = Windows(self.held, settings.context, recipe.batch)
        self.training = Training(
            self.model,
            recipe,
            lambda number: self._loss(*self.windows.batch(number)),
            ranks.add if ranks.many else None,
        )
        self.metrics: list[dict[str, Any]] = []
        self.saved: int | None = None  # the step of the last checkpoint

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Performs the remaining steps; evaluates and saves a checkpoint every `eval_every` steps and at the end."""
        with ExitStack() as claims:
            self.ranks.once("the folder", lambda: self._claim(claims))
            recipe = self.settings.recipe
            before = time.monotonic()
            for step in self.training:
                now = time.monotonic()
                line = {
                    "step": step.number,
                    "loss": step.loss,
                    "rate": step.rate,
                    "norm": step.norm,
                    "seconds": now - before,
                }
                before = now
                if step.number % recipe.eval_every == 0 or step.number == recipe.steps:
                    held = self.evaluate()
                    line |= {"held_out": held, "bits_per_byte": held / math.log(2) / self.bytes_per_token}
                    before = time.monotonic()
                self.metrics.append(line)
                self.ranks.once("the log", partial(self._log, line))
                if "held_out" in line:
                    self.save()
                yield line

    def _claim(self, claims: ExitStack) -> None:
        """Locks the folder until `claims` ends; refuses a run that another process has continued."""
        claims.enter_context(checkpoint.claim(self.folder))
        newest = checkpoint.read(self.folder / checkpoint.NAME, "no tensors", "train")[1]["about"]["done"]
        if newest != self.saved:
            raise refuse(
                "train",
                "the run was continued by another process",
                f"step {self.saved} here, {newest} in {self.folder}",
                "the newest checkpoint",
                "start again with --resume",
            )

    @property
    def done(self) -> int:
        """The number of completed steps."""
        return self.training.done

    @property
    def tokens_per_step(self) -> int:
        """The number of training tokens per step."""
        recipe = self.settings.recipe
        return recipe.batch * recipe.accumulate * self.settings.context

    def save(self) -> None:
        """Saves a checkpoint; it replaces the previous one once it is complete. Every rank calls it, and one writes."""
        self.ranks.once("the checkpoint", self._write)
        self.saved = self.done

    def _write(self) -> None:
        with self._writing("checkpoint"):
            checkpoint.save(
                self.folder,
                self.model,
                vocabulary=self.vocabulary,
                tensors=self.training.state(),
                done=self.done,
                settings=self.settings.flat(),
                files=self.files,
                texts=self._fingerprint(),
            )

    @torch.no_grad()
    def evaluate(self) -> float:
        """Computes the mean loss on held-out windows, in nats per token."""
        self.model.eval()
        total = count = 0.0
        for tokens, targets in self.held_windows.in_order(EVALUATED):
            with precision_of(self.settings.recipe):
                total += self._loss(tokens, targets).item() * len(tokens)
            count += len(tokens)
        whole = torch.tensor(total, dtype=torch.float64)
        self.ranks.add([whole])
        return whole.item() / count

    def _loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        device = self.settings.recipe.device
        return self.ranks.loss(self.model, tokens.to(device), targets.to(device))

    def _log(self, line: dict[str, Any]) -> None:
        with self._writing("log"), (self.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            complete = f"then continue with --resume: the checkpoint of step {self.saved} is complete"
            raise refuse(
                "train",
                f"the {what} cannot be written",
                f"{self.folder}: {error.strerror}",
                "a writable folder with free space",
                f"free some space, {'or choose another folder with --out' if self.saved is None else complete}",
            ) from error

    def _fingerprint(self) -> list[int]:
        """Checksums of the tokens, to detect changed texts."""
        return [zlib.crc32(tokens.numpy()) for tokens in (self.learned, self.held)]

    def _terms(self) -> dict[str, str]:
        """What has to be equal on all ranks, by name."""
        found = {"the settings": json.dumps(self.settings.flat()), "the texts": str(self._fingerprint())}
        return found | {"the completed steps": str(self.done), "the weights": checksum(self.model)}

    def _restore(self, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
        """Restores the state of the checkpoint and removes later lines of the log; their steps are repeated."""
        self.training.restore(tensors, about["done"])
        self.saved = self.done
        log = self.folder / LOG
        lines = log.read_bytes().splitlines(keepends=True) if log.is_file() else []
        try:
            complete = [json.loads(line) for line in lines if line.endswith(b"}\n")]  # a kill can truncate the last one
            self.metrics = [line for line in complete if line["step"] <= self.done]
        except (ValueError, KeyError, TypeError) as error:
            raise refuse(
                "train",
                "the log cannot be read",
                f"{log}: {error}",
                "the lines that regard train wrote",
                "move the log away: the checkpoint does not need it",
            ) from error
        if self.ranks.first and log.is_file():
            with self._writing("log"):
                os.truncate(log, sum(map(len, lines[: len(self.metrics)])))


def begin(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any], ranks: Alone = ALONE) -> Run:
    """Starts a new run and saves its first checkpoint.

    Args:
        folder: a new or empty folder.
        places: text files, folders and patterns, as for `regard.models.data.batches.read`.
        wishes: fields of `TextSettings` and `Recipe`, and their values.
        ranks: the processes that train together; each of them calls this. By default, there is one.

    Returns:
        The run.

    Raises:
        Refused: invalid settings, texts that cannot be read or are too short, or a folder that is not empty.
    """
    run = ranks.agreed("the new run", lambda: _begun(folder, places, wishes, ranks), Run._terms)
    run.save()
    return run


def _begun(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any], ranks: Alone) -> Run:
    """A new run; nothing is written."""
    checkpoint.check_free(folder, "train", "continue with --resume, or choose another folder with --out")
    settings = TextSettings().changed(wishes)
    check_device(settings.recipe.device, "train")
    documents = batches.read(places)
    learn, held = batches.split(documents, settings.recipe.seed)
    vocabulary = settings.make_vocabulary(document.text for document in learn)
    model = settings.model(vocabulary)
    return Run(folder, settings, documents, _tokens(learn, held, vocabulary, settings), model, vocabulary, ranks=ranks)


def resume(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any], ranks: Alone = ALONE) -> Run:
    """Resumes a run from its last checkpoint.

    Args:
        folder: the folder of the run.
        places: the texts of the run, if they have moved. Empty: their original paths.
        wishes: fields of `TextSettings` and `Recipe`, and their values; only `steps`, `eval_every` and `device` may
            change.
        ranks: the processes that train together, of any number; each of them calls this. By default, there is one.

    Returns:
        The run.

    Raises:
        Refused: not a run folder, other settings or texts than those of the run, or no remaining steps.
    """
    return ranks.agreed("the run", lambda: _resumed(folder, places, wishes, ranks), Run._terms)


def _resumed(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any], ranks: Alone) -> Run:
    """The run in a folder."""
    path = checkpoint.find(folder, "train")
    tensors, described = checkpoint.read(path, "", "train")
    about = described["about"]
    if "done" not in about:
        raise refuse(
            "train",
            "the folder does not contain a training run",
            f"{path} is a model without training state",
            "a folder of regard train",
            "start a new run with another --out",
        )
    settings = TextSettings().changed(about["settings"])
    refuse_all(
        "train",
        [
            Reason(
                f"--{name.replace('_', '-')} cannot change when a run is resumed",
                f"{value}, the run has {settings.flat()[name]}",
                "the original settings of the run",
                "omit the option, or start a new run with another --out",
            )
            for name, value in wishes.items()
            if name not in FREE and value != settings.flat()[name]
        ],
    )
    settings = settings.changed(wishes)
    check_device(settings.recipe.device, "train")
    if settings.recipe.steps <= about["done"]:
        raise refuse(
            "train",
            "the run is complete",
            f"{about['done']} of {settings.recipe.steps} steps done",
            "more steps",
            f"increase --steps, for example --steps {2 * about['done']}",
        )
    documents = batches.read(places or about["files"])
    saved = checkpoint.build(tensors, described, path, "train")
    tokens = _tokens(*batches.split(documents, settings.recipe.seed), saved.vocabulary, settings)
    run = Run(folder, settings, documents, tokens, saved.model, saved.vocabulary, ranks=ranks)
    if run._fingerprint() != about["texts"]:
        raise refuse(
            "train",
            "the texts have changed",
            f"the tokens of {len(documents)} files differ from those at the start of the run",
            "the same texts",
            "restore the original files, or start a new run with another --out",
        )
    run._restore(tensors, about)
    return run


def _tokens(
    learn: list[Document], held: list[Document], vocabulary: Vocabulary, settings: TextSettings
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The training tokens, the held-out tokens, and the number of bytes per held-out token."""
    parts = tokens_of(learn, vocabulary), tokens_of(held, vocabulary)
    names = "the training text", "the held-out tenth of the text"
    refuse_all(
        "train",
        [
            Reason(
                "too little text",
                f"{name} has {len(part)} tokens",
                f"more than the context of {settings.context} tokens",
                "add text, or decrease --context",
            )
            for name, part in zip(names, parts)
            if len(part) <= settings.context
        ],
    )
    return *parts, sum(len(document.text.encode()) for document in held) / len(parts[1])


EIGHTHS = " ▁▂▃▄▅▆▇█"
Point = tuple[float, float]  # step, loss


def curve(
    learned: Sequence[Point], held: Sequence[Point] = (), *, width: int = 72, height: int = 12, unicode: bool = True
) -> list[str]:
    """Plots a loss curve as text. Each column shows the mean loss of its steps.

    Args:
        learned: (step, training loss) of every step.
        held: (step, held-out loss) of every evaluation.
        width: maximum number of characters per line.
        height: number of lines, without the axis.
        unicode: whether to draw with block characters; otherwise in ASCII.

    Returns:
        The lines; an empty list without training steps.

    Examples:
        >>> print(*curve([(step, 1 / step) for step in range(1, 9)], [(8, 0.25)], width=14, height=4), sep="\\n")
        1.000 █
              █▂
        0.417 ██▆▃▂▁
        0.125 ███████●
              1      8
    """
    if not learned:
        return []
    first, last = learned[0][0], max(learned[-1][0], *(step for step, _ in held), learned[0][0] + 1)
    label = max(len(f"{loss:.3f}") for _, loss in (*learned, *held))
    columns = max(2, min(width - label - 1, len(learned)))

    def column(step: float) -> int:
        return min(columns - 1, max(0, int((step - first) / (last - first) * columns)))

    sums = [[0.0, 0] for _ in range(columns)]
    for step, loss in learned:
        sums[column(step)][0] += loss
        sums[column(step)][1] += 1
    means = [total / count if count else None for total, count in sums]
    shown = [*(mean for mean in means if mean is not None), *(loss for _, loss in held)]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0

    def level(loss: float) -> float:
        return (loss - low) / span * (height - 1) + 1  # the lowest loss fills one cell

    areas = [0.0 if mean is None else level(mean) for mean in means]
    cells = [[_cell(area - row, unicode) for area in areas] for row in range(height)]
    for step, loss in held:
        cells[min(height - 1, int(level(loss) - 0.5))][column(step)] = "●" if unicode else "o"
    names = {height - 1: high, 0: low, (height - 1) // 2: low + span * ((height - 1) // 2) / (height - 1)}
    lines = [
        f"{f'{names[row]:.3f}' if row in names else '':>{label}} {''.join(cells[row])}".rstrip()
        for row in reversed(range(height))
    ]
    ends = f"{first:g}", f"{last:g}"
    return [*lines, " " * (label + 1) + ends[0] + ends[1].rjust(max(len(ends[1]) + 1, columns - len(ends[0])))]


def _cell(filled: float, unicode: bool) -> str:
    """A cell of the area, filled to this fraction."""
    if not unicode:
        return "#" if filled >= 0.5 else " "
    return EIGHTHS[round(8 * min(1.0, max(0.0, filled)))]


def plot(path: Path, learned: Sequence[Point], held: Sequence[Point] = ()) -> None:
    """Plots the training loss of every step, its running mean, and the held-out loss.

    Args:
        path: the PNG file to write.
        learned: (step, training loss) of every step.
        held: (step, held-out loss) of every evaluation.
    """
    from matplotlib.figure import Figure  # without pyplot: no window and no global state

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    steps, losses = zip(*learned)
    mean = max(1, len(losses) // 20)  # steps of the running mean
    axes.plot(steps, losses, color="#9bb7d4", linewidth=0.8, label="each step")
    running = np.convolve(losses, np.full(mean, 1 / mean), "valid")
    axes.plot(steps[mean - 1 :], running, color="#1f5a96", linewidth=1.8, label="running mean")
    if held:
        axes.plot(*zip(*held), color="#c8501e", marker="o", linewidth=1.2, label="held out")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, format="png", dpi=130)
