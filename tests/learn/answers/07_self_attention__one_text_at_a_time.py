"""A loop over the texts; the causal mask is a buffer that is not saved."""

import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k, d_v, dropout=0.0, causal=False, longest=64):
        super().__init__()
        self.W_q, self.W_k = nn.Linear(d_model, d_k, bias=False), nn.Linear(d_model, d_k, bias=False)
        self.W_v, self.W_o = nn.Linear(d_model, d_v, bias=False), nn.Linear(d_v, d_model, bias=False)
        self.attn_dropout = nn.Dropout(p=dropout)
        allowed = torch.tril(torch.ones(longest, longest)) if causal else torch.ones(longest, longest)
        self.register_buffer("allowed", allowed.bool(), persistent=False)

    def one(self, tokens, mask):
        n = len(tokens)
        scores = self.W_q(tokens) @ self.W_k(tokens).T / math.sqrt(self.W_k.weight.shape[0])
        allowed = self.allowed[:n, :n] & mask
        weights = self.attn_dropout(torch.softmax(scores + torch.zeros(n, n).masked_fill(~allowed, -math.inf), dim=1))
        return self.W_o(weights @ self.W_v(tokens)), weights

    def forward(self, x, mask=None, return_weights=False):
        mask = torch.ones(1, dtype=torch.bool) if mask is None else mask
        masks = mask.expand(len(x), x.shape[1], x.shape[1])
        outs, weights = zip(*(self.one(tokens, own) for tokens, own in zip(x, masks)))
        return (torch.stack(outs), torch.stack(weights)) if return_weights else torch.stack(outs)
