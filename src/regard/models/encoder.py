"""Bidirectional text encoder, in which every row attends to the whole text; and text classification with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_

import numpy as np
import torch
from torch import nn

from ..common.arrays import read_array
from ..common.errors import Reason, refuse_all
from ..common.public import ArrayLike
from ..common.text.keywords import known_arguments
from ..language.expr import Expr
from ..language.masks import documents, window
from ..language.masks import lengths as padding
from . import blocks
from .config import TextConfig

POOLINGS = ("mean", "first")


class Encoder(nn.Module):
    """Encodes texts: tokens (B, n) -> rows (B, n, d_model).

    A sliding window extends equally far before and after a row.

    Args:
        config: the configuration.

    Source:
        Vaswani et al. 2017; Devlin et al. 2019.

    Examples:
        >>> encoder = Encoder(TextConfig(vocabulary=256, d_model=32, layers=2))
        >>> encoder(torch.zeros(2, 5, dtype=torch.long), lengths=[5, 3]).shape
        torch.Size([2, 5, 32])
    """

    def __init__(self, config: TextConfig):
        super().__init__()
        self.config = config
        self.embed = blocks.Embedding(config, (2 * config.layers) ** -0.5)  # the initial scale of a sublayer's output
        self.stack = blocks.stack(config, positions=blocks.attention_positions(config))
        self.mask = None if config.window is None else window(config.window, config.window - 1)

    def forward(
        self,
        tokens: torch.Tensor,
        *,
        lengths: ArrayLike | None = None,
        mask: Expr | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Encodes a batch of texts.

        Args:
            tokens: (B, n) token ids, int64 or int32.
            lengths: (B,) number of tokens of each text; the rest is padding, which is masked. None: no padding.
            mask: an additional mask, such as rg.documents(…).
            positions: (n,) or (B, n) positions of the tokens. None: 0 … n - 1.

        Returns:
            (B, n, d_model).

        Raises:
            Refused: tokens or lengths that are invalid, listing every problem.
        """
        reasons = blocks.token_problems(tokens)
        if not reasons and lengths is not None:
            lengths = real_lengths(lengths, tuple(tokens.shape), reasons)
        refuse_all("Encoder", reasons)
        rules = [self.mask, mask, None if lengths is None else padding(lengths, lengths)]
        known = [each for each in rules if each is not None]
        places = blocks.token_positions(tokens) if positions is None else positions
        # The distances of ALiBi need positions only if rows were moved.
        moved = {"rotary": places, "alibi": positions}.get(self.config.positions)
        return self.stack(self.embed(tokens, places), mask=reduce(and_, known) if known else None, positions=moved)


def real_lengths(lengths: ArrayLike, shape: tuple[int, ...], reasons: list[Reason]) -> np.ndarray:
    """The lengths of the texts of a padded batch as an array; a problem with them is appended to `reasons`."""
    texts, longest = shape
    given = read_array(lengths, "lengths")
    if given.shape != (texts,) or given.dtype.kind not in "iu" or ((given < 1) | (given > longest)).any():
        reasons.append(
            Reason(
                "lengths are invalid",
                f"{lengths!r:.80}",
                f"{texts} integers from 1 to {longest}",
                "pass the number of tokens of each text, and remove empty texts",
            )
        )
    return given


@known_arguments
@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TextConfig):
    """Configuration of a `SequenceClassifier`: the fields of `Config` except `tied`, and these.

    Args:
        classes: number of classes, at least 2.
        pooling: which row represents a text: the "mean" of its rows or its "first" row.

    Raises:
        Refused: values that are invalid or do not fit together, listing every problem.

    Examples:
        >>> ClassifierConfig(vocabulary=256, classes=3).pooling
        'mean'
    """

    classes: int
    pooling: str = "mean"

    def reasons(self) -> list[Reason]:
        """Validates the fields, as `BlockConfig.reasons`."""
        return [*super().reasons(), *self._integers("classes", least=2), *self._choice("pooling", POOLINGS)]


@known_arguments
class SequenceClassifier(nn.Module):
    """Classifies texts: logits = head(pool(encoder(tokens))).

    The loss is the mean cross-entropy over the texts, in nats: −ln softmax(logits)[label].

    Args:
        config: the configuration.

    Source:
        Devlin et al. 2019.

    Examples:
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

    def forward(
        self, tokens: torch.Tensor, targets: torch.Tensor | None = None, *, lengths: ArrayLike | None = None
    ) -> blocks.Output:
        """Classifies a batch of padded texts.

        Args:
            tokens: (B, n) token ids, int64 or int32.
            targets: (B,) labels. None: compute no loss.
            lengths: (B,) number of tokens of each text; the rest is padding. None: no padding.

        Returns:
            Logits (B, classes); with `targets`, (logits, loss).

        Raises:
            Refused: tokens or lengths that are invalid, listing every problem.
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
        return blocks.with_loss(self.head(pooled), targets)

    def packed(self, tokens: torch.Tensor, lengths: ArrayLike, targets: torch.Tensor | None = None) -> blocks.Output:
        """Classifies packed texts: concatenated without padding and masked from each other.

        Args:
            tokens: (total,) token ids of all texts, int64 or int32.
            lengths: (N,) number of tokens of each text; their sum is `total`.
            targets: (N,) labels. None: compute no loss.

        Returns:
            Logits (N, classes); with `targets`, (logits, loss).

        Raises:
            Refused: tokens or lengths that are invalid, listing every problem.

        Examples:
            >>> model = SequenceClassifier(ClassifierConfig(vocabulary=256, d_model=32, layers=1, classes=3))
            >>> model.packed(torch.zeros(8, dtype=torch.long), lengths=[5, 3]).shape
            torch.Size([2, 3])
        """
        reasons: list[Reason] = []
        counts = real_lengths(lengths, (read_array(lengths, "lengths").size, len(tokens)), reasons)
        if not reasons and counts.sum() != len(tokens):
            reasons.append(
                Reason(
                    "lengths do not match the tokens",
                    f"lengths with the sum {counts.sum()}, {len(tokens)} tokens",
                    "lengths whose sum is the number of tokens",
                    "pass the length of every text",
                )
            )
        refuse_all("SequenceClassifier.packed", reasons)
        begins = np.cumsum(counts) - counts
        text = torch.as_tensor(np.repeat(np.arange(len(counts)), counts), device=tokens.device)
        positions = torch.as_tensor(np.arange(len(tokens)) - np.repeat(begins, counts), device=tokens.device)
        rows = self.encoder(tokens[None], mask=documents(lengths=counts), positions=positions)[0]
        if self.config.pooling == "first":
            pooled = rows[torch.as_tensor(begins, device=rows.device)]
        else:
            summed = rows.new_zeros(len(counts), rows.shape[1]).index_add(0, text, rows)
            pooled = summed / torch.as_tensor(counts, device=rows.device)[:, None]
        return blocks.with_loss(self.head(pooled), targets)
