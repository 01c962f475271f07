"""Trains one self-attention head with scalar autograd: every row learns to predict the first token of its sequence.

The task requires attending to position 0, which the weights show after training. It takes a few seconds:

    python examples/scalar_training.py
"""

from __future__ import annotations

import itertools
import math
import random

from regard.engines.reference.scalar import SelfAttention, Value, add, causal_mask, matmul, softmax

TOKENS, LENGTH, WIDTH, STEPS, BATCH, RATE = 3, 4, 6, 81, 12, 0.3


def matrix(rows: int, columns: int, draw: random.Random) -> list[list[Value]]:
    return [[Value(draw.gauss(0, 0.5)) for _ in range(columns)] for _ in range(rows)]


def main() -> list[float]:
    draw = random.Random(0)
    embedding, position = matrix(TOKENS, WIDTH, draw), matrix(LENGTH, WIDTH, draw)
    attend, readout = SelfAttention(WIDTH, seed=1), matrix(WIDTH, TOKENS, draw)
    parameters = attend.parameters() + list(itertools.chain(*embedding, *position, *readout))
    mask = causal_mask(LENGTH, LENGTH)

    def predict(tokens):
        """The predicted probabilities of the first token for each row, and the attention weights."""
        Y, A = attend(add([embedding[token] for token in tokens], position), mask)
        return [softmax(row) for row in matmul(Y, readout)], A

    losses = []
    for step in range(STEPS):
        batch = [[draw.randrange(TOKENS) for _ in range(LENGTH)] for _ in range(BATCH)]
        row_losses = [-row[tokens[0]].log() for tokens in batch for row in predict(tokens)[0]]
        loss = sum(row_losses, Value(0.0)) / len(row_losses)
        for parameter in parameters:
            parameter.grad = 0.0
        loss.backward()
        for parameter in parameters:
            parameter.data -= RATE * parameter.grad
        losses.append(loss.data)
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step:3d}   loss {loss.data:.4f}   (random guess: {math.log(TOKENS):.4f})")

    print("\nattention weights of the last sequence (rows: queries, columns: keys):")
    for row in predict(batch[-1])[1]:
        print("  ".join(f"{weight.data:.2f}" for weight in row))
    return losses


if __name__ == "__main__":
    main()
