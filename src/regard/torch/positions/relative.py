"""Relative positions: ALiBi, and learned biases per head and distance, or per head and bucket of distances."""

from __future__ import annotations

import torch

from ...common.text.keywords import known_arguments
from ...language.expr import Expr, frozen_table, head, key, query, table
from ...language.masks import count
from ...language.scores import alibi_slopes, t5_bucket
from .position import Position


@known_arguments
class Buckets(Position):
    """Adds a learned bias per head and bucket of distances, as in T5: score + weight[bucket(key − query), head].

    Short distances have one bucket each; longer distances share buckets of logarithmic size. The parameter `weight`
    (buckets, H) is 0 at first and has the shape of T5's `relative_attention_bias.weight`. T5 does not scale its
    logits: call attention with scale=1, or multiply the weights of q by √D. No matrix of biases is built.

    Args:
        heads: H, the number of query heads.
        buckets: the number of buckets of both directions together.
        max_distance: the distance from which on all distances share the last bucket.
        bidirectional: whether keys after the query have their own buckets (T5's encoder) or share bucket 0 (its
            decoder).

    Raises:
        Refused: a size is invalid, or the buckets do not suffice for max_distance.

    Source:
        Raffel et al. 2020.

    Examples:
        >>> from regard.torch.positions import Buckets
        >>> import regard as rg
        >>> Buckets(4, bidirectional=False).score(rg.score)
        score + relative_bias[bucket[query - key], head]
    """

    def __init__(self, heads: int, buckets: int = 32, *, max_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        self.max_distance, self.bidirectional = max_distance, bidirectional
        # One table for the lifetime of the module, so that plans with it can be cached.
        self.bucket = t5_bucket(
            count(buckets, "Buckets", "buckets"), bidirectional=bidirectional, max_distance=max_distance
        )
        self.weight = torch.nn.Parameter(torch.zeros(buckets, count(heads, "Buckets", "heads", least=1)))

    def score(self, logit: Expr) -> Expr:
        """Adds the bias of the distance's bucket.

        Args:
            logit: the score so far.

        Returns:
            logit + weight[bucket(key − query), head].
        """
        return logit + table(self.weight, "relative_bias")[self.bucket, head]

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        buckets, heads = self.weight.shape
        return f"{heads}, {buckets}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"


@known_arguments
class Relative(Position):
    """Adds a learned bias per head and distance, clipped at ±reach: score + weight[head, key − query + reach].

    The parameter `weight` (H, 2R + 1) is 0 at first. This is the scalar form of relative positions. Shaw et al. 2018
    learn a vector per distance and add its product with the query, which costs one product per row and distance.

    Args:
        heads: H, the number of query heads.
        reach: R, the largest distance with its own bias; longer distances share it.

    Raises:
        Refused: heads is less than 1, or reach is negative.

    Source:
        Shaw et al. 2018 (clipped distances); Liu et al. 2021 (scalar biases).

    Examples:
        >>> from regard.torch.positions import Relative
        >>> import regard as rg
        >>> Relative(4, 16).score(rg.score)
        score + relative[head, key - query + 16]
    """

    def __init__(self, heads: int, reach: int):
        super().__init__()
        self.reach = count(reach, "Relative", "reach")
        self.weight = torch.nn.Parameter(torch.zeros(count(heads, "Relative", "heads", least=1), 2 * self.reach + 1))

    def score(self, logit: Expr) -> Expr:
        """Adds the bias of the distance.

        Args:
            logit: the score so far.

        Returns:
            logit + weight[head, key − query + reach], the distance clipped at ±reach.
        """
        return logit + table(self.weight, "relative")[head, key - query + self.reach]  # out-of-range indices clamp

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return f"{self.weight.shape[0]}, {self.reach}"


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
