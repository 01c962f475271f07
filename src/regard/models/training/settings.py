"""Settings of a training run: the vocabulary, the model and the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch

from ...common.errors import Reason, Refused
from ..config import Config
from ..data.vocabulary import Bytes, Vocabulary
from ..language_model import LanguageModel
from .loop import Recipe


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
            Reason(f"unknown {name}", repr(getattr(self, name)), " or ".join(map(repr, known)), "choose one of them")
            for name, known in {"tokenizer": ("bytes", "bpe"), "style": ("llama", "gpt")}.items()
            if getattr(self, name) not in known
        ]
        if self.tokenizer == "bpe" and self.vocabulary < Bytes.size:
            reasons.append(
                Reason(
                    "the vocabulary is too small",
                    f"{self.vocabulary} tokens",
                    f"{Bytes.size} or more: every byte, and the end-of-document token",
                    "increase --vocabulary, or use --tokenizer bytes",
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
