"""Training runs of language models: starts, saves and resumes a run in a folder.

The folder contains `model.safetensors` (weights, optimizer, random generator states, settings, vocabulary) and
`metrics.jsonl` (one line per step).
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from ...common.errors import Reason, Refused, refuse
from ..config import Config
from ..data import text
from ..data.batches import Windows, tokens_of
from ..data.vocabulary import Bytes, Pairs, Vocabulary
from ..language_model import LanguageModel
from . import checkpoint
from .loop import Recipe, Training, check_device, precision_of

__all__ = ["LOG", "Run", "Settings", "begin", "resume"]

LOG = "metrics.jsonl"
EVALUATED = 128  # windows per evaluation: cheap compared with a hundred steps
FREE = ("steps", "eval_every", "device")  # settings that may change when a run is resumed


@dataclass(frozen=True)
class Settings:
    """Settings of a training run: the vocabulary, the model and the recipe.

    Args:
        tokenizer: "bytes" or "bpe".
        vocabulary: maximum number of tokens of a "bpe" vocabulary.
        style: "llama" (rotary positions, RMSNorm, SwiGLU) or "gpt" (learned positions, LayerNorm, GELU).
        layers: number of blocks.
        width: model width.
        heads: number of query heads.
        kv_heads: number of key/value heads. None: as many as `heads`.
        context: number of tokens per window.
        window: sliding window of the attention. None: no limit.
        dropout: dropout probability.
        recipe: the hyperparameters of the training.

    Raises:
        Refused: invalid values, listing every problem.

    Examples:
        >>> Settings().changed({"layers": 2, "steps": 500}).recipe.steps
        500
    """

    tokenizer: str = "bytes"
    vocabulary: int = 2048
    style: str = "llama"
    layers: int = 4
    width: int = 256
    heads: int = 4
    kv_heads: int | None = None
    context: int = 256
    window: int | None = None
    dropout: float = 0.0
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        reasons = [
            Reason(
                f"unknown {name}",
                given=repr(getattr(self, name)),
                expected=" or ".join(map(repr, known)),
                fix="choose one of them",
            )
            for name, known in {"tokenizer": ("bytes", "bpe"), "style": ("llama", "gpt")}.items()
            if getattr(self, name) not in known
        ]
        if self.tokenizer == "bpe" and self.vocabulary < Bytes.size:
            reasons.append(
                Reason(
                    "the vocabulary is too small",
                    given=f"{self.vocabulary} tokens",
                    expected=f"{Bytes.size} or more: every byte, and the end-of-document token",
                    fix="increase --vocabulary, or use --tokenizer bytes",
                )
            )
        if reasons:
            raise Refused("train", reasons)

    def changed(self, wishes: Mapping[str, Any]) -> Settings:
        """Returns a copy with other values; fields of the recipe are named directly."""
        own = {name: value for name, value in wishes.items() if name in {field.name for field in fields(self)}}
        rest = {name: value for name, value in wishes.items() if name not in own}
        return replace(self, **own, recipe=replace(self.recipe, **rest))

    def flat(self) -> dict[str, Any]:
        """Returns all settings as one dict, including the fields of the recipe."""
        own = asdict(self)
        return own | own.pop("recipe")

    def model(self, vocabulary: Vocabulary) -> LanguageModel:
        """Creates a model with weights initialized from the seed."""
        make = {"llama": Config.llama, "gpt": Config.gpt}[self.style]
        torch.manual_seed(self.recipe.seed)
        same = {name: getattr(self, name) for name in ("layers", "heads", "kv_heads", "context", "window", "dropout")}
        return LanguageModel(make(vocabulary=vocabulary.size, d_model=self.width, **same))


class Run:
    """A training run; create it with `begin` or `resume`.

    Iterating over it performs the remaining steps and yields the log line of each: "step", "loss", "rate" (learning
    rate), "norm" (of the gradient), "seconds", and after an evaluation "held_out" (nats per token), "bits_per_byte".

    Args:
        folder: the folder of the run.
        settings: the settings.
        files: the paths of the texts.
        tokens: the training tokens, the held-out tokens, and the number of bytes per held-out token.
        model: the model.
        vocabulary: the vocabulary.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        files: Sequence[str],
        tokens: tuple[torch.Tensor, torch.Tensor, float],
        model: Any,
        vocabulary: Vocabulary,
    ):
        recipe = settings.recipe
        self.folder, self.settings, self.files, self.vocabulary = folder, settings, list(files), vocabulary
        self.learned, self.held, self.bytes_per_token = tokens
        self.model = model.to(recipe.device)
        self.windows = Windows(self.learned, settings.context, recipe.batch, recipe.seed)
        self.held_windows = Windows(self.held, settings.context, recipe.batch)
        self.training = Training(self.model, recipe, lambda number: self._loss(*self.windows.batch(number)))
        self.metrics: list[dict[str, Any]] = []
        self.saved = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Performs the remaining steps; evaluates and saves a checkpoint every `eval_every` steps and at the end."""
        with checkpoint.claim(self.folder, "train"):
            newest = checkpoint.read(self.folder / checkpoint.NAME, "no tensors", "train")[1]["about"]["done"]
            if newest != self.saved:
                raise refuse(
                    "train",
                    "the run was continued by another process",
                    given=f"step {self.saved} here, {newest} in {self.folder}",
                    expected="the newest checkpoint",
                    fix="start again with --resume",
                )
            yield from self._steps()

    def _steps(self) -> Iterator[dict[str, Any]]:
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
            self._log(line)
            if "held_out" in line:
                self.save()
            yield line

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
        """Saves a checkpoint; it replaces the previous one once it is complete."""
        try:
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
        except OSError as error:
            raise self._write_error("checkpoint", error) from error
        self.saved = self.done

    @torch.no_grad()
    def evaluate(self) -> float:
        """Computes the mean loss on held-out windows, in nats per token."""
        self.model.eval()
        total = count = 0.0
        for tokens, targets in self.held_windows.in_order(EVALUATED):
            with precision_of(self.settings.recipe):
                total += self._loss(tokens, targets).item() * len(tokens)
            count += len(tokens)
        return total / count

    def _loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        device = self.settings.recipe.device
        return self.model(tokens.to(device), targets.to(device))[1]

    def _log(self, line: dict[str, Any]) -> None:
        self.metrics.append(line)
        try:
            with (self.folder / LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        except OSError as error:
            raise self._write_error("log", error) from error

    def _write_error(self, what: str, error: OSError) -> Refused:
        return refuse(
            "train",
            f"the {what} cannot be written",
            given=f"{self.folder}: {error.strerror}",
            expected="a writable folder with free space",
            fix=f"free some space, then continue with --resume: the checkpoint of step {self.saved} is complete",
        )

    def _fingerprint(self) -> list[int]:
        """Checksums of the tokens, to detect changed texts."""
        return [zlib.crc32(tokens.numpy()) for tokens in (self.learned, self.held)]

    def _restore(self, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
        """Restores the state of the checkpoint and removes later lines of the log; their steps are repeated."""
        self.training.restore(tensors, about["done"])
        self.saved = self.done
        lines = (self.folder / LOG).read_bytes().splitlines() if (self.folder / LOG).is_file() else []
        try:
            complete = [json.loads(line) for line in lines if line.endswith(b"}")]  # a kill can truncate a line
            self.metrics = [line for line in complete if line["step"] <= self.done]
        except (ValueError, KeyError, TypeError) as error:
            raise refuse(
                "train",
                "the log cannot be read",
                given=f"{self.folder / LOG}: {error}",
                expected="the lines that regard train wrote",
                fix="move the log away: the checkpoint does not need it",
            ) from error
        draft = self.folder / f".{LOG}.part"
        draft.write_text("".join(json.dumps(line) + "\n" for line in self.metrics), encoding="utf-8")
        draft.replace(self.folder / LOG)


def begin(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any]) -> Run:
    """Starts a new run and saves its first checkpoint.

    Args:
        folder: a new or empty folder.
        places: text files, folders and patterns, as for `regard.models.data.text.read`.
        wishes: fields of `Settings` and `Recipe`, and their values.

    Returns:
        The run.

    Raises:
        Refused: invalid settings, texts that cannot be read or are too short, or a folder that is not empty.
    """
    checkpoint.check_free(folder, "train", "continue with --resume, or choose another folder with --out")
    settings = Settings().changed(wishes)
    check_device(settings.recipe.device, "train")
    documents = text.read(places)
    learn, held = text.split(documents, settings.recipe.seed)
    vocabulary: Vocabulary = Bytes()
    if settings.tokenizer == "bpe":
        vocabulary = Pairs.train((document.text for document in learn), settings.vocabulary)
    model = settings.model(vocabulary)
    files = [str(Path(document.name).resolve()) for document in documents]
    run = Run(folder, settings, files, _tokens(learn, held, vocabulary, settings), model, vocabulary)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refuse(
            "train",
            "the folder cannot be created",
            given=f"{folder}: {error.strerror}",
            expected="a writable location",
            fix="choose another folder with --out",
        ) from error
    run.save()
    return run


def resume(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any]) -> Run:
    """Resumes a run from its last checkpoint.

    Args:
        folder: the folder of the run.
        places: the texts of the run, if they have moved. Empty: their original paths.
        wishes: fields of `Settings` and `Recipe`, and their values. Only `steps`, `eval_every` and `device` may change.

    Returns:
        The run.

    Raises:
        Refused: not a run folder, other settings or texts than those of the run, or no remaining steps.
    """
    path = checkpoint.find(folder, "train")
    tensors, described = checkpoint.read(path, "", "train")
    about = described["about"]
    if "settings" not in about:
        raise refuse(
            "train",
            "the folder does not contain a training run",
            given=f"{path} is a model without training state",
            expected="a folder of regard train",
            fix="start a new run with another --out",
        )
    settings = Settings().changed(about["settings"])
    reasons = [
        Reason(
            f"--{name.replace('_', '-')} cannot change when a run is resumed",
            given=f"{value}, the run has {settings.flat()[name]}",
            expected="the original settings of the run",
            fix="omit the option, or start a new run with another --out",
        )
        for name, value in wishes.items()
        if name not in FREE and value != settings.flat()[name]
    ]
    if reasons:
        raise Refused("train", reasons)
    settings = settings.changed(wishes)
    check_device(settings.recipe.device, "train")
    if settings.recipe.steps <= about["done"]:
        raise refuse(
            "train",
            "the run is complete",
            given=f"{about['done']} of {settings.recipe.steps} steps done",
            expected="more steps",
            fix=f"increase --steps, for example --steps {2 * about['done']}",
        )
    documents = text.read(places or about["files"])
    saved = checkpoint.build(tensors, described, path, "train")
    tokens = _tokens(*text.split(documents, settings.recipe.seed), saved.vocabulary, settings)
    files = [str(Path(document.name).resolve()) for document in documents]
    run = Run(folder, settings, files, tokens, saved.model, saved.vocabulary)
    if run._fingerprint() != about["texts"]:
        raise refuse(
            "train",
            "the texts have changed",
            given=f"the tokens of {len(documents)} files differ from those at the start of the run",
            expected="the same texts",
            fix="restore the original files, or start a new run with another --out",
        )
    run._restore(tensors, about)
    return run


def _tokens(
    learn: list[text.Document], held: list[text.Document], vocabulary: Vocabulary, settings: Settings
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The training tokens, the held-out tokens, and the number of bytes per held-out token."""
    parts = tokens_of(learn, vocabulary), tokens_of(held, vocabulary)
    names = "the training text", "the held-out tenth of the text"
    reasons = [
        Reason(
            "too little text",
            given=f"{name} has {len(part)} tokens",
            expected=f"more than the context of {settings.context} tokens",
            fix="add text, or decrease --context",
        )
        for name, part in zip(names, parts)
        if len(part) <= settings.context
    ]
    if reasons:
        raise Refused("train", reasons)
    return *parts, sum(len(document.text.encode()) for document in held) / len(parts[1])
