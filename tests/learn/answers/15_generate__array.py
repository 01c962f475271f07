"""An array of the final size is filled."""

import torch


@torch.no_grad()
def generate(model, tokens, count, context):
    texts, n = tokens.shape
    result = tokens.new_zeros(texts, n + count)
    result[:, :n] = tokens
    was_training = model.training
    model.eval()
    for end in range(n, n + count):
        start = max(0, end - context)
        probabilities = model(result[:, start:end])[:, -1].softmax(dim=-1)
        result[:, end] = probabilities.max(dim=-1).indices
    if was_training:
        model.train()
    return result
