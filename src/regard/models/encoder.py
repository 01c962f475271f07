"""An encoder of texts: every row sees the whole text, before and after."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ..common.arrays import read_array
from ..common.errors import Reason, Refused
from ..language.expr import Expr
from ..language.masks import lengths as padding
from ..language.masks import window
from . import blocks
from .config import TextConfig
from .embedding import Embedding, attention_positions, standing, unreadable

__all__ = ["Encoder", "real_lengths"]


class Encoder(nn.Module):
    """tokens (B, n) -> rows (B, n, d_model). A window sees as many tokens after a row as before it.

    Source: Vaswani et al. 2017; Devlin et al. 2019.

    >>> encoder = Encoder(TextConfig(vocabulary=256, d_model=32, layers=2))
    >>> encoder(torch.zeros(2, 5, dtype=torch.long), lengths=[5, 3]).shape
    torch.Size([2, 5, 32])
    """

    def __init__(self, config: TextConfig):
        super().__init__()
        self.config = config
        turned = attention_positions(config)
        self.turns = turned is not None
        self.embed = Embedding(config, (2 * config.layers) ** -0.5)  # as large as what a part adds
        self.stack = blocks.stack(config, positions=turned)
        self.mask = None if config.window is None else window(config.window, config.window - 1)

    def forward(self, tokens: torch.Tensor, *, lengths=None, mask: Expr | None = None, positions=None) -> torch.Tensor:
        """tokens (B, n) -> (B, n, d_model). lengths (B,): of the texts, what follows being padding, which nobody sees.

        mask: a rule beside these, such as rg.documents(…). positions (n,) or (B, n): where the tokens stand.
        """
        reasons = unreadable(tokens)
        if not reasons and lengths is not None:
            lengths = real_lengths(lengths, tuple(tokens.shape), reasons)
        if reasons:
            raise Refused("Encoder", reasons)
        rules = [self.mask, mask, None if lengths is None else padding(lengths, lengths)]
        rule = None
        for each in rules:
            rule = each if rule is None else rule if each is None else rule & each
        places = standing(tokens) if positions is None else positions
        return self.stack(self.embed(tokens, places), mask=rule, positions=places if self.turns else None)


def real_lengths(lengths, shape: tuple[int, ...], reasons: list[Reason]) -> np.ndarray:
    """How many tokens of each text are real; what they cannot be is added to the reasons."""
    texts, longest = shape
    given = read_array(lengths, "lengths")
    if given.shape != (texts,) or given.dtype.kind not in "iu" or ((given < 1) | (given > longest)).any():
        reasons.append(
            Reason(
                "lengths do not say how long the texts are",
                given=f"{lengths!r:.80}",
                expected=f"{texts} whole numbers from 1 to {longest}",
                fix="leave out texts without tokens",
            )
        )
    return given
