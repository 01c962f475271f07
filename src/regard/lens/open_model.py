"""A model that stays open, and records one text after another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .recording.keeper import RecordingOptions
from .recording.minilm import DefaultModel
from .runs.run import Run
from .trained import TrainedModel, is_trained

if TYPE_CHECKING:
    from ..torch.hf.load_model import Opened

NAMES = {"what", "text", "generate", "layers", "values", "limit"}  # the arguments of `look` that it repeats


class OpenModel:
    """A model as a function from a text to its run.

    what: a folder or hub id of a transformers model, a folder of `regard train` or `regard classify`, or None for the
    default model · generate: how many tokens each text is continued by.
    """

    def __init__(self, what: str | Path | None, options: RecordingOptions, generate: int = 0):
        self.what, self.options, self.generate = what, options, generate
        self._default: DefaultModel | None = None
        self._trained: TrainedModel | None = None
        self._opened: Opened | None = None

    @classmethod
    def of(cls, run: Run) -> OpenModel | None:
        """The model of a run that `look` made from a model's name and a text, otherwise None."""
        made = run.facts.get("made")
        if not isinstance(made, Mapping) or not run.text or made.keys() - NAMES:
            return None
        options = RecordingOptions(made.get("layers"), values=made.get("values"), limit=made.get("limit", "2GB"))
        return cls(made["what"], options, made.get("generate", 0))

    def open(self) -> None:
        """Opens the model, before its first text. Refused: a model that cannot be opened."""
        if self.what is None and not self.generate:
            self._default = self._default or DefaultModel.open()
        elif self.what is not None and is_trained(self.what):
            self._trained = self._trained or TrainedModel.open(self.what)
        elif self._opened is None:
            from ..torch.hf.load_model import opened  # loads torch

            self._opened = opened(self.what, writes=self.generate > 0)

    def __call__(self, text: str) -> Run:
        """The run of a text. Refused: whatever `look` refuses."""
        self.open()
        if self._default is not None:
            return self._default.record(text, self.options)
        if self._trained is not None:
            return self._trained.record(text, self.options, self.generate)
        from .recording.entry import of_model  # loads torch

        given = {"target": None, "image": None, "inputs": None, "tokenizer": None}
        return of_model(self._opened, self.options, text=text, generate=self.generate, **given)
