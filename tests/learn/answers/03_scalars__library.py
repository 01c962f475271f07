"""A right answer in another style: library."""

from regard.engines.reference import scalar


def attention_scores(Q, K, D):
    return scalar.attention_scores(Q, K, scale=1 / D**0.5)
