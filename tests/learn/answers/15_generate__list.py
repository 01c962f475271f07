"""A list of columns, and torch.stack."""

import torch


def generate(model, tokens, count, context):
    before = model.training
    model.eval()
    columns = list(tokens.unbind(1))
    with torch.no_grad():
        while len(columns) < tokens.shape[1] + count:
            logits = model(torch.stack(columns[-context:], dim=1))
            columns.append(torch.argmax(logits[:, -1, :], dim=-1))
    model.train(before)
    return torch.stack(columns, dim=1)
