"""A text to a label: an encoder reads it, and one row speaks for the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..common.errors import Reason, Refused
from ..language.masks import documents
from .config import TextConfig
from .encoder import Encoder, real_lengths

__all__ = ["ClassifierConfig", "SequenceClassifier"]

POOLINGS = ("mean", "first")


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TextConfig):
    """What `TextConfig` says, of the encoder. classes: labels, at least 2. pooling: the "mean" of a text's rows, or its
    "first" row.

    >>> ClassifierConfig(vocabulary=256, classes=3).pooling
    'mean'
    """

    classes: int
    pooling: str = "mean"

    def reasons(self) -> list[Reason]:
        found = super().reasons()
        self._whole(found, "classes", least=2)
        self._known(found, "pooling", POOLINGS)
        return found


class SequenceClassifier(nn.Module):
    """logits = head(pool(encoder(tokens))),  loss = mean over the texts of −ln softmax(logits)[label]

    Source: Devlin et al. 2019.

    >>> model = SequenceClassifier(ClassifierConfig(vocabulary=256, d_model=32, layers=1, classes=3))
    >>> model(torch.zeros(2, 5, dtype=torch.long), lengths=[5, 3]).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: ClassifierConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = nn.Linear(config.d_model, config.classes)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None, *, lengths=None):
        """tokens (B, n) -> logits (B, classes); with targets (B,), (logits, loss). lengths (B,): of texts that are
        padded.
        """
        rows = self.encoder(tokens, lengths=lengths)
        if self.config.pooling == "first":
            pooled = rows[:, 0]
        elif lengths is None:
            pooled = rows.mean(1)
        else:
            count = torch.as_tensor(np.asarray(lengths), device=rows.device)[:, None]
            real = torch.arange(rows.shape[1], device=rows.device) < count
            pooled = rows.masked_fill(~real[..., None], 0).sum(1) / count
        return self._judged(pooled, targets)

    def packed(self, tokens: torch.Tensor, lengths, targets: torch.Tensor | None = None):
        """Texts side by side without padding, tokens (total,), lengths (N,) -> logits (N, classes), or (logits,
        loss).
        """
        reasons: list[Reason] = []
        counts = real_lengths(lengths, (len(lengths), len(tokens)), reasons)
        if not reasons and counts.sum() != len(tokens):
            reasons.append(
                Reason(
                    "lengths and tokens differ",
                    given=f"{counts.sum()} and {len(tokens)} tokens",
                    expected="texts that fill the row",
                    fix="cut the tokens, or the last length",
                )
            )
        if reasons:
            raise Refused("SequenceClassifier.packed", reasons)
        begins = np.cumsum(counts) - counts
        text = torch.as_tensor(np.repeat(np.arange(len(counts)), counts), device=tokens.device)
        places = torch.as_tensor(np.arange(len(tokens)) - np.repeat(begins, counts), device=tokens.device)
        rows = self.encoder(tokens[None], mask=documents(lengths=counts), positions=places)[0]
        if self.config.pooling == "first":
            pooled = rows[torch.as_tensor(begins, device=rows.device)]
        else:
            summed = rows.new_zeros(len(counts), rows.shape[1]).index_add(0, text, rows)
            pooled = summed / torch.as_tensor(counts, device=rows.device)[:, None]
        return self._judged(pooled, targets)

    def _judged(self, pooled: torch.Tensor, targets: torch.Tensor | None):
        logits = self.head(pooled)
        return logits if targets is None else (logits, nn.functional.cross_entropy(logits.float(), targets))
