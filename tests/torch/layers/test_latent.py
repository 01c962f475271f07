"""Latent and differential attention: the numbers of transformers with the same weights, and the bytes that a token
costs.
"""

import copy
import math
import pickle

import pytest
import torch

import regard as rg
from regard.torch.layers import DifferentialAttention, LatentAttention, LatentCache
from regard.torch.positions import Rotary

N, W = 9, 16
SIZES = {"kv_rank": 8, "head_dim": 6, "rope_dim": 4, "value_dim": 5}
NAMES = {
    "q_proj": "q", "q_a_proj": "q.down", "q_a_layernorm": "q.norm", "q_b_proj": "q.up", "kv_a_proj_with_mqa": "kv_down",
    "kv_a_layernorm": "kv_norm", "kv_b_proj": "kv_up", "o_proj": "o",
}  # fmt: skip


def unusual(layer):
    """The layer with no parameter at a special value."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.4)
    return layer


def latent(q_rank=None, dtype=torch.float32):
    torch.manual_seed(0)
    return unusual(LatentAttention(W, 4, q_rank=q_rank, **SIZES)).to(dtype)


@pytest.mark.parametrize("q_rank", [None, 7])
@pytest.mark.parametrize("version", [2, 3])
def test_deepseek_says_the_same(version, q_rank):
    """DeepSeek-V2's and V3's attention with the same weights: output and all gradients."""
    module = pytest.importorskip(f"transformers.models.deepseek_v{version}.modeling_deepseek_v{version}")
    kind = f"DeepseekV{version}"
    config = getattr(module, f"{kind}Config")(
        hidden_size=W,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=q_rank,
        kv_lora_rank=8,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=5,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs, rotary = (
        unusual(getattr(module, f"{kind}Attention")(config, 0)),
        getattr(module, f"{kind}RotaryEmbedding")(config),
    )
    renamed = {}
    for name, value in theirs.state_dict().items():
        module_name, _, parameter = name.rpartition(".")
        renamed[f"{NAMES[module_name]}.{parameter}"] = value
    mine = LatentAttention(W, 4, q_rank=q_rank, **SIZES)
    mine.load_state_dict(renamed)
    x = torch.randn(2, N, W)
    hidden = torch.full((N, N), -math.inf).triu(1)[None, None]

    expected = theirs(x, position_embeddings=rotary(x, torch.arange(N)[None]), attention_mask=hidden)[0]
    found = mine(x, mask=rg.causal())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    expected.square().sum().backward()
    gradients = dict(mine.named_parameters())
    for name, parameter in theirs.named_parameters():
        module_name, _, last = name.rpartition(".")
        torch.testing.assert_close(gradients[f"{NAMES[module_name]}.{last}"].grad, parameter.grad, rtol=1e-3, atol=1e-4)


def test_absorbed_and_parallel_agree():
    """Queries in the latent space over kept rows give the heads' own keys and values, to the last digits of float64,
    with gradients.
    """
    layer, x = latent(dtype=torch.float64), torch.randn(2, N, W, dtype=torch.float64)
    places = torch.arange(N)
    q, kept = layer.queries(x, places), layer.latent(x, places)
    asked = {"mask": rg.causal(), "scale": layer.scale}
    absorbed = layer.from_latent(layer.attend(layer.into_latent(q), kept, kept[..., : layer.kv_rank], **asked))
    parallel = layer.attend(q, *layer.keys_and_values(kept), **asked)
    torch.testing.assert_close(absorbed, parallel)
    used = [parameter for name, parameter in layer.named_parameters() if name != "o.weight"]
    for found, expected in zip(
        *(torch.autograd.grad(form.square().sum(), used, retain_graph=True) for form in (absorbed, parallel))
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype, size", [("float32", 4), ("bfloat16", 2)])
def test_a_token_costs_its_latent_row(dtype, size):
    """kv_rank + rope_dim numbers for each token and no more, whatever the heads; a cache of keys and values holds
    both.
    """
    cache = LatentCache(kv_rank=8, rope_dim=4, dtype=dtype, batch=2, pages=2)
    assert cache.nbytes == 2 * 128 * (8 + 4) * size
    layer = latent().to(getattr(torch, dtype))
    with torch.no_grad():
        layer(torch.randn(2, 128, W).to(getattr(torch, dtype)), mask=rg.causal(), cache=cache)
    assert cache.nbytes == 2 * 128 * (8 + 4) * size and cache.lengths.tolist() == [128, 128]
    assert rg.KVCache(1, 12, 8, dtype=dtype, batch=2, pages=2).nbytes == 2 * 128 * (8 + 4 + 8) * size


@pytest.mark.parametrize("options", [{}, {"window": 40, "storage": "int8"}], ids=str)
def test_the_cache_is_one_like_others(options):
    """It grows, slides, keeps 8 bits, and is copied, pickled and reordered; attention over it is attention over the
    whole.
    """
    layer, x = latent(), torch.randn(2, 140, W)
    cache = LatentCache(8, 4, batch=2, **options)
    with torch.no_grad():
        found = torch.cat([layer(part, mask=rg.causal(), cache=cache) for part in x.split([133, 7], 1)], 1)
        expected = layer(x, mask=rg.causal() & rg.window(options.get("window")))
        torch.testing.assert_close(found, expected, **({"rtol": 0, "atol": 0.1} if options else {}))
        copies = copy.deepcopy(cache), pickle.loads(pickle.dumps(cache)), cache
        first = [layer(x[:, :7], mask=rg.causal(), cache=each) for each in copies]
        assert torch.equal(first[0], first[1]) and torch.equal(first[0], first[2])
        cache.reorder([1, 1])
        again = layer(x[:1, :7].expand(2, -1, -1), mask=rg.causal(), cache=cache)
        assert torch.equal(again[0], again[1])


def test_a_differential_llama_says_the_same():
    """transformers' DiffLlama attention, whose pairs of heads lie half the heads apart, with the same weights."""
    module = pytest.importorskip("transformers.models.diffllama.modeling_diffllama")
    D, H, G, layer = 4, 2, 1, 3
    config = module.DiffLlamaConfig(
        hidden_size=W, num_attention_heads=2 * H, num_key_value_heads=2 * G, attn_implementation="eager"
    )
    torch.manual_seed(0)
    theirs, rotary = unusual(module.DiffLlamaAttention(config, layer)), module.DiffLlamaRotaryEmbedding(config)

    def paired(weight, heads):
        """Rows of head h and of head h + heads, one after the other."""
        return weight.view(2, heads, D, W).transpose(0, 1).reshape(-1, W)

    mine = DifferentialAttention(W, H, G, depth=layer, positions=Rotary(D))
    named = dict(theirs.named_parameters())
    mine.load_state_dict(
        {
            **{name: named[name] for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")},
            **{
                f"{name}.weight": paired(named[f"{name}_proj.weight"], heads)
                for name, heads in (("q", H), ("k", G), ("v", G))
            },
            "o.weight": named["o_proj.weight"],
            "norm.weight": torch.ones(2 * D),
        }
    )
    mine.norm.eps = config.rms_norm_eps
    x, hidden = torch.randn(2, N, W), torch.full((N, N), -math.inf).triu(1)

    expected = theirs(x, rotary(x, torch.arange(N)[None]), hidden[None, None])[0]
    torch.testing.assert_close(mine(x, mask=rg.causal()), expected, rtol=1e-4, atol=1e-5)


def test_differential_is_the_plain_formula():
    """(softmax₁ − λ softmax₂) V per head, normalised and scaled by 1 − λ₀: written out, in float64; λ starts near λ₀ of
    its depth.
    """
    torch.manual_seed(0)
    D, H, depth = 4, 2, 2
    layer = unusual(DifferentialAttention(W, H, depth=depth, bias=True)).double()
    x = torch.randn(2, N, W, dtype=torch.float64)
    first = 0.8 - 0.6 * math.exp(-0.3 * depth)
    mixed = (layer.lambda_q1 @ layer.lambda_k1).exp() - (layer.lambda_q2 @ layer.lambda_k2).exp() + first
    q, k = (part(x).view(2, N, H, 2, D).permute(3, 0, 2, 1, 4) for part in (layer.q, layer.k))
    maps = (q @ k.mT / math.sqrt(D)).softmax(-1)
    rows = (maps[0] - mixed * maps[1]) @ layer.v(x).view(2, N, H, 2 * D).transpose(1, 2)
    rows = rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight * (1 - first)

    torch.testing.assert_close(layer(x), layer.o(rows.transpose(1, 2).reshape(2, N, W)))
    fresh = DifferentialAttention(W, H, depth=depth)
    assert abs(fresh.mixing().item() - first) < 0.2
