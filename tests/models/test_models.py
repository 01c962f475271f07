"""Models: they compute what the models they are named after compute, and what must not matter does not."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import regard as rg
from regard.models import (
    ClassifierConfig,
    Config,
    EncoderDecoder,
    LanguageModel,
    SequenceClassifier,
    TranslationConfig,
    VisionConfig,
    VisionTransformer,
    generate,
    load,
    save,
)
from regard.models.blocks import Block, FeedForward
from regard.models.config import TextConfig
from regard.models.encoder import Encoder
from regard.models.vision import patches
from regard.torch.layers.attention import Attention

SMALL = {"vocabulary": 40, "d_model": 24, "layers": 2, "heads": 4, "context": 32}
POSITIONS = ("rotary", "learned", "alibi", "sinusoidal", "none")


def seeded(make, *args, **kwargs):
    torch.manual_seed(0)
    return make(*args, **kwargs).eval()


def drawn(*shape, vocabulary=40, seed=1):
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def models():
    """One of each kind, and a call that gives its loss."""
    tokens, targets = drawn(3, 9), drawn(3, 9, seed=2)
    label = torch.tensor([0, 1, 2])
    images = torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(3))
    gpt = seeded(LanguageModel, Config.gpt(**SMALL))
    llama = seeded(LanguageModel, Config.llama(**SMALL, kv_heads=2, window=5))
    post = seeded(LanguageModel, Config(**SMALL, norm_first=False, feed_forward="gelu"))
    pair = seeded(EncoderDecoder, TranslationConfig(**SMALL, source_vocabulary=40, encoder_layers=1))
    mean = seeded(SequenceClassifier, ClassifierConfig(**SMALL, classes=3))
    first = seeded(SequenceClassifier, ClassifierConfig(**SMALL, classes=3, pooling="first", window=4))
    vision = seeded(
        VisionTransformer, VisionConfig(height=8, width=8, patch=4, channels=2, classes=3, d_model=24, layers=2)
    )
    return {
        "gpt": (gpt, lambda model: model(tokens, targets)),
        "llama": (llama, lambda model: model(tokens, targets)),
        "post-norm": (post, lambda model: model(tokens, targets)),
        "encoder-decoder": (pair, lambda model: model(tokens, tokens[:, :5], targets[:, :5], lengths=[9, 4, 7])),
        "classifier": (mean, lambda model: model(tokens, label, lengths=[9, 4, 7])),
        "first row": (first, lambda model: model(tokens, label, lengths=[9, 4, 7])),
        "vision": (vision, lambda model: model(images, label)),
    }


KINDS = tuple(models())


def copied(own: nn.Module, given: dict):
    """The model with these weights; every one of its own has to be given."""
    assert own.state_dict().keys() == given.keys()
    with torch.no_grad():
        for name, tensor in own.state_dict().items():
            tensor.copy_(given[name])
    return own


# ---- the models they are named after ---------------------------------------------------------------------------------


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    theirs = seeded(
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=40,
            hidden_size=24,
            intermediate_size=56,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
    )
    state, given = theirs.state_dict(), {}
    given["embed.tokens.weight"], given["output.weight"] = state["model.embed_tokens.weight"], state["lm_head.weight"]
    given["stack.norm.weight"] = state["model.norm.weight"]
    for layer in range(2):
        block, their = f"stack.blocks.{layer}.", f"model.layers.{layer}."
        for part in "qkvo":
            given[f"{block}attention.part.{part}.weight"] = state[f"{their}self_attn.{part}_proj.weight"]
        for part in ("gate", "up", "down"):
            given[f"{block}feed_forward.part.{part}.weight"] = state[f"{their}mlp.{part}_proj.weight"]
        given[f"{block}attention.norm.weight"] = state[f"{their}input_layernorm.weight"]
        given[f"{block}feed_forward.norm.weight"] = state[f"{their}post_attention_layernorm.weight"]
    return theirs, copied(LanguageModel(Config.llama(**SMALL, kv_heads=2, hidden=56, rotary_base=500.0)).eval(), given)


def transposed(weight):
    """What a Conv1D of GPT-2 keeps, as a Linear does."""
    return weight.mT if weight.ndim == 2 else weight


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = seeded(GPT2LMHeadModel, GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=4, n_positions=32))
    with torch.no_grad():
        for weight in theirs.parameters():
            weight += 0.1 * torch.randn_like(weight)  # biases begin as 0, and would be compared with nothing
    state = theirs.transformer.state_dict()
    given = {"embed.tokens.weight": state["wte.weight"], "embed.places.weight": state["wpe.weight"]}
    names = {
        "attn.c_proj": "attention.part.o",
        "mlp.c_fc": "feed_forward.part.up",
        "mlp.c_proj": "feed_forward.part.down",
    }
    for kind in ("weight", "bias"):
        given[f"stack.norm.{kind}"] = state[f"ln_f.{kind}"]
        for layer in range(2):
            block, their = f"stack.blocks.{layer}.", f"h.{layer}."
            for part, theirs_part in zip("qkv", state[f"{their}attn.c_attn.{kind}"].chunk(3, dim=-1)):
                given[f"{block}attention.part.{part}.{kind}"] = transposed(theirs_part)
            for theirs_part, part in names.items():
                given[f"{block}{part}.{kind}"] = transposed(state[f"{their}{theirs_part}.{kind}"])
            for theirs_part, part in {"ln_1": "attention", "ln_2": "feed_forward"}.items():
                given[f"{block}{part}.norm.{kind}"] = state[f"{their}{theirs_part}.{kind}"]
    return theirs, copied(LanguageModel(Config.gpt(**SMALL)).eval(), given)


@pytest.mark.parametrize("make", [llama, gpt2])
@torch.no_grad()
def test_logits_are_those_of_transformers(make):
    """With the same weights, logits are off by no more than theirs in float32 are from theirs in float64 (twice, for
    luck).
    """
    theirs, ours = make()
    tokens = drawn(2, 32)
    single, found = theirs(tokens).logits, ours(tokens)
    truth = theirs.double()(tokens).logits

    assert (found - truth).abs().max() <= 2 * (single - truth).abs().max()


@torch.no_grad()
def test_a_vision_transformer_is_that_of_transformers():
    """Patches by a linear layer are patches by a convolution; the rest is ViT's, weights and all."""
    from transformers import ViTConfig, ViTForImageClassification

    theirs = seeded(
        ViTForImageClassification,
        ViTConfig(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            image_size=[8, 12],
            patch_size=4,
            num_channels=2,
            num_labels=3,
            layer_norm_eps=1e-5,
        ),
    )
    for weight in theirs.parameters():
        weight += 0.1 * torch.randn_like(weight)
    config = VisionConfig(
        height=8,
        width=12,
        patch=4,
        channels=2,
        classes=3,
        d_model=24,
        layers=2,
        hidden=48,
        norm="layer",
        feed_forward="gelu",
        bias=True,
    )
    ours = VisionTransformer(config).eval()
    images = torch.randn(2, 2, 8, 12)
    state = list(theirs.state_dict().items())
    assert [tuple(tensor.shape) for name, tensor in state][:4] == [(1, 1, 24), (1, 7, 24), (24, 2, 4, 4), (24,)]
    given = dict(zip(("whole", "places.weight", "embed.weight", "embed.bias"), (tensor for _, tensor in state)))
    given["embed.weight"] = given["embed.weight"].flatten(1)
    words = {
        "query": "attention.part.q",
        "key": "attention.part.k",
        "value": "attention.part.v",
        "attention.output.dense": "attention.part.o",
        "q_proj": "attention.part.q",
        "k_proj": "attention.part.k",
        "v_proj": "attention.part.v",
        "o_proj": "attention.part.o",
        "intermediate.dense": "feed_forward.part.up",
        "output.dense": "feed_forward.part.down",
        "fc1": "feed_forward.part.up",
        "fc2": "feed_forward.part.down",
        "layernorm_before": "attention.norm",
        "layernorm_after": "feed_forward.norm",
    }
    for name, tensor in state[4:]:
        path, kind = name.rsplit(".", 1)
        if path.endswith("vit.layernorm"):
            given[f"stack.norm.{kind}"] = tensor
        elif path == "classifier":
            given[f"head.{kind}"] = tensor
        else:
            layer = next(part for part in path.split(".") if part.isdigit())
            part = next(words[word] for word in words if path.endswith(word))
            given[f"stack.blocks.{layer}.{part}.{kind}"] = tensor
    copied(ours, {name: tensor.reshape(ours.state_dict()[name].shape) for name, tensor in given.items()})
    single, found = theirs(images).logits, ours(images)
    truth = theirs.double()(images.double()).logits

    assert (found - truth).abs().max() <= 2 * (single - truth).abs().max()


@pytest.mark.parametrize("norm_first", [True, False])
def test_blocks_are_those_of_torch(norm_first):
    """A decoder's block with cross-attention is torch.nn.TransformerDecoderLayer: numbers and gradients, norm first or
    last.
    """
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(
        16, 4, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    ).double()
    ours = Block(
        Attention(16, 4, bias=True),
        FeedForward(16, 32, nn.GELU()),
        lambda: nn.LayerNorm(16),
        cross=Attention(16, 4, bias=True),
        norm_first=norm_first,
    ).double()
    with torch.no_grad():
        for residual, attention, norm in (
            (ours.attention, theirs.self_attn, theirs.norm1),
            (ours.cross, theirs.multihead_attn, theirs.norm2),
        ):
            residual.norm.load_state_dict(norm.state_dict())
            residual.part.o.load_state_dict(attention.out_proj.state_dict())
            for own, weight, bias in zip(
                (residual.part.q, residual.part.k, residual.part.v),
                attention.in_proj_weight.chunk(3),
                attention.in_proj_bias.chunk(3),
            ):
                own.weight.copy_(weight)
                own.bias.copy_(bias)
        ours.feed_forward.norm.load_state_dict(theirs.norm3.state_dict())
        ours.feed_forward.part.up.load_state_dict(theirs.linear1.state_dict())
        ours.feed_forward.part.down.load_state_dict(theirs.linear2.state_dict())
    x, memory = torch.randn(2, 2, 7, 16, dtype=torch.float64)
    inputs = x.requires_grad_(), memory.requires_grad_()
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    expected, found = theirs(*inputs, tgt_mask=future), ours(*inputs, mask=rg.causal())
    slope = torch.randn_like(expected)

    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    for own, their in zip(torch.autograd.grad(found, inputs, slope), torch.autograd.grad(expected, inputs, slope)):
        assert torch.allclose(own, their, rtol=0, atol=1e-12)


def test_patches_are_those_of_a_convolution():
    """Rows of pixels times a matrix are a convolution whose stride is its size."""
    images, weight = torch.randn(2, 3, 8, 12, dtype=torch.float64), torch.randn(5, 3, 4, 4, dtype=torch.float64)

    expected = nn.functional.conv2d(images, weight, stride=4).flatten(2).transpose(1, 2)
    assert torch.allclose(patches(images, 4) @ weight.flatten(1).T, expected, rtol=0, atol=1e-12)


# ---- what must not matter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("window", [None, 4])
@torch.no_grad()
def test_the_future_never_changes_the_past(positions, window):
    """Other tokens from position 6 on leave every logit before it as it was, bit for bit; they change those after."""
    model = seeded(LanguageModel, Config(**SMALL, positions=positions, window=window))
    one, other = drawn(2, 12), drawn(2, 12, seed=2)
    other[:, :6] = one[:, :6]
    before, after = model(one), model(other)

    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.isclose(before[:, 6:], after[:, 6:]).all(-1).any()


@torch.no_grad()
def test_a_window_reaches_as_far_as_it_says():
    """One layer with a window of 4: a token changes its own row and the three after it, no other."""
    model = seeded(LanguageModel, Config(**SMALL | {"layers": 1}, window=4))
    one = drawn(1, 12)
    other = one.clone()
    other[0, 5] = (one[0, 5] + 1) % 40

    assert (model(one) != model(other)).any(-1)[0].nonzero()[:, 0].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("kind", ["encoder-decoder", "classifier", "first row"])
@torch.no_grad()
def test_padding_changes_nothing(kind):
    """Whatever stands behind the end of a text: every number stays, bit for bit; and without padding it is the same but
    for rounding.
    """
    model = models()[kind][0].double()
    lengths = [9, 4, 7]
    tokens, text = drawn(3, 9), drawn(3, 5, seed=2)
    other = tokens.clone()
    for row, length in enumerate(lengths):
        other[row, length:] = (tokens[row, length:] + 1) % 40
    given = (text,) if kind == "encoder-decoder" else ()
    found = model(tokens, *given, lengths=lengths)

    assert torch.equal(model(other, *given, lengths=lengths), found)
    for row, length in enumerate(lengths):
        alone = model(tokens[row : row + 1, :length], *(each[row : row + 1] for each in given))
        assert torch.allclose(alone[0], found[row], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("positions", ["rotary", "learned"])
@torch.no_grad()
def test_packed_texts_are_texts(positions, pooling):
    """Texts side by side in one row are judged as each alone."""
    model = seeded(
        SequenceClassifier, ClassifierConfig(**SMALL, positions=positions, classes=3, pooling=pooling)
    ).double()
    texts = [drawn(n, seed=n) for n in (5, 1, 9)]
    found = model.packed(torch.cat(texts), [5, 1, 9])

    assert torch.allclose(found, torch.cat([model(text[None]) for text in texts]), rtol=0, atol=1e-12)


@torch.no_grad()
def test_packed_documents_are_texts_for_a_language_model():
    """With a mask of documents and positions that begin anew, logits are those of each text alone."""
    model = seeded(LanguageModel, Config.gpt(**SMALL)).double()
    texts = [drawn(n, seed=n) for n in (5, 1, 9)]
    places = torch.cat([torch.arange(len(text)) for text in texts])
    found = model(torch.cat(texts)[None], mask=rg.documents(lengths=[5, 1, 9]), positions=places)

    assert torch.allclose(found[0], torch.cat([model(text[None])[0] for text in texts]), rtol=0, atol=1e-12)


@torch.no_grad()
def test_without_positions_an_encoder_knows_no_order():
    """Permuted tokens give permuted rows; with positions they do not."""
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    tokens = drawn(2, 12)
    for positions in ("none", "rotary", "learned", "sinusoidal"):
        model = seeded(Encoder, TextConfig(**SMALL, positions=positions)).double()
        same = torch.allclose(model(tokens)[:, order], model(tokens[:, order]), rtol=0, atol=1e-12)
        assert same == (positions == "none"), positions


@torch.no_grad()
def test_targets_that_do_not_count():
    """A target of -100 is left out of the mean."""
    model = seeded(LanguageModel, Config(**SMALL))
    tokens, targets = drawn(1, 8), drawn(1, 8, seed=2)
    half = targets.clone()
    half[:, 4:] = -100

    assert torch.allclose(model(tokens, half)[1], model(tokens[:, :4], targets[:, :4])[1])


# ---- training --------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_every_parameter(kind):
    """Each parameter has a gradient that is not 0; a key's bias shifts all scores of a row alike, so its own is 0
    without rotation.
    """
    model, call = models()[kind]
    call(model)[1].backward()

    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        if not name.endswith("part.k.bias"):
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("kind", ["gpt", "llama", "vision"])
def test_a_model_learns_one_batch_by_heart(kind):
    """Forty steps of Adam on one batch bring the loss near 0."""
    model, call = models()[kind]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        loss = call(model.train())[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    assert loss < 0.05


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_new_model_knows_nothing(kind):
    """Before training, the loss is that of a guess, the logarithm of how many answers there are; of a tied table, near
    it.
    """
    model, call = models()[kind]
    logits, loss = call(model)

    assert abs(loss - np.log(logits.shape[-1])) < (1 if getattr(model.config, "tied", False) else 0.1)


def test_dropout_falls_in_training_only():
    """Two calls differ in training, are the same in evaluation, and the same again from the same state of torch's
    generator.
    """
    model = seeded(LanguageModel, Config(**SMALL, dropout=0.2))
    tokens = drawn(2, 9)
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    state = torch.get_rng_state()
    first, second = model(tokens), model(tokens)
    torch.set_rng_state(state)

    assert not torch.equal(first, second)
    assert torch.equal(model(tokens), first)


@pytest.mark.sweep
def test_a_compiled_model_is_the_model():
    """torch.compile takes it as one graph; loss and gradients have the same bits."""
    model = seeded(LanguageModel, Config(**SMALL | {"layers": 1}, window=5, positions="alibi", softcap=20.0))
    tokens, targets = drawn(2, 9), drawn(2, 9, seed=2)
    found = []
    for call in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        _, loss = call(tokens, targets)
        found.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))

    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("kind", ["gpt", "vision"])
def test_mixed_precision_is_near(kind, recwarn):
    """Under autocast the loss is that of float32 to 16-bit rounding, norms see float32, and gradients are finite."""
    model, call = models()[kind]
    with torch.autocast("cpu", torch.bfloat16):
        _, loss = call(model)
    loss.backward()

    assert loss.dtype == torch.float32 and abs(loss - call(model)[1]) < 2**-6 * loss
    assert all(
        parameter.grad.isfinite().all() and parameter.grad.dtype == torch.float32 for parameter in model.parameters()
    )
    assert not [str(warning.message) for warning in recwarn]


@torch.no_grad()
def test_autocast_writes():
    """Caches are made in the dtype that autocast computes in, and in that of a model in 16 bits."""
    model, reading = models()["gpt"][0], models()["encoder-decoder"][0].reading(drawn(2, 5), lengths=[5, 2])
    with torch.autocast("cpu", torch.bfloat16):
        texts = (
            generate(model, [[1], [2, 3]], tokens=3, greedy=True),
            generate(reading, [[1], [2, 3]], tokens=3, greedy=True),
        )
        assert {each.dtype.name for each in model.cache(1)} == {"bfloat16"}
    assert {each.dtype.name for each in model.half().cache(1)} == {"float16"}

    assert [[len(text) for text in each] for each in (*texts, generate(model, [[1], [2]], tokens=3, greedy=True))] == [
        [3, 3]
    ] * 3


# ---- copies and files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_copy_is_the_model(kind, tmp_path):
    """Copied, pickled, loaded from a state_dict or from a file, it gives the same bits."""
    model, call = models()[kind]
    fresh = type(model)(model.config).eval()
    assert not torch.equal(call(fresh)[0], call(model)[0])
    fresh.load_state_dict(model.state_dict())
    save(tmp_path, model)

    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), fresh, load(tmp_path).model):
        assert torch.equal(call(other)[0], call(model)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_is_plain_data(kind):
    """Through JSON and back it is equal, and hashes alike."""
    config = models()[kind][0].config
    again = type(config).from_dict(json.loads(json.dumps(config.to_dict())))

    assert again == config and hash(again) == hash(config)


# ---- other senses ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_text_attends_to_a_picture():
    """Rows of text over the patches of a picture: as a layer and as a language model; a patch that is masked does not
    matter.
    """
    vision = models()["vision"][0]
    picture = torch.randn(2, 2, 8, 8)
    other = picture.clone()
    other[:, :, 4:, 4:] += 1  # the last patch
    text, memory = torch.randn(2, 5, 16), vision.rows(picture)
    assert memory.shape == (2, 5, 24)  # four patches and the whole
    layer = seeded(Attention, 16, 4, memory_dim=24)
    weights = rg.attention_weights(
        *(part.reshape(2, -1, 4, 4).transpose(1, 2) for part in (layer.q(text), layer.k(memory)))
    )
    values = layer.v(memory).reshape(2, 5, 4, 4).transpose(1, 2)
    assert torch.allclose(layer(text, memory=memory), layer.o((weights @ values).transpose(1, 2).flatten(2)), atol=1e-6)

    writer = seeded(LanguageModel, Config(**SMALL), memory_dim=24)
    tokens = drawn(2, 7)
    patched = vision.embed(patches(picture, 4)), vision.embed(patches(other, 4))
    assert not torch.allclose(*(writer(tokens, memory=each) for each in patched))
    assert torch.equal(*(writer(tokens, memory=each, memory_mask=rg.lengths(3)) for each in patched))
