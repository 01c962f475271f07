"""Published numbers of known models: parameters, active parameters, operations, cache bytes, pairs of a window."""

import pytest
import transformers  # noqa: F401, without which all is skipped

import regard as rg
from regard.ledger.counting.pairs import counted, pairs

MODELS = {
    "gpt2": ("gpt2", {}, 124_439_808, 124_439_808),
    "gpt2-xl": ("gpt2", {"n_embd": 1600, "n_layer": 48, "n_head": 25}, 1_557_611_200, 1_557_611_200),
    "bert-base": ("bert", {"architectures": ["BertModel"]}, 109_482_240, 109_482_240),
    "bert-large": (
        "bert",
        {
            "architectures": ["BertModel"],
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        335_141_888,
        335_141_888,
    ),
    "llama-2-7b": ("llama", {}, 6_738_415_616, 6_738_415_616),
    "llama-2-70b": (
        "llama",
        {
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
        },
        68_976_648_192,
        68_976_648_192,
    ),
    "llama-3-8b": (
        "llama",
        {"intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256},
        8_030_261_248,
        8_030_261_248,
    ),
    "mistral-7b": ("mistral", {}, 7_241_732_096, 7_241_732_096),
    "mixtral-8x7b": ("mixtral", {}, 46_702_792_704, 12_879_925_248),
    "gemma-2b": ("gemma", {"num_hidden_layers": 18, "hidden_size": 2048, "intermediate_size": 16384,
                           "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 256000},
                 2_506_172_416, 2_506_172_416),
    "t5-small": ("t5", {}, 60_506_624, 60_506_624),
    "vit-base": ("vit", {"architectures": ["ViTForImageClassification"], "num_labels": 1000}, 86_567_656, 86_567_656),
    "deepseek-v3": ("deepseek_v3", {}, 671_026_404_352, 37_552_282_624),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MODELS)
def test_parameters(name):
    """All parameters, tied ones once, and those that a token uses."""
    kind, fields, parameters, active = MODELS[name]

    found = rg.cost({"model_type": kind, **fields}, tokens=None if kind == "vit" else 16)

    assert found.parameters.formula == found.parameters.counted == parameters
    assert found.active == active
    assert found.faults == ()


def test_gpt2_operations():
    """nanoGPT's table for 1024 tokens, which counts every pair."""
    found = rg.cost("gpt2", tokens=1024, mask=rg.everything())

    assert found.forward.formula == found.forward.counted == 291_648_307_200
    assert found.linear.counted == 252_993_601_536
    assert rg.cost("gpt2", tokens=1024).attention.counted == 2 * 2 * 768 * 12 * (1024 * 1025 // 2)


def test_training_is_three_times_the_forward_pass():
    """Every product has two gradients, and attention counts twice its forward pass."""
    found = rg.cost("gpt2", tokens=128, phase="train")

    assert found.backward.formula == found.backward.counted == 2 * found.forward.counted
    assert found.flops == 3 * found.forward.counted
    assert found.done - found.flops == 2 * 12 * (128 * 129 // 2) * 12 * (3 * 64 + 2 * 64 - 2 * 2 * 64)


def test_deepseek_keeps_576_numbers_for_a_token_and_layer():
    """512 of the compressed keys and values, 64 of the rotary key."""
    found = rg.cost("deepseek_v3", tokens=64, dtype="bfloat16")

    assert found.memory.kv_cache.formula == found.memory.kv_cache.counted == 61 * 64 * 576 * 2


def test_grouped_queries_save_bytes_and_no_operations():
    """Llama 3 8B with 8 heads of keys: 131,072 bytes of cache for each token, operations as with 32."""
    fields = {"model_type": "llama", "intermediate_size": 14336, "vocab_size": 128256}
    grouped, full = (rg.cost(fields | {"num_key_value_heads": heads}, tokens=64, dtype="bfloat16") for heads in (8, 32))

    assert grouped.memory.kv_cache.counted == 64 * 131_072
    assert 4 * grouped.memory.kv_cache.counted == full.memory.kv_cache.counted
    assert grouped.attention == full.attention


def test_a_window_is_not_halved():
    """512 keys for each of 2048 rows, fewer for the first 511: 917,760 pairs, 448.1 a row and not 256."""
    rule = rg.causal() & rg.window(512)

    assert pairs(rule, 1, 1, 2048, 2048) == counted(rule, 1, 1, 2048, 2048) == 917_760 == 512 * 2048 - 512 * 511 // 2


def test_chinchilla_rule():
    """6 · N · n operations for training, with N the weights of the matrices, are the linear ones."""
    found = rg.cost({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25}, tokens=1024, phase="train")
    matrices = 48 * 12 * 1600**2 + 50257 * 1600

    assert 3 * found.linear.counted == 6 * matrices * 1024


def test_scores_and_values():
    """DeepSeek: 192 numbers of a key meet a query, 128 of a value are added up, for each of 128 heads and each pair."""
    line = rg.cost("deepseek_v3", tokens=64).layers[0].attention

    assert (line.scores, line.forward.counted - line.scores) == (
        2 * 192 * 128 * (64 * 65 // 2),
        2 * 128 * 128 * (64 * 65 // 2),
    )


@pytest.mark.parametrize(("name", "total", "active"), [("switch_transformers", 1, 8), ("jetmoe", 2, 8)])
def test_experts_that_values_choose(name, total, active):
    """Operations are confirmed on a small model with data; a token uses some of the experts."""
    found = rg.cost(name, tokens=16)
    experts = sum(line.parameters.counted for line in found.lines if line.part in ("experts", "projections"))

    assert found.faults == ()
    assert found.parameters.counted * total // active < found.active < found.parameters.counted
    assert experts > 0


def test_experts_that_do_nothing_are_refused():
    """Some experts of LongCat return what they are given: how many tokens meet one depends on values."""
    with pytest.raises(rg.Refused, match="depends on values"):
        rg.cost("longcat_flash", tokens=16)
