"""Latent and differential attention: the numbers of transformers with the same weights, and the bytes that a token
costs.
"""

import copy
import math
import pickle

import pytest
import torch
from torch.testing import assert_close

import regard as rg
from regard.torch.layers import DifferentialAttention, LatentAttention, LatentCache
from tests.support.tensors import unusual

CAUSAL = rg.causal()

N, W = 9, 16
SIZES = {"kv_rank": 8, "head_dim": 6, "rope_dim": 4, "value_dim": 5}
HIDDEN = torch.full((N, N), -math.inf).triu(1)[None, None]
KINDS = "Config", "Attention", "RotaryEmbedding"
NAMES = {
    "q_proj": "q", "q_a_proj": "q.down", "q_a_layernorm": "q.norm", "q_b_proj": "q.up", "kv_a_proj_with_mqa": "kv_down",
    "kv_a_layernorm": "kv_norm", "kv_b_proj": "kv_up", "o_proj": "o",
}  # fmt: skip


def latent(dtype=torch.float32):
    torch.manual_seed(0)
    return unusual(LatentAttention(W, 4, **SIZES)).to(dtype)


@pytest.mark.parametrize("q_rank", [None, 7])
@pytest.mark.parametrize("version", [2, 3])
def test_deepseek_says_the_same(version, q_rank):
    """DeepSeek-V2's and V3's attention with the same weights: output and all gradients."""
    module = pytest.importorskip(f"transformers.models.deepseek_v{version}.modeling_deepseek_v{version}")
    Config, Theirs, Rotary = (getattr(module, f"DeepseekV{version}{kind}") for kind in KINDS)
    ranks = {"q_lora_rank": q_rank, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    config = Config(hidden_size=W, **heads, **ranks, attn_implementation="eager")
    torch.manual_seed(0)
    theirs = unusual(Theirs(config, 0))
    renamed = {}
    for name in theirs.state_dict():
        part, _, parameter = name.rpartition(".")
        renamed[name] = f"{NAMES[part]}.{parameter}"
    mine = LatentAttention(W, 4, q_rank=q_rank, **SIZES)
    mine.load_state_dict({renamed[name]: value for name, value in theirs.state_dict().items()})
    x, places = torch.randn(2, N, W), torch.arange(N)[None]

    expected = theirs(x, position_embeddings=Rotary(config)(x, places), attention_mask=HIDDEN)[0]
    found = mine(x, mask=CAUSAL)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    expected.square().sum().backward()
    gradients = dict(mine.named_parameters())
    for name, parameter in theirs.named_parameters():
        assert_close(gradients[renamed[name]].grad, parameter.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype, size", [("float32", 4), ("bfloat16", 2)])
def test_a_token_costs_its_latent_row(dtype, size):
    """kv_rank + rope_dim numbers for each token and no more, whatever the heads."""
    cache, real = LatentCache(kv_rank=8, rope_dim=4, dtype=dtype, batch=2, pages=2), getattr(torch, dtype)
    with torch.no_grad():
        latent(dtype=real)(torch.randn(2, 128, W, dtype=real), mask=CAUSAL, cache=cache)
    assert cache.nbytes == 2 * 128 * (8 + 4) * size and cache.lengths.tolist() == [128, 128]
    assert f"8 + 4 numbers, {dtype}; lengths [128, 128], {cache.nbytes:,} bytes" in repr(cache)


@pytest.mark.parametrize("options", [{}, {"window": 40, "storage": "int8"}], ids=str)
@torch.no_grad()
def test_the_cache_is_one_like_others(options):
    """It grows, slides, keeps 8 bits, and is copied, pickled and reordered; attention over it is attention over the
    whole.
    """
    layer, x, cache = latent(), torch.randn(2, 140, W), LatentCache(8, 4, batch=2, **options)

    def more(rows, cache=cache):
        return layer(rows, mask=CAUSAL, cache=cache)

    found = torch.cat([more(part) for part in x.split([133, 7], 1)], 1)
    expected = layer(x, mask=CAUSAL & rg.window(options.get("window")))
    assert_close(found, expected, rtol=1e-4, atol=0.1 if options else 1e-5)
    copies = copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))
    first = more(x[:, :7])
    assert all(torch.equal(more(x[:, :7], each), first) for each in copies)
    cache.reorder([1, 1])
    again = more(x[:1, :7].expand(2, -1, -1))
    assert torch.equal(again[0], again[1])


def test_differential_is_the_plain_formula():
    """(softmax₁ − λ softmax₂) V per head, normalised and scaled by 1 − λ₀: written out, in float64; λ starts near λ₀ of
    its depth.
    """
    torch.manual_seed(0)
    D, H, depth = 2, 4, 2
    layer = unusual(DifferentialAttention(W, H, 2, depth=depth, bias=True)).double()
    x = torch.randn(2, N, W, dtype=torch.float64)
    first = 0.8 - 0.6 * math.exp(-0.3 * depth)
    mixed = (layer.lambda_q1 @ layer.lambda_k1).exp() - (layer.lambda_q2 @ layer.lambda_k2).exp() + first
    q, k = (part(x).view(2, N, -1, 2, D).permute(3, 0, 2, 1, 4) for part in (layer.q, layer.k))
    maps = (q @ k.repeat_interleave(2, 2).mT / math.sqrt(D)).softmax(-1)
    values = layer.v(x).view(2, N, -1, 2 * D).transpose(1, 2).repeat_interleave(2, 1)
    rows = (maps[0] - mixed * maps[1]) @ values
    rows = rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight * (1 - first)

    assert_close(layer(x), layer.o(rows.transpose(1, 2).reshape(2, N, W)))
    assert abs(DifferentialAttention(W, H, depth=depth).mixing().item() - first) < 0.2
