"""Batch and heads as one axis, and a mask of numbers that is added."""

import math

import torch


class MultiHead(torch.nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads, self.d_k = heads, d_model // heads
        self.W_q = torch.nn.Linear(d_model, d_model, bias=False)
        self.W_k = torch.nn.Linear(d_model, d_model, bias=False)
        self.W_v = torch.nn.Linear(d_model, d_model, bias=False)
        self.W_o = torch.nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None, return_weights=False):
        B, n, _ = x.shape

        def heads(layer):
            return layer(x).view(B, n, self.heads, self.d_k).transpose(1, 2).reshape(B * self.heads, n, self.d_k)

        added = torch.zeros(B, self.heads, n, n)
        if mask is not None:
            added = added.masked_fill(mask.logical_not(), -math.inf)
        q, k, v = heads(self.W_q), heads(self.W_k), heads(self.W_v)
        weights = torch.baddbmm(added.view(-1, n, n), q / math.sqrt(self.d_k), k.transpose(1, 2)).softmax(-1)
        joined = (weights @ v).view(B, self.heads, n, self.d_k).transpose(1, 2).reshape(B, n, -1)
        result = self.W_o(joined)
        return (result, weights.view(B, self.heads, n, n)) if return_weights else result
