"""Encoder-decoder model: an encoder reads the source, and a decoder generates the target text with cross-attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ..common.arrays import read_array
from ..common.errors import Reason, refuse
from ..common.public import ArrayLike
from ..common.text.keywords import known_arguments
from ..language.masks import lengths as padding
from . import blocks
from .config import Config, TextConfig
from .encoder import Encoder
from .language_model import LanguageModel


@known_arguments
@dataclass(frozen=True, kw_only=True)
class TranslationConfig(Config):
    """Configuration of an `EncoderDecoder`: the fields of `Config` for encoder and decoder, and these.

    Args:
        source_vocabulary: number of tokens in the vocabulary of the source. None: `vocabulary`.
        encoder_layers: number of encoder blocks. None: `layers`.

    Raises:
        Refused: values that are invalid or do not fit together, listing every problem.

    Examples:
        >>> TranslationConfig(vocabulary=100, source_vocabulary=80, layers=2).encoder.vocabulary
        80
    """

    source_vocabulary: int | None = None
    encoder_layers: int | None = None

    @property
    def encoder(self) -> TextConfig:
        """The configuration of the encoder."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(TextConfig)}
        return TextConfig(
            **own
            | {"vocabulary": self.source_vocabulary or self.vocabulary, "layers": self.encoder_layers or self.layers}
        )

    def reasons(self) -> list[Reason]:
        """Validates the fields, as `BlockConfig.reasons`."""
        return [*super().reasons(), *self._integers("source_vocabulary", "encoder_layers")]


@known_arguments
class EncoderDecoder(nn.Module):
    """Encoder-decoder transformer: logits[i] = decoder(token 0 … token i, encoder(source)).

    The loss is that of `LanguageModel`.

    Args:
        config: the configuration.

    Source:
        Vaswani et al. 2017.

    Examples:
        >>> model = EncoderDecoder(TranslationConfig(vocabulary=256, d_model=32, layers=1)).eval()
        >>> source, text = torch.tensor([list(b"ein Satz")]), torch.tensor([list(b"\\0a sentence")])
        >>> logits, loss = model(source, text[:, :-1], text[:, 1:])
        >>> from regard.models import generate
        >>> len(generate(model.reading(source), [b"\\0"], tokens=5, greedy=True)[0])
        5
    """

    def __init__(self, config: TranslationConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.decoder = LanguageModel(config, memory_dim=config.d_model)

    def forward(
        self,
        source: torch.Tensor,
        tokens: torch.Tensor,
        targets: torch.Tensor | None = None,
        *,
        lengths: ArrayLike | None = None,
    ) -> blocks.Output:
        """Computes the logits of the next token at every position of the target text.

        Args:
            source: (B, m) token ids of the source texts.
            tokens: (B, n) token ids of the target texts.
            targets: (B, n) the tokens to predict; -100 is ignored. None: compute no loss.
            lengths: (B,) number of tokens of each source; the rest is padding. None: no padding.

        Returns:
            Logits (B, n, vocabulary); with `targets`, (logits, loss).

        Raises:
            Refused: tokens or lengths that are invalid, listing every problem.
        """
        memory = self.encoder(source, lengths=lengths)
        return self.decoder(tokens, targets, memory=memory, memory_mask=None if lengths is None else padding(lengths))

    def reading(self, source: torch.Tensor, *, lengths: ArrayLike | None = None) -> Reading:
        """Encodes sources once, for generation with `generate` or `stream`.

        Args:
            source: (B, m) token ids of the source texts.
            lengths: (B,) number of tokens of each source; the rest is padding. None: no padding.

        Returns:
            A model for `generate` that attends to the sources; pass one prompt per source.

        Raises:
            Refused: tokens or lengths that are invalid, listing every problem.
        """
        return Reading(self, source, lengths)


class Reading:
    """A decoder with encoded sources; create it with `EncoderDecoder.reading`.

    Stores the cross-attention keys and values of every layer. Those of a finished sequence are released.

    Args:
        model: the encoder-decoder model.
        source: (B, m) token ids of the source texts.
        lengths: (B,) number of tokens of each source. None: no padding.
    """

    def __init__(self, model: EncoderDecoder, source: torch.Tensor, lengths: ArrayLike | None = None):
        self.decoder, self.config, self.training = model.decoder, model.config, model.training
        self.head, self.parameters = model.decoder.head, model.decoder.parameters
        with torch.no_grad():
            rows = model.encoder(source, lengths=lengths)
            self.memory = [block.cross.part.remember(rows) for block in model.decoder.stack.blocks]
        self.lengths = None if lengths is None else read_array(lengths, "lengths")

    def cache(self, batch: int) -> list[Any]:
        """Creates the caches of the decoder layers, followed by the encoded sources.

        Args:
            batch: number of prompts; must equal the number of sources.

        Returns:
            The caches for `hidden`.

        Raises:
            Refused: `batch` is not the number of sources.
        """
        if batch != self.memory[0][0].shape[0]:
            raise refuse(
                "generate",
                "the number of prompts differs from the number of sources",
                f"{batch} prompts, {self.memory[0][0].shape[0]} sources",
                "one prompt per source",
                "pass one prompt per source; to use a source twice, repeat it",
            )
        return [*self.decoder.cache(batch), SourceCache(self.memory, self.lengths)]

    def hidden(self, tokens: torch.Tensor, *, cache: list[Any], rows: ArrayLike | None = None) -> torch.Tensor:
        """Computes the output rows of the decoder: as `LanguageModel.hidden`, with the result of `cache`."""
        *caches, source = cache
        return self.decoder.hidden(tokens, memory=source.memory, memory_mask=source.mask, cache=caches, rows=rows)


class SourceCache:
    """Cross-attention keys and values (B, G, m, D) of each layer, and the padding mask of the sources."""

    def __init__(self, memory: list[tuple[torch.Tensor, torch.Tensor]], lengths: np.ndarray | None):
        self.memory, self.lengths = memory, lengths
        self.mask = None if lengths is None else padding(lengths)

    def drop(self, sequences: Sequence[int]) -> None:
        """Removes these sequences from the batch."""
        kept = np.setdiff1d(np.arange(len(self.memory[0][0])), sequences)
        rows = torch.as_tensor(kept, device=self.memory[0][0].device)
        memory = [(k[rows], v[rows]) for k, v in self.memory]
        self.__init__(memory, None if self.lengths is None else self.lengths[kept])  # type: ignore[misc]
