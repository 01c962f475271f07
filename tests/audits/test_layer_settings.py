"""Models with their own attention code: what a layer declares against the arguments of its recorded call."""

import pytest
import torch
from transformers.models.mistral import modeling_mistral

import regard as rg
from bench.audit_faults.of_transformers import FAULTS, ROTATIONS, host
from regard.lens.look import look
from tests.support.runs import alarms, checks, shifted
from tests.support.small_model import tiny, words


def written(scale=lambda scale: scale, mask=lambda mask: mask, leak=False):
    """transformers' own eager attention, with a mistake in layer 1: scale, mask, or a mask after the softmax."""

    def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        wrong, groups = module.layer_idx == 1, query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
        seen = mask(attention_mask) if wrong else attention_mask
        scores = torch.matmul(query, key.transpose(2, 3)) * (scale(scaling) if wrong else scaling)
        weights = torch.softmax(scores if seen is None or (wrong and leak) else scores + seen, -1)
        weights = weights * (attention_mask == 0) if wrong and leak else weights
        return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights

    return attend


def ahead(mask):
    """One key more on the right."""
    return torch.where(shifted(mask, 1), 0.0, torch.finfo(mask.dtype).min)


def window_of(width):
    """A window of so many keys."""

    def change(mask):
        near = shifted(mask, 0) & ~shifted(mask, -width)
        return torch.where(near, 0.0, torch.finfo(mask.dtype).min)

    return change


DECLARED = {
    "scale left out": (written(scale=lambda scale: 1.0), "scale", "the scale is missing"),
    "scale doubled": (written(scale=lambda scale: 2 * scale), "scale", "the scale is doubled"),
    "scale inverted": (written(scale=lambda scale: 1 / scale), "scale", "the scale is inverted"),
    "mask ignored": (written(mask=lambda mask: None), "mask", "the mask is dropped"),
    "sees the next token": (written(mask=ahead), "mask", "off by one"),
    "window one too wide": (written(mask=window_of(5)), "mask", "the window is off by one"),
    "window ignored": (written(mask=window_of(99)), "mask", "the sliding window is missing"),
    "masked after the softmax": (written(leak=True), "weights", "the mask is applied after the softmax"),
}


@pytest.mark.parametrize("planted", [None, *DECLARED])
def test_attention_that_a_model_writes_out_against_what_its_layers_declare(planted, monkeypatch):
    """Recorded as it is, an eager model whose layer 1 does otherwise than it declares is found there; the healthy one
    is silent.
    """
    attend, check, cause = DECLARED.get(planted, (written(), None, ""))
    model = tiny("mistral")
    monkeypatch.setattr(modeling_mistral, "eager_attention_forward", attend)
    model.set_attn_implementation("eager")

    found = alarms(checks(look(model, inputs={"input_ids": words()}, values=True), model))

    assert [(finding.check, finding.severity, finding.call) for finding in found] == (
        [] if planted is None else [(check, "fault", 1)]
    )
    assert all(cause in finding.cause for finding in found)


def test_a_scale_that_was_changed_on_the_layer_itself():
    """Where the layer declares the wrong scale as well, the one that its class builds tells."""
    model = tiny("llama")
    model.set_attn_implementation("sdpa")
    model.model.layers[1].self_attn.scaling *= 2

    (found,) = alarms(checks(look(model, inputs={"input_ids": words()}), model))

    assert (found.check, found.severity, found.call) == ("scale", "fault", 1)
    assert "doubled" in found.cause and found.numbers["factor"] == pytest.approx(2)


@pytest.mark.parametrize("fault", [None, "rotary base", "scale declared twice", *ROTATIONS])
def test_what_a_configuration_says_against_what_its_layers_do(fault):
    """Queries or keys that are rotated or scaled otherwise than the configuration or another layer says are named."""
    with host("llama", fault) as (model, _):
        causes = [found.cause for found in rg.audit(model, checks=["positions", "scale"]).findings] or ["healthy"]

    assert any(word in causes[0] for word in FAULTS.get(fault, [["healthy"]])[0])
