"""A model that stays open, and records one text after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import refuse
from ..language.masks import count
from .recording.keeper import RecordingOptions
from .recording.minilm import DefaultModel
from .runs.run import Run
from .trained import TrainedModel, is_trained

if TYPE_CHECKING:
    from ..torch.hf.load_model import Opened

NAMES = {"what", "text", "generate", "layers", "values", "limit"}  # the arguments of `look` that it repeats


class OpenModel:
    """A model as a function from a text to its run.

    what: a folder or hub id of a transformers model, a folder of `regard train` or `regard classify`, None for the
    default model, or a loaded transformers model · generate: how many tokens each text is continued by · tokenizer: of
    a loaded model · where: the function that refuses these arguments.
    """

    def __init__(
        self, what: Any, options: RecordingOptions, generate: int = 0, tokenizer: Any = None, where: str = "look"
    ):
        self.what, self.options, self.tokenizer = what, options, tokenizer
        self.generate = count(generate, where, "generate")
        self.model: DefaultModel | TrainedModel | Opened | None = None
        if tokenizer is not None and (what is None or isinstance(what, str | Path)):
            raise refuse(
                where,
                "tokenizer= is not used",
                "tokenizer= with a folder or hub id",
                "the tokenizer in the model's folder",
                "leave it out, or load the model yourself",
            )

    @classmethod
    def of(cls, run: Run) -> OpenModel | None:
        """The model of a run that `look` made from a model's name and a text, otherwise None."""
        made = run.facts.get("made")
        if not isinstance(made, Mapping) or not run.text or made.keys() - NAMES:
            return None
        options = RecordingOptions(made.get("layers"), values=made.get("values"), limit=made.get("limit", "2GB"))
        return cls(made["what"], options, made.get("generate", 0))

    def open(self, alone: bool = True, reads: bool = True, sees: bool = False) -> DefaultModel | TrainedModel | Opened:
        """Opens the model, before its first text. Refused: a model that cannot be opened.

        alone: whether one text is all that it will get · reads, sees: whether it will get texts, or images.
        """
        if self.model is not None:
            return self.model
        if self.what is None and alone and not self.generate:
            self.model = DefaultModel.open()
        elif is_trained(self.what):
            self.model = TrainedModel.open(self.what)
        else:
            from ..torch.hf.load_model import Opened, opened  # loads torch

            if self.what is None or isinstance(self.what, str | Path):
                self.model = opened(self.what, writes=self.generate > 0, reads=reads, sees=sees)
            else:
                name = getattr(self.what, "name_or_path", "") or type(self.what).__name__
                self.model = Opened(name, self.what, self.tokenizer, own=False)
        return self.model

    def without(self, text: str, what: str, **change: Any) -> Run:
        """The run of a text inside `what_if(**change)`, with the facts `changed`, what was changed, and `difference`,
        lines about what the model predicts before and after, or which outputs move.
        """
        from .interventions.measures import difference
        from .interventions.subject import Subject
        from .interventions.what_if import what_if

        if isinstance(self.model, DefaultModel):
            self.model = None  # what_if changes models of torch
        model: Any = self.open(alone=False)
        with what_if(model.saved.model if isinstance(model, TrainedModel) else model.model, **change):
            run, lines = self(text), []
        if not isinstance(model, TrainedModel):
            lines = difference(Subject.of(model.model, text, None, None, model.words), **change)
        return dataclasses.replace(run, facts={**run.facts, "changed": what, "difference": lines})

    def __call__(self, text: Any, target: Any = None, image: Any = None, inputs: Any = None) -> Run:
        """The run of a text, or of other inputs of a transformers model. Refused: whatever `look` refuses."""
        alone = isinstance(text, str) and target is None and image is None
        model = self.open(alone, text is not None, image is not None)
        if isinstance(model, DefaultModel):
            return model.record(text, self.options)
        if isinstance(model, TrainedModel):
            return model.record(text, self.options, self.generate)
        from .recording.entry import of_model  # loads torch

        more = {"target": target, "image": image, "inputs": inputs}
        return of_model(model, self.options, text=text, generate=self.generate, **more)
