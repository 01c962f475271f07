"""The recorder: what each attention call was given, kept so that any part of its weights can be computed afterwards;
and weights that a model is asked for.
"""

import pickle
import threading
from collections import defaultdict

import numpy as np
import pytest
import torch
import transformers as T

import regard.torch.hf
from regard.torch.hf import attend
from regard.torch.hf import attention as hf
from regard.torch.hf.tiny_models import accepted
from tests.support.refusals import refusing
from tests.torch.hf.models import GREEDY, built, claimed, on, tokens
from tests.torch.hf.training_scan import steady

IDS = tokens()["input_ids"]


def recorded(name: str):
    """The calls of a model for a padded batch, and the weights that eager returns, by their kind."""
    model, inputs = built(name), tokens("left")
    inputs |= {"decoder_input_ids": IDS.flip(1)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        with hf.record(model) as calls:
            model(**inputs)
        out = on(model, "eager")(**inputs, output_attentions=True)
    return calls, {kind: [part.numpy() for part in out[kind]] for kind in out if kind.endswith("attentions")}


def agree(calls, theirs):
    """Equal but for rows that may attend nothing: regard gives 0 there, eager the mean over all keys."""
    for call, wanted in zip(calls, theirs, strict=True):
        ours = call.weights()
        empty = (ours == 0).all(-1, keepdims=True)
        assert call.shape == wanted.shape and not empty.all()
        np.testing.assert_allclose(ours, np.where(empty, 0, wanted), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "llama", "mistral", "gemma2", "gpt_oss", "t5", "bart"])
def test_weights_afterwards_are_the_models_weights(name):
    """Layer by layer the weights equal those that eager returns; names tell the three kinds of an encoder-decoder
    apart.
    """
    calls, wanted = recorded(name)
    found = defaultdict(list)
    for call in calls:
        cross = "EncDec" in call.name or "encoder_attn" in call.name
        kind = "cross_" if cross else "decoder_" if "decoder." in call.name else "encoder_"
        found[f"{kind if len(wanted) > 1 else ''}attentions"].append(call)
    assert found.keys() == wanted.keys() and [call.index for call in calls] == [*range(len(calls))]
    for kind, same in found.items():
        assert [call.layer for call in same] == [0, 1]
        agree(same, wanted[kind])


def test_any_rectangle():
    """Rows, keys and heads may be chosen in every way that an axis can be indexed; nothing else is computed."""
    call = recorded("llama")[0][1]
    whole = call.weights()
    np.testing.assert_array_equal(
        call.weights(rows=[5, 0], keys=slice(1, 4), heads=[3, 1]), whole[:, [3, 1]][:, :, [5, 0], 1:4]
    )
    np.testing.assert_array_equal(call.weights(rows=-1, keys=2, heads=2), whole[:, 2:3, -1:, 2:3])
    np.testing.assert_array_equal(call.weights(heads=np.array([True, False, False, True])), whole[:, [0, 3]])
    assert call.weights(heads=[], rows=[1]).shape == (2, 0, 1, 9)
    for outside in ({"heads": 4}, {"heads": "all"}, {"rows": 9}, {"keys": [9]}):
        with refusing("fix  "):
            call.weights(**outside)


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static"}], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "t5"])
def test_generation_with_a_cache(name, cache):
    """Several calls per module, each with the keys of its moment, though a static cache has been overwritten since."""
    options = tokens("left") | cache | GREEDY | {"max_new_tokens": 6}
    model = built(name)
    with hf.record(model) as calls:
        model.generate(**options)
    out = on(model, "eager").generate(**options, output_attentions=True, return_dict_in_generate=True)
    steps = out.decoder_attentions if name == "t5" else out.attentions
    own = "decoder" if name == "t5" else "self_attn"
    assert len(steps) == 6
    agree(
        [call for call in calls if own in call.name and "EncDec" not in call.name],
        [layer.numpy() for step in steps for layer in step],
    )


def test_a_call_is_plain_data():
    """It can be saved and read elsewhere, and gives the same weights."""
    call = recorded("gpt_oss")[0][0]
    assert isinstance(call, regard.torch.hf.RecordedCall)
    again = pickle.loads(pickle.dumps(call))
    assert isinstance(call.q, np.ndarray) and isinstance(call.k, np.ndarray) and repr(again.mask) == repr(call.mask)
    np.testing.assert_array_equal(again.weights(), call.weights())


def test_what_the_user_changes_later_does_not_matter():
    """A mask of the user's own reaches attention untouched, and is copied, once for all layers."""
    model = built("llama")
    mask = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(1)) < 0.7
    with torch.no_grad(), hf.record(model) as calls:
        model(input_ids=IDS, attention_mask=mask)
    before, kept = calls[0].weights(), mask.numpy().copy()
    mask.fill_(True)
    np.testing.assert_array_equal(calls[0].weights(), before)
    assert ((before > 0) == kept).all() and calls[0].mask is calls[1].mask


def test_only_this_model_inside_this_block():
    """Other models, calls of other threads and calls after the block are not recorded; contexts may be nested."""
    first, second = built("llama"), built("bert")

    @torch.no_grad()
    def elsewhere():
        first(input_ids=IDS)

    with torch.no_grad(), hf.record(first) as outer:
        second(input_ids=IDS)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert outer == []
        first(input_ids=IDS)
        with hf.record(first) as inner, hf.record(second) as other:
            first(input_ids=IDS)
            second(input_ids=IDS)
    elsewhere()
    assert (len(outer), len(inner), len(other)) == (4, 2, 2)
    assert all("self_attn" in call.name for call in inner)


def test_a_model_on_another_implementation_is_refused():
    """The recorder says what the model runs on and how to change it."""
    with refusing("set_attn_implementation"), hf.record(built("bert", "sdpa")):
        pass


def test_a_block_without_a_call_is_refused():
    """Silence would look like a model without attention."""
    with refusing("no attention call"), hf.record(built("bert")):
        pass
    model = claimed("deberta-v2")
    with torch.no_grad(), refusing("no attention call"), hf.record(model):
        model(input_ids=IDS)


def test_an_error_inside_the_block_is_the_error():
    """What went wrong in the block is what is reported, not the missing calls."""
    with pytest.raises(KeyError), hf.record(built("bert")):
        raise KeyError("mine")


# ---- weights that a model collects -----------------------------------------------------------------------------------

# Models that pass `output_attentions` on to their attention, and models that do not; one with a part of its own, two
# with cross-attention.
NAMES = ["llama", "bert", "gpt2", "opt", "stablelm", "siglip_vision_model", "paligemma", "bart", "t5", "moonshine"]
# How to ask: the argument; the configuration of the model, or of all its parts, before and after regard is chosen.
WAYS = ["argument", "before", "after", "all parts before", "all parts after"]


def asked(name: str, way: str, implementation: str):
    """A model on an implementation, asked for weights in one way, and the argument of its call."""
    model = built(name, "eager")
    configs = [part.config for part in model.modules() if hasattr(part, "config")] if "all" in way else [model.config]
    for config in configs if "before" in way else ():
        config.output_attentions = True
    on(model, implementation)
    for config in configs if "after" in way else ():
        config._output_attentions = True  # transformers' own setter refuses, unless on eager
    return model, {"output_attentions": True} if way == "argument" else {}


def weights(output) -> dict[str, tuple[torch.Tensor, ...]]:
    """The weights in a model's output, by name."""
    return {name: parts for name, parts in output.items() if "attentions" in name}


@pytest.mark.spread
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_no_way_of_asking_is_ignored(name, way):
    """As many weights as on eager, with the same values."""
    found = []
    for implementation in ("eager", "regard"):
        model, more = asked(name, way, implementation)
        with torch.no_grad():
            found.append(weights(model(**accepted(model), **more)))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-4)
    assert sum(map(len, found[0].values())) > 0 or way in ("before", "after")  # others have the parts' own


@pytest.mark.spread
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name, way", [("gpt2", "argument"), ("llama", "all parts before"), ("t5", "argument")])
def test_collected_weights_and_checkpoints(name, way, reentrant):
    """What checkpointing computes again in the backward, where nobody collects, is what was computed before."""
    gradients = []
    for implementation in ("eager", "regard"):
        model, more = asked(name, way, implementation)
        given = accepted(steady(model))
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        output = model(**given, labels=given["input_ids"], use_cache=False, **more)
        assert sum(map(len, weights(output).values())) > 0
        output.loss.backward()
        gradients.append(torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None]))
    assert (gradients[0] - gradients[1]).abs().max() < 1e-4 * gradients[0].abs().max()


def test_nobody_pays_for_weights_that_nobody_wants():
    """Without asking, attention returns none; the argument overrules the configuration."""
    q = torch.randn(1, 2, 3, 8)
    module = torch.nn.Module()
    module.config = None
    assert attend(module, q, q, q, None, is_causal=False)[1] is None
    module.config = T.LlamaConfig(output_attentions=True)
    assert attend(module, q, q, q, None, is_causal=False)[1].shape == (1, 2, 3, 3)
    assert attend(module, q, q, q, None, is_causal=False, output_attentions=False)[1] is None


def test_weights_are_on_the_way_to_the_output():
    """The gradients of the weights, and what a hook makes of them, are those of eager attention: for explanations of
    models that read or change them.
    """
    found = []
    for implementation in ("eager", "regard"):
        model = built("llama", implementation)
        out = model(**tokens(), output_attentions=True)
        first = out.attentions[0]
        first.retain_grad()
        first.register_hook(lambda gradient: gradient.clamp(max=0))
        out.logits[0, -1, 1].backward()
        found.append([first.grad, *(parameter.grad for parameter in model.parameters())])
    assert found[0][0].abs().max() > 0
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
