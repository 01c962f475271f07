"""Bidirectional text encoder: every row attends to the whole text."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ..common.arrays import read_array
from ..common.errors import Reason, Refused
from ..common.public import ArrayLike
from ..language.expr import Expr
from ..language.masks import lengths as padding
from ..language.masks import window
from . import blocks
from .config import TextConfig
from .embedding import Embedding, attention_positions, token_positions, token_problems


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
        positions = attention_positions(config)
        self.uses_positions = positions is not None
        self.embed = Embedding(config, (2 * config.layers) ** -0.5)  # the initial scale of a sublayer's output
        self.stack = blocks.stack(config, positions=positions)
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
        reasons = token_problems(tokens)
        if not reasons and lengths is not None:
            lengths = real_lengths(lengths, tuple(tokens.shape), reasons)
        if reasons:
            raise Refused("Encoder", reasons)
        rules = [self.mask, mask, None if lengths is None else padding(lengths, lengths)]
        rule = None
        for each in rules:
            rule = each if rule is None else rule if each is None else rule & each
        places = token_positions(tokens) if positions is None else positions
        if self.config.positions != "alibi":  # whose distances need positions only if rows were moved
            positions = places
        rows = self.embed(tokens, places)
        return self.stack(rows, mask=rule, positions=positions if self.uses_positions else None)


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
