"""`rg.cost`: what is counted without data is what a model with data holds; what cannot be priced is refused;
what fits; inputs of the caller; and figures that others have published.
"""

import copy
import json
import types

import pytest
import torch
import transformers
from torch import nn

import regard as rg
from regard.ledger.cost import built, priced
from regard.ledger.counting.pairs import counted, pairs
from regard.ledger.fit import fit, size
from regard.ledger.measure import measured
from regard.torch.hf.tiny_models import config_class, tiny_config
from tests.support.lanes import by_name
from tests.support.refusals import refusing

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 99}
KINDS = {
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 16},
    "gemma3_text": {"head_dim": 16, "num_key_value_heads": 1, "sliding_window": 8,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "mixtral": {"num_key_value_heads": 2, "num_local_experts": 4},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64, "dropout": 0.0, "max_position_embeddings": 64},
}  # fmt: skip


def small(kind, **more):
    return {"model_type": kind, **({"vocab_size": 99} if kind == "gpt2" else SMALL), **KINDS[kind], **more}


@pytest.mark.spread
@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_without_data_is_held_with_data(kind, phase):
    """Parameters, weights and cache are equal, activations within 2 %; nothing disagrees."""
    made = built(small(kind))
    found = measured(made, priced(made, 40, 2, phase))

    assert found.faults == ()
    assert found.parameters.agree and found.memory.weights.agree
    # Experts of transformers keep other arrays; torch's attention keeps a window as an array, and repeats keys for it.
    if phase == "train" and kind not in ("mixtral", "mistral"):
        assert found.memory.activations.measured == pytest.approx(found.memory.activations.counted, rel=0.02)
    if phase != "train":
        assert found.memory.kv_cache.agree and found.memory.kv_cache.measured, found.memory.kv_cache


def test_a_window_keeps_what_the_next_token_sees():
    """w − 1 rows of keys, at any length."""
    keys = 3 * 2 * 2 * 16 * 4  # layers, keys and values, heads, depth, bytes

    for tokens, phase, rows in ((10, "prefill", 10), (500, "prefill", 15), (500, "decode", 15)):
        assert rg.cost(small("mistral"), tokens=tokens, phase=phase).memory.kv_cache.counted == rows * keys


def test_decode_reads_one_row():
    """One token sees all tokens before it and itself."""
    found = rg.cost(small("llama"), tokens=40, phase="decode", batch=3)

    assert found.layers[1].attention.pairs == 3 * 4 * 41
    assert found.linear.counted == 3 * (rg.cost(small("llama"), tokens=1).linear.counted)


def test_checkpoints():
    """With checkpoints less is held than without, and more than the inputs of the layers."""
    found = rg.cost(small("llama"), tokens=64, phase="train").memory

    assert 3 * 64 * 64 * 4 < found.checkpointed < found.activations.counted


def test_a_mask_replaces_the_models_own():
    """In self-attention of an encoder–decoder, and not between the two."""
    config = {"model_type": "bart", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 99}
    config |= {f"{part}_attention_heads": 2 for part in ("encoder", "decoder")}
    config |= {f"{part}_ffn_dim": 32 for part in ("encoder", "decoder")}
    found = rg.cost(config, tokens=20, mask=rg.causal() & rg.window(5))

    assert [layer.attention.pairs for layer in found.layers] == [2 * (5 * 20 - 10), 2 * (5 * 20 - 10) + 2 * 20 * 20]


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), (torch.float16, 2)])
def test_dtype(dtype, size):
    """Bytes follow the dtype, operations do not."""
    found, usual = rg.cost(small("llama"), tokens=8, dtype=dtype, phase="train"), rg.cost(small("llama"), tokens=8)

    assert found.memory.weights.counted == size * found.parameters.counted
    assert found.memory.optimizer == (8 if size == 4 else 12) * found.parameters.counted
    assert found.forward == usual.forward


def llama(**fields):
    """A small model with data."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**small("llama", **fields)))


def test_a_model_stays_as_it_is():
    """A module with data is copied without it: no hook, no dtype, no implementation of it is changed."""
    model = llama().train()
    before = copy.deepcopy(model.state_dict())

    assert rg.cost(model, tokens=16, phase="decode", dtype="bfloat16").parameters.counted == model.num_parameters()
    assert model.training and model.config._attn_implementation == "sdpa" and model.dtype == torch.float32
    assert not model._forward_hooks and not model.model.layers[0]._forward_pre_hooks
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


class Plain(torch.nn.Module):
    """A model in plain torch: tokens, one attention, tied output, sizes under the name `config`."""

    def __init__(self, positions=1024):
        super().__init__()
        self.config = types.SimpleNamespace(block_size=positions)
        self.tokens, self.mix = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 48, bias=False)
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, idx):
        q, k, v = self.mix(self.tokens(idx)).view(*idx.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(out.transpose(1, 2).flatten(2))


def test_a_plain_module():
    """Attention by torch's function, tied weights once, as many tokens as its own configuration allows."""
    found = rg.cost(Plain(), tokens=10, batch=2, phase="train")
    assert rg.cost(Plain(32)).tokens == 32

    assert found.parameters.counted == found.parameters.formula == 50 * 16 + 16 * 48
    assert found.attention.counted == 2 * 2 * (8 + 8) * 2 * 55
    assert found.linear.formula == found.linear.counted == 2 * 20 * (16 * 48 + 16 * 50)
    assert found.faults == () and {line.part for line in found.lines} >= {"embedding", "attention", "head"}


class Twice(torch.nn.Linear):
    """A layer that multiplies twice: its declared sizes do not say so."""

    def forward(self, x):
        return super().forward(x) + super().forward(2 * x)


def test_tensors_that_a_model_makes_take_no_memory():
    """They have no data, like those that it is given."""

    class Model(torch.nn.Linear):
        def forward(self, x):
            torch.empty(1 << 50)
            return super().forward(x)

    assert rg.cost(Model(4, 5), inputs=torch.ones(3, 4)).linear.counted == 2 * 3 * 4 * 5


def test_meta_a_formula_that_is_wrong_is_a_fault():
    """What ran is compared with what is declared, line by line, and backward."""
    found = rg.cost(torch.nn.Sequential(torch.nn.Linear(8, 8), Twice(8, 8)), tokens=4, phase="train")

    assert len(found.faults) == 2
    assert "operations: formula 512, counted 1,024" in found.faults[0]
    assert "backward" in found.faults[1]


def test_json_is_complete():
    """Every number, as plain data."""
    found = rg.cost(small("llama"), tokens=12, phase="train", machine="h100-sxm", dtype="bfloat16")
    read = json.loads(json.dumps(found.to_json()))

    assert read["parameters"]["counted"] == found.parameters.counted
    assert read["flops"] == found.flops and read["time"]["bound"] == found.time.bound > 0
    assert sum(line["forward"]["counted"] for line in read["lines"]) == found.forward.counted


HEADS = {"hidden_size": 32, "n_layer": 1, "n_head": 2, "vocab_size": 99}
REFUSED = [
    # Before anything is built.
    (small("llama"), {"tokens": 0}, "tokens cannot be used"),
    (small("llama"), {"tokens": "many"}, "tokens cannot be used"),
    (small("llama"), {"batch": True}, "batch cannot be used"),
    (small("llama"), {"tokens": 10**12}, "tokens cannot be used"),
    (small("llama"), {"phase": "training"}, "the phase is unknown"),
    (small("llama"), {"dtype": "int8"}, "the dtype is unknown"),
    (small("llama"), {"machine": "h10"}, "an unknown machine"),
    # With the reason and a way out, never with a traceback of others' code.
    (3, {}, "this is not a model"),
    ("lama", {}, "did you mean 'llama'"),
    ("./missing/config.json", {}, "no such model"),
    ({"hidden_size": 8}, {}, "does not say the type"),
    ({"model_type": "lamma"}, {}, "did you mean 'llama'"),
    ({"model_type": ["llama"]}, {}, "type of the model is unknown"),
    (small("gpt2", n_head=5), {}, "no model can be built"),
    (small("llama", num_attention_heads=0), {}, "no model can be built"),
    (small("llama", hidden_size="64"), {}, "no model can be built"),
    (small("llama", vocab_size=-5), {}, "no model can be built"),
    (small("llama", num_hidden_layers=10**9), {}, "num_hidden_layers = 1,000,000,000"),
    ({"model_type": "llava", "text_config": small("llama", num_hidden_layers=10**9)}, {}, "number of layers"),
    ("vit", {}, "reads no tokens"),
    # Nothing is kept for a next token; Bloom computes its attention itself: a rule would have no effect.
    ({"model_type": "bert"}, {"phase": "decode"}, "the model has no cache"),
    ({"model_type": "bloom", **HEADS}, {"mask": rg.causal()}, "cannot take the place"),
]


@pytest.mark.parametrize("given, options, what", REFUSED)
def test_what_has_no_cost_is_refused(given, options, what):
    """Impossible arguments, and configurations of which no model can be built."""
    with refusing(what):
        rg.cost(given, **{"tokens": 8, **options})


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '{"model_type": "llama"', "\x00\xff"])
def test_damaged_files_are_refused(text, tmp_path):
    """Half a file, no object, no text."""
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))

    for given in (path, tmp_path, str(path)):
        with refusing(r"cannot be read|not a configuration"):
            rg.cost(given, tokens=8)


def test_no_layers():
    """A model of an embedding, a norm and a head."""
    found = rg.cost(small("llama", num_hidden_layers=0), tokens=8)

    assert found.layers == [] and found.linear.counted == 2 * 8 * 64 * 99 and found.memory.kv_cache.counted == 0


def test_a_folder_is_measured_by_its_files(tmp_path):
    """Parameters and bytes of the safetensors files, tied weights once; files that lack a layer are a fault, and a
    damaged file is refused.
    """
    llama(tie_word_embeddings=True).to(torch.float16).save_pretrained(tmp_path)
    found = rg.cost(tmp_path, tokens=8)

    assert found.dtype == "float16" and found.faults == ()
    assert found.parameters.measured == found.parameters.counted
    assert found.memory.weights.measured == found.memory.weights.counted
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {"num_hidden_layers": 4}))
    assert any("in the files" in fault for fault in rg.cost(tmp_path, tokens=8).faults)
    (tmp_path / "model.safetensors").write_bytes(b"half")
    with refusing("not a safetensors file"):
        rg.cost(tmp_path, tokens=8)


LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96  # weights of the linear layers of one small llama layer
QUANTIZED = {
    "gptq": ({"bits": 4, "group_size": 32}, 3 * (LAYER / 2 + LAYER / 32 * 2.5 + 4 * (6 * 64 + 96))),
    "awq": ({"bits": 4, "group_size": 32}, 3 * (LAYER / 2 + LAYER / 32 * 2.5)),
    "fp8": ({"weight_block_size": [32, 32]}, 3 * (LAYER + LAYER / 32**2 * 4)),
    "bitsandbytes": ({"load_in_4bit": True}, 3 * (LAYER / 2 + LAYER / 64 * 4)),
}


@pytest.mark.parametrize("method", QUANTIZED)
def test_quantized_weights(method):
    """Linear layers in the bytes of the format, everything else as before; operations do not change."""
    fields, expected = QUANTIZED[method]
    plain = rg.cost(small("llama"), tokens=8, dtype="float16")
    found = rg.cost(small("llama", quantization_config={"quant_method": method, **fields}), tokens=8, dtype="float16")

    assert found.memory.weights.formula == expected + 2 * (plain.parameters.counted - 3 * LAYER)
    assert found.forward == plain.forward and any("stored as" in note for note in found.notes)


def test_a_model_of_regard():
    """Its attention is noted with its window, in plain torch modules without a configuration of transformers."""
    from regard.models import LanguageModel
    from regard.models.config import Config

    sizes = {"vocabulary": 256, "d_model": 64, "heads": 4, "kv_heads": 2, "layers": 3, "window": 32}
    model = LanguageModel(Config(**sizes, positions="learned", context=64))
    found = rg.cost(model, phase="train")

    pairs = 32 * 64 - 32 * 31 // 2
    assert [layer.attention.pairs for layer in found.layers] == [4 * pairs] * 3
    assert found.attention.counted == 3 * 4 * pairs * 2 * (16 + 16)
    assert found.faults == () and found.notes == ()


class MyAttention(torch.nn.Linear):
    """A module with the word in its name that makes no known call."""

    def forward(self, x):
        return super().forward(x).cumsum(1)


def test_what_is_not_counted_is_said():
    """The bytes of an unknown format, and attention without a known call."""
    strange = small("llama", quantization_config={"quant_method": "strange"})
    for given, said in (
        (strange, "strange is not known"),
        (torch.nn.Sequential(MyAttention(8, 8)), "no call of attention was recognized"),
    ):
        assert any(said in note for note in rg.cost(given, tokens=8).notes)


def test_a_mask_changes_the_work_and_not_the_cache():
    """The model's own cache keeps what it kept; nothing disagrees."""
    found, usual = (rg.cost(small("llama"), tokens=64, mask=mask) for mask in (rg.causal() & rg.window(8), None))

    assert found.faults == () and found.memory.kv_cache == usual.memory.kv_cache
    assert found.layers[0].attention.pairs == 4 * (8 * 64 - 28)


class Own(torch.nn.Module):
    """A model without a configuration, whose parts are registered in some order."""

    def __init__(self, order, name):
        super().__init__()
        parts = {
            "parameter": ("places", torch.nn.Parameter(torch.zeros(1, 64, 32))),
            "places": ("numbers", torch.nn.Embedding(64, 32)),
            "tokens": ("first", torch.nn.Embedding(50, 32)),
            "features": ("first", torch.nn.Linear(24, 32)),
            "body": ("body", torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)),
        }
        for part in order.split():
            setattr(self, *parts[part])
        self.forward = (lambda input_ids: self.run(input_ids)) if name == "input_ids" else (lambda x: self.run(x))

    def run(self, x):
        return self.body(self.first(x))


@pytest.mark.parametrize("name", ["input_ids", "x"])
@pytest.mark.parametrize(
    "order",
    ["parameter tokens body", "body tokens", "places tokens body", "parameter features body", "places features body"],
)
def test_own_models_get_what_they_read(order, name):
    """Tokens or numbers, in whatever order the parts were made and whatever the argument is called."""
    found = rg.cost(Own(order, name).eval(), tokens=64)
    body = 2 * 64 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 2 * 64 * 64 * 32
    assert found.forward.value == body + ("features" in order) * 2 * 64 * 24 * 32


# ---- what fits -------------------------------------------------------------------------------------------------------

FIELDS = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99, "max_position_embeddings": 4096,
}  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
@pytest.mark.parametrize("memory", [900_000, 3_000_000, 20_000_000])
def test_one_more_does_not_fit(phase, memory):
    """The answer fits, and one token or one sequence more does not."""
    made = built(FIELDS)

    def held(tokens, batch):
        return priced(made, tokens, batch, phase).memory.held

    found = fit(made, memory, phase, 32, 2)
    if found.tokens is None:
        assert held(1, 2) > memory
    else:
        assert held(found.tokens, 2) <= memory
        assert found.tokens == 4096 or held(found.tokens + 1, 2) > memory
    if found.batch is None:
        assert held(32, 1) > memory
    else:
        assert held(32, found.batch) <= memory < held(32, found.batch + 1)


def test_nothing_fits():
    """Said with what one token needs."""
    assert "nothing fits: one token needs" in str(fit(built(FIELDS), 1000, "train", 32, 1))


def test_a_window_holds_any_context():
    """A cache of w − 1 keys does not grow, so the model's positions are the limit."""
    made = built(FIELDS | {"model_type": "mistral", "sliding_window": 8})

    assert ": 4,096 tokens, all positions of the model, in 1" in str(fit(made, 1_000_000, "decode", 32, 1))


@pytest.mark.parametrize(
    ("text", "number"),
    {
        "24GB": 24 * 10**9,
        "24 GB": 24 * 10**9,
        "1.5GiB": 3 << 29,
        "80e9": 80 * 10**9,
        "512": 512,
        "2kB": 2000,
    }.items(),
)
def test_sizes(text, number):
    """Powers of 1000, or of 1024 with an i."""
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "24 bananas", "1e999GB", "nan", "0"])
def test_what_is_no_size_is_refused(text):
    """With an example of one."""
    with refusing("24GB"):
        size(text)


# ---- published figures -----------------------------------------------------------------------------------------------

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
@by_name("kind, fields, parameters, active", MODELS)
def test_parameters(kind, fields, parameters, active):
    """All parameters, tied ones once, and those that a token uses."""

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
    with refusing("depends on values"):
        rg.cost("longcat_flash", tokens=16)


# ---- inputs of the caller --------------------------------------------------------------------------------------------


class CrossAttention(nn.Module):
    """Reads two sequences and a mask of the second."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, memory, mask=None):
        return self.attention(x, memory, memory, key_padding_mask=mask)[0]


X, MEMORY = torch.zeros(2, 5, 32), torch.zeros(2, 9, 32)


@pytest.mark.parametrize(
    "inputs", [(X, MEMORY), {"memory": MEMORY, "x": X, "mask": torch.zeros(2, 9, dtype=torch.bool)}]
)
def test_the_inputs_of_the_caller_are_counted(inputs):
    cost = rg.cost(CrossAttention(), inputs=inputs)
    projections = 2 * 32 * 32 * 2 * (5 + 9 + 9 + 5)
    attention = 4 * 32 * 5 * 9 * 2
    assert sum(line.forward.counted for line in cost.lines) == projections + attention
    assert (cost.tokens, cost.batch) == (5, 2)


@pytest.mark.parametrize("name", ["bert", "jetmoe"])
def test_tokens_as_inputs_are_as_many_tokens_and_sequences(name):
    """Also where stand-ins take the place of experts that are chosen by values."""
    config = tiny_config(config_class(name))
    given = rg.cost(config, inputs={"input_ids": torch.zeros(3, 7, dtype=torch.long)})
    assert given.lines == rg.cost(config, tokens=7, batch=3).lines


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "pass inputs"),
        ({"inputs": (X, MEMORY), "batch": 2}, "the inputs have sizes of their own"),
        ({"inputs": (X, MEMORY, None, X)}, "the inputs do not fit the model"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(options, words):
    with refusing(words):
        rg.cost(CrossAttention(), **options)
