"""Right answers to the exercises of chapter 17."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import regard as rg


class Projections(nn.Module):
    """The three matrices of an answer that is a module."""

    def __init__(self, width):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))


class Heads(Projections):
    """A fourth matrix, which joins the heads."""

    def __init__(self, width, heads):
        super().__init__(width)
        self.heads = heads
        self.W_o = nn.Linear(width, width, bias=False)


class Weights(Projections):
    """Attention weights, before dropout with this probability."""

    def __init__(self, width, p):
        super().__init__(width)
        self.p = p

    def weights(self, x):
        scores = self.W_q(x) @ self.W_k(x).transpose(-2, -1) / x.shape[-1] ** 0.5
        return scores.softmax(-1)


class Places(Projections):
    """A learned vector for each place."""

    def __init__(self, width, places):
        super().__init__(width)
        self.place = nn.Embedding(places, width)


class fresh__module_dict(nn.Module):
    """Parameters in a loop with setattr, einsum."""

    def __init__(self, width):
        super().__init__()
        for name in ("W_q", "W_k", "W_v"):
            setattr(self, name, nn.Linear(width, width, bias=False))

    def forward(self, x):
        q, k, v = (getattr(self, name)(x) for name in ("W_q", "W_k", "W_v"))
        scores = torch.einsum("bid,bjd->bij", q, k) / q.shape[-1] ** 0.5
        return torch.einsum("bij,bjd->bid", scores.softmax(-1), v)


class Matrix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        return x @ self.weight.T


class fresh__parameters_of_their_own(nn.Module):
    """Layers that inherit from nn.Module, with a parameter each."""

    def __init__(self, width):
        super().__init__()
        self.W_q, self.W_k, self.W_v = Matrix(width), Matrix(width), Matrix(width)

    def forward(self, x):
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        return torch.softmax(q @ k.mT / x.shape[-1] ** 0.5, -1) @ v


class fresh__row_by_row(Projections):
    """A loop over the rows, softmax by hand."""

    def forward(self, x):
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        rows = []
        for row in range(x.shape[1]):
            scores = (k * q[:, row : row + 1]).sum(-1) / math.sqrt(x.shape[-1])
            powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
            rows.append(((powers / powers.sum(-1, keepdim=True))[..., None] * v).sum(1))
        return torch.stack(rows, 1)


class fresh__torch_function(nn.Module):
    """The function of PyTorch."""

    def __init__(self, width):
        super().__init__()
        self.W_q = nn.Linear(width, width, bias=False)
        self.W_k = nn.Linear(width, width, bias=False)
        self.W_v = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return scaled_dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x))


class heads__chunks(Heads):
    """One head after another."""

    def forward(self, x):
        outs = []
        for q, k, v in zip(*(W(x).chunk(self.heads, -1) for W in (self.W_q, self.W_k, self.W_v))):
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
            hidden = torch.arange(x.shape[1]) > torch.arange(x.shape[1])[:, None]
            outs.append(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v)
        return self.W_o(torch.cat(outs, -1))


class heads__einsum(Heads):
    """einsum reads the heads behind the tokens; no axis is exchanged."""

    def forward(self, x):
        n = x.shape[1]
        q, k, v = (W(x).unflatten(2, (self.heads, -1)) for W in (self.W_q, self.W_k, self.W_v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(torch.ones(n, n).bool().triu(1), -torch.inf).softmax(-1)
        return self.W_o(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


class heads__heads_in_the_batch(Heads):
    """Heads become entries of the batch."""

    def forward(self, x):
        batch, n, width = x.shape
        depth = width // self.heads

        def split(y):
            return y.view(batch, n, self.heads, depth).transpose(1, 2).reshape(batch * self.heads, n, depth)

        q, k, v = split(self.W_q(x)), split(self.W_k(x)), split(self.W_v(x))
        scores = torch.bmm(q, k.transpose(1, 2)) * depth**-0.5 + torch.full((n, n), -torch.inf).triu(1)
        out = torch.bmm(scores.softmax(-1), v).view(batch, self.heads, n, depth)
        return self.W_o(out.transpose(1, 2).reshape(batch, n, width))


class heads__torch_function(Heads):
    """The function of PyTorch, on permuted axes."""

    def forward(self, x):
        batch, n, width = x.shape
        parts = batch, n, self.heads, width // self.heads
        q, k, v = (W(x).reshape(parts).permute(0, 2, 1, 3) for W in (self.W_q, self.W_k, self.W_v))
        out = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.W_o(out.permute(0, 2, 1, 3).reshape(batch, n, width))


class padding__added_bias(Projections):
    """A row of 0 and −∞ for the keys, added to the scores."""

    def forward(self, x, real=None):
        scores = self.W_q(x) @ self.W_k(x).transpose(1, 2) / x.shape[-1] ** 0.5
        if real is not None:
            scores = scores + torch.zeros(real.shape).masked_fill(~real, -torch.inf)[:, None]
        return scores.softmax(-1) @ self.W_v(x)


class padding__rows_are_zero(Projections):
    """Padding is hidden as a row, too, and weights that are not allowed are 0."""

    def forward(self, x, real=None):
        if real is None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        allowed = real[:, :, None] & real[:, None, :]
        scores = self.W_q(x) @ self.W_k(x).mT * x.shape[-1] ** -0.5
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1).masked_fill(~allowed, 0) @ self.W_v(x)


class padding__text_by_text(Projections):
    """Each text takes its real keys."""

    def forward(self, x, real=None):
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        outs = []
        for text in range(len(x)):
            seen = slice(None) if real is None else real[text]
            scores = q[text] @ k[text][seen].T / x.shape[-1] ** 0.5
            outs.append(scores.softmax(-1) @ v[text][seen])
        return torch.stack(outs)


class padding__torch_function(Projections):
    """The function of PyTorch with a mask of keys."""

    def forward(self, x, real=None):
        mask = None if real is None else real[:, None, :].expand(-1, x.shape[1], -1)
        return scaled_dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x), attn_mask=mask)


class lowest__by_hand(nn.Module):
    """The softmax by hand: its maximum and its sum are replaced in empty rows."""

    def forward(self, q, k, v, mask=None):
        scores = torch.einsum("bid,bjd->bij", q, k) / q.shape[-1] ** 0.5
        allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
        largest = scores.masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
        largest = largest.masked_fill(largest == -torch.inf, 0)
        powers = torch.exp(scores.masked_fill(~allowed, -torch.inf) - largest)
        total = powers.sum(-1, keepdim=True)
        return powers / total.masked_fill(total == 0, 1) @ v


class lowest__empty_rows_apart(nn.Module):
    """Empty rows are set to 0 at the end; before, they may attend to everything."""

    def forward(self, q, k, v, mask=None):
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if mask is None:
            return torch.softmax(scores, -1) @ v
        empty = ~mask.any(-1, keepdim=True)
        out = scores.masked_fill(~(mask | empty), -torch.inf).softmax(-1) @ v
        return out.masked_fill(empty, 0)


class lowest__nan_to_num(nn.Module):
    """NaN of empty rows is replaced after the softmax."""

    def forward(self, q, k, v, mask=None):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return scores.softmax(-1).nan_to_num() @ v


class lowest__rows(nn.Module):
    """Row by row with the allowed keys."""

    def forward(self, q, k, v, mask=None):
        if mask is None:
            mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        mask = mask.expand(len(q), q.shape[1], k.shape[1])
        out = []
        for entry in range(len(q)):
            for row, seen in zip(q[entry], mask[entry]):
                scores = k[entry][seen] @ row / len(row) ** 0.5
                out.append(scores.softmax(0) @ v[entry][seen])
        return torch.stack(out).view(len(q), q.shape[1], v.shape[2])


class dropout__bernoulli(Weights):
    """A mask of 0 and 1 / (1 − p), which is all ones in evaluation mode."""

    def forward(self, x):
        weights = self.weights(x)
        rate = self.p * self.training
        mask = torch.full_like(weights, 1 - rate).bernoulli() / (1 - rate)
        return (weights * mask) @ self.W_v(x), weights


class dropout__by_hand(Weights):
    """Random numbers by hand."""

    def forward(self, x):
        weights = self.weights(x)
        kept = weights
        if self.training:
            kept = weights * (torch.rand_like(weights) >= self.p) / (1 - self.p)
        return torch.einsum("bij,bjd->bid", kept, self.W_v(x)), weights


class dropout__if_training(Weights):
    """The mode decides which weights are used."""

    def forward(self, x):
        weights = self.weights(x)
        used = F.dropout(weights, self.p) if self.training else weights
        return used @ self.W_v(x), weights


class dropout__layer(Weights):
    """nn.Dropout, made once."""

    def __init__(self, width, p):
        super().__init__(width, p)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        weights = self.weights(x)
        return self.drop(weights) @ self.W_v(x), weights


class cache__einsum(Places):
    """einsum, and a mask of numbers that is added."""

    def forward(self, x, cache=None):
        start = len(cache[0][0]) if cache else 0
        rows = x.shape[1]
        x = x + self.place(torch.arange(rows) + start)
        new = [self.W_k(x), self.W_v(x)]
        k, v = [torch.cat(pair, 1) for pair in zip(cache, new)] if cache else new
        added = torch.full((rows, start + rows), -torch.inf).triu(start + 1)
        scores = torch.einsum("bid,bjd->bij", self.W_q(x), k) / x.shape[-1] ** 0.5 + added
        return torch.einsum("bij,bjd->bid", scores.softmax(-1), v), (k, v)


class cache__empty_cache(Places):
    """Without a cache one begins with an empty one."""

    def forward(self, x, cache=None):
        if cache is None:
            cache = (x[:, :0], x[:, :0])
        first, rows = cache[0].shape[1], x.shape[1]
        x = x + self.place.weight[first : first + rows]
        k, v = torch.cat([cache[0], self.W_k(x)], 1), torch.cat([cache[1], self.W_v(x)], 1)
        hidden = torch.arange(first + rows) > torch.arange(first, first + rows)[:, None]
        scores = self.W_q(x) @ k.mT / x.shape[-1] ** 0.5
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v, (k, v)


class cache__token_by_token(Places):
    """One token after another: then no mask is needed."""

    def forward(self, x, cache=None):
        k, v = (None, None) if cache is None else cache
        outs = []
        for token in x.split(1, 1):
            position = 0 if k is None else k.shape[1]
            token = token + self.place(torch.tensor([position]))
            new = self.W_k(token), self.W_v(token)
            k, v = new if k is None else (torch.cat([k, new[0]], 1), torch.cat([v, new[1]], 1))
            scores = self.W_q(token) @ k.transpose(1, 2) / x.shape[-1] ** 0.5
            outs.append(scores.softmax(-1) @ v)
        return torch.cat(outs, 1), (k, v)


class cache__torch_function(Places):
    """The function of PyTorch with a mask."""

    def forward(self, x, cache=None):
        past = 0 if cache is None else cache[0].size(1)
        positions = torch.arange(past, past + x.size(1))
        x = x + self.place(positions)
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        if past:
            k, v = torch.cat((cache[0], k), dim=1), torch.cat((cache[1], v), dim=1)
        mask = positions[:, None] >= torch.arange(k.size(1))
        return scaled_dot_product_attention(q, k, v, attn_mask=mask), (k, v)


def table(rows, keys, mask, causal):
    allowed = np.tri(rows, keys, keys - rows, dtype=bool) if causal else np.full((rows, keys), True)
    return allowed if mask is None else np.logical_and(allowed, mask)


def mixed(query, keys, values, factor):
    if not len(keys):
        return np.zeros(values.shape[1])
    logs = keys @ query * factor
    logs = logs - np.logaddexp.reduce(logs)
    return np.exp(logs) @ values


def single_head__parts(q, k, v, mask=None, causal=False, scale=None):
    """Three functions."""
    factor = np.sqrt(1 / q.shape[-1]) if scale is None else scale
    allowed = table(len(q), len(k), mask, causal)
    return np.stack([mixed(row, k[seen], v[seen], factor) for row, seen in zip(q, allowed)])


def single_head__scalars(q, k, v, mask=None, causal=False, scale=None):
    """Scalars in loops."""
    rows, keys = len(q), len(k)
    if scale is None:
        scale = q.shape[1] ** -0.5
    out = np.zeros((rows, v.shape[1]))
    for i in range(rows):
        seen = [j for j in range(keys) if (mask is None or mask[i, j]) and (not causal or j <= i + keys - rows)]
        scores = [sum(a * b for a, b in zip(q[i], k[j])) * scale for j in seen]
        powers = [np.exp(score - max(scores)) for score in scores]
        for power, j in zip(powers, seen):
            out[i] += power / sum(powers) * v[j]
    return out


def single_head__streaming(q, k, v, mask=None, causal=False, scale=None):
    """Key after key, with a maximum and a sum that are corrected."""
    rows, keys = len(q), len(k)
    factor = 1 / q.shape[1] ** 0.5 if scale is None else scale
    out = []
    for row in range(rows):
        largest, total, summed = -np.inf, 0.0, np.zeros(v.shape[1])
        for key in range(keys):
            if mask is not None and not mask[row, key]:
                continue
            if causal and key > row + keys - rows:
                break
            score = q[row] @ k[key] * factor
            new = max(largest, score)
            shrink, power = np.exp(largest - new), np.exp(score - new)
            total, summed, largest = total * shrink + power, summed * shrink + power * v[key], new
        out.append(summed / total if total else summed)
    return np.array(out).reshape(rows, v.shape[1])


def single_head__whole_arrays(q, k, v, mask=None, causal=False, scale=None):
    """Without a loop: infinite maxima and sums of 0 are replaced, forbidden values and scores are 0."""
    allowed = np.ones((len(q), len(k)), bool) if mask is None else mask
    if causal:
        allowed = allowed & (np.arange(len(k)) <= np.arange(len(q))[:, None] + len(k) - len(q))
    scale = 1 / np.sqrt(q.shape[1]) if scale is None else scale
    scores = np.where(allowed, q @ k.T * scale, -np.inf)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(-1, keepdims=True)
    weights = powers / np.where(total == 0, 1, total)
    return (weights[..., None] * np.where(allowed[..., None], v, 0)).sum(1)


def tests__by_hand_and_properties():
    """Small numbers that one can compute, and properties."""

    LOG3 = np.log(3.0)

    def test_the_scale(attention):
        q, k, v = np.array([[2 * LOG3, 0, 0, 0]]), np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]]), np.array([[1.0], [5.0]])
        assert np.allclose(attention(q, k, v), [[2.0]])  # score log 3: weights 3/4 and 1/4
        assert np.allclose(attention(q, k, v, scale=0.5), [[2.0]])
        assert np.allclose(attention(q, k, v, scale=0), [[3.0]])
        assert np.allclose(attention(q, k, v, scale=0.25), [[(3**0.5 + 5) / (3**0.5 + 1)]])
        assert np.allclose(attention(q, k, v, scale=1.0), [[(9 * 1 + 5) / 10]])

    def test_more_rows(attention):
        q, k, v = np.array([[LOG3], [0.0], [-LOG3]]), np.array([[1.0], [0.0]]), np.array([[1.0, 0], [5.0, 4]])
        assert np.allclose(attention(q, k, v), [[2, 1], [3, 2], [4, 3]])

    def test_masks(attention):
        q, k, v = np.array([[LOG3], [-LOG3]]), np.array([[1.0], [0.0], [2.0]]), np.array([[1.0], [5.0], [100.0]])
        mask = np.array([[True, True, False], [False, False, False]])
        assert np.allclose(attention(q, k, v, mask), [[2], [0]])
        assert np.allclose(attention(q, k, v, np.array([[True, False, False], [False, False, True]])), [[1], [100]])
        assert np.allclose(attention(q, k, v, np.array([[True, True, True], [True, True, False]]), True), [[2], [4]])

    def test_causal(attention):
        rng = np.random.default_rng(0)
        q, k, v = rng.standard_normal((2, 3)), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
        out = attention(q, k, v, causal=True)
        assert np.allclose(out[0], attention(q[:1], k[:3], v[:3])[0])
        assert np.allclose(out[1], attention(q[1:], k, v)[0])
        one = np.eye(3)
        assert np.allclose(attention(one, one, 3 * one, causal=True)[0], [3, 0, 0])

    def test_nothing_leaks(attention):
        q, k, v = np.ones((2, 1)), np.ones((3, 1)), np.array([[1.0], [3.0], [np.nan]])
        assert attention(q, k, v, causal=True)[0] == 2

    def test_forbidden_scores_are_large(attention):
        q, k, v = np.array([[1.0]]), np.array([[0.0], [1000.0]]), np.array([[1.0], [5.0]])
        assert attention(q, k, v, np.array([[True, False]])) == 1
        assert attention(q, k, v) == 5

    def test_which_array_is_which(attention):
        q, k, v = np.random.default_rng(1).standard_normal((3, 3, 3))
        powers = np.exp(q @ k.T / 3**0.5)
        assert np.allclose(attention(q, k, v), powers @ v / powers.sum(1, keepdims=True))


def tests__regard():
    """regard's own attention as the reference."""

    def expected(q, k, v, mask=None, causal=False, scale=None):
        if causal:
            rows, keys = len(q), len(k)
            below = np.tril(np.ones((rows, keys), bool), keys - rows)
            mask = below if mask is None else mask & below
        four = (each[None, None] for each in (q, k, v))
        return rg.attention(*four, mask=None if mask is None else mask[None, None], scale=scale)[0, 0]

    def test_random_calls(attention):
        for seed in range(8):
            rng = np.random.default_rng(seed)
            rows, keys, depth, width = rng.integers(1, 7, 4) if seed % 2 else (4, 4, 4, 4)
            q, k, v = (rng.standard_normal(shape) for shape in ((rows, depth), (keys, depth), (keys, width)))
            mask = rng.random((rows, keys)) < 0.5
            for named in (
                {},
                {"mask": mask},
                {"causal": True},
                {"mask": mask, "causal": True},
                {"scale": 0.7},
                {"scale": 0.0},
            ):
                assert np.allclose(attention(q, k, v, **named), expected(q, k, v, **named))

    def test_large_numbers(attention):
        q, k, v = 100 * np.random.default_rng(0).standard_normal((3, 4, 4))
        assert np.allclose(attention(q, k, v), expected(q, k, v))

    def test_nan(attention):
        q, k, v = np.random.default_rng(0).standard_normal((3, 3, 2))
        clean = attention(q, k, v, causal=True)
        v[2] = np.nan
        assert np.allclose(attention(q, k, v, causal=True)[:2], clean[:2])


def attention__softmax_by_hand(q, k, v, mask=None, causal=False, scale=None):
    """The softmax written out; functions for each step."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    k, v = shared(k, q.shape[1]), shared(v, q.shape[1])
    allowed = allowed_pairs(q, k, mask, causal)
    w = weights((q * scale) @ k.transpose(2, 3), allowed)
    return (w[..., None] * v[:, :, None].masked_fill(~allowed[..., None], 0)).sum(3)


def shared(x, heads):
    return x[:, torch.arange(heads, device=x.device) * x.shape[1] // heads]


def allowed_pairs(q, k, mask, causal):
    rows, keys = q.shape[2], k.shape[2]
    allowed = torch.full((*q.shape[:3], keys), True, device=q.device)
    if causal:
        positions = torch.arange(keys - rows, keys, device=q.device)
        allowed = allowed & (torch.arange(keys, device=q.device) <= positions[:, None])
    return allowed if mask is None else allowed & mask


def weights(scores, allowed):
    low = scores.masked_fill(~allowed, -math.inf)
    top = low.detach().amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, torch.zeros_like(top), top)
    powers = torch.exp(scores.masked_fill(~allowed, 0) - top).masked_fill(~allowed, 0)
    total = powers.sum(-1, keepdim=True)
    return powers / torch.where(total == 0, torch.ones_like(total), total)


def attention__torch_function(q, k, v, mask=None, causal=False, scale=None):
    """torch's own function on clean inputs, one row of values at a time."""
    rows, keys = q.size(-2), k.size(-2)
    allowed = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
    if causal:
        allowed = allowed.tril(diagonal=keys - rows)
    if mask is not None:
        allowed = torch.logical_and(allowed, mask)
    g = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(g, dim=1), v.repeat_interleave(g, dim=1)
    allowed = allowed.expand(q.size(0), q.size(1), rows, keys)
    # each row becomes a batch entry of one query with keys and values of its own
    own = allowed.reshape(-1, keys, 1)
    each = lambda x: x[:, :, None].expand(-1, -1, rows, -1, -1).reshape(-1, keys, x.size(-1))  # noqa: E731
    clean = [torch.where(own, each(x), 0) for x in (k, v)]
    flat = q.reshape(-1, 1, q.size(-1))
    out = scaled_dot_product_attention(flat, *clean, attn_mask=own.mT, scale=scale)
    out = torch.where(own.any(1, keepdim=True), out, 0)
    return out.view(*q.shape[:-1], v.size(-1))


def llama__finite_fill(module, query, key, value, attention_mask, scaling, **kwargs):
    """As the attention of the model itself: a large negative number, added."""
    group = module.num_key_value_groups
    key = key[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)
    value = value[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)
    rows, keys = query.shape[2], key.shape[2]
    mask = torch.tril(torch.ones(rows, keys), keys - rows).bool() if attention_mask is None else attention_mask
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    weights = torch.softmax(query @ key.mT * scaling + added, dim=-1)
    return torch.matmul(weights, value).permute(0, 2, 1, 3), weights


def llama__grouped(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """The query heads of a group get an axis of their own; no key is copied."""
    batch, heads, rows, depth = query.shape
    q = query.view(batch, key.shape[1], -1, rows, depth)
    scores = torch.einsum("bghid,bgjd->bghij", q, key) * scaling
    if attention_mask is None:
        keys = key.shape[2]
        allowed = torch.arange(keys) <= torch.arange(keys - rows, keys)[:, None]
    else:
        allowed = attention_mask[:, :, None]
    weights = scores.where(allowed, -torch.inf).softmax(-1).nan_to_num()
    out = torch.einsum("bghij,bgjd->bighd", weights, value)
    return out.reshape(batch, rows, heads, depth), weights.flatten(1, 2)


def llama__own_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """The learner's own attention, called with other names."""
    out = attention__softmax_by_hand(query, key, value, attention_mask, attention_mask is None, scaling)
    return out.transpose(1, 2), None


def llama__torch_function(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """The function of PyTorch."""
    if attention_mask is None:
        attention_mask = torch.ones(query.shape[2], key.shape[2]).bool().tril(key.shape[2] - query.shape[2])
    out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def small(**more):
    """A configuration with one layer."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=1, **heads, **more)


class Trainer:
    def __init__(self, attend, text):
        AttentionInterface.register("learner", attend)
        self.model = LlamaForCausalLM(small(attn_implementation="learner")).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, weight_decay=0.01)
        self.windows = torch.tensor(list(text.encode())).unfold(0, 32, 1)

    def step(self):
        chosen = self.windows[torch.randperm(len(self.windows))[:16]]
        self.optimizer.zero_grad()
        self.model(input_ids=chosen, labels=chosen).loss.backward()
        self.optimizer.step()


def train__class(attend, text, steps):
    """A class with a step."""
    trainer = Trainer(attend, text)
    for _ in range(steps):
        trainer.step()
    return trainer.model


def train__labels_by_hand(attend, text, steps):
    """The loss by hand."""
    AttentionInterface.register("own", attend)
    model = LlamaForCausalLM(small())
    model.set_attn_implementation("own")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.tensor(list(text.encode("utf-8")))
    for _ in range(steps):
        starts = torch.randint(len(data) - 32, (16,)).tolist()
        batch = torch.stack([data[start : start + 33] for start in starts])
        logits = model(batch[:, :-1]).logits
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def batches(text, steps):
    data = bytearray(text, "utf-8")
    for _ in range(steps):
        starts = torch.randint(0, len(data) - 31, (16,)).tolist()
        yield torch.tensor([list(data[start : start + 32]) for start in starts])


def train__schedule(attend, text, steps):
    """A learning rate that falls, gradients that are clipped, and a loop that ends by itself."""
    AttentionInterface.register("mine", attend)
    model = LlamaForCausalLM(small())
    model.set_attn_implementation("mine")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.015)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.3, max(steps, 1))
    for batch in batches(text, steps):
        optimizer.zero_grad(set_to_none=True)
        model(batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


def train__while(attend, text, steps):
    """A while loop, and gradients set to None at its end."""
    AttentionInterface.register("own-attention", attend)
    model = AutoModelForCausalLM.from_config(small(), attn_implementation="own-attention")
    optimizer = torch.optim.NAdam(model.parameters(), 0.01)
    tokens = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()
    left = steps
    while left:
        places = torch.randint(0, len(tokens) - 32, (16, 1)) + torch.arange(32)
        x = tokens[places]
        model(x, labels=x).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        left -= 1
    return model
