"""Each text alone."""

import torch


def one(model, text, count, context):
    for _ in range(count):
        logits = model(text[-context:][None])[0]
        text = torch.cat([text, logits[-1].argmax()[None]])
    return text


def generate(model, tokens, count, context):
    mode = model.training
    model.eval()
    with torch.no_grad():
        out = torch.stack([one(model, text, count, context) for text in tokens])
    model.train(mode)
    return out
