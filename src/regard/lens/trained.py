"""A model of `regard train` or `regard classify` that stays open, and records one text after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import refuse
from .recording.keeper import Axes, Keeper, RecordingOptions
from .recording.token_text import fit
from .runs.axis import Axis
from .runs.run import Run, Step
from .text_or_path import exists

if TYPE_CHECKING:
    from ..models.training.checkpoint import Saved

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
        from ..models.training import checkpoint  # loads torch

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
        """The run of a text; None: the text of `default_text`. generate: how many tokens the model continues it by.

        Refused: a text without tokens or longer than the model allows, and generation by a classifier.
        """
        import torch

        from .recording.entry import record_module, steps_of

        if generate and self.saved.kind != GENERATES:
            raise refuse(
                "look",
                "the model cannot generate text",
                f"generate={generate} for {self.name}, which is a {self.saved.kind}",
                "a language model of regard train",
                "leave generate= out",
            )
        known: dict[str, Any] = {}
        if text is None:
            from .trained_text import default_text

            text, known["text_source"] = default_text(self.saved, self.name, self._longest, generate)
        if not isinstance(text, str):
            raise refuse("look", "not a text", f"{type(text).__name__} {str(text)[:40]!r}", "a string", "pass one text")
        ids = self.saved.vocabulary.encode(text).tolist()
        fit(text, [False] * len(ids), self._longest, self.name, generate)
        model = self.saved.model

        def call():
            return self._continued(ids, generate) if generate else model(torch.tensor([ids]))

        def after(out: Any, keeper: Keeper) -> tuple[tuple[Step, ...], dict[str, Any]]:
            if not generate:
                return (), known | self._predicted(out)
            new, logits = out
            keeper.axes.known["text"] = self._axis([*ids, *new])
            steps, facts = steps_of(len(ids), logits[: len(new)], generate, lambda some: self._axis(some).tokens)
            return steps, known | facts

        return record_module(
            model,
            call,
            name=self.name,
            text=text,
            axes=Axes({"text": self._axis(ids)}),
            batch=1,
            options=options,
            rows=len(ids) + generate if generate else 0,
            after=after,
        )

    def _continued(self, ids: list[int], tokens: int) -> tuple[list[int], list[Any]]:
        """The most probable continuation, and the logits of each of its tokens. The model is called with the prompt,
        then with each new token; one token more than is recorded is generated, so that the last one has a row.
        """
        import torch

        from ..torch.cache import cache_for

        model = self.saved.model
        config, table = model.config, model.embed.tokens.weight
        groups, depth = config.kv_heads or config.heads, config.d_model // config.heads
        # A cache for each layer that keeps every key: the mask alone applies the window of the model.
        cache = [cache_for(table, groups, depth) for _ in range(config.layers)]
        new: list[int] = []
        logits = [model(torch.tensor([ids]), cache=cache)[0, -1]]
        while True:
            token = int(logits[-1].argmax())
            if len(new) == tokens or token == self.saved.vocabulary.end:
                return new, logits
            new.append(token)
            logits.append(model(torch.tensor([[token]]), cache=cache)[0, -1])

    def _axis(self, ids: list[int]) -> Axis:
        """The axis of these tokens: bytes of an incomplete character as ⟨C3⟩, the end-of-document token as ⟨end⟩."""
        vocabulary = self.saved.vocabulary
        ends = [token == vocabulary.end for token in ids]
        words = ["⟨end⟩" if end else _spelled(vocabulary.spell([token])) for token, end in zip(ids, ends, strict=True)]
        return Axis.of(words, ends, ids=ids)

    @property
    def _longest(self) -> int | None:
        """The maximum number of tokens. A classifier ignores what is beyond its context, so that it is not shown."""
        config = self.saved.model.config
        return config.context if self.saved.kind == CLASSIFIES else config.longest

    def _predicted(self, logits: Any) -> dict[str, Any]:
        """The probability of every class, in descending order, of a classifier that was saved with its classes."""
        classes = self.saved.about.get("classes")
        if self.saved.kind != CLASSIFIES or classes is None:
            return {}
        chances = logits[0].double().softmax(-1).tolist()
        return {"predicted": [list(pair) for pair in sorted(zip(classes, chances), key=lambda pair: -pair[1])]}


def _spelled(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 128 else f"⟨{byte:02X}⟩" for byte in piece)
