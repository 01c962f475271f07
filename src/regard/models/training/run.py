"""A training run of a language model and its folder: begun, saved, and taken up again exactly where it was.

The folder holds `model.safetensors` (weights, optimizer, random states, settings, vocabulary) and `metrics.jsonl`, a
line per step and evaluation.
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
EVALUATED = 128  # windows, a small part of the work of a hundred steps
FREE = ("steps", "eval_every", "device")  # what may be changed when a run is taken up again


@dataclass(frozen=True)
class Settings:
    """What was asked for: the vocabulary, the shape of the model, and the recipe."""

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
        reasons = []
        for name, known in {"tokenizer": ("bytes", "bpe"), "style": ("llama", "gpt")}.items():
            if getattr(self, name) not in known:
                reasons.append(
                    Reason(
                        f"no such {name}",
                        given=repr(getattr(self, name)),
                        expected=" or ".join(map(repr, known)),
                        fix="choose one of them",
                    )
                )
        if self.tokenizer == "bpe" and self.vocabulary < Bytes.size:
            reasons.append(
                Reason(
                    "a vocabulary that is too small",
                    given=f"{self.vocabulary} tokens",
                    expected=f"{Bytes.size} or more: every byte, and the end of a document",
                    fix="raise --vocabulary, or use --tokenizer bytes",
                )
            )
        if reasons:
            raise Refused("train", reasons)

    def changed(self, wishes: Mapping[str, Any]) -> Settings:
        """These settings with others in their place, those of the recipe by their own names."""
        mine = {name: wish for name, wish in wishes.items() if name in {one.name for one in fields(self)}}
        rest = {name: wish for name, wish in wishes.items() if name not in mine}
        return replace(self, **mine, recipe=replace(self.recipe, **rest))

    def flat(self) -> dict[str, Any]:
        """Every setting by its name."""
        own = asdict(self)
        return own | own.pop("recipe")

    def model(self, vocabulary: Vocabulary):
        """A new model of this shape; its weights follow from the seed."""
        make = {"llama": Config.llama, "gpt": Config.gpt}[self.style]
        torch.manual_seed(self.recipe.seed)
        return LanguageModel(
            make(
                vocabulary=vocabulary.size,
                d_model=self.width,
                layers=self.layers,
                heads=self.heads,
                kv_heads=self.kv_heads,
                context=self.context,
                window=self.window,
                dropout=self.dropout,
            )
        )


class Run:
    """A training with its texts and its folder; iterating takes the steps that are left and gives a line of the log for
    each.
    """

    def __init__(self, folder: Path, settings: Settings, files: Sequence[str], tokens, model, vocabulary: Vocabulary):
        recipe = settings.recipe
        self.folder, self.settings, self.files, self.vocabulary = folder, settings, list(files), vocabulary
        self.learned, self.held, self.bytes_per_token = tokens
        self.model = model.to(recipe.device)
        self.windows = Windows(self.learned, settings.context, recipe.batch, recipe.seed)
        self.held_windows = Windows(self.held, settings.context, recipe.batch)
        self.training = Training(self.model, recipe, lambda number: self._loss(*self.windows.batch(number)))
        self.metrics: list[dict] = []
        self.saved = 0

    def __iter__(self) -> Iterator[dict]:
        """The steps that are left. Every `eval_every` steps and at the end: an evaluation, then a checkpoint."""
        with checkpoint.claim(self.folder, "train"):
            newest = checkpoint.read(self.folder / checkpoint.NAME, "no tensors", "train")[1]["about"]["done"]
            if newest != self.saved:
                raise refuse(
                    "train",
                    "the run has gone on elsewhere",
                    given=f"step {self.saved} here, {newest} in {self.folder}",
                    expected="the newest checkpoint",
                    fix="begin again with --resume",
                )
            yield from self._steps()

    def _steps(self) -> Iterator[dict]:
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
            self._note(line)
            if "held_out" in line:
                self.save()
            yield line

    @property
    def done(self) -> int:
        return self.training.done

    @property
    def tokens_per_step(self) -> int:
        recipe = self.settings.recipe
        return recipe.batch * recipe.accumulate * self.settings.context

    def save(self) -> None:
        """The checkpoint: the last one stays until this one is complete."""
        try:
            checkpoint.save(
                self.folder,
                self.model,
                vocabulary=self.vocabulary,
                tensors=self.training.state(),
                done=self.done,
                settings=self.settings.flat(),
                files=self.files,
                texts=self._print(),
            )
        except OSError as error:
            raise self._unwritten("checkpoint", error) from error
        self.saved = self.done

    @torch.no_grad()
    def evaluate(self) -> float:
        """The mean loss of windows that are held out, in nats per token."""
        self.model.eval()
        total = count = 0.0
        for tokens, targets in self.held_windows.in_order(EVALUATED):
            with precision_of(self.settings.recipe):
                total += self._loss(tokens, targets).item() * len(tokens)
            count += len(tokens)
        return total / count

    def _loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        where = self.settings.recipe.device
        return self.model(tokens.to(where), targets.to(where))[1]

    def _note(self, line: dict) -> None:
        self.metrics.append(line)
        try:
            with (self.folder / LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        except OSError as error:
            raise self._unwritten("log", error) from error

    def _unwritten(self, what: str, error: OSError) -> Refused:
        return refuse(
            "train",
            f"the {what} cannot be written",
            given=f"{self.folder}: {error.strerror}",
            expected="a folder with room in it",
            fix=f"make room, then go on with --resume: the checkpoint of step {self.saved} is whole",
        )

    def _print(self) -> list[int]:
        """A fingerprint of the tokens, so that no run goes on with other texts."""
        return [zlib.crc32(tokens.numpy()) for tokens in (self.learned, self.held)]

    def _take_up(self, tensors: dict, about: dict) -> None:
        """Back to where the checkpoint was written; what was logged after it will be done again, the same."""
        self.training.restore(tensors, about["done"])
        self.saved = self.done
        lines = (self.folder / LOG).read_bytes().splitlines() if (self.folder / LOG).is_file() else []
        try:
            whole = [json.loads(line) for line in lines if line.endswith(b"}")]  # a kill may leave half a line
            self.metrics = [line for line in whole if line["step"] <= self.done]
        except (ValueError, KeyError, TypeError) as error:
            raise refuse(
                "train",
                "the log cannot be read",
                given=f"{self.folder / LOG}: {error}",
                expected="the lines that regard train wrote",
                fix="move the log away: the checkpoint is whole without it",
            ) from error
        draft = self.folder / f".{LOG}.part"
        draft.write_text("".join(json.dumps(line) + "\n" for line in self.metrics), encoding="utf-8")
        draft.replace(self.folder / LOG)


def begin(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any]) -> Run:
    """A new run on these texts in a folder that is new or empty; its first checkpoint is written before its first
    step.
    """
    checkpoint.check_free(folder, "train", "go on with it by --resume, or choose another with --out")
    settings = Settings().changed(wishes)
    check_device(settings.recipe.device, "train")
    documents = text.read(places)
    learn, held = text.split(documents, settings.recipe.seed)
    vocabulary: Vocabulary
    vocabulary = (
        Bytes() if settings.tokenizer == "bytes" else Pairs.train((one.text for one in learn), settings.vocabulary)
    )
    model = settings.model(vocabulary)
    files = [str(Path(document.name).resolve()) for document in documents]
    run = Run(folder, settings, files, _tokens(learn, held, vocabulary, settings), model, vocabulary)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refuse(
            "train",
            "the folder cannot be made",
            given=f"{folder}: {error.strerror}",
            expected="a place that can be written",
            fix="choose another with --out",
        ) from error
    run.save()
    return run


def resume(folder: Path, places: Sequence[Path | str], wishes: Mapping[str, Any]) -> Run:
    """The run of the folder, where its last checkpoint left it. Only `steps`, `eval_every` and `device` may be
    changed.
    """
    path = checkpoint.find(folder, "train")
    tensors, described = checkpoint.read(path, "", "train")
    about = described["about"]
    if "settings" not in about:
        raise refuse(
            "train",
            "nothing to go on from",
            given=f"{path} holds a finished model, not a training",
            expected="a folder that regard train made",
            fix="begin a new one with another --out",
        )
    settings = Settings().changed(about["settings"])
    reasons = [
        Reason(
            f"--{name.replace('_', '-')} cannot change on the way",
            given=f"{wish}, the run has {settings.flat()[name]}",
            expected="the settings that the run began with",
            fix="leave it out, or begin a new run with another --out",
        )
        for name, wish in wishes.items()
        if name not in FREE and wish != settings.flat()[name]
    ]
    if reasons:
        raise Refused("train", reasons)
    settings = settings.changed(wishes)
    check_device(settings.recipe.device, "train")
    if settings.recipe.steps <= about["done"]:
        raise refuse(
            "train",
            "nothing is left to do",
            given=f"{about['done']} of {settings.recipe.steps} steps are done",
            expected="more steps",
            fix=f"raise them, for example --steps {2 * about['done']}",
        )
    documents = text.read(places or about["files"])
    saved = checkpoint.build(tensors, described, path, "train")
    tokens = _tokens(*text.split(documents, settings.recipe.seed), saved.vocabulary, settings)
    files = [str(Path(document.name).resolve()) for document in documents]
    run = Run(folder, settings, files, tokens, saved.model, saved.vocabulary)
    if run._print() != about["texts"]:
        raise refuse(
            "train",
            "the texts have changed",
            given=f"{len(documents)} files spell other tokens than when the run began",
            expected="the same texts",
            fix="put them back as they were, or begin a new run with another --out",
        )
    run._take_up(tensors, about)
    return run


def _tokens(learn, held, vocabulary: Vocabulary, settings: Settings) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The tokens to learn from, those held out, and how many bytes a held-out token stands for."""
    parts = tokens_of(learn, vocabulary), tokens_of(held, vocabulary)
    names = "the text to learn from", "the tenth of the text that is held out"
    reasons = [
        Reason(
            "too little text",
            given=f"{name} is {len(part)} tokens",
            expected=f"more than the context of {settings.context}",
            fix="give more text, or a smaller --context",
        )
        for name, part in zip(names, parts)
        if len(part) <= settings.context
    ]
    if reasons:
        raise Refused("train", reasons)
    return *parts, sum(len(document.text.encode()) for document in held) / len(parts[1])
