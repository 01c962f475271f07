"""Right answers to the exercises of chapter 8."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def split__cat(x, h):
    """Pieces of columns, stacked behind the batch."""
    return torch.stack(torch.chunk(x, h, dim=-1), dim=1)


def split__einsum(x, h):
    """einsum as a change of axes."""
    return torch.einsum("bnhd->bhnd", x.reshape(*x.shape[:2], h, x.shape[2] // h)).contiguous()


def split__loop(x, h):
    """A loop over the heads."""
    depth = x.size(2) // h
    out = x.new_empty(x.size(0), h, x.size(1), depth)
    for head in range(h):
        out[:, head] = x[:, :, head * depth : (head + 1) * depth]
    return out


def split__unflatten(tokens, number_of_heads):
    """unflatten and movedim."""
    return tokens.unflatten(-1, (number_of_heads, tokens.shape[-1] // number_of_heads)).movedim(2, 1)


def join__cat(x):
    """The heads, concatenated."""
    return torch.cat([x[:, head] for head in range(x.shape[1])], dim=-1)


def join__loops(x):
    """Token by token."""
    batch, heads, n, depth = x.shape
    out = torch.zeros(batch, n, heads * depth, dtype=x.dtype)
    for token in range(n):
        for head in range(heads):
            out[:, token, head * depth : head * depth + depth] = x[:, head, token]
    return out


def join__recursion(x):
    """The first head, and the others joined."""
    first = x[:, 0]
    return first if x.shape[1] == 1 else torch.cat((first, join__recursion(x[:, 1:])), -1)


def join__view(x):
    """A view of a contiguous copy."""
    b, h, n, d = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(b, n, h * d)


class Projections(nn.Module):
    """The four matrices."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = [nn.Linear(d_model, d_model, False) for _ in range(4)]


class multi_head__added_mask(Projections):
    """Batch and heads as one axis, and a mask of numbers that is added."""

    def forward(self, x, mask=None, return_weights=False):
        B, n, width = x.shape
        d_k = width // self.heads

        def heads(layer):
            return layer(x).view(B, n, self.heads, d_k).transpose(1, 2).reshape(B * self.heads, n, d_k)

        added = torch.zeros(B, self.heads, n, n)
        if mask is not None:
            added = added.masked_fill(mask.logical_not(), -math.inf)
        q, k, v = heads(self.W_q), heads(self.W_k), heads(self.W_v)
        weights = torch.baddbmm(added.view(-1, n, n), q / math.sqrt(d_k), k.transpose(1, 2)).softmax(-1)
        joined = (weights @ v).view(B, self.heads, n, d_k).transpose(1, 2).reshape(B, n, -1)
        result = self.W_o(joined)
        return (result, weights.view(B, self.heads, n, n)) if return_weights else result


class multi_head__einsum(Projections):
    """einsum on (batch, n, heads, depth), without moving axes."""

    def forward(self, x, mask=None, return_weights=False):
        B, n, width = x.shape
        q, k, v = (F.linear(x, W.weight).reshape(B, n, self.heads, -1) for W in (self.W_q, self.W_k, self.W_v))
        logits = torch.einsum("bihd,bjhd->bhij", q, k) * (self.heads / width) ** 0.5
        if mask is not None:
            logits = torch.where(mask, logits, torch.tensor(float("-inf")))
        A = F.softmax(logits, dim=-1)
        out = self.W_o(torch.einsum("bhij,bjhd->bihd", A, v).reshape(B, n, width))
        if return_weights:
            return out, A
        return out


class multi_head__loop(nn.Module):
    """One head after another."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.depth = d_model // heads
        for name in "qkvo":
            self.add_module(f"W_{name}", nn.Linear(d_model, d_model, bias=False))

    def forward(self, x, mask=None, return_weights=False):
        heads = x.shape[-1] // self.depth
        allowed = torch.ones(x.shape[0], heads, x.shape[1], x.shape[1], dtype=torch.bool)
        if mask is not None:
            allowed = allowed & mask
        outs, tables = [], []
        parts = (W(x).split(self.depth, dim=-1) for W in (self.W_q, self.W_k, self.W_v))
        for head, (q, k, v) in enumerate(zip(*parts)):
            scores = torch.bmm(q, k.mT) / self.depth**0.5
            weights = torch.softmax(scores.masked_fill(~allowed[:, head], float("-inf")), -1)
            tables.append(weights)
            outs.append(torch.bmm(weights, v))
        out = self.W_o(torch.cat(outs, -1))
        return (out, torch.stack(tables, 1)) if return_weights else out


class multi_head__sum_over_heads(Projections):
    """The sum of what each head contributes through its columns of W_o."""

    def forward(self, x, mask=None, return_weights=False):
        split = lambda y: torch.stack(y.chunk(self.heads, -1), 1)  # noqa: E731
        q, k, v = split(self.W_q(x)), split(self.W_k(x)), split(self.W_v(x))
        scores = (q @ k.mT) * q.size(-1) ** -0.5
        exps = (scores - scores.detach().amax(-1, keepdim=True)).exp()
        exps = exps if mask is None else exps * mask
        weights = exps / exps.sum(-1, keepdim=True)
        each = torch.stack(self.W_o.weight.chunk(self.heads, 1))  # (heads, d_model, depth)
        out = (weights @ v @ each.mT).sum(1)
        return (out, weights) if return_weights else out


def repeat_kv__expand(k, g):
    """expand and reshape, as in transformers."""
    b, heads, n, d = k.shape
    return k[:, :, None, :, :].expand(b, heads, g, n, d).reshape(b, heads * g, n, d)


def repeat_kv__index(k, g):
    """The number of the key head of each query head."""
    return k[:, torch.arange(k.shape[1] * g) // g]


def repeat_kv__kron(k, g):
    """Stacked copies, flattened."""
    return torch.stack([k] * g, dim=2).flatten(start_dim=1, end_dim=2)


def repeat_kv__list(keys, times):
    """A list of heads."""
    return torch.stack([head for head in keys.unbind(1) for _ in range(times)], 1)


def attention__grouped_einsum(q, k, v, mask=None, causal=False, scale=None):
    """Groups as an axis of their own, without copies of the keys."""
    B, H, n, D = q.shape
    G, m = k.shape[1:3]
    grouped = q.reshape(B, G, H // G, n, D)
    ok = q.new_ones(n, m, dtype=torch.bool)
    ok = torch.tril(ok, m - n) if causal else ok
    ok = (ok if mask is None else ok & mask).expand(B, H, n, m).reshape(B, G, H // G, n, m)
    s = torch.einsum("bghid,bgjd->bghij", grouped, k)
    s = s * (D**-0.5 if scale is None else scale)
    s = torch.where(ok, s, -torch.inf)
    w = torch.where(ok, torch.softmax(s, -1), 0)
    values = torch.where(ok[..., None], v[:, :, None, None], 0)
    return torch.einsum("bghij,bghije->bghie", w, values).reshape(B, H, n, v.shape[-1])


def attention__rows(q, k, v, mask=None, causal=False, scale=None):
    """One row after another, with the keys that it may attend to."""
    B, H, rows, D = q.shape
    G, keys = k.shape[1], k.shape[2]
    scale = D**-0.5 if scale is None else scale
    allowed = torch.ones(B, H, rows, keys, dtype=torch.bool, device=q.device)
    if causal:
        allowed = allowed & (torch.arange(keys) <= torch.arange(rows)[:, None] + keys - rows).to(q.device)
    if mask is not None:
        allowed = allowed & mask
    out = []
    for b in range(B):
        for h in range(H):
            group = h * G // H
            for row in range(rows):
                seen = allowed[b, h, row]
                weights = torch.softmax(k[b, group, seen] @ q[b, h, row] * scale, 0)
                out.append(weights @ v[b, group, seen])
    if not out:
        return q.new_zeros(B, H, rows, v.shape[-1])
    return torch.stack(out).view(B, H, rows, v.shape[-1])
