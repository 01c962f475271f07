"""Recording: every call of a running model becomes data, and its weights are those that the model used."""

import copy
import functools
import io
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers as T
from PIL import Image
from tokenizers import Tokenizer, models

import regard as rg
from regard.lens import Axis
from regard.lens.look import look
from regard.lens.recording.inputs import _with_image
from regard.lens.recording.keeper import Axes
from regard.torch.hf import attention as hf
from regard.torch.hf.tiny_models import inputs, tiny_model
from tests.observe.heads import H, Heads
from tests.support.hf_models import MODELS, sharpened
from tests.support.lanes import sweep
from tests.support.refusals import refusing
from tests.support.tensors import normal

ALL = MODELS | {
    "gpt2": lambda: tiny_model("gpt2"),
    "bloom": lambda: tiny_model("bloom"),
    "gptj": lambda: tiny_model("gptj", rotary_dim=4),
    "vit": lambda: tiny_model("vit"),
}
IDS = torch.randint(3, 64, (2, 7), generator=torch.Generator().manual_seed(5))
LEFT = torch.ones_like(IDS)
LEFT[1, :2] = 0
OWN = ("bloom", "gptj")  # these attend in code of their own


def built(name, implementation):
    hf.register()
    torch.manual_seed(0)
    model = ALL[name]().eval()
    model = sharpened(model) if name in MODELS else model
    model.config._experts_implementation = "eager"  # the fast one knows no float64
    if name not in OWN:
        model.set_attn_implementation(implementation)
    return model


def inputs_of(model):
    if model.main_input_name == "pixel_values":
        return {"pixel_values": normal(2, 3, 32, 32, seed=6)}
    inputs = {"input_ids": IDS, "attention_mask": LEFT}
    return inputs | ({"decoder_input_ids": IDS.flip(1)[:, :5]} if model.config.is_encoder_decoder else {})


@functools.cache
def eager_weights(name, dtype=torch.float32):
    """What the models' own code returns for the whole batch, in the order in which the calls are made."""
    model = built(name, "eager").to(dtype)
    given = {key: part.to(dtype) if part.is_floating_point() else part for key, part in inputs_of(model).items()}
    with torch.no_grad():
        out = model(**given, output_attentions=True)
    if not model.config.is_encoder_decoder:
        return out.attentions
    decoder = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [*out.encoder_attentions, *itertools.chain(*decoder)]


def agree(ours, exact, allowed, error):
    """Equal, but for rows that may attend nothing: 0 here, an average in the models' own code."""
    seeing = allowed.any(-1, keepdims=True)
    np.testing.assert_allclose(np.where(seeing, ours, 0), np.where(seeing, exact, 0), rtol=0, atol=error)


def implementations(name):
    without_sdpa = {"gemma2": ["regard", "eager"], "gpt-oss": ["regard", "eager"]}
    return ["eager"] if name in OWN else without_sdpa.get(name, ["regard", "sdpa", "eager"])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "implementation"), [(name, each) for name in ALL for each in implementations(name)])
def test_the_weights_of_a_run_are_those_of_the_model(name, implementation):
    """Call by call, on every implementation, the recorded weights are those that the model's own code returns, within
    ten times its own error.
    """
    model = built(name, implementation)
    exact, double = eager_weights(name), eager_weights(name, torch.float64)
    for entry in (0, 1):
        run = look(model, inputs=inputs_of(model), entry=entry)
        assert run.facts["left_out"] == []
        for call, theirs, truth in zip(run.calls, exact, double, strict=True):
            usual = (theirs - truth).abs().nan_to_num().max().item()
            agree(call.weights(), theirs[entry], call.allowed(), 10 * usual + 1e-7)
            assert call.allowed().any() and call.given is None
            assert call.notes["difference"] < 100 * np.finfo(np.float32).eps


def tril(n):
    return torch.ones(n, n).tril().bool()


def plain(q, k, v):
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


def masked(q, k, v):
    s = torch.matmul(q, k.mT).mul(q.shape[-1] ** -0.5)
    return s.masked_fill(~tril(q.shape[2]), float("-inf")).softmax(-1) @ v


def capped(q, k, v):
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.25
    s = 5 * torch.tanh(s / 5)
    return torch.softmax(torch.where(tril(q.shape[2]), s, torch.tensor(-1e30)), dim=-1) @ v


def absolute(q, k, v):
    return (q @ k.mT).abs().softmax(-1) @ v


def clamped(q, k, v):
    """A step that has no rule."""
    return (q @ k.transpose(-2, -1)).clamp(-0.5, 0.5).softmax(-1) @ v


def renormalised(q, k, v):
    """Weights that are changed after the softmax."""
    p = (q @ k.transpose(-2, -1)).softmax(-1) * tril(q.shape[2])
    return p / p.sum(-1, keepdim=True) @ v


def sdpa(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)


def sdpa_biased(q, k, v):
    bias = torch.linspace(-1, 1, len(q) * 64).view(-1, 1, 8, 8)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def of_regard(q, k, v):
    return rg.attention(q, k, v, mask=rg.causal() & rg.window(3), score=rg.softcap(2.0))


RULES = {
    plain: ("None", "None"),
    masked: ("key <= query", "None"),
    capped: ("key <= query", "5.0 * tanh(score / 5.0)"),
    absolute: ("None", "abs(score)"),
    clamped: None,
    renormalised: None,
    sdpa: ("key <= query", "None"),
    sdpa_biased: ("None", "score + bias[query, key]"),
    of_regard: ("(key <= query) & ((query - key < 3) & (key - query <= 0))", "2.0 * tanh(score / 2.0)"),
}


@pytest.mark.parametrize(("attend", "rules"), RULES.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_any_module_is_recorded_with_its_rules(attend, rules):
    """However a module attends, its run has the weights that it used: by its rules, or as they are where a step has no
    rule.
    """
    torch.manual_seed(1)
    module, x = Heads(attend), torch.randn(3, 8, 16) * 3
    with torch.no_grad():  # with the unit vectors as values the output is the weights
        exact = attend(*module.heads(x)[:2], torch.eye(8).expand(3, H, 8, 8)).numpy()
    for entry in (0, 2):
        (call,) = look(module, inputs=x, entry=entry).calls
        np.testing.assert_allclose(call.weights(), exact[entry], atol=1e-6)
        assert call.notes["difference"] < 1e-5 and np.array_equal(call.x, x[entry])
        assert (call.given is None) == (rules is not None)
        if rules is not None:
            assert (str(call.mask), str(call.score)) == rules


def test_models_of_16_bits():
    """q and k are kept as the model had them, and what came out agrees within the rounding of its dtype."""
    for implementation in ("regard", "sdpa", "eager"):
        model = built("llama", implementation).bfloat16()
        for call in look(model, inputs=inputs_of(model), entry=1).calls:
            assert str(call.q.dtype) == call.notes["dtype"] == "bfloat16"
            assert 0 < call.notes["difference"] < 4 * torch.finfo(torch.bfloat16).eps


# What a model writes --------------------------------------------------------------------------------------------------

PROMPTED = [
    ("llama", "sdpa"),
    ("mistral", "regard"),
    ("gpt-oss", "regard"),
    ("t5", "regard"),
    ("bloom", "eager"),
    *sweep(("gemma2", "eager"), ("bart", "sdpa")),
]


@pytest.mark.parametrize(("name", "implementation"), PROMPTED)
def test_rows_that_are_written_step_by_step_are_one_call(name, implementation):
    """The weights of every pass, with a cache, in a batch with padding on the left, are rows of one call over all
    keys.
    """
    model, theirs = built(name, implementation), built(name, "eager")
    prompt = {"input_ids": IDS, "attention_mask": LEFT}
    for each in (model, theirs):
        each.generation_config.eos_token_id = each.generation_config.forced_eos_token_id = None
    out = theirs.generate(**prompt, max_new_tokens=5, output_attentions=True, return_dict_in_generate=True)
    run = look(model, inputs=prompt, entry=1, generate=4)
    assert len(run.steps) == 4
    kinds, axis = {("text", "text"): "attentions"}, run.axes.get("target", run.axes.get("text"))
    if model.config.is_encoder_decoder:
        kinds = {("target", "target"): "decoder_attentions", ("target", "source"): "cross_attentions"}
    assert axis.tokens == tuple(map(str, out.sequences[1, :-1].tolist()))
    for kind, passes in kinds.items():
        calls = [call for call in run.calls if (call.queries, call.keys) == kind]
        for call, *each in zip(calls, *out[passes], strict=True):
            first = 0
            for exact in (part[1].numpy() for part in each):
                _, rows, keys = exact.shape
                part = slice(first, first + rows)
                begin = first + rows - keys if call.queries == call.keys else 0  # a window's cache has dropped keys
                ours = call.weights(rows=part, keys=slice(begin, begin + keys))
                agree(ours, exact, call.allowed(rows=part), 2e-5)
                np.testing.assert_allclose(call.weights(rows=part).sum(-1), ours.sum(-1), atol=1e-12)
                first += rows
            assert first == call.shape[1] and call.notes["difference"] < 1e-5


# Modules that are not transformers' -----------------------------------------------------------------------------------


def test_layers_of_torch():
    """torch's own layers, encoder and cross-attention alike: the weights are those that MultiheadAttention returns."""
    layer = torch.nn.MultiheadAttention(16, 2)
    given = {"query": torch.randn(5, 3, 16)} | dict.fromkeys(("key", "value"), torch.randn(7, 3, 16))
    exact = layer(**given, average_attn_weights=False)[1].detach()
    for wanted in (True, False):
        (call,) = look(layer, inputs={**given, "need_weights": wanted}, entry=2).calls
        np.testing.assert_allclose(call.weights(), exact[2], atol=1e-6)
    model = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()
    run = look(model, inputs=(torch.randn(2, 6, 16), torch.randn(2, 4, 16)), entry=1)
    assert [(call.name, call.shape, call.notes["difference"] < 1e-5) for call in run.calls] == [
        ("encoder.layers.0.self_attn", (2, 6, 6), True),
        ("decoder.layers.0.self_attn", (2, 4, 4), True),
        ("decoder.layers.0.multihead_attn", (2, 4, 6), True),
    ]
    assert run.calls[2].keys == "6 positions"


def test_passes_of_albert_are_layers():
    """A layer that runs several times in one pass is a layer of the run each time: two layers, three times each."""
    model = tiny_model("albert", num_hidden_layers=6, num_hidden_groups=2)
    calls = look(model, inputs={"input_ids": IDS}).calls
    assert [call.layer for call in calls] == [*range(6)] and len({call.name for call in calls}) == 2
    assert [call.layer for call in look(model, inputs={"input_ids": IDS}, layers=[4]).calls] == [4]


def test_words_for_a_module():
    """Tokens are the words of the rows; as many as no call has are refused."""
    run = look(Heads(plain), inputs=torch.randn(1, 3, 16), tokens=["a", "b", "c"])
    assert run.axes["text"].tokens == ("a", "b", "c") and run.calls[0].keys == "text"
    with refusing("the tokens fit no call"):
        look(Heads(plain), inputs=torch.randn(1, 3, 16), tokens=["a", "b"])


@pytest.mark.parametrize("some", [{}, {"sequences": [2, 0]}], ids=["all", "some sequences"])
def test_a_cache_of_regard(some):
    """Rows over what a KVCache holds, with the keys, lengths and positions of the chosen sequence; the batch entries of
    a call for some sequences are these.
    """

    def chunked(x):
        cache = rg.KVCache(heads=2, depth=8, batch=3 if some else 2)
        for part in x.split(4, 2):
            cache.append(part, part, **some)
            cache.attend(part, mask=rg.causal(), **some)

    x = torch.randn(2, 2, 6, 8)
    for entry, exact in enumerate(rg.attention_weights(x, x, mask=rg.causal()).numpy()):
        first, second = look(chunked, inputs=x, entry=entry).calls
        np.testing.assert_allclose(first.weights(), exact[:, :4, :4], atol=1e-6)
        np.testing.assert_allclose(second.weights(), exact[:, 4:], atol=1e-6)


@pytest.mark.parametrize("implementation", ["regard", "sdpa", "eager"])
def test_windows_stand_one_after_the_other(implementation):
    """Attention within windows is one call: its own weights in blocks along the diagonal, nothing between them."""
    config = T.SwinConfig(image_size=16, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4)
    torch.manual_seed(0)
    model, pixels = sharpened(T.SwinModel(config).eval()), torch.randn(2, 3, 16, 16)
    hf.register()
    model.set_attn_implementation(implementation)
    run, seen = look(model, inputs={"pixel_values": pixels}, entry=1), []
    module = look(torch.nn.Sequential(model), inputs=pixels, entry=1)  # whose batch nobody names
    model.set_attn_implementation("eager")
    for layer in (*model.encoder.layers[0].blocks, *model.encoder.layers[1].blocks):
        layer.attention.register_forward_hook(lambda *made: seen.append(made[2][1].detach()))
    model(pixels)
    for call, same, exact in zip(run.calls, module.calls, seen, strict=True):
        own = [torch.block_diag(*head) for head in exact[len(exact) // 2 :].swapaxes(0, 1)]
        np.testing.assert_allclose(call.weights(), np.stack(own), atol=5e-6)
        assert np.array_equal(call.weights(), same.weights())
    assert run.axes[run.calls[0].keys].tokens[17] == "1:1"


@pytest.mark.slow
def test_texts_that_see_pictures():
    """A model that reads a picture beside its text has both axes, and attention from the words to the patches."""
    model = tiny_model("blip")
    given = next(each for each in inputs(model) if {"input_ids", "pixel_values"} <= each.keys())
    run = look(model, inputs=given, entry=1)
    kinds = {(call.queries, call.keys, call.notes["difference"] < 1e-5) for call in run.calls}
    assert kinds == {("patches", "patches", True), ("text", "text", True), ("text", "patches", True)}
    assert run.axes["patches"].grid == (4, 4) and len(run.axes["text"]) == 9


def test_positions_say_what_they_are_of():
    """Rows that are no known words or patches are named after the encoder that has them."""
    axes = Axes({"text": Axis.of(5, name="text")})
    named = {
        "model.visual.blocks.0.attn": "9 positions of the image",
        "model.audio_tower.layers.0.self_attn": "9 positions of the sound",
        "model.layers.0.self_attn": "9 positions",
    }
    for name, found in named.items():
        call = SimpleNamespace(name=name, shape=(1, 9, 9), notes={}, aligned=True)
        assert axes.place(call) == (found, found)
        assert axes.of_layer(name, 9).name == found


def test_image_tokens_of_a_text_lie_on_the_picture():
    """A LLaVA model's image tokens, and those that it generates after, have the patches of the picture that it saw;
    they are no words that come again.
    """
    seeing = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = T.LlavaConfig(
        vision_config=T.CLIPVisionConfig(**seeing, image_size=16, patch_size=4, projection_dim=16),
        text_config=T.LlamaConfig(**seeing, vocab_size=20, num_key_value_heads=1),
        image_token_index=9,
    )
    picture = torch.linspace(0, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
    given = {"input_ids": torch.tensor([[1, *[9] * 16, 3, 4]]), "pixel_values": picture}
    model = T.LlavaForConditionalGeneration(config).eval()
    model.generation_config.eos_token_id = None
    run = look(model, inputs=given, generate=2)
    text = run.axes["text"]
    assert (text.grid, text.image, len(text), run.axes["patches"].grid) == ((4, 4), [*range(1, 17)], 21, (4, 4))
    assert text.picture == run.axes["patches"].picture
    assert not {"duplicate", "induction"} & look(model, inputs=given).calls[-1].rows.keys()
    words = Tokenizer(models.WordLevel({"cat": 2, "<image>": 9}))
    reader = T.PreTrainedTokenizerFast(tokenizer_object=words, image_token="<image>")
    seer = T.models.vit.image_processing_pil_vit.ViTImageProcessorPil(size=16)
    both = T.LlavaProcessor(seer, reader, 4, "default", image_token="<image>", num_additional_image_tokens=1)
    text = look(model, "cat", picture=np.zeros((16, 16, 3), np.uint8), tokenizer=both).axes["text"]
    assert text.image == [*range(16)] and text.tokens[16] == "cat"  # a text that does not say where comes after


@pytest.mark.parametrize("kind", ["tiles", "merged blocks of two sizes", "parts in a higher resolution"])
def test_a_picture_is_put_together_as_the_processor_cut_it(kind):
    """Square tiles and pictures between words lie beside and below each other, in their order; flat patches come in
    blocks that are merged. Of LLaVA-NeXT, the whole picture comes before its parts, each row of which has a token at
    its end.
    """
    colors = np.random.default_rng(0).random((3, 12, 16)).astype(np.float32)
    config = SimpleNamespace(image_token_id=5, vision_config=SimpleNamespace(patch_size=2, spatial_merge_size=2))
    if kind == "tiles":  # InternVL: 3 tiles of 4 × 8 pixels, 1 × 2 tokens each
        shown = [colors[:, 4 * i : 4 * i + 4, :8] for i in range(3)]
        held = {"pixel_values": torch.tensor(np.stack(shown))}
        tiles = [(1, 2, 0, 0), (1, 2, 0, 2), (1, 2, 1, 0)]
        ids = [0, *[5] * 4, 1, 2, 5, 5]
    elif kind == "parts in a higher resolution":  # of a picture of 8 × 16, in a square of 8, and in two of them
        config.image_grid_pinpoints = [[8, 16], [16, 8]]
        small, large = colors[:, :8, :8], colors[:, :8]
        parts = torch.tensor(np.stack([small, large[..., :8], large[..., 8:]]))[None]
        held = {"pixel_values": parts, "image_sizes": torch.tensor([[8, 16]])}
        shown, tiles = [small, large], [(4, 4, 0, 0), (4, 9, 0, 4)]
        ids = [0, *[5] * (16 + 36), 1]
    else:  # Qwen-VL: 6 × 4 and 2 × 8 patches of 2 × 2 pixels, of which 2 × 2 are a token; an image is two frames
        shown = [colors[:, :, :8], colors[:, :4]]
        blocks = [each.reshape(3, each.shape[1] // 4, 2, 2, -1, 2, 2) for each in shown]
        flat = [np.stack([each] * 2, 1).transpose(2, 5, 3, 6, 0, 1, 4, 7).reshape(-1, 24) for each in blocks]
        grids = torch.tensor([[1, 6, 4], [1, 2, 8]])
        held = {"pixel_values": torch.tensor(np.concatenate(flat)), "image_grid_thw": grids}
        tiles = [(3, 2, 0, 0), (1, 4, 0, 2)]
        ids = [0, *[5] * 6, 1, *[5] * 4]
    axis = Axis.of(len(ids), name="text", ids=ids)
    recorded = _with_image(axis, SimpleNamespace(model=SimpleNamespace(config=config), tokenizer=None), held)
    image = np.array(Image.open(io.BytesIO(recorded.picture)), np.float32) / 255
    assert recorded.tiles == tuple(tiles) and recorded.image == [i for i, token in enumerate(ids) if token == 5]
    low, high = min(each.min() for each in shown), max(each.max() for each in shown)
    pixels = shown[0].shape[1] // tiles[0][0]  # of a patch
    for (_, _, top, left), part in zip(tiles, shown, strict=True):
        seen = image[pixels * top :, pixels * left :][: part.shape[1], : part.shape[2]]
        np.testing.assert_allclose(seen, (np.moveaxis(part, 0, -1) - low) / (high - low), atol=0.003)


# What is left as it was -----------------------------------------------------------------------------------------------


def test_a_loaded_model_is_left_as_it_was():
    """Looking changes no implementation, hook, mode, random number or weight of a loaded model."""
    model = built("llama", "sdpa")
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    look(model, inputs={"input_ids": IDS}, generate=2)
    assert model.config._attn_implementation == "sdpa" and model.config.use_cache
    torch.testing.assert_close({**model.state_dict(), "": torch.get_rng_state()}, before | {"": state}, rtol=0, atol=0)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_implementation_that_cannot_be_seen_gives_way_to_regard():
    """Attention in code that nobody can watch is looked at on regard; afterwards the model has its own again."""

    def blind(module, query, key, value, mask, **kwargs):
        with torch._C.DisableTorchFunction():
            out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
            return out.transpose(1, 2), None

    T.AttentionInterface.register("blind", blind)
    T.AttentionMaskInterface.register("blind", T.masking_utils.sdpa_mask)
    model = built("llama", "blind")
    run = look(model, inputs={"input_ids": IDS})
    assert run.facts["implementation"] == ["regard"] and model.config._attn_implementation == "blind"
    for call, theirs in zip(run.calls, look(built("llama", "eager"), inputs={"input_ids": IDS}).calls, strict=True):
        np.testing.assert_allclose(call.weights(), theirs.weights(), atol=2e-5)


def test_calls_that_cannot_be_kept_are_named():
    """What has no place in a run stands in its facts with the reason; the rest is there."""

    def strange(x):
        for each in (x, x.repeat(3, 1, 1, 1)[:5]):
            torch.nn.functional.scaled_dot_product_attention(each, each, each)

    run = look(strange, inputs=torch.randn(2, 2, 4, 8))
    assert len(run.calls) == 1
    (left,) = run.facts["left_out"]
    assert "a batch of 5 in a model with a batch of 2" in left["reason"]


def test_what_falls_out_is_told():
    """A model that is left in training drops weights: the rate is noted where it is told, else the weights that were
    left are kept.
    """
    models = [built("gpt2", implementation).train() for implementation in ("sdpa", "eager")]
    fused, written = (look(model, inputs=inputs_of(model)).calls[0] for model in models)
    assert fused.notes["dropout"] == 0.1 and fused.notes["training"] and "difference" not in fused.notes
    assert written.given is not None and "do not reproduce the weights" in written.notes["unread"]
    assert (written.given[:, -1] == 0).any() and written.notes["difference"] < 1e-5


def test_a_model_that_stops_is_refused():
    """An error in the model's own code becomes a sentence that says what to do; the error stays its cause."""
    with refusing(r"the model stopped with RuntimeError(.|\n)*trace") as caught:
        look(Heads(plain), inputs=torch.randn(1, 8, 15))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(("instead", "said"), [(None, "NaN"), (0.0, "0"), (0.5, "something else")])
def test_rows_that_attend_nothing_are_told(instead, said):
    """What a module gives for rows that may attend nothing is noted: 0, NaN, or something else. (An average:
    test_html.)
    """

    def attend(x):
        p = (x @ x.mT).masked_fill(torch.arange(4)[:, None] == 0, float("-inf")).softmax(-1)
        return (p if instead is None else p.nan_to_num(instead)) @ x

    assert look(attend, inputs=torch.randn(1, 1, 4, 8)).calls[0].notes["empty"] == said
