"""Models with their own attention code: what a layer declares against the arguments of its recorded call."""

import pytest
import torch

from tests.support.runs import alarms, checks, shifted


def written(scale=lambda scale: scale, mask=lambda mask: mask, tiled=False, leak=False, values=False):
    """transformers' own eager attention, with a mistake in layer 1."""

    def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        wrong = module.layer_idx == 1
        groups = query.shape[1] // key.shape[1]
        repeat = (
            (lambda part: part.repeat(1, groups, 1, 1))
            if wrong and tiled
            else lambda part: part.repeat_interleave(groups, 1)
        )
        scores = torch.matmul(query, repeat(key).transpose(2, 3)) * (scale(scaling) if wrong else scaling)
        seen = mask(attention_mask) if wrong else attention_mask
        weights = torch.softmax(scores if seen is None else scores + seen, -1)
        if wrong and leak:
            weights = torch.softmax(scores, -1) * (attention_mask == 0)
        values_too = value.repeat(1, groups, 1, 1) if wrong and values else repeat(value)
        return torch.matmul(weights, values_too).transpose(1, 2).contiguous(), weights

    return attend


def ahead(mask):
    """One key more on the right."""
    return torch.where(shifted(mask, 1), 0.0, torch.finfo(mask.dtype).min)


DECLARED = {
    "scale left out": (written(scale=lambda scale: 1.0), "scale", "fault", "the scale is missing"),
    "scale doubled": (written(scale=lambda scale: 2 * scale), "scale", "fault", "the scale is doubled"),
    "scale inverted": (written(scale=lambda scale: 1 / scale), "scale", "fault", "the scale is inverted"),
    "mask ignored": (written(mask=lambda mask: None), "mask", "fault", "the mask is dropped"),
    "sees the next token": (written(mask=ahead), "mask", "fault", "off by one"),
    "window one too wide": (written(mask=lambda mask: window_of(mask, 5)), "mask", "fault", "the window is off by one"),
    "window ignored": (
        written(mask=lambda mask: window_of(mask, 99)),
        "mask",
        "fault",
        "the sliding window is missing",
    ),
    "heads tiled": (written(tiled=True), "groups", "fault", "keys and values are repeated as blocks"),
    "values tiled": (written(values=True), "groups", "fault", "values are repeated as blocks"),
    "a mask that is applied after the softmax": (
        written(leak=True),
        "weights",
        "fault",
        "the mask is applied after the softmax",
    ),
}


def window_of(mask, width):
    near = shifted(mask, 0) & ~shifted(mask, -width)
    return torch.where(near, 0.0, torch.finfo(mask.dtype).min)


@pytest.mark.parametrize("planted", [None, *DECLARED])
def test_attention_that_a_model_writes_out_against_what_its_layers_declare(planted, models, monkeypatch):
    """Recorded as it is, an eager model whose layer 1 does otherwise than it declares is found there; the healthy one
    is silent.
    """
    from transformers.models.mistral import modeling_mistral

    from regard.lens.look import look

    attend, check, severity, words = DECLARED.get(planted, (written(), None, None, ""))
    model, given = models("mistral")
    monkeypatch.setattr(modeling_mistral, "eager_attention_forward", attend)
    model.set_attn_implementation("eager")

    found = alarms(checks(look(model, inputs=given, values=True), model))

    assert [(finding.check, finding.severity, finding.call) for finding in found] == (
        [] if planted is None else [(check, severity, 1)]
    )
    assert all(words in finding.cause for finding in found)


def test_a_scale_that_was_changed_on_the_layer_itself(models):
    """Where the layer declares the wrong scale as well, the one that its class builds tells, in every layer."""
    from regard.lens.look import look

    model, given = models("llama")
    model.set_attn_implementation("sdpa")
    layers = [layer.self_attn for layer in model.model.layers]
    right = layers[0].scaling
    for changed, factor, cause in ((layers[1:2], 2, "doubled"), (layers, 1 / right, "missing")):
        try:
            for layer in changed:
                layer.scaling = factor * right
            found = alarms(checks(look(model, inputs=given), model))
        finally:
            for layer in layers:
                layer.scaling = right

        expected = [("scale", "fault", layers.index(layer)) for layer in changed]
        assert [(finding.check, finding.severity, finding.call) for finding in found] == expected
        assert all(cause in each.cause and each.numbers["factor"] == pytest.approx(factor) for each in found)
