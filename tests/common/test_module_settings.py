"""What modules say of themselves: one reading of it for the lens, the audits and the profiles."""

from types import SimpleNamespace

import pytest

from regard.common.module_settings import is_transformers_model, layer_settings, number_of_heads, setting, settings_of

NOTHING = dict.fromkeys(("scale", "softcap", "window", "configured_window", "groups", "causal", "sinks"))
NOTHING |= {"training": False}


class Uneven:
    """A configuration whose layers differ raises for a single number."""

    def __init__(self):
        self.sliding_window = 5

    @property
    def num_key_value_heads(self):
        raise RuntimeError("layers differ")

    num_attention_heads = num_key_value_heads


@pytest.mark.parametrize("layer", [None, object(), SimpleNamespace(config=None), SimpleNamespace(config={"scale": 2})])
def test_what_says_nothing_has_no_settings(layer):
    """No layer, no configuration, or one that is not an object with attributes."""
    assert vars(layer_settings(layer)) == NOTHING
    assert number_of_heads(layer) is None


WINDOW = SimpleNamespace(sliding_window=7)
TYPES = SimpleNamespace(sliding_window=7, layer_types=["sliding_attention", "full_attention"])
SETTINGS = [
    (SimpleNamespace(scaling=0.5, scale=2.0), {"scale": 0.5}),
    (SimpleNamespace(scaling=True, scale="x", softmax_scale=2), {"scale": 2}),
    (
        SimpleNamespace(attn_logit_softcapping=None, config=SimpleNamespace(attn_logit_softcapping=30.0)),
        {"softcap": 30.0},
    ),
    (SimpleNamespace(num_key_value_heads=2, config=SimpleNamespace(num_key_value_heads=4)), {"groups": 2}),
    (SimpleNamespace(is_causal=1), {}),
    (SimpleNamespace(is_causal=False, training=True), {"causal": False, "training": True}),
    (SimpleNamespace(sinks=[1.0]), {}),
    (SimpleNamespace(config=Uneven()), {"configured_window": 5}),
    (SimpleNamespace(config=WINDOW, sliding_window=3), {"window": 3}),
    (SimpleNamespace(config=WINDOW, sliding_window=None), {}),
    (SimpleNamespace(config=WINDOW), {"configured_window": 7}),
    (SimpleNamespace(config=TYPES, layer_idx=0), {"configured_window": 7}),
    (SimpleNamespace(config=TYPES, layer_idx=1), {}),
]


@pytest.mark.parametrize(("layer", "found"), SETTINGS)
def test_settings_of_a_layer_and_of_its_configuration(layer, found):
    """Its own numbers come first; a window of the configuration holds for the layers that it is meant for."""
    assert vars(layer_settings(layer)) == NOTHING | found


def test_heads_and_settings_that_may_not_be_asked_for():
    """The layer's own number of heads comes before that of its configuration; an attribute that raises is ignored."""
    assert number_of_heads(SimpleNamespace(num_heads="4", nhead=2, config=SimpleNamespace(n_head=8))) == 2
    assert number_of_heads(SimpleNamespace(config=SimpleNamespace(num_attention_heads=8))) == 8
    assert number_of_heads(SimpleNamespace(config=Uneven())) is None
    assert setting(Uneven(), "num_key_value_heads") is None and setting(Uneven(), "sliding_window") == 5
    assert settings_of(Uneven()) == {"sliding_window": 5} and settings_of({"a": 1}) == settings_of(None) == {}


def test_models_of_transformers_are_known_by_their_ancestors():
    """By the name of a base class, so that neither torch nor transformers is needed."""
    base = type("PreTrainedModel", (), {})

    assert is_transformers_model(type("Llama", (type("Base", (base,), {}),), {})())
    assert not is_transformers_model(base) and not is_transformers_model(None)
