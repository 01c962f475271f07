"""Models: they compute what the models they are named after compute, and what must not matter does not."""

import re

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
)
from regard.models.blocks import Block, FeedForward
from regard.models.config import TextConfig
from regard.models.encoder import Encoder
from regard.models.vision import patches
from regard.torch.layers.attention import Attention
from tests.support.tensors import normal, unusual

SMALL = {"vocabulary": 40, "d_model": 24, "layers": 2, "heads": 4, "context": 32}


def seeded(make, *args, **kwargs):
    torch.manual_seed(0)
    found = make(*args, **kwargs)
    return found.eval() if isinstance(found, nn.Module) else found


def writer(**parts):
    return seeded(LanguageModel, Config(**SMALL | parts))


def drawn(*shape, vocabulary=40, seed=1):
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def written(model):
    """The logits and the loss of a language model."""
    return model(drawn(3, 9), drawn(3, 9, seed=2))


def paired(model):
    return model(drawn(3, 9), drawn(3, 5), drawn(3, 5, seed=2), lengths=[9, 4, 7])


def judged(model):
    return model(drawn(3, 9), torch.tensor([0, 1, 2]), lengths=[9, 4, 7])


def seen(model):
    return model(normal(3, 2, 8, 8), torch.tensor([0, 1, 2]))


PICTURES = {"height": 8, "width": 8, "patch": 4, "channels": 2, "classes": 3, "d_model": 24, "layers": 2}
# One of each kind, and a call that gives its logits and its loss.
MODELS = {
    "gpt": (LanguageModel, Config.gpt(**SMALL), written),
    "llama": (LanguageModel, Config.llama(**SMALL, kv_heads=2, window=5), written),
    "post-norm": (LanguageModel, Config(**SMALL, norm_first=False, feed_forward="gelu"), written),
    "encoder-decoder": (
        EncoderDecoder,
        TranslationConfig(**SMALL, source_vocabulary=40, encoder_layers=1),
        paired,
    ),
    "classifier": (SequenceClassifier, ClassifierConfig(**SMALL, classes=3), judged),
    "first row": (SequenceClassifier, ClassifierConfig(**SMALL, classes=3, pooling="first", window=4), judged),
    "vision": (VisionTransformer, VisionConfig(**PICTURES), seen),
}


def made(kind):
    """A model of a kind, and its call."""
    make, config, call = MODELS[kind]
    return seeded(make, config), call


# ---- the models they are named after ---------------------------------------------------------------------------------

# The names of transformers and of torch, as regular expressions, and ours.
NAMES = {
    r"^(model|transformer|vit)\.": "",
    r"^(layers|h)\.": "stack.blocks.",
    r"multihead_attn\.(.)_proj\.": r"cross.part.\1.",
    r"(self_attn|attn|attention)\.(.)_proj\.": r"attention.part.\2.",
    r"mlp\.(gate|up|down)_proj": r"feed_forward.part.\1",
    r"mlp\.(c_fc|fc1)|linear1": "feed_forward.part.up",
    r"mlp\.(c_proj|fc2)|linear2": "feed_forward.part.down",
    r"input_layernorm|ln_1|layernorm_before|norm1": "attention.norm",
    r"norm2": "cross.norm",
    r"post_attention_layernorm|ln_2|layernorm_after|norm3": "feed_forward.norm",
    r"^(norm|ln_f|layernorm)\.": "stack.norm.",
    r"embed_tokens|wte": "embed.tokens",
    r"wpe": "embed.places",
    r"lm_head": "output",
    r"embeddings\.cls_token": "whole",
    r"embeddings\.position_embeddings": "places.weight",
    r"embeddings\.patch_embeddings\.projection": "embed",
    r"classifier": "head",
}


def copied(ours, theirs):
    """Our model with the weights of theirs, none of which is 0; every one of our own is given."""
    state = {}
    for name, weight in unusual(theirs).state_dict().items():
        weight = weight.mT if ".c_" in name and weight.ndim == 2 else weight  # a Conv1D of GPT-2
        name = name.replace("attn.c_attn.", "attn.in_proj_").replace("attn.c_proj", "attn.out_proj")
        several = "in_proj_" in name  # queries, keys and values in one
        for part, piece in zip("qkv", weight.chunk(3)) if several else [("o", weight)]:
            renamed = name.replace("in_proj_", f"{part}_proj.").replace("out_proj", "o_proj")
            for old, new in NAMES.items():
                renamed = re.sub(old, new, renamed)
            state[renamed] = piece
    own = ours.state_dict()
    assert own.keys() <= state.keys()
    ours.load_state_dict({name: state[name].reshape(tensor.shape) for name, tensor in own.items()})
    return ours.eval()


def llama(T):
    sizes = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 56, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
    rope = {"rope_type": "default", "rope_theta": 500.0}
    theirs = T.LlamaForCausalLM(T.LlamaConfig(**sizes, **heads, rope_parameters=rope))
    return theirs, LanguageModel(Config.llama(**SMALL, kv_heads=2, hidden=56, rotary_base=500.0)), drawn(2, 32)


def gpt2(T):
    theirs = T.GPT2LMHeadModel(T.GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=4, n_positions=32))
    return theirs, LanguageModel(Config.gpt(**SMALL)), drawn(2, 32)


def vit(T):
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    image = {"image_size": [8, 12], "patch_size": 4, "num_channels": 2, "num_labels": 3, "layer_norm_eps": 1e-5}
    theirs = T.ViTForImageClassification(T.ViTConfig(**sizes, **image))
    parts = {"hidden": 48, "norm": "layer", "feed_forward": "gelu", "bias": True}
    return theirs, VisionTransformer(VisionConfig(**PICTURES | {"width": 12}, **parts)), torch.randn(2, 2, 8, 12)


@pytest.mark.parametrize("make", [llama, gpt2, vit])
@torch.no_grad()
def test_logits_are_those_of_transformers(make):
    """With the same weights, logits are off by no more than theirs in float32 are from theirs in float64 (twice, for
    luck); patches by a linear layer are patches by a convolution.
    """
    import transformers

    theirs, ours, given = seeded(make, transformers)
    copied(ours, theirs.eval())
    single, found = theirs(given).logits, ours(given)
    truth = theirs.double()(given.double() if given.is_floating_point() else given).logits

    assert (found - truth).abs().max() <= 2 * (single - truth).abs().max()


@pytest.mark.parametrize("norm_first", [True, False])
def test_blocks_are_those_of_torch(norm_first):
    """A decoder's block with cross-attention is torch.nn.TransformerDecoderLayer: numbers and gradients, norm first or
    last.
    """
    torch.manual_seed(0)
    options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": norm_first}
    theirs = nn.TransformerDecoderLayer(16, 4, 32, **options).double()
    attention, cross = (Attention(16, 4, bias=True) for _ in range(2))
    parts = attention, FeedForward(16, 32, nn.GELU()), lambda: nn.LayerNorm(16)
    ours = copied(Block(*parts, cross=cross, norm_first=norm_first).double(), theirs)
    x, memory = torch.randn(2, 2, 7, 16, dtype=torch.float64, requires_grad=True)
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    found, expected = (
        [out, *torch.autograd.grad(out.square().sum(), (x, memory))]
        for out in (ours(x, memory, mask=rg.causal()), theirs(x, memory, tgt_mask=future))
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


# ---- what must not matter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", ("rotary", "learned", "alibi", "sinusoidal", "none"))
@torch.no_grad()
def test_the_future_never_changes_the_past(positions):
    """Other tokens from position 6 on leave every logit before it as it was, bit for bit; they change those after."""
    model = writer(positions=positions)
    one, other = drawn(2, 12), drawn(2, 12, seed=2)
    other[:, :6] = one[:, :6]
    before, after = model(one), model(other)

    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.isclose(before[:, 6:], after[:, 6:]).all(-1).any()


@torch.no_grad()
def test_a_window_reaches_as_far_as_it_says():
    """One layer with a window of 4: a token changes its own row and the three after it, no other."""
    model = writer(layers=1, window=4)
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
    model, lengths, tokens = made(kind)[0].double(), [9, 4, 7], drawn(3, 9)
    other = torch.where(torch.arange(9) < torch.tensor(lengths)[:, None], tokens, (tokens + 1) % 40)
    given = (drawn(3, 5, seed=2),) if kind == "encoder-decoder" else ()
    found = model(tokens, *given, lengths=lengths)

    assert torch.equal(model(other, *given, lengths=lengths), found)
    for row, length in enumerate(lengths):
        alone = model(tokens[row : row + 1, :length], *(each[row : row + 1] for each in given))
        assert torch.allclose(alone[0], found[row], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("positions", ["rotary", "learned"])
@torch.no_grad()
def test_packed_texts_are_texts(positions, pooling):
    """Texts side by side in one row are judged as each alone; with a mask of documents and positions that begin anew,
    so are the logits of a language model.
    """
    config = ClassifierConfig(**SMALL, positions=positions, classes=3, pooling=pooling)
    judge, model = seeded(SequenceClassifier, config).double(), writer(positions=positions).double()
    texts = [drawn(n, seed=n) for n in (5, 1, 9)]
    whole, places = torch.cat(texts), torch.cat([torch.arange(len(text)) for text in texts])
    packed = model(whole[None], mask=rg.documents(lengths=[5, 1, 9]), positions=places)[0]

    for found, alone in (
        (judge.packed(whole, [5, 1, 9]), [judge(text[None]) for text in texts]),
        (packed, [model(text[None])[0] for text in texts]),
    ):
        assert torch.allclose(found, torch.cat(alone), rtol=0, atol=1e-12)


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
    model = writer()
    tokens, targets = drawn(1, 8), drawn(1, 8, seed=2)
    half = targets.clone()
    half[:, 4:] = -100

    assert torch.allclose(model(tokens, half)[1], model(tokens[:, :4], targets[:, :4])[1])


# ---- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
def test_a_new_model_knows_nothing_and_can_learn(kind):
    """Before training, the loss is that of a guess, the logarithm of how many answers there are; of a tied table, near
    it. Each parameter has a gradient that is not 0; a key's bias shifts all scores of a row alike, so its own is 0
    without rotation.
    """
    model, call = made(kind)
    logits, loss = call(model)
    loss.backward()

    assert abs(loss - np.log(logits.shape[-1])) < (1 if getattr(model.config, "tied", False) else 0.1)
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert name.endswith("part.k.bias") or parameter.grad.abs().max() > 0, name


def test_dropout_falls_in_training_only():
    """Two calls differ in training, are the same in evaluation, and the same again from the same state of torch's
    generator.
    """
    model, tokens = writer(dropout=0.2), drawn(2, 9)
    assert torch.equal(model(tokens), model(tokens))
    torch.manual_seed(3)
    first, second = model.train()(tokens), model(tokens)
    torch.manual_seed(3)

    assert not torch.equal(first, second) and torch.equal(model(tokens), first)


def test_mixed_precision_is_near(recwarn):
    """Under autocast the loss is that of float32 to 16-bit rounding, norms see float32, and gradients are finite."""
    model, call = made("gpt")
    with torch.autocast("cpu", torch.bfloat16):
        _, loss = call(model)
    loss.backward()

    assert loss.dtype == torch.float32 and abs(loss - call(model)[1]) < 2**-6 * loss
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient.isfinite().all() and gradient.dtype == torch.float32 for gradient in gradients)
    assert not [str(warning.message) for warning in recwarn]


@torch.no_grad()
def test_autocast_writes():
    """Caches are made in the dtype that autocast computes in, and in that of a model in 16 bits."""
    model, reading = made("gpt")[0], made("encoder-decoder")[0].reading(drawn(2, 5), lengths=[5, 2])
    with torch.autocast("cpu", torch.bfloat16):
        texts = [generate(each, [[1], [2, 3]], tokens=3, greedy=True) for each in (model, reading)]
        assert {each.dtype.name for each in model.cache(1)} == {"bfloat16"}
    assert {each.dtype.name for each in model.half().cache(1)} == {"float16"}
    texts.append(generate(model, [[1], [2]], tokens=3, greedy=True))

    assert {len(text) for each in texts for text in each} == {3}


# ---- other senses ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_text_attends_to_a_picture():
    """A language model over the patches of a picture; a patch that is masked does not matter."""
    vision = made("vision")[0]
    picture = torch.randn(2, 2, 8, 8)
    other = picture.clone()
    other[:, :, 4:, 4:] += 1  # the last patch
    assert vision.rows(picture).shape == (2, 5, 24)  # four patches and the whole
    model, tokens = seeded(LanguageModel, Config(**SMALL), memory_dim=24), drawn(2, 7)
    patched = vision.embed(patches(picture, 4)), vision.embed(patches(other, 4))
    assert not torch.allclose(*(model(tokens, memory=each) for each in patched))
    assert torch.equal(*(model(tokens, memory=each, memory_mask=rg.lengths(3)) for each in patched))
