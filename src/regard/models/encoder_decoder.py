"""One text to another: an encoder reads the source, a decoder writes and attends to what was read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..common.arrays import read_array
from ..common.errors import Reason, Refused
from ..language.masks import lengths as padding
from .config import Config, TextConfig
from .encoder import Encoder
from .language_model import LanguageModel

__all__ = ["EncoderDecoder", "Reading", "TranslationConfig"]


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(Config):
    """What `Config` says, of the decoder; the encoder differs where it is said.

    source_vocabulary, encoder_layers: of the encoder, by default as many as the decoder's.

    >>> TranslationConfig(vocabulary=100, source_vocabulary=80, layers=2).encoder.vocabulary
    80
    """

    source_vocabulary: int | None = None
    encoder_layers: int | None = None

    @property
    def encoder(self) -> TextConfig:
        """The config of the encoder."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(TextConfig)}
        return TextConfig(
            **own
            | {"vocabulary": self.source_vocabulary or self.vocabulary, "layers": self.encoder_layers or self.layers}
        )

    def reasons(self) -> list[Reason]:
        found = super().reasons()
        self._whole(found, "source_vocabulary", "encoder_layers")
        return found


class EncoderDecoder(nn.Module):
    """logits[i] = decoder(token 0 … token i, over encoder(source)), and the loss as of `LanguageModel`.

    Source: Vaswani et al. 2017.

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

    def forward(self, source: torch.Tensor, tokens: torch.Tensor, targets: torch.Tensor | None = None, *, lengths=None):
        """source (B, m), tokens (B, n) -> logits (B, n, vocabulary); with targets (B, n), (logits, loss).

        lengths (B,): of the sources, where they are padded.
        """
        memory = self.encoder(source, lengths=lengths)
        return self.decoder(tokens, targets, memory=memory, memory_mask=None if lengths is None else padding(lengths))

    def reading(self, source: torch.Tensor, *, lengths=None) -> Reading:
        """The decoder over these sources (B, m), which are encoded once: what `generate` writes with, a prompt for
        each.
        """
        return Reading(self, source, lengths)


class Reading:
    """A decoder that has read its sources. Their keys and values are kept for every layer, and let go with their
    sequence.
    """

    def __init__(self, model: EncoderDecoder, source: torch.Tensor, lengths=None):
        self.decoder, self.config, self.training = model.decoder, model.config, model.training
        self.head, self.parameters = model.decoder.head, model.decoder.parameters
        with torch.no_grad():
            rows = model.encoder(source, lengths=lengths)
            self.memory = [block.cross.part.remember(rows) for block in model.decoder.stack.blocks]
        self.lengths = None if lengths is None else read_array(lengths, "lengths")

    def cache(self, batch: int) -> list:
        """The decoder's caches, and what it has read."""
        if batch != self.memory[0][0].shape[0]:
            raise Refused(
                "generate",
                [
                    Reason(
                        "prompts and sources differ in number",
                        given=f"{batch} prompts",
                        expected=f"one for each of the {self.memory[0][0].shape[0]} sources",
                        fix="repeat a source that is to be continued twice",
                    )
                ],
            )
        return [*self.decoder.cache(batch), Remembered(self.memory, self.lengths)]

    def hidden(self, tokens: torch.Tensor, *, cache: list, rows=None) -> torch.Tensor:
        """As of the decoder, whose caches are followed by what it has read."""
        *own, read = cache
        return self.decoder.hidden(tokens, memory=read.memory, memory_mask=read.mask, cache=own, rows=rows)


class Remembered:
    """Keys and values (B, G, m, depth) of a memory for each layer, and the mask of its padding."""

    def __init__(self, memory: list[tuple[torch.Tensor, torch.Tensor]], lengths: np.ndarray | None):
        self.memory, self.lengths = memory, lengths
        self.mask = None if lengths is None else padding(lengths)

    def drop(self, sequences) -> None:
        """Without these sequences; the others close up."""
        kept = np.setdiff1d(np.arange(len(self.memory[0][0])), sequences)
        rows = torch.as_tensor(kept, device=self.memory[0][0].device)
        memory = [(k[rows], v[rows]) for k, v in self.memory]
        self.__init__(memory, None if self.lengths is None else self.lengths[kept])  # type: ignore[misc]
