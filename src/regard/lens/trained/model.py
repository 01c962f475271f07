"""A model of `regard train` or `regard classify` that stays open, and records one text after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import refuse
from ...language.masks import count
from ..recording.keeper import Axes, RecordingOptions
from ..recording.token_text import fit
from ..runs.run import Run
from ..text_or_path import exists
from .tokens import axis_of

if TYPE_CHECKING:
    from ...models.training.checkpoint import Saved

WEIGHTS = "model.safetensors"
OTHERS = ("config.json", "run.json")  # of a transformers model, and of a recorded run
GENERATES, CLASSIFIES = "LanguageModel", "SequenceClassifier"


def is_trained(what: Any) -> bool:
    """Whether this is a folder with `model.safetensors` that transformers did not write, or such a file."""
    if not isinstance(what, str | Path) or not exists(str(what)):
        return False
    path = Path(what).expanduser()
    if path.is_dir():
        return (path / WEIGHTS).is_file() and not any((path / name).exists() for name in OTHERS)
    return path.name == WEIGHTS and path.is_file() and not (path.parent / "config.json").exists()


def trained_facts(facts: Mapping[str, Any]) -> list[str]:
    """The facts of a run of a trained model as sentences: where its text is from, and what a classifier predicts."""
    said = [f"The text is {facts['text_source']}."] if "text_source" in facts else []
    if "predicted" in facts:
        shown = ", ".join(f"{name} {chance:.1%}" for name, chance in facts["predicted"][:3])
        said.append(f"The model predicts: {shown}.")
    return said


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model: its name, and the content of its checkpoint."""

    name: str
    saved: Saved

    @classmethod
    def open(cls, what: str | Path) -> TrainedModel:
        """The model of a folder. Refused: damaged files, models of other kinds, and models without a vocabulary."""
        from ...models.training import checkpoint  # loads torch

        path = Path(what).expanduser()
        saved = checkpoint.load(path, "look")
        if saved.kind not in (GENERATES, CLASSIFIES) or saved.vocabulary is None:
            lacking = "" if saved.vocabulary is not None else " without a vocabulary"
            raise refuse(
                "look",
                "a model that cannot be opened with a text",
                f"{what} contains a {saved.kind}{lacking}",
                f"a {GENERATES} or a {CLASSIFIES} with its vocabulary",
                "pass the model itself: look(regard.models.load(folder).model, inputs=…)",
            )
        folder = path if path.is_dir() else path.parent
        return cls(folder.resolve().name, saved)

    def record(self, text: Any, options: RecordingOptions, generate: int = 0) -> Run:
        """The run of a text; None: the text of `default`. generate: how many tokens the model continues it by.

        Refused: a text without tokens or longer than the model allows, and generation by a classifier.
        """
        from ..recording.session import record_module
        from .generation import Generation

        known: dict[str, Any] = {}
        self._check(count(generate, "look", "generate", 0))
        if text is None:
            from .default import default_text

            text, known["text_source"] = default_text(self.saved, self.name, self._longest, generate)
        if not isinstance(text, str):
            raise refuse("look", "not a text", f"{type(text).__name__} {str(text)[:40]!r}", "a string", "pass one text")
        ids = self.saved.vocabulary.encode(text).tolist()
        fit(text, [False] * len(ids), self._longest, self.name)
        common: dict[str, Any] = {
            "name": self.name,
            "text": text,
            "axes": Axes({"text": axis_of(self.saved.vocabulary, ids)}),
            "batch": 1,
            "options": options,
        }
        model = self.saved.model
        if not generate:
            return record_module(
                model, lambda: model(_batch(ids)), after=lambda out, _: ((), known | self._predicted(out)), **common
            )
        if self._longest is not None and len(ids) + generate > self._longest:
            raise refuse(
                "look",
                "the text is too long for the model",
                f"{len(ids)} tokens and {generate} more",
                f"at most {self._longest} for {self.name}",
                "generate fewer tokens, or pass a shorter text",
            )
        generation = Generation(self.saved, ids, generate)
        return record_module(
            model,
            generation.run,
            rows=len(ids) + generate,
            after=lambda out, keeper: generation.after(out, keeper, known),
            **common,
        )

    @property
    def _longest(self) -> int | None:
        """The maximum number of tokens. A classifier ignores what is beyond its context, so that it is not shown."""
        config = self.saved.model.config
        return config.context if self.saved.kind == CLASSIFIES else config.longest

    def _check(self, generate: int) -> None:
        if generate and self.saved.kind != GENERATES:
            raise refuse(
                "look",
                "the model cannot generate text",
                f"generate={generate} for {self.name}, which is a {self.saved.kind}",
                "a language model of regard train",
                "leave generate= out",
            )

    def _predicted(self, logits: Any) -> dict[str, Any]:
        """The probability of every class, in descending order, of a classifier that was saved with its classes."""
        classes = self.saved.about.get("classes")
        if self.saved.kind != CLASSIFIES or classes is None:
            return {}
        chances = logits[0].double().softmax(-1).tolist()
        return {"predicted": [list(pair) for pair in sorted(zip(classes, chances), key=lambda pair: -pair[1])]}


def _batch(ids: list[int]):
    import torch

    return torch.tensor([ids])
