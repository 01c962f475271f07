"""ALiBi: a score falls with the distance, at a slope of its head."""

from __future__ import annotations

from ...language.expr import Expr, frozen_table, head, key, query
from ...language.scores import alibi_slopes
from .position import Position

__all__ = ["ALiBi"]


class ALiBi(Position):
    """score − slope[head] · |query − key|, the slopes being a fixed geometric series. Nothing is learned.

    heads (H): for a power of two the slopes are 2^(−8/H), 2^(−16/H) …; other counts are filled up as BLOOM and MPT fill
    them. Distances count rows, so padding on the left and packed documents change nothing.

    Source: Press et al. 2022.

    >>> from regard.language.expr import score
    >>> ALiBi(8).score(score)
    score - slope[head] * abs(query - key)
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads
        # One frozen table for the life of the module: what was planned with it can be kept.
        self.slope = frozen_table(alibi_slopes(heads), "slope")

    def score(self, logit: Expr) -> Expr:
        return logit - self.slope[head] * abs(query - key)

    def extra_repr(self) -> str:
        return f"{self.heads}"
