"""With the gradients of PyTorch."""

import torch


def attention_backward(q, k, v, dout):
    q, k, v = (torch.tensor(each, requires_grad=True) for each in (q, k, v))
    out = ((q @ k.T) / q.shape[1] ** 0.5).softmax(-1) @ v
    return tuple(each.numpy() for each in torch.autograd.grad(out, (q, k, v), torch.tensor(dout)))
