"""A right answer in another style: library sum."""

from regard.engines.reference.scalar import add, apply_attention, attention_scores, causal_mask, softmax


def self_attention(Q, K, V, D, causal):
    table = attention_scores(Q, K, scale=D**-0.5)
    if causal:
        table = add(table, causal_mask(len(Q), len(K)))
    return apply_attention(list(map(softmax, table)), V)
