"""What a model is made of: sizes and kinds as frozen data, which refuse what cannot work before a single weight
exists.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, fields
from typing import Any

from ..common.errors import Reason, Refused, did_you_mean
from ..language.masks import count

__all__ = ["BlockConfig", "Config", "TextConfig"]

NORMS = ("layer", "rms")
FEED_FORWARDS = ("gelu", "gelu_tanh", "swiglu")
POSITIONS = ("rotary", "learned", "alibi", "sinusoidal", "none")


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """The blocks of a transformer, whatever it reads.

    d_model: numbers per row. layers: blocks. heads, kv_heads: of queries, and of keys and values (by default as many).
    hidden: width of the feed-forward, by default 4 · d_model, and two thirds of that for "swiglu", which has three
    matrices.
    norm: "layer" (mean and variance) or "rms". norm_first: before each part (pre-norm), or after its sum (post-norm).
    feed_forward: "gelu", "gelu_tanh" (the approximation that GPT-2 was trained with) or "swiglu". bias: of all linear
    layers.
    dropout: of embeddings, parts and attention weights, in training. softcap: c · tanh(s / c) on every score s of
    attention.

    Refused, with all reasons at once: what cannot work.
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

    def __post_init__(self):
        reasons = self.reasons()
        if reasons:
            raise Refused(type(self).__name__, reasons)

    @property
    def inner(self) -> int:
        """Of the feed-forward, where `hidden` does not say it: about 8 · d_model² numbers in every kind, rounded up to
        eights.
        """
        if self.hidden is not None:
            return self.hidden
        return 8 * math.ceil(self.d_model / 3) if self.feed_forward == "swiglu" else 4 * self.d_model

    def reasons(self) -> list[Reason]:
        """Why this cannot work; nothing, if it can."""
        found: list[Reason] = []
        self._whole(found, "d_model", "layers", "heads", "kv_heads", "hidden")
        self._known(found, "norm", NORMS)
        self._known(found, "feed_forward", FEED_FORWARDS)
        self._truth(found, "norm_first", "bias")
        self._number(found, "dropout", "from 0 to below 1", lambda value: 0 <= value < 1)
        self._number(found, "softcap", "above 0", lambda value: 0 < value < math.inf)
        self._number(found, "epsilon", "above 0", lambda value: 0 < value < math.inf)
        if not any(reason.what.split()[0] in ("d_model", "heads", "kv_heads") for reason in found):
            self._divides(found, "heads", self.heads, "d_model", self.d_model)
            self._divides(found, "kv_heads", self.kv_heads or self.heads, "heads", self.heads)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON can write it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]):
        """What `to_dict` gave. Refused, with all reasons at once: names that are unknown or missing, values that cannot
        work.
        """
        if not isinstance(data, dict):
            raise Refused(
                cls.__name__,
                [
                    Reason(
                        "not a configuration",
                        given=f"{type(data).__name__}",
                        expected="names and values",
                        fix="pass what to_dict gave",
                    )
                ],
            )
        known = [field.name for field in fields(cls)]
        needed = [field.name for field in fields(cls) if field.default is dataclasses.MISSING]
        reasons = [
            Reason(
                "no such part of the configuration",
                given=f"{name}={data[name]!r}",
                expected=f"a part of {cls.__name__}",
                fix=did_you_mean(str(name), known),
            )
            for name in data
            if name not in known
        ]
        reasons += [
            Reason(
                f"{name} is missing",
                given=", ".join(map(str, data)) or "nothing",
                expected=f"{', '.join(needed)} in any case",
                fix=f"add {name}",
            )
            for name in needed
            if name not in data
        ]
        if reasons:
            raise Refused(cls.__name__, reasons)
        return cls(**data)

    def _whole(self, found: list[Reason], *names: str, least: int = 1) -> None:
        """Whole numbers; None only where it is the default."""
        optional = {field.name for field in fields(self) if field.default is None}
        for name in names:
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            try:
                count(value, type(self).__name__, name, least)
            except Refused as refused:
                found += refused.reasons

    def _number(self, found: list[Reason], name: str, expected: str, holds) -> None:
        value = getattr(self, name)
        optional = any(field.name == name and field.default is None for field in fields(self))
        if value is None and optional:
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
            found.append(
                Reason(
                    f"{name} is out of range",
                    given=f"{name}={value!r}",
                    expected=f"a number {expected}",
                    fix="leave it out" if value is None or optional or name == "dropout" else "leave it out for 1e-5",
                )
            )

    def _known(self, found: list[Reason], name: str, known: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in known:
            found.append(
                Reason(
                    f"no such {name}",
                    given=f"{name}={value!r}",
                    expected=" or ".join(map(repr, known)),
                    fix=did_you_mean(str(value), known),
                )
            )

    def _truth(self, found: list[Reason], *names: str) -> None:
        for name in names:
            if not isinstance(getattr(self, name), bool):
                found.append(
                    Reason(
                        f"{name} is neither true nor false",
                        given=f"{name}={getattr(self, name)!r}",
                        expected="True or False",
                        fix="say which",
                    )
                )

    def _divides(self, found: list[Reason], part: str, parts: int, whole: str, total: int) -> None:
        if total % parts:
            close = max(n for n in range(1, min(parts, total) + 1) if total % n == 0)
            found.append(
                Reason(
                    f"{part} do not divide {whole}",
                    given=f"{whole}={total}, {part}={parts}",
                    expected=f"{whole} to be a multiple of {part}",
                    fix=f"{part}={close} fits",
                )
            )


@dataclass(frozen=True, kw_only=True)
class TextConfig(BlockConfig):
    """What reads tokens: what `BlockConfig` says, and tokens.

    vocabulary: how many tokens there are. context: how many it sees in training; "learned" positions end there, the
    others go on. window: a row sees so many tokens, itself included; None is all. positions: "rotary", "learned",
    "alibi", "sinusoidal" or "none". rotary_base: the base of the angles.

    >>> TextConfig(vocabulary=256, d_model=10, heads=3, positions="rotor")
    Traceback (most recent call last):
    regard.Refused: TextConfig: heads do not divide d_model
      given     d_model=10, heads=3
      expected  d_model to be a multiple of heads
      fix       heads=2 fits
    TextConfig: no such positions
      given     positions='rotor'
      expected  'rotary' or 'learned' or 'alibi' or 'sinusoidal' or 'none'
      fix       did you mean 'rotary'? choose one of 'rotary', 'learned', 'alibi', 'sinusoidal', 'none'
    """

    vocabulary: int
    context: int = 512
    window: int | None = None
    positions: str = "rotary"
    rotary_base: float = 10000.0

    @property
    def longest(self) -> int | None:
        """The most positions that it can tell apart; None where they go on."""
        return self.context if self.positions == "learned" else None

    def reasons(self) -> list[Reason]:
        found = super().reasons()
        self._whole(found, "vocabulary", "context", "window")
        self._known(found, "positions", POSITIONS)
        self._number(found, "rotary_base", "above 1", lambda value: 1 < value < math.inf)
        if not found and self.positions == "rotary" and self.d_model // self.heads % 2:
            found.append(
                Reason(
                    "rotary positions turn pairs of numbers",
                    given=f"{self.d_model // self.heads} numbers per head",
                    expected="an even number per head (d_model / heads)",
                    fix="change d_model or heads, or positions='alibi'",
                )
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Config(TextConfig):
    """A language model: what `TextConfig` says. tied: the output reads the embedding's own table.

    >>> Config(vocabulary=256, d_model=64, kv_heads=2).tied
    True
    """

    tied: bool = True

    @classmethod
    def gpt(cls, vocabulary: int, **parts) -> Config:
        """As GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases.

        >>> Config.gpt(256, d_model=64).norm
        'layer'
        """
        usual: dict[str, Any] = {"positions": "learned", "norm": "layer", "feed_forward": "gelu_tanh", "bias": True}
        return cls(vocabulary=vocabulary, **usual | parts)

    @classmethod
    def llama(cls, vocabulary: int, **parts) -> Config:
        """As Llama (Touvron et al. 2023): rotary positions, RMSNorm, SwiGLU, no biases, an output of its own.

        >>> Config.llama(256, heads=8, kv_heads=2).tied
        False
        """
        return cls(vocabulary=vocabulary, **{"tied": False} | parts)

    def reasons(self) -> list[Reason]:
        found = super().reasons()
        self._truth(found, "tied")
        return found
