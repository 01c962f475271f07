"""Positions equal their formulas and transformers' numbers, and mean what they say: distances, not places."""

import pickle
import runpy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import regard as rg
from regard.language.expr import score as the_score
from regard.torch import attention
from regard.torch.positions import (
    NTK,
    ALiBi,
    Buckets,
    DynamicNTK,
    Learned,
    LongRoPE,
    Relative,
    Rotary,
    Sinusoidal,
    YaRN,
)
from tests import ROOT
from tests.support.lanes import by_name
from tests.support.refusals import refused_in, refusing
from tests.support.tensors import compiled, normal

DEPTH, TRAINED = 16, 64


# ---- added to the tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d_model", [1, 7, 8])
def test_sinusoidal_positions_are_those_of_the_paper(d_model):
    """Component 2i is the sine, 2i + 1 the cosine of p / 10000^(2i/d), at near and far positions."""
    places, component = torch.tensor([0, 1, 50, 1_000_003]), np.arange(d_model)
    angles = places.numpy()[:, None] / 10000.0 ** (component // 2 * 2 / d_model)
    ours = Sinusoidal(d_model).embed(torch.zeros(1, 4, d_model, dtype=torch.float64), places)

    assert np.allclose(ours[0].numpy(), np.where(component % 2, np.cos(angles), np.sin(angles)), atol=1e-9)


@pytest.mark.parametrize("kind", [Sinusoidal(8), Learned(20, 8)], ids=["sinusoidal", "learned"])
def test_positions_are_added_to_the_tokens_of_each_entry(kind):
    """Entries of a batch that stand elsewhere get what they would get alone; row p of a table is added at place p."""
    x, places = normal(2, 3, 8), torch.tensor([[0, 1, 2], [7, 7, 0]])
    alone = torch.cat([kind.embed(x[b : b + 1], places[b]) for b in range(2)])

    assert torch.equal(kind.embed(x, places), alone)
    assert not torch.equal(alone[0], alone[1])
    if isinstance(kind, Learned):
        assert torch.equal(alone[1], x[1] + kind.weight[places[1]])


# ---- rotary ----------------------------------------------------------------------------------------------------------

ORIGINAL = {"original_max_position_embeddings": TRAINED}
YARN = {"rope_type": "yarn", "factor": 4.0, **ORIGINAL}
CONFIGS = {
    "default": {"rope_type": "default"},
    "a part of each head": {"rope_type": "default", "partial_rotary_factor": 0.25},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": YARN,
    "yarn, its options": YARN
    | {"mscale": 0.7, "mscale_all_dim": 0.3, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    "yarn, a factor of its own": YARN | {"attention_factor": 0.9},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "longrope": {
        "rope_type": "longrope",
        "factor": 8.0,
        "short_factor": [1 + i / 10 for i in range(DEPTH // 2)],
        "long_factor": [2.0 + i for i in range(DEPTH // 2)],
        **ORIGINAL,
    },
}


def odd(kind, **more):
    """A configuration as other programs keep it."""
    return SimpleNamespace(head_dim=DEPTH, max_position_embeddings=8, rope_parameters={"rope_type": kind, **more})


def by_model(name):
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def kept(model, parameters):
    """The configuration of a model of transformers with these rotary positions, and its module."""
    config = getattr(pytest.importorskip("transformers"), f"{model}Config")(
        hidden_size=4 * DEPTH,
        num_attention_heads=4,
        max_position_embeddings=TRAINED,
        rope_parameters={"rope_theta": 5000.0} | parameters,
    )
    return config, by_model(config.model_type)


@by_name("config", CONFIGS)
def test_rotary_numbers_are_those_of_transformers(config):
    """For every kind of scaling, before and beyond the trained length, bit for bit, positions shared or one row per
    entry; a short text after a long one is as before. GPT-NeoX turns the share of each head that its config names.
    """
    model = "GPTNeoX" if "partial_rotary_factor" in config else "Llama"
    config, theirs = kept(model, config)
    ours = Rotary.from_config(config)
    for length in (TRAINED // 2, 3 * TRAINED, TRAINED // 2):
        q, places = normal(2, 4, length, DEPTH), torch.arange(length)
        angles = getattr(theirs, f"{model}RotaryEmbedding")(config)(q, places[None])
        expected, _ = theirs.apply_rotary_pos_emb(q, q, *angles)
        for given in (places, places.expand(2, -1)):
            assert torch.equal(ours.rotate(q, given), expected)


def test_interleaved_rotary_numbers_are_those_of_transformers():
    """GPT-J turns neighbours, and only a part of each head."""
    theirs = by_model("gptj")
    q, places = normal(2, 10, 4, DEPTH), torch.arange(10)
    sin, cos = theirs.create_sinusoidal_positions(10, DEPTH // 2)[None].chunk(2, dim=-1)
    turned = theirs.apply_rotary_pos_emb(q[..., : DEPTH // 2], sin, cos)
    expected = torch.cat((turned, q[..., DEPTH // 2 :]), dim=-1).transpose(1, 2)

    ours = Rotary(DEPTH, fraction=0.5, interleaved=True).rotate(q.transpose(1, 2), places)

    assert torch.allclose(ours, expected, rtol=0, atol=1e-6)  # their angles are rounded by another order of operations
    assert torch.equal(ours[..., DEPTH // 2 :], expected[..., DEPTH // 2 :])


def test_a_config_of_an_older_release_is_read():
    """rope_theta and rope_scaling beside each other mean what rope_parameters means."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": TRAINED}
    old = SimpleNamespace(**sizes, rope_theta=5000.0, rope_scaling={"type": "linear", "factor": 3.0})

    assert repr(Rotary.from_config(old)) == repr(Rotary.from_config(kept("Llama", CONFIGS["linear"])[0]))


def test_layers_of_two_kinds_have_angles_of_their_own():
    """Where a config has parameters per kind of layer, the kind is asked for."""
    kinds = {"full": {"rope_theta": 1e6}, "sliding": {"rope_theta": 1e4}, "none": None}
    config = SimpleNamespace(head_dim=8, rope_parameters=kinds)

    assert Rotary.from_config(config, layer_type="full").base == 1e6
    for wanted, said in ((None, "is missing or unknown"), ("none", "layers of this type have no rotary positions")):
        with refusing(said):
            Rotary.from_config(config, layer_type=wanted)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.half().float(),
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: m.to("meta").to_empty(device="cpu"),
    ],
    ids=["half and back", "pickle", "meta"],
)
def test_no_digit_of_the_angles_is_lost(change):
    """Converted, pickled or made on the meta device, a module turns by the same angles, and has no state to
    load.
    """
    rotary, x, places = Rotary(DEPTH, scaling=YaRN(4, TRAINED)), normal(1, 2, 9, DEPTH), torch.arange(9) + 10_000
    expected = rotary.rotate(x, places)
    changed = change(torch.nn.Sequential(Rotary(DEPTH, scaling=YaRN(4, TRAINED))))

    assert torch.equal(changed[0].rotate(x, places), expected)
    assert not changed.state_dict()


def test_angles_are_exact_for_16_bits_too():
    """At position 10000 a 16-bit rotation is as near to the exact one as rounding cosine, sine and products allows."""
    dtype = torch.bfloat16
    x, places = normal(1, 2, 9, DEPTH).to(dtype), torch.arange(9) + 10_000
    exact = Rotary(DEPTH).rotate(x.double(), places)
    with torch.autocast("cpu", dtype=dtype):
        ours = Rotary(DEPTH).to(dtype).rotate(x, places)

    assert ours.dtype == dtype
    # Cosine, two products and their sum are rounded once each, and float32 angles are off by 10000 · 2⁻²⁴.
    assert (ours - exact).abs().max() <= (4 * torch.finfo(dtype).eps + 10_000 * 2**-24) * x.abs().max() * 2**0.5


def test_places_that_change_in_place_are_seen():
    """What is kept between calls belongs to the very places and dtype: a counter that is moved on in place gives new
    angles.
    """
    rotary, x, places = Rotary(DEPTH), normal(1, 2, 3, DEPTH), torch.arange(3)
    first = rotary.rotate(x, places)
    places += 1

    assert torch.equal(rotary.rotate(x, places), rotary.rotate(x, torch.arange(3) + 1))
    assert not torch.equal(rotary.rotate(x, places), first)
    assert rotary.rotate(x.double(), places).dtype == torch.float64


def test_a_rotation_after_inference_can_be_trained():
    """Angles that were worked out under inference_mode are not handed to autograd, which would refuse them."""
    rotary, places = Rotary(DEPTH), torch.arange(3)
    x = normal(1, 2, 3, DEPTH).requires_grad_()
    with torch.inference_mode():
        rotary.rotate(x, places)
    rotary.rotate(x, places).sum().backward()

    assert x.grad.abs().sum() > 0


def test_a_rotation_can_be_compiled_and_transformed():
    """torch.compile takes it as one graph for every length, and torch.func maps and differentiates it."""
    rotary, x = Rotary(DEPTH, scaling=DynamicNTK(2.0, 4)), normal(2, 3, 7, DEPTH)
    program = compiled(rotary.rotate, dynamic=True)

    for n in (3, 7):
        assert torch.equal(program(x[:, :, :n], torch.arange(n)), rotary.rotate(x[:, :, :n], torch.arange(n)))
    mapped = torch.func.vmap(lambda x, places: rotary.rotate(x[None], places)[0])(x, torch.arange(14).view(2, 7))
    alone = [rotary.rotate(x[b : b + 1], torch.arange(7) + 7 * b) for b in range(2)]
    assert torch.equal(mapped, torch.cat(alone))
    gradient = torch.func.grad(lambda x: rotary.rotate(x, torch.arange(7)).square().sum() / 2)(x)
    assert torch.allclose(gradient, x, atol=1e-5)


# ---- added to the scores ---------------------------------------------------------------------------------------------


DISTANCE = torch.arange(40) - torch.arange(40)[:, None]


def t5s(weight, bidirectional):
    """The bias that T5 makes of its table."""
    buckets = by_model("t5").T5Attention._relative_position_bucket(DISTANCE, bidirectional, 8, 20)
    return weight[buckets].permute(2, 0, 1)


# By name: a kind, whether it is used under a causal mask, and its bias, of its table, as the models write it.
BIASES = {
    "T5": (Buckets(4, 8, max_distance=20), False, lambda weight: t5s(weight, True)),
    "T5's decoder": (Buckets(4, 8, max_distance=20, bidirectional=False), True, lambda weight: t5s(weight, False)),
    "by distance": (Relative(4, 3), False, lambda weight: weight[:, DISTANCE.clamp(-3, 3) + 3]),
    "BLOOM": (ALiBi(4), True, lambda: by_model("bloom").build_alibi_tensor(torch.ones(1, 40), 4, torch.float64)),
    "MPT": (ALiBi(6), True, lambda: by_model("mpt").build_mpt_alibi_tensor(6, 40)),
}


@by_name("kind, causal, bias", BIASES)
def test_scores_have_the_bias_of_the_models(kind, causal, bias):
    """softmax(q kᵀ / √D + bias) v with the whole matrix: output, gradients and the gradient of the table."""
    kind = kind.double()
    weights = [torch.nn.init.normal_(weight) for weight in kind.parameters()]
    added = bias(*weights)
    sizes = 2, added.shape[-3], 40, 8
    q, k, v = given = [normal(*sizes, dtype=torch.float64, seed=n).requires_grad_() for n in range(3)]
    hidden = causal & (DISTANCE > 0)
    plain = (q @ k.mT / 8**0.5 + added).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    engine, mask = ("reference", rg.causal()) if causal else ("jit", None)
    ours = attention(q, k, v, score=kind.score(the_score), mask=mask, engine=engine)

    found, wanted = ([out, *torch.autograd.grad(out.sin().sum(), [*given, *weights])] for out in (ours, plain))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11 if weights else 1e-5)


@pytest.mark.parametrize("kind", [ALiBi(4), Buckets(4), Relative(4, 3)], ids=lambda kind: type(kind).__name__)
def test_a_rule_is_the_same_in_every_call(kind):
    """Two calls build one expression, so what was planned and compiled for it serves again."""
    assert kind.score(the_score) is kind.score(the_score)
    assert repr(kind.score(rg.softcap(5.0))).startswith("5.0 * tanh(score / 5.0)")


def test_the_example_shows_that_only_distances_count(capsys):
    """examples/positions.py prints a profile for each kind, and none changes a million places on."""
    example = runpy.run_path(str(ROOT / "examples" / "positions.py"))
    example["main"]()
    printed = capsys.readouterr().out

    assert [name for name in example["KINDS"] if f"\n{name:20}" not in printed] == []
    for kind in example["KINDS"].values():
        assert np.allclose(example["profile"](kind), example["profile"](kind, first=1_000_000), atol=1e-9)


# ---- refusals --------------------------------------------------------------------------------------------------------

X, PLACES = torch.zeros(1, 3, 8), torch.arange(3)
REFUSED = {
    "not even.*5 components.*base is too small.*an unsupported type": lambda: Rotary(5, base=0.0, scaling="yarn"),
    "fraction is not between 0 and 1": lambda: Rotary(8, fraction=1.5),
    "factor is not a positive.*trained_length is not a positive": lambda: YaRN(0.0, -1),
    "a larger base has no effect on a single pair": lambda: Rotary(2, scaling=NTK(2.0)),
    "1 factors for depth 8": lambda: Rotary(8, scaling=LongRoPE(2.0, 8, (1.0,), (1.0,))),
    "x does not have the depth": lambda: Rotary(8).rotate(X[None, ..., :6], PLACES),
    r"positions do not fit x.*\(2,\).*\(3,\)": lambda: Rotary(8).rotate(X[None], PLACES[:2]),
    "positions do not fit x.*float32": lambda: Sinusoidal(8).embed(X, PLACES / 2),
    r"\(3, 3\)": lambda: Sinusoidal(8).embed(X, PLACES.expand(3, -1)),
    "x does not have the width": lambda: Sinusoidal(8).embed(X[..., :6], PLACES),
    "does not have the width": lambda: Learned(4, 8).embed(X[..., :6], PLACES),
    r"positions 0 … 2.*0 … 1": lambda: Learned(2, 8).embed(X, PLACES),
    "out of range": lambda: Learned(4, 8).embed(X, PLACES - 1),
    "count and d_model must be positive": lambda: Learned(0, 8),
    "d_model is too small": lambda: Sinusoidal(0),
    "an odd number of buckets cannot be split": lambda: Buckets(4, 7),
    "there are too few buckets": lambda: Buckets(4, 2),
    "reach is negative": lambda: Relative(4, -1),
    "the number of heads": lambda: ALiBi(0),
    r"rope_type='yarm'.*did you mean 'yarn'": lambda: Rotary.from_config(odd("yarm")),
    "all layers have the same angles": lambda: Rotary.from_config(odd("default"), layer_type="full"),
    "not supported": lambda: Rotary.from_config(odd("default", mrope_section=[2, 3, 3])),
    "does not specify factor, low_freq_factor": lambda: Rotary.from_config(odd("llama3", high_freq_factor=2.0)),
}


test_what_cannot_be_is_refused_in_three_beats = refused_in(REFUSED)
