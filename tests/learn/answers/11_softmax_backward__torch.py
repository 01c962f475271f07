"""With the gradients of PyTorch, through a softmax of the logarithms."""

import torch


def softmax_backward(weights, dweights):
    scores = torch.tensor(weights).log().requires_grad_()
    scores.softmax(-1).backward(torch.tensor(dweights))
    return torch.nan_to_num(scores.grad, 0.0).numpy()
