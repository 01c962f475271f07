"""Every mistake that is planted into a layer is found and named, there; the healthy twin is silent."""

from dataclasses import replace

import pytest
import torch

import regard as rg
from regard.audits.finding import Finding, Passed
from tests.support.runs import alarms, call_of, checks, run_of, shifted


class Capture:
    """An attention implementation of transformers: it records its arguments for batch entry 0, and runs with those that
    `plant` returns.

    plant(arguments) -> arguments for the layers in `at`: q, k, v, scale, allowed (H, Q, K), softcap, bias and sinks of
    all entries.
    """

    def __init__(self, plant=None, at=(1,)):
        self.plant, self.at, self.calls, self.names = plant, at, [], {}

    def __call__(
        self,
        module,
        query,
        key,
        value,
        attention_mask,
        *,
        scaling=None,
        softcap=None,
        position_bias=None,
        s_aux=None,
        **_,
    ):
        arguments = {
            "q": query,
            "k": key,
            "v": value,
            "scale": query.shape[-1] ** -0.5 if scaling is None else scaling,
            "allowed": attention_mask,
            "softcap": softcap,
            "bias": position_bias,
            "sinks": s_aux,
        }
        layer = len(self.calls)
        out = carried_out(**(self.plant(dict(arguments)) if self.plant and layer in self.at else arguments))
        self.note(module, layer, arguments, out)
        return out.transpose(1, 2).contiguous(), None

    def note(self, module, layer, arguments, out):
        K, Q = arguments["k"].shape[2], arguments["q"].shape[2]
        q, k, v, out = (part[0].detach().numpy() for part in (arguments["q"], arguments["k"], arguments["v"], out))
        allowed, bias = arguments["allowed"], arguments["bias"]
        score = (
            rg.softcap(arguments["softcap"])
            if arguments["softcap"]
            else rg.bias(bias[0].detach().numpy(), query_start=K - Q)
            if bias is not None
            else None
        )
        mask = None if allowed is None else rg.dense(allowed[0].expand(1, Q, K).numpy(), query_start=K - Q)
        sinks = None if arguments["sinks"] is None else arguments["sinks"].detach().numpy()
        self.calls.append(
            call_of(
                q,
                k,
                v,
                out,
                name=self.names[module],
                layer=layer,
                mask=mask,
                score=score,
                scale=arguments["scale"],
                sinks=sinks,
                notes={"kind": "planted"},
            )
        )


def carried_out(q, k, v, scale, allowed, softcap, bias, sinks):
    """Attention, written out."""
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    scores = scale * q @ k.transpose(-1, -2)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    if sinks is not None:
        scores = torch.cat([scores, sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    return torch.softmax(scores, -1)[..., : k.shape[2]] @ v


def recorded(model, plant=None, at=(1,), **inputs):
    """(run, model) of a transformers model whose attention is `Capture`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    capture = Capture(plant, at)
    AttentionInterface.register("planted", capture)
    AttentionMaskInterface.register("planted", lambda **given: sdpa_mask(**given | {"allow_is_causal_skip": False}))
    model.set_attn_implementation("planted")
    capture.names = {module: name for name, module in model.named_modules()}
    with torch.no_grad():
        model(**inputs)
    return run_of(*capture.calls), model


def without(name):
    return lambda arguments: arguments | {name: None}


def scaled(change):
    return lambda arguments: arguments | {"scale": change(arguments["scale"], arguments["q"].shape[-1])}


def masked(change):
    return lambda arguments: arguments | {"allowed": change(arguments["allowed"])}


def tiled(arguments):
    repeats = arguments["q"].shape[1] // arguments["k"].shape[1]
    return arguments | {name: arguments[name].repeat(1, repeats, 1, 1) for name in "kv"}


def next_head(arguments):
    return arguments | {"v": arguments["v"].roll(-1, 1)}


PLANTED = {
    "scale left out": ("llama", scaled(lambda scale, D: 1.0), "scale", "no scale"),
    "scale doubled": ("llama", scaled(lambda scale, D: 2 * scale), "scale", "twice the scale"),
    "scale inverted": ("llama", scaled(lambda scale, D: D**0.5), "scale", "scale √D"),
    "root forgotten": ("llama", scaled(lambda scale, D: 1 / D), "scale", "applied twice"),
    "some other scale": ("llama", scaled(lambda scale, D: 1.3 * scale), "scale", "1.3 times as large"),
    "mask ignored": ("llama", without("allowed"), "mask", "no mask at all"),
    "sees the next token": ("llama", masked(lambda allowed: shifted(allowed, 1)), "mask", "one key more on the right"),
    "inverted mask": ("llama", masked(lambda allowed: ~allowed), "mask", "inverted"),
    "window one too short": (
        "mistral",
        masked(lambda allowed: allowed & ~shifted(allowed, -3)),
        "mask",
        "one key less on the left",
    ),
    "window ignored": ("mistral", masked(lambda allowed: shifted(allowed, 0)), "mask", "a causal mask alone"),
    "heads tiled": ("mistral", tiled, "groups", "mod 2"),
    "values of the next head": ("llama", next_head, "heads", "v of the next head"),
    "softcap dropped": ("gemma2", without("softcap"), "softcap", "without the softcap"),
    "sinks dropped": ("gpt_oss", without("sinks"), "sinks", "without its sinks"),
    "bias dropped": ("t5", without("bias"), "bias", "without the bias"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_found_named_and_placed(planted, models):
    """One layer that does something else than its arguments specify is a fault of that layer alone, by the name of the
    mistake.
    """
    name, plant, check, words = PLANTED[planted]
    model, given = models(name)

    found = alarms(checks(*recorded(model, plant, **given)))

    assert [(finding.check, finding.severity, finding.call) for finding in found] == [(check, "fault", 1)]
    assert words in found[0].measured and found[0].where.startswith("call 1 (")


@pytest.mark.parametrize("name", sorted({name for name, *_ in PLANTED.values()}))
def test_the_healthy_twin_is_silent(name, models):
    """The same models without a mistake: no fault, no warning, and the outputs were really compared."""
    model, given = models(name)

    results = list(checks(*recorded(model, **given)))

    assert alarms(results) == []
    assert any(isinstance(found, Passed) and found.check == "output" for found in results)


def test_two_mistakes_at_once_are_both_named(models):
    """A layer without scale and mask is found by both checks."""
    model, given = models("llama")

    found = alarms(checks(*recorded(model, lambda arguments: arguments | {"scale": 1.0, "allowed": None}, **given)))

    assert {finding.check for finding in found} == {"scale", "mask"} and all(
        "no mask at all" in finding.measured for finding in found
    )


def test_padding_that_the_mask_forgets(models):
    """Left padding that an implementation does not mask is a mask of which only causality is applied."""
    model, given = models("llama")
    seen = torch.ones(1, 12, dtype=torch.long)
    seen[0, :4] = 0
    plant = masked(lambda allowed: shifted(allowed, 0))

    found = alarms(checks(*recorded(model, plant, **given, attention_mask=seen)))
    healthy = list(checks(*recorded(model, **given, attention_mask=seen)))

    assert [(finding.check, finding.call) for finding in found] == [("mask", 1)] and "a causal mask alone" in found[
        0
    ].measured
    assert alarms(healthy) == []


def test_a_mask_aligned_at_the_wrong_end(models):
    """Three new rows over a cache: a mask that begins at the top left is a matter of alignment."""
    from transformers import DynamicCache

    model, given = models("llama")

    def stepped(plant):
        cache = DynamicCache(config=model.config)
        ids = given["input_ids"]
        recorded(model, input_ids=ids[:, :9], past_key_values=cache)
        return alarms(checks(*recorded(model, plant, input_ids=ids[:, 9:], past_key_values=cache)))

    found = stepped(masked(lambda allowed: shifted(allowed, 0)))

    assert [(finding.check, finding.call) for finding in found] == [("alignment", 1)] and "top left" in found[
        0
    ].measured
    assert stepped(None) == []


# Numbers, rows, weights, heads ----------------------------------------------------------------------------------------


def test_the_first_nan_is_placed(models):
    """A NaN weight shows first in what it makes; what follows is only counted."""
    from regard.lens.look import look

    model, given = models("llama")
    model.set_attn_implementation("sdpa")
    weight = model.model.layers[1].self_attn.v_proj.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight[3] = float("nan")
        found = alarms(checks(look(model, inputs=given), model))
        weight.copy_(before)

    assert [(finding.check, finding.call, finding.numbers["array"]) for finding in found] == [("numbers", 1, "v")]


def test_what_ran_and_what_never_arrived(models):
    """A layer set to one implementation that runs another is noted; layers of which no call was seen are a warning."""
    from regard.lens.look import look

    model, given = models("llama")
    model.set_attn_implementation("sdpa")
    run = look(model, inputs=given)
    model.set_attn_implementation("eager")
    after = [found for found in checks(run, model, ["implementation"]) if isinstance(found, Finding)]
    fewer = replace(run, calls=run.calls[:1])

    assert [(found.check, found.severity) for found in after] == [("implementation", "note")] * 2
    assert [found.check for found in alarms(checks(fewer, model))] == ["arrived"]
    assert [type(found) for found in checks(run, model, ["arrived"])] == [Passed]
