"""Model configurations: frozen dataclasses that validate their fields before any weight is allocated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

from ..common.errors import Reason, Refused, did_you_mean, refuse_all
from ..common.text.keywords import known_arguments
from ..language.masks import count

NORMS = ("layer", "rms")
FEED_FORWARDS = ("gelu", "gelu_tanh", "swiglu")
POSITIONS = ("rotary", "learned", "alibi", "sinusoidal", "none")


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """Configuration of the transformer blocks, shared by all models.

    Args:
        d_model: model width: components per token.
        layers: number of blocks.
        heads: number of query heads; must divide `d_model`.
        kv_heads: number of key/value heads; must divide `heads`. None: as many as `heads`.
        hidden: width of the feed-forward layer. None: 4 · d_model, or two thirds of that for "swiglu", which has
            three matrices.
        norm: "layer" (LayerNorm) or "rms" (RMSNorm).
        norm_first: normalize the input of each sublayer (pre-norm) or the sum after it (post-norm).
        feed_forward: "gelu", "gelu_tanh" (the approximation that GPT-2 uses) or "swiglu".
        bias: whether linear layers have biases.
        dropout: probability of dropping embeddings, sublayer outputs and attention weights in training.
        softcap: c in c · tanh(score / c), applied to every attention score. None: no cap.
        epsilon: added to the variance in normalization layers.

    Raises:
        Refused: values that are invalid or do not fit together, listing every problem.

    Examples:
        >>> BlockConfig(d_model=64, feed_forward="gelu").inner
        256
    """

    d_model: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None
    hidden: int | None = None
    norm: str = "rms"
    norm_first: bool = True
    feed_forward: str = "swiglu"
    bias: bool = False
    dropout: float = 0.0
    softcap: float | None = None
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        refuse_all(type(self).__name__, self.reasons())

    @property
    def inner(self) -> int:
        """The width of the feed-forward layer: `hidden`, or a default with about 8 · d_model² weights per layer."""
        if self.hidden is not None:
            return self.hidden
        return 8 * math.ceil(self.d_model / 3) if self.feed_forward == "swiglu" else 4 * self.d_model

    def reasons(self) -> list[Reason]:
        """Validates the fields.

        Returns:
            Every problem with the configuration; an empty list if it is valid.
        """
        problems = [
            *self._integers("d_model", "layers", "heads", "kv_heads", "hidden"),
            *self._choice("norm", NORMS),
            *self._choice("feed_forward", FEED_FORWARDS),
            *self._boolean("norm_first", "bias"),
            *self._number("dropout", "from 0 to below 1", lambda value: 0 <= value < 1),
            *self._number("softcap", "above 0", lambda value: 0 < value < math.inf),
            *self._number("epsilon", "above 0", lambda value: 0 < value < math.inf),
        ]
        if not any(reason.what.split()[0] in ("d_model", "heads", "kv_heads") for reason in problems):
            problems += self._divides("heads", self.heads, "d_model", self.d_model)
            problems += self._divides("kv_heads", self.kv_heads or self.heads, "heads", self.heads)
        return problems

    def to_dict(self) -> dict[str, Any]:
        """Converts the configuration to a dict that can be written as JSON.

        Returns:
            Field names and values.
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Builds a configuration from the result of `to_dict`.

        Args:
            data: field names and values.

        Returns:
            The configuration.

        Raises:
            Refused: invalid values, listing every problem.

        Examples:
            >>> config = Config(vocabulary=256, d_model=64)
            >>> Config.from_dict(config.to_dict()) == config
            True
        """
        return cls(**data)

    def _integers(self, *names: str, least: int = 1) -> Iterator[Reason]:
        """Integers; None only where it is the default."""
        for name in names:
            value = getattr(self, name)
            if value is None and self._may_be_none(name):
                continue
            try:
                count(value, type(self).__name__, name, least)
            except Refused as refused:
                yield from refused.reasons

    def _may_be_none(self, name: str) -> bool:
        return any(field.name == name and field.default is None for field in fields(self))

    def _number(self, name: str, expected: str, valid: Callable[[float], bool]) -> Iterator[Reason]:
        value = getattr(self, name)
        if value is None and self._may_be_none(name):
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not valid(value):
            fix = f"choose a value in range, or omit {name} to use the default"
            yield Reason(f"{name} is out of range", f"{name}={value!r}", f"a number {expected}", fix)

    def _choice(self, name: str, known: tuple[str, ...]) -> Iterator[Reason]:
        value = getattr(self, name)
        if value not in known:
            fix = did_you_mean(str(value), known)
            yield Reason(f"unknown {name}", f"{name}={value!r}", " or ".join(map(repr, known)), fix)

    def _boolean(self, *names: str) -> Iterator[Reason]:
        for name in names:
            if not isinstance(getattr(self, name), bool):
                given, fix = f"{name}={getattr(self, name)!r}", f"pass {name}=True or {name}=False"
                yield Reason(f"{name} is not a boolean", given, "True or False", fix)

    def _divides(self, part: str, parts: int, whole: str, total: int) -> Iterator[Reason]:
        if total % parts:
            close = max(n for n in range(1, min(parts, total) + 1) if total % n == 0)
            yield Reason(
                f"{whole} is not divisible by {part}",
                f"{whole}={total}, {part}={parts}",
                f"{whole} to be a multiple of {part}",
                f"use {part}={close}, for example",
            )


@dataclass(frozen=True, kw_only=True)
class TextConfig(BlockConfig):
    """Configuration of a model that reads tokens: the fields of `BlockConfig`, and these.

    Args:
        vocabulary: number of tokens in the vocabulary.
        context: sequence length in training. "learned" positions are limited to it; the other kinds are not.
        window: sliding window: how many tokens a row attends to, itself included. None: no limit.
        positions: "rotary", "learned", "alibi", "sinusoidal" or "none".
        rotary_base: base of the rotary angles.

    Raises:
        Refused: values that are invalid or do not fit together, listing every problem.

    Examples:
        >>> TextConfig(vocabulary=256, positions="learned", context=128).longest
        128
        >>> import regard as rg
        >>> try:
        ...     TextConfig(vocabulary=256, d_model=10, heads=3, positions="rotor")
        ... except rg.Refused as refused:
        ...     print(*(reason.what for reason in refused.reasons), sep="\\n")
        d_model is not divisible by heads
        unknown positions
    """

    vocabulary: int
    context: int = 512
    window: int | None = None
    positions: str = "rotary"
    rotary_base: float = 10000.0

    @property
    def longest(self) -> int | None:
        """The maximum sequence length; None if it is unlimited."""
        return self.context if self.positions == "learned" else None

    def reasons(self) -> list[Reason]:
        """Validates the fields, as `BlockConfig.reasons`."""
        problems = [
            *super().reasons(),
            *self._integers("vocabulary", "context", "window"),
            *self._choice("positions", POSITIONS),
            *self._number("rotary_base", "above 1", lambda value: 1 < value < math.inf),
        ]
        if not problems and self.positions == "rotary" and self.d_model // self.heads % 2:
            problems.append(
                Reason(
                    "rotary positions need an even head size",
                    f"d_model / heads = {self.d_model // self.heads}",
                    "an even number of components per head",
                    "change d_model or heads, or pass positions='alibi'",
                )
            )
        return problems


@known_arguments
@dataclass(frozen=True, kw_only=True)
class Config(TextConfig):
    """Configuration of a `LanguageModel`.

    Args:
        d_model: model width: components per token.
        layers: number of blocks.
        heads: number of query heads; must divide `d_model`.
        kv_heads: number of key/value heads; must divide `heads`. None: as many as `heads`.
        hidden: width of the feed-forward layer. None: 4 · d_model, or two thirds of that for "swiglu", which has
            three matrices.
        norm: "layer" (LayerNorm) or "rms" (RMSNorm).
        norm_first: normalize the input of each sublayer (pre-norm) or the sum after it (post-norm).
        feed_forward: "gelu", "gelu_tanh" (the approximation that GPT-2 uses) or "swiglu".
        bias: whether linear layers have biases.
        dropout: probability of dropping embeddings, sublayer outputs and attention weights in training.
        softcap: c in c · tanh(score / c), applied to every attention score. None: no cap.
        epsilon: added to the variance in normalization layers.
        vocabulary: number of tokens in the vocabulary.
        context: sequence length in training. "learned" positions are limited to it; the other kinds are not.
        window: sliding window: how many tokens a row attends to, itself included. None: no limit.
        positions: "rotary", "learned", "alibi", "sinusoidal" or "none".
        rotary_base: base of the rotary angles.
        tied: whether the output projection shares the weights of the token embedding.

    Raises:
        Refused: values that are invalid or do not fit together, listing every problem.

    Examples:
        >>> config = Config(vocabulary=256, d_model=64, kv_heads=2)
        >>> config.tied, config.positions
        (True, 'rotary')
    """

    tied: bool = True

    @classmethod
    def gpt(cls, vocabulary: int, **parts: Any) -> Self:
        """Builds a configuration in the style of GPT-2: learned positions, LayerNorm, GELU, biases, tied weights.

        Args:
            vocabulary: number of tokens in the vocabulary.
            parts: other fields of `Config`, which override the defaults of GPT-2.

        Returns:
            The configuration.

        Raises:
            Refused: values that are invalid or do not fit together, listing every problem.

        Source:
            Radford et al. 2019.

        Examples:
            >>> Config.gpt(256, d_model=64).norm
            'layer'
        """
        usual: dict[str, Any] = {"positions": "learned", "norm": "layer", "feed_forward": "gelu_tanh", "bias": True}
        return cls(vocabulary=vocabulary, **usual | parts)

    @classmethod
    def llama(cls, vocabulary: int, **parts: Any) -> Self:
        """Builds a configuration in the style of Llama: rotary positions, RMSNorm, SwiGLU, no biases, untied weights.

        Args:
            vocabulary: number of tokens in the vocabulary.
            parts: other fields of `Config`, which override the defaults of Llama.

        Returns:
            The configuration.

        Raises:
            Refused: values that are invalid or do not fit together, listing every problem.

        Source:
            Touvron et al. 2023.

        Examples:
            >>> Config.llama(256, heads=8, kv_heads=2).tied
            False
        """
        return cls(vocabulary=vocabulary, **{"tied": False} | parts)

    def reasons(self) -> list[Reason]:
        """Validates the fields, as `BlockConfig.reasons`."""
        return [*super().reasons(), *self._boolean("tied")]
