"""Right answers to the exercises of chapter 17."""

import itertools

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig

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


class Places(Projections):
    """A learned vector for each place."""

    def __init__(self, width, places):
        super().__init__(width)
        self.place = nn.Embedding(places, width)


class fresh__torch_function(Projections):
    """The function of PyTorch."""

    def forward(self, x):
        return scaled_dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x))


class heads__torch_function(Heads):
    """The function of PyTorch, on permuted axes."""

    def forward(self, x):
        batch, n, width = x.shape
        parts = batch, n, self.heads, width // self.heads
        q, k, v = (W(x).reshape(parts).permute(0, 2, 1, 3) for W in (self.W_q, self.W_k, self.W_v))
        out = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.W_o(out.permute(0, 2, 1, 3).reshape(batch, n, width))


class padding__torch_function(Projections):
    """The function of PyTorch with a mask of keys."""

    def forward(self, x, real=None):
        mask = None if real is None else real[:, None, :].expand(-1, x.shape[1], -1)
        return scaled_dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x), attn_mask=mask)


class lowest__nan_to_num(nn.Module):
    """NaN of empty rows is replaced after the softmax."""

    def forward(self, q, k, v, mask=None):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return scores.softmax(-1).nan_to_num() @ v


class dropout__if_training(Projections):
    """The mode decides which weights are used."""

    def __init__(self, width, p):
        super().__init__(width)
        self.p = p

    def forward(self, x):
        weights = (self.W_q(x) @ self.W_k(x).mT / x.shape[-1] ** 0.5).softmax(-1)
        used = F.dropout(weights, self.p) if self.training else weights
        return used @ self.W_v(x), weights


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


def single_head__regard(q, k, v, mask=None, causal=False, scale=None):
    """regard's own attention, with a mask that is stated as an array."""
    allowed = np.tri(len(q), len(k), len(k) - len(q) if causal else len(k), dtype=bool)
    return rg.attention(q, k, v, mask=allowed if mask is None else allowed & mask, scale=scale)


def tests__regard():
    """regard's own attention as the reference."""

    def test_random_calls(attention):
        rng = np.random.default_rng(0)
        for rows, keys in itertools.product((1, 3, 4), (2, 4, 6)):
            q, k, v = (rng.standard_normal(shape) for shape in ((rows, 4), (keys, 4), (keys, keys)))
            v[-1] = np.nan
            mask = rng.random((rows, keys)) < 0.5
            for masked, causal, scale in itertools.product((None, mask), (False, True), (None, 0.0, 1e3)):
                expected = single_head__regard(q, k, v, masked, causal, scale)
                out = attention(q, k, v, mask=masked, causal=causal, scale=scale)
                assert np.allclose(out, expected, equal_nan=True)


def attention__regard(q, k, v, mask=None, causal=False, scale=None):
    """regard's own attention, which takes tensors and arrays."""
    allowed = rg.causal() if causal else rg.everything()
    return rg.attention(q, k, v, mask=allowed if mask is None else allowed & rg.dense(mask), scale=scale)


def llama__torch_function(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """The function of PyTorch."""
    if attention_mask is None:
        attention_mask = torch.ones(query.shape[2], key.shape[2]).bool().tril(key.shape[2] - query.shape[2])
    out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def train__while(attend, text, steps):
    """A while loop, and gradients set to None at its end."""
    AttentionInterface.register("own-attention", attend)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    small = LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=1, **heads)
    model = AutoModelForCausalLM.from_config(small, attn_implementation="own-attention")
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


class block__in_one_product(nn.Module):
    """The layers under their names; the three projections as one product, heads by einsum."""

    def __init__(self, attend, width, heads):
        super().__init__()
        self.attend, self.heads = attend, heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        matrices = torch.stack([W.weight.unflatten(0, (self.heads, -1)) for W in (self.W_q, self.W_k, self.W_v)])
        q, k, v = torch.einsum("bnw,mhdw->mbhnd", self.norm_1(x), matrices)
        attended = self.attend(q, k, v, causal=True)
        together = attended.permute(0, 2, 1, 3).reshape(x.shape)
        half = x + together @ self.W_o.weight.T
        return F.linear(F.gelu(self.up(self.norm_2(half))), self.down.weight, self.down.bias) + half
