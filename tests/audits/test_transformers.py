"""Faults planted in models of transformers: found and named, at their place."""

import functools

import pytest
import torch
from transformers.models.bert import modeling_bert
from transformers.models.llama import modeling_llama

from regard.audits import audit
from tests.support.small_model import BEHAVIOUR, only, tiny


@pytest.fixture
def plant(monkeypatch):
    """Changes the mask that a module's own attention code is given."""

    def plant(module, change):
        own = module.eager_attention_forward
        monkeypatch.setattr(
            module,
            "eager_attention_forward",
            lambda layer, q, k, v, mask, *args, **kwargs: own(layer, q, k, v, change(mask), *args, **kwargs),
        )

    return plant


def shifted(mask):
    """Every row sees one key more."""
    return mask if mask.shape[2] == 1 else torch.nn.functional.pad(mask, (1, 0))[..., :-1]


def test_a_llama_that_ignores_its_mask(plant):
    """A leak in the attention code of a transformers model is a future leak, and what it spoils is not reported
    again.
    """
    plant(modeling_llama, lambda mask: None)

    found = audit(tiny("llama"), checks=BEHAVIOUR)

    assert [finding.check for finding in found.findings] == ["future-leak", "padding-leak", "implementation-difference"]
    assert {each.check for each in found.skipped} == {"cache", "laws", "position-offset"}
    assert "can generate" in found.findings[0].measured


def test_a_llama_whose_mask_is_off_by_one(plant):
    """Two layers that see one key too far look two ahead, and that is named."""
    plant(modeling_llama, shifted)

    found = only(audit(tiny("llama"), checks=["future-leak"]))

    assert "off by one" in found.cause and found.numbers["reach"] == 2


def test_a_bert_that_ignores_its_mask(plant):
    """Padding that is seen is found in an encoder; future-leak does not apply to the same encoder."""
    plant(modeling_bert, lambda mask: None)

    found = audit(tiny("bert"), checks=BEHAVIOUR)

    padding, implementation = found.findings
    assert padding.check == "padding-leak" and "does not reach the attention" in padding.cause
    assert implementation.check == "implementation-difference"
    assert "drops the padding mask" in implementation.cause
    assert "is_causal is False" in next(each.reason for each in found.skipped if each.check == "future-leak")


def test_a_head_that_writes_on_an_encoder():
    """A class with a head that writes, configured as an encoder, leaks; the configuration is named."""
    model = tiny("bert-generation")

    assert "is_decoder=False" in only(audit(model, checks=BEHAVIOUR)).cause
    model.config.is_decoder = True
    assert audit(type(model)(model.config).eval(), checks=BEHAVIOUR).healthy


def test_a_llama_that_forgets_causality_while_it_fills_a_cache(plant):
    """A leak of the prefill alone is found, and said to be there alone."""
    model = tiny("llama")
    own = model.forward

    @functools.wraps(own)
    def forward(*args, use_cache=None, **kwargs):
        model.filling = use_cache
        return own(*args, use_cache=use_cache, **kwargs)

    model.forward = forward
    plant(modeling_llama, lambda mask: None if model.filling and mask.shape[2] > 1 else mask)

    found = only(audit(model, checks=["future-leak"]))

    assert found.numbers["ways"] == ["during cache prefill"]
    assert "missing during cache prefill, but present without a mask and with padding" in found.cause


@pytest.mark.parametrize("shift", [2, -1])
def test_positions_that_are_off_while_decoding(shift):
    """Positions off by one or two over a cache are found, and by how many is said."""
    model = tiny("llama")
    own = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: own(x, position_ids + shift * (position_ids.shape[1] == 1))

    found = only(audit(model, checks=["cache"]))

    assert found.check == "cache" and "model.layers.0.self_attn" in found.where
    assert f"{abs(shift)} too {'large' if shift > 0 else 'small'}" in found.cause


def test_positions_that_start_again():
    """A model that counts from 0 again over a cache is distinguished from one that gets given positions wrong."""
    model = tiny("llama")
    own = model.model.forward

    def forward(input_ids, position_ids=None, **kwargs):
        places = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
        return own(input_ids, position_ids=places, **kwargs)

    model.model.forward = forward

    found = only(audit(model, checks=["cache", "position-offset"]))

    assert (found.check, found.severity) == ("cache", "warning")
    assert "if position_ids are passed, outputs agree" in found.cause


def test_positions_that_count_padding():
    """Generation behind left padding with positions that count the padding is found, though decoding without it is
    right.
    """
    model = tiny("gpt2")
    own = model.transformer.forward
    model.transformer.forward = lambda *args, position_ids=None, **kwargs: own(*args, **kwargs)

    found = only(audit(model, checks=["cache", "position-offset"]))

    assert found.check == "position-offset" and "after 3 positions of left padding" in found.where
    assert "count the padding" in found.cause


def test_arguments_that_generate_refuses_are_no_fault():
    """A model whose `generate` supports other arguments than those of the check is not faulty; one that fails in a step
    of decoding is.
    """

    def refusing(*args, min_new_tokens=None, **kwargs):
        raise ValueError("min_new_tokens is not supported")

    model = tiny("llama")
    model.generate = refusing
    found = audit(model, checks=["cache", "position-offset"])
    assert found.healthy and not model._forward_pre_hooks
    assert "generate refused the arguments of this check before its first step" in str(found.skipped)

    model = tiny("llama")
    model.prepare_inputs_for_generation = lambda input_ids, **kwargs: {"input_ids": input_ids[:, :, None]}
    found = only(audit(model, checks=["position-offset"]))
    assert (found.check, found.severity) == ("position-offset", "fault") and "while decoding" in found.measured


def test_a_cache_that_forgets(monkeypatch):
    """A cache that loses its oldest key is a fault of the cache, and not of positions."""
    from transformers.cache_utils import DynamicLayer

    own = DynamicLayer.update

    def update(self, *args, **kwargs):
        keys, values = own(self, *args, **kwargs)
        return (keys, values.flip(2)) if args[0].shape[2] == 1 else (keys, values)

    monkeypatch.setattr(DynamicLayer, "update", update)

    found = only(audit(tiny("llama"), checks=["cache", "position-offset"]))

    assert found.check == "cache" and found.row == found.numbers["start"] and "in the wrong order" in found.cause


@pytest.mark.parametrize("what", ["nothing", "keys alone"])
def test_a_cache_that_beam_search_cannot_reorder(what, monkeypatch):
    """A cache whose entries stay, or whose values do, is found by reordering three entries."""
    from transformers.cache_utils import DynamicLayer

    def reorder(self, order):
        self.keys = self.keys[order] if what == "keys alone" else self.keys

    monkeypatch.setattr(DynamicLayer, "reorder_cache", reorder)

    found = only(audit(tiny("llama"), checks=["cache"]))

    assert found.check == "cache" and "reordering the cache" in found.cause


def test_a_model_that_takes_one_new_token_only():
    """Several new tokens over a cache, as a chat adds them: a model that raises is at fault."""
    model = tiny("llama")
    own = model.model.forward

    def forward(*args, input_ids=None, **kwargs):
        cache = kwargs.get("cache", kwargs.get("past_key_values"))  # its name before transformers 5.24
        if cache and cache.get_seq_length() and input_ids.shape[1] > 1:
            raise RuntimeError("one token at a time")
        return own(*args, input_ids=input_ids, **kwargs)

    model.model.forward = forward

    found = only(audit(model, checks=["cache"]))

    assert found.severity == "fault" and "one token at a time while decoding" in found.measured


def test_an_implementation_that_loses_its_mask(plant):
    """Eager attention that drops the mask differs from SDPA, and that is found from either side."""
    model = tiny("bert")
    plant(modeling_bert, lambda mask: None)

    for name, other in (("eager", "sdpa"), ("sdpa", "eager")):
        model.set_attn_implementation(name)
        found = only(audit(model, checks=["implementation-difference"]))

        assert found.check == "implementation-difference"
        assert (found.numbers["other"], found.numbers["ways"]) == (other, ["with padding"])
        assert model.config._attn_implementation == name
