"""An unknown keyword argument is a TypeError, as in Python, that says what the argument is called here."""

import inspect
import random
import re

import numpy as np
import pytest
import torch

import regard as rg
import regard.models
import regard.parallel
import regard.torch as rt
from regard.common.text.keywords import ELSEWHERE, NAMES, known_keywords

FUNCTIONS = [
    rg.attention, rg.attention_with_lse, rg.attention_weights, rg.attention_stats, rg.attention_backward,
    rg.attention_part, rg.explain, rg.look, rg.audit, rg.cost, rg.conform, rg.heatmap, rg.window, rg.alibi,
    rg.softcap, rg.documents, rg.KVCache, rt.attention, rt.attention_with_lse,
]  # fmt: skip
ARRAYS = np.zeros((2, 4, 8), np.float32)


def misspelt(word, draw):
    """The word with two neighbors exchanged, a character twice, or one left out."""
    at = draw.randrange(len(word) - 1)
    return draw.choice(
        [
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1 :],
        ]
    )


def arguments(function):
    """As many arguments as the function requires."""
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    return [ARRAYS for each in required if each.kind is not each.KEYWORD_ONLY]


HINTS = ELSEWHERE | {word: (here, f"{here}=") for word, here in NAMES.items()}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_a_misspelt_keyword_names_the_argument(function):
    """For every function of the package and every argument of four or more characters."""
    draw = random.Random(0)
    names = inspect.signature(function).parameters
    for word in {misspelt(name, draw) for name in names for _ in range(4) if len(name) > 3} - {*names, *HINTS}:
        with pytest.raises(TypeError, match=rf"unexpected keyword argument '{word}': did you mean \w+="):
            function(*arguments(function), **{word: 1})


@pytest.mark.parametrize("function", FUNCTIONS[:7], ids=lambda each: each.__name__)
def test_names_of_other_libraries(function):
    """`is_causal=`, `attn_mask=`, `block_mask=` … name the argument here, if the function has it."""
    names = inspect.signature(function).parameters
    for word, (here, text) in HINTS.items():
        if word not in names:
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}': ") as caught:
                function(*arguments(function), **{word: True})
            assert (text in str(caught.value)) == (here in names)


def test_what_the_hints_write_can_be_written():
    """Every rule that a hint names exists."""
    for _, text in ELSEWHERE.values():
        for name in re.findall(r"regard\.(\w+)", text):
            assert hasattr(rg, name), text


def test_the_error_of_a_call_inside_stays_what_it_is():
    """A callable of the user that is called with a wrong keyword is the user's own error."""

    @known_keywords
    def outer(given):
        len(given=given)

    with pytest.raises(TypeError, match=r"len\(\) takes no keyword arguments$"):
        outer(given=1)


def test_the_signature_shows_no_other_keywords():
    """Editors, and what judges functions by their signature, see the arguments that exist."""
    assert all(each.kind is not each.VAR_KEYWORD for each in inspect.signature(rg.attention).parameters.values())


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
    draw, names = random.Random(1), inspect.signature(cls).parameters
    for wrong in {misspelt(name, draw) if len(name) > 3 else "zzz" for name in names} - {*names}:
        with pytest.raises(TypeError, match=rf"{cls.__name__}.__init__\(\) got an unexpected keyword .*: "):
            made(cls, **{wrong: 1})
    if hasattr(cls, "forward") and "mask" in inspect.signature(cls.forward).parameters:
        with pytest.raises(TypeError, match=r"'is_causal': give it to each call, mask=regard\.causal\(\)$"):
            made(cls, is_causal=True)
        with pytest.raises(TypeError, match=r"'mask': give it to each call, mask=$"):
            made(cls, mask=None)


@pytest.mark.parametrize("cls", [cls for cls in LAYERS if hasattr(cls, "forward")], ids=lambda cls: cls.__name__)
def test_the_calls_of_layers(cls):
    """torch's names say what the argument is called here; the layer computes as before."""
    layer, x = made(cls), torch.randn(1, 6, 16)
    names = inspect.signature(layer.forward).parameters
    for word in {"attn_mask", "is_causal", "masks", "block_mask", "key_padding_mask", "mask_mod"} - {*names}:
        with pytest.raises(TypeError, match=rf"{cls.__name__}.forward\(\) got an unexpected .* '{word}': ") as caught:
            layer(x, **{word: True})
        assert (HINTS[word][1] if "mask" in names else "attn_mask") in str(caught.value)
