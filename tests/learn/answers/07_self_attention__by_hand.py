"""Softmax and dropout written out."""

import torch


class SelfAttention(torch.nn.Module):
    def __init__(self, d_model, d_k, d_v, dropout=0.0, causal=False):
        torch.nn.Module.__init__(self)
        self.W_q = torch.nn.Linear(d_model, d_k, bias=False)
        self.W_k = torch.nn.Linear(d_model, d_k, bias=False)
        self.W_v = torch.nn.Linear(d_model, d_v, bias=False)
        self.W_o = torch.nn.Linear(d_v, d_model, bias=False)
        self.p, self.causal, self.d_k = dropout, causal, d_k

    def softmax(self, scores):
        exps = torch.exp(scores - scores.amax(-1, keepdim=True))
        return exps / exps.sum(-1, keepdim=True)

    def drop(self, weights):
        if not self.training or self.p == 0:
            return weights
        keep = torch.rand(weights.shape) > self.p
        return weights * keep / (1 - self.p)

    def forward(self, x, mask=None, return_weights=False):
        n = x.size(1)
        scores = torch.bmm(self.W_q(x), self.W_k(x).permute(0, 2, 1)) / self.d_k**0.5
        if self.causal:
            later = torch.arange(n)[None, :] > torch.arange(n)[:, None]
            scores = scores.masked_fill(later, float("-inf"))
        if mask is not None:
            scores = scores.masked_fill(torch.logical_not(mask), float("-inf"))
        weights = self.drop(self.softmax(scores))
        out = self.W_o(torch.bmm(weights, self.W_v(x)))
        return (out, weights) if return_weights else out
