"""Learned tables of distances: a number for each head and distance, or bucket of distances, added to the score."""

from __future__ import annotations

import torch

from ...language.expr import Expr, head, key, query, table
from ...language.masks import count
from ...language.scores import t5_bucket
from .position import Position

__all__ = ["Buckets", "Relative"]


class Buckets(Position):
    """score + weight[bucket(key − query), head]: near distances have a bucket each, farther ones share,
    logarithmically.

    heads (H); buckets: how many, for both directions together; max_distance: from here on all distances share the last
    one; bidirectional: whether keys after the query have buckets of their own (T5's encoder), or none (its decoder).

    weight (buckets, H), at first 0, is shaped as T5's `relative_attention_bias.weight`. T5 does not scale its logits:
    call attention with scale=1, or multiply the weights of q by √D. No row of scores is ever built, and the gradient of
    weight is summed tile by tile.

    Source: Raffel et al. 2020.

    >>> from regard.language.expr import score
    >>> Buckets(4, bidirectional=False).score(score)
    score + relative_bias[bucket[query - key], head]
    """

    def __init__(self, heads: int, buckets: int = 32, *, max_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        self.max_distance, self.bidirectional = max_distance, bidirectional
        # The buckets are counted once: what was planned with their table can be kept.
        self.bucket = t5_bucket(
            count(buckets, "Buckets", "buckets"), bidirectional=bidirectional, max_distance=max_distance
        )
        self.weight = torch.nn.Parameter(torch.zeros(buckets, count(heads, "Buckets", "heads", least=1)))

    def score(self, logit: Expr) -> Expr:
        return logit + table(self.weight, "relative_bias")[self.bucket, head]

    def extra_repr(self) -> str:
        buckets, heads = self.weight.shape
        return f"{heads}, {buckets}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"


class Relative(Position):
    """score + weight[head, key − query + reach], distances beyond reach being as reach.

    heads (H); reach (R): how far distances are told apart. weight (H, 2R + 1), at first 0.

    This is the scalar form of relative positions: a number for each head and distance. Shaw et al. 2018 learn a vector
    instead, whose product with the query is added; that costs a product per row and distance, and this none.

    Source: Shaw et al. 2018 (clipped distances); Liu et al. 2021 (a number for each).

    >>> from regard.language.expr import score
    >>> Relative(4, 16).score(score)
    score + relative[head, key - query + 16]
    """

    def __init__(self, heads: int, reach: int):
        super().__init__()
        self.reach = count(reach, "Relative", "reach")
        self.weight = torch.nn.Parameter(torch.zeros(count(heads, "Relative", "heads", least=1), 2 * self.reach + 1))

    def score(self, logit: Expr) -> Expr:
        return logit + table(self.weight, "relative")[head, key - query + self.reach]  # reads clamp

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.reach}"
