"""The recorder: what each attention call was given, kept so that any part of its weights can be computed afterwards."""

import pickle
import threading
from collections import defaultdict

import numpy as np
import pytest
import torch

import regard.torch.hf
from regard.torch.hf import attention as hf
from tests.support.refusals import refusing
from tests.torch.hf.models import GREEDY, built, claimed, on, tokens

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
