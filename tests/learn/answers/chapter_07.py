"""Right answers to the exercises of chapter 7."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention as fused


class Projections(nn.Module):
    """The four matrices."""

    def __init__(self, d_model, d_k, d_v):
        super().__init__()
        self.W_q, self.W_k = nn.Linear(d_model, d_k, bias=False), nn.Linear(d_model, d_k, bias=False)
        self.W_v, self.W_o = nn.Linear(d_model, d_v, bias=False), nn.Linear(d_v, d_model, bias=False)


class self_attention__by_hand(Projections):
    """Softmax and dropout written out."""

    def __init__(self, d_model, d_k, d_v, dropout=0.0, causal=False):
        super().__init__(d_model, d_k, d_v)
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


class self_attention__identity_values(Projections):
    """torch's fused function; the weights are its result for the identity as values."""

    def __init__(self, d_model, d_k, d_v, dropout=0.0, causal=False):
        super().__init__(d_model, d_k, d_v)
        self.drop, self.causal = nn.Dropout(dropout), causal

    def forward(self, x, mask=None, return_weights=False):
        B, n, _ = x.shape
        allowed = torch.ones(B, n, n, dtype=torch.bool, device=x.device)
        allowed = allowed if mask is None else allowed & mask
        allowed = allowed.tril() if self.causal else allowed
        identity = torch.eye(n, dtype=x.dtype, device=x.device).expand(B, n, n)
        weights = self.drop(fused(self.W_q(x), self.W_k(x), identity, attn_mask=allowed))
        out = self.W_o(weights @ self.W_v(x))
        return (out, weights) if return_weights else out


class self_attention__one_text_at_a_time(Projections):
    """A loop over the texts; the causal mask is a buffer that is not saved."""

    def __init__(self, d_model, d_k, d_v, dropout=0.0, causal=False, longest=64):
        super().__init__(d_model, d_k, d_v)
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
