"""A model of `regard train` or `regard classify` that stays open, and records one text after another; the text that it
has if none is given.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import Refused, refuse
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


TOKENS = 128  # of the beginning of a text
MISSING = "the files of its training are missing, have changed, or have no validation text"


def default_text(saved: Saved, name: str, longest: int | None, generate: int) -> tuple[str, str]:
    """(the text, where it is from). generate: how many tokens the model will add to it.

    A language model has the beginning of its validation text, or a text that it generates if its files have changed or
    are missing. A classifier has the first held-out row of its table. Refused: a classifier whose table cannot be read.
    """
    size = min(TOKENS, saved.model.config.context)
    if longest is not None:
        size = max(1, min(size, longest - generate))
    if saved.kind == "SequenceClassifier":
        return _held_out_row(saved, name, size)
    return _validation(saved, size) or _generated(saved, name, size)


def _validation(saved: Saved, size: int) -> tuple[str, str] | None:
    """The beginning of the held-out text; None if the files are missing or are not those of the training."""
    from ..models.data import batches
    from ..models.data.batches import tokens_of

    files, settings = saved.about.get("files"), saved.about.get("settings")
    if not files or not settings:
        return None
    try:
        held = batches.split(batches.read(files), settings["seed"])[1]
    except Refused:
        return None
    if zlib.crc32(tokens_of(held, saved.vocabulary).numpy()) != saved.about["texts"][1]:
        return None
    first = next((document for document in held if document.text.strip()), None)
    if first is None:
        return None
    return _beginning(saved, first.text, size), f"the beginning of the validation text, from {first.name}"


def _generated(saved: Saved, name: str, size: int) -> tuple[str, str]:
    """A sample of the model with seed 0."""
    from ..models.generation import generate as continued

    vocabulary = saved.vocabulary
    size = size if saved.model.config.longest is None else max(1, size - 1)  # the end token before it has a position
    ids = continued(saved.model, [[vocabulary.end]], tokens=size, seed=0, stop=[[vocabulary.end]])[0]
    found = vocabulary.spell(ids).decode(errors="ignore")
    if not found.strip():
        raise _no_text(name, f"the model generates no words, and {MISSING}")
    return _beginning(saved, found, size), f"generated by the model with seed 0, because {MISSING}"


def _held_out_row(saved: Saved, name: str, size: int) -> tuple[str, str]:
    """The first row that the classifier was evaluated on."""
    from ..models.data import tables

    row = saved.about.get("held_out")
    if row is None:
        raise _no_text(name, "the file of the classifier does not name its table")
    try:
        table = tables.read(Path(row["file"]), row["column"], labelled=False)
    except Refused as refused:
        raise _no_text(name, f"{refused.reasons[0].what}: {refused.reasons[0].given}") from refused
    if row["line"] not in table.lines:
        raise _no_text(name, f"{row['file']} has no row in line {row['line']}")
    found = table.texts[table.lines.index(row["line"])]
    return _beginning(saved, found, size), f"a held-out row, line {row['line']} of {row['file']}"


def _beginning(saved: Saved, words: str, size: int) -> str:
    """The beginning of a text, of at most `size` tokens, without a part of a character at its end."""
    words = words.lstrip()
    ids = saved.vocabulary.encode(words[: 16 * size])  # the longest tokens have about 16 characters
    found = saved.vocabulary.spell(ids[:size].tolist()).decode(errors="ignore")
    while len(saved.vocabulary.encode(found)) > size:  # a word that is cut may be spelled with more tokens
        found = found[:-1]
    return found


def _no_text(name: str, given: str) -> Refused:
    fix = f'pass a text: regard look {name} "…", in Python look({name!r}, text)'
    return refuse("look", "no text for the model", given, "a text", fix)
