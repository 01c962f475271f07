"""Settings of a training: the vocabulary, the model and the recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import torch

from ...common.errors import Reason, Refused
from ..config import Config
from ..data.vocabulary import Bytes, Pairs, Vocabulary
from ..language_model import LanguageModel
from .loop import Recipe


@dataclass(frozen=True)
class Settings:
    """Settings of a training: the vocabulary, the model and the recipe.

    Args:
        tokenizer: "bytes" or "bpe".
        vocabulary: maximum number of tokens of a "bpe" vocabulary.
        layers: number of blocks.
        width: model width.
        heads: number of query heads.
        context: number of tokens per window or text.
        dropout: dropout probability.
        recipe: the hyperparameters of the training.

    Raises:
        Refused: invalid values, listing every problem.

    Examples:
        >>> Settings().changed({"layers": 2, "steps": 500}).recipe.steps
        500
    """

    where: ClassVar[str] = "train"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"tokenizer": ("bytes", "bpe")}

    tokenizer: str = "bytes"
    vocabulary: int = 2048
    layers: int = 4
    width: int = 256
    heads: int = 4
    context: int = 256
    dropout: float = 0.0
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        reasons = [
            Reason(f"unknown {name}", repr(getattr(self, name)), " or ".join(map(repr, known)), "choose one of them")
            for name, known in self.choices.items()
            if getattr(self, name) not in known
        ]
        if reasons:
            raise Refused(self.where, reasons)

    def changed(self, wishes: Mapping[str, Any]) -> Self:
        """Returns a copy with other values; fields of the recipe are named directly."""
        own = {name: value for name, value in wishes.items() if name in {field.name for field in fields(self)}}
        rest = {name: value for name, value in wishes.items() if name not in own}
        return replace(self, **own, recipe=replace(self.recipe, **rest))

    def flat(self) -> dict[str, Any]:
        """Returns all settings as one dict, including the fields of the recipe."""
        own = asdict(self)
        return own | own.pop("recipe")

    def make_vocabulary(self, texts: Iterable[str]) -> Vocabulary:
        """Creates the vocabulary, which byte pairs learn from the texts."""
        return Bytes() if self.tokenizer == "bytes" else Pairs.train(texts, self.vocabulary)

    def sizes(self, *more: str) -> dict[str, Any]:
        """Returns the fields of a model's configuration. more: the names of other settings that are among them."""
        same = ("layers", "heads", "context", "dropout", *more)
        return {"d_model": self.width, **{name: getattr(self, name) for name in same}}


@dataclass(frozen=True)
class TextSettings(Settings):
    """Settings of a language model and its training: those of `Settings`, and these.

    Args:
        style: "llama" (rotary positions, RMSNorm, SwiGLU) or "gpt" (learned positions, LayerNorm, GELU).
        kv_heads: number of key/value heads. None: as many as `heads`.
        window: sliding window of the attention. None: no limit.
    """

    choices = Settings.choices | {"style": ("llama", "gpt")}

    style: str = "llama"
    kv_heads: int | None = None
    window: int | None = None

    def model(self, vocabulary: Vocabulary) -> LanguageModel:
        """Creates a model with weights initialized from the seed."""
        make = {"llama": Config.llama, "gpt": Config.gpt}[self.style]
        torch.manual_seed(self.recipe.seed)
        return LanguageModel(make(vocabulary=vocabulary.size, **self.sizes("kv_heads", "window")))
