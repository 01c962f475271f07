"""An unknown keyword argument is a TypeError, as in Python, that says what the argument is called here."""

import inspect
import random

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import regard as rg
import regard.models
import regard.parallel
import regard.torch as rt
from regard.common.text.keywords import ELSEWHERE, known_keywords

FUNCTIONS = [
    rg.attention, rg.attention_with_lse, rg.attention_weights, rg.attention_stats, rg.attention_backward,
    rg.attention_part, rg.explain, rg.look, rg.audit, rg.cost, rg.conform, rg.heatmap, rg.window, rg.alibi,
    rg.softcap, rg.documents, rt.attention, rt.attention_with_lse,
]  # fmt: skip
ARRAYS = np.zeros((3, 2, 4, 8), np.float32)


def misspelt(word: str, draw: random.Random) -> str:
    """The word with two neighbors exchanged, a character twice, or one left out."""
    at = draw.randrange(len(word) - 1)
    return draw.choice(
        [
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1 :],
        ]
    )


def arguments(function) -> list:
    """As many arguments as the function requires."""
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    return [ARRAYS[0] for each in required if each.kind is not each.KEYWORD_ONLY]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_a_misspelt_keyword_names_the_argument(function):
    """For every function of the package and every argument of four or more characters."""
    draw = random.Random(0)
    names = [name for name in inspect.signature(function).parameters if len(name) > 3]
    wrong = {misspelt(name, draw): name for name in names for _ in range(4)}
    for word in wrong.keys() - set(inspect.signature(function).parameters) - ELSEWHERE.keys():
        with pytest.raises(TypeError, match=rf"unexpected keyword argument '{word}': did you mean \w+="):
            function(*arguments(function), **{word: 1})


@pytest.mark.parametrize("function", FUNCTIONS[:7], ids=lambda each: each.__name__)
@pytest.mark.parametrize("word", sorted(ELSEWHERE))
def test_names_of_other_libraries(function, word):
    """`is_causal=`, `attn_mask=`, `block_mask=` … name the argument here, if the function has it."""
    names = inspect.signature(function).parameters
    if word in names:
        return
    here, text = ELSEWHERE[word]
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}': ") as caught:
        function(*arguments(function), **{word: True})
    assert (text in str(caught.value)) == (here in names)


def test_what_the_hints_write_can_be_written():
    """The function of a BlockMask is a mask, and every rule that a hint names exists."""
    block = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 128, 128, device="cpu")
    q = np.random.default_rng(0).standard_normal((3, 1, 1, 128, 8), dtype=np.float32)

    np.testing.assert_array_equal(rg.attention(*q, mask=block.mask_mod), rg.attention(*q, mask=rg.causal()))
    for _, text in ELSEWHERE.values():
        for part in text.split("regard.")[1:]:
            assert hasattr(rg, part.split("(")[0].split()[0]), text


def test_the_error_of_a_call_inside_stays_what_it_is():
    """A callable of the user that is called with a wrong keyword is the user's own error."""

    def inner():
        pass

    @known_keywords
    def outer(given):
        inner(given=given)

    with pytest.raises(TypeError, match=r"inner\(\) got an unexpected keyword argument 'given'$"):
        outer(given=1)


def test_the_signature_shows_no_other_keywords():
    """Editors, and what judges functions by their signature, see the arguments that exist."""
    kinds = {each.kind for each in inspect.signature(rg.attention).parameters.values()}

    assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_a_method_of_a_cache():
    """The methods of KVCache are functions of this kind, too."""
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'dpeth': did you mean depth="):
        rg.KVCache(heads=1, dpeth=8)


def test_a_compiled_program():
    """torch.compile traces a call as before."""
    program = torch.compile(lambda a: rg.attention(a, a, a, mask=rg.causal()), backend="eager", fullgraph=True)
    q = torch.randn(1, 2, 4, 8)

    torch.testing.assert_close(program(q), rg.attention(q, q, q, mask=rg.causal()))


@pytest.mark.parametrize("module", [rg, rt, regard.parallel, regard.models], ids=lambda each: each.__name__)
def test_a_misspelt_name_of_a_package(module):
    """`rg.causl` is an AttributeError that names `causal`; names that nothing is close to, and private ones, none."""
    draw = random.Random(0)
    for name in module.__all__:
        wrong = misspelt(name, draw)
        if len(name) > 4 and not hasattr(module, wrong):
            with pytest.raises(AttributeError, match=rf"no attribute '{wrong}'; did you mean '\w+'\?"):
                getattr(module, wrong)
    with pytest.raises(AttributeError, match=r"no attribute '__causal__'$"):
        assert module.__causal__


LAYERS = [getattr(rt, name) for name in sorted(rt.__all__) if isinstance(getattr(rt, name), type)]
SIZES = {
    **dict.fromkeys(("d_model", "embed_dim"), 16),
    **dict.fromkeys(("heads", "num_heads"), 2),
    **dict.fromkeys(("kv_rank", "head_dim", "length", "reach", "count"), 8),
    **dict.fromkeys(("rope_dim", "rows", "buckets"), 4),
    "depth": 1,
}
POSITIONS = [rt.positions.Rotary, rt.positions.ALiBi, rt.positions.Buckets, rt.positions.Relative, rt.positions.Learned]


def made(cls, **more):
    """A small layer."""
    names = inspect.signature(cls).parameters
    required = {name: SIZES[name] for name, each in names.items() if each.default is each.empty and name in SIZES}
    return cls(**required, **more)


@pytest.mark.parametrize("cls", LAYERS + POSITIONS, ids=lambda cls: cls.__name__)
def test_the_constructors_of_layers(cls):
    """Misspelt arguments, and those of each call, are named with the class that was called; the rest is as it was."""
    draw = random.Random(1)
    names = list(inspect.signature(cls).parameters)
    for name in names:
        wrong = misspelt(name, draw) if len(name) > 3 else "zzz"
        if wrong not in names:
            with pytest.raises(TypeError, match=rf"{cls.__name__}.__init__\(\) got an unexpected keyword .*: "):
                made(cls, **{wrong: 1})
    if hasattr(cls, "forward") and "mask" in inspect.signature(cls.forward).parameters:
        with pytest.raises(TypeError, match=r"'is_causal': give it to each call, mask=regard\.causal\(\)$"):
            made(cls, is_causal=True)
        with pytest.raises(TypeError, match=r"'mask': give it to each call, mask=$"):
            made(cls, mask=None)


@pytest.mark.parametrize("cls", [cls for cls in LAYERS if hasattr(cls, "forward")], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("word", ["attn_mask", "is_causal", "masks", "block_mask", "key_padding_mask", "mask_mod"])
def test_the_calls_of_layers(cls, word):
    """torch's names say what the argument is called here; the layer computes as before."""
    layer, x = made(cls), torch.randn(1, 6, 16)
    names = inspect.signature(layer.forward).parameters
    if word in names:
        return
    with pytest.raises(
        TypeError, match=rf"{cls.__name__}.forward\(\) got an unexpected keyword argument '{word}': "
    ) as caught:
        layer(x, **{word: True})
    assert ELSEWHERE[word][1] in str(caught.value) if "mask" in names else "attn_mask" in str(caught.value)


TRACED = [rt.Attention, rt.DifferentialAttention, rt.LatentAttention, rt.LinearAttention, rt.SelfAttention]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("cls", TRACED, ids=lambda cls: cls.__name__)
def test_layers_in_programs(cls):
    """The check of names is no break in a program of torch.compile or torch.export."""
    layer, x = made(cls).eval(), torch.randn(1, 6, 16)
    with torch.no_grad():
        plain, rule = layer(x, mask=rg.causal()), rg.causal()
        program = torch.compile(lambda a: layer(a, mask=rule), backend="eager", fullgraph=True)
        torch.testing.assert_close(program(x), plain)
        exported = torch.export.export(layer, (x,)).module()
        torch.testing.assert_close(exported(x), layer(x))
