"""Gradients from torch.autograd.grad, and clipping by hand."""

import torch


def step(model, optimizer, tokens):
    model.train()
    parameters = list(model.parameters())
    logs = model(tokens[:, :-1]).log_softmax(-1)
    loss = -logs.gather(-1, tokens[:, 1:, None]).mean()
    gradients = torch.autograd.grad(loss, parameters)
    length = torch.sqrt(sum((each**2).sum() for each in gradients))
    factor = min(1.0, 1.0 / (float(length) + 1e-6))
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient * factor
    optimizer.step()
    return loss.item()
