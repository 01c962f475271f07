"""Right answers to the exercises of chapter 7."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class self_attention__einsum(nn.Module):
    """With einsum, F.dropout and other names."""

    def __init__(self, d_model, d_k, d_v, dropout=0.0, causal=False):
        super().__init__()
        self.rate, self.is_causal = dropout, causal
        for name, size in (("W_q", d_k), ("W_k", d_k), ("W_v", d_v)):
            setattr(self, name, nn.Linear(d_model, size, bias=False))
        self.W_o = nn.Linear(d_v, d_model, bias=False)

    def forward(self, x, mask=None, return_weights=False):
        logits = torch.einsum("bid,bjd->bij", self.W_q(x) * self.W_q.out_features**-0.5, self.W_k(x))
        allowed = torch.ones(logits.shape, dtype=torch.bool, device=x.device)
        if self.is_causal:
            allowed = torch.tril(allowed)
        if mask is not None:
            allowed = allowed & mask
        probabilities = F.softmax(logits.where(allowed, float("-inf")), dim=2)
        probabilities = F.dropout(probabilities, self.rate, training=self.training)
        result = self.W_o(torch.einsum("bij,bjd->bid", probabilities, self.W_v(x)))
        if return_weights:
            return result, probabilities
        return result
