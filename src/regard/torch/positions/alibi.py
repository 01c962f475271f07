"""ALiBi: a linear penalty on the distance, with a fixed slope per head."""

from __future__ import annotations

from ...common.text.keywords import known_arguments
from ...language.expr import Expr, frozen_table, head, key, query
from ...language.scores import alibi_slopes
from .position import Position


@known_arguments
class ALiBi(Position):
    """Adds a linear distance penalty to the score: score − slope[head] · |query − key|, without parameters.

    For a power of two, the slopes are 2^(−8/H), 2^(−16/H) …; other numbers of heads are completed as in BLOOM and MPT.
    The score depends on distances between rows only, so left padding and packed documents need no positions.

    Args:
        heads: H, the number of query heads.

    Raises:
        Refused: heads is not a positive integer.

    Source:
        Press et al. 2022.

    Examples:
        >>> from regard.torch.positions import ALiBi
        >>> import regard as rg
        >>> ALiBi(8).score(rg.score)
        score - slope[head] * abs(query - key)
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads
        # One frozen table for the lifetime of the module, so that plans with it can be cached.
        self.slope = frozen_table(alibi_slopes(heads), "slope")

    def score(self, logit: Expr) -> Expr:
        """Subtracts the distance penalty.

        Args:
            logit: the score so far.

        Returns:
            logit − slope[head] · |query − key|.
        """
        return logit - self.slope[head] * abs(query - key)

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return f"{self.heads}"
