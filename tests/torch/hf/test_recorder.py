"""The recorder: what each attention call was given, kept so that any part of its weights can be computed afterwards."""

import pickle
import threading

import numpy as np
import pytest
import torch
import transformers as T

import regard.torch.hf
from regard import Refused
from regard.torch.hf import attention as hf
from tests.support.hf_models import MODELS, TEXT

T.logging.set_verbosity_error()
IDS = torch.randint(3, 64, (2, 7), generator=torch.Generator().manual_seed(5))
LEFT = torch.ones_like(IDS)
LEFT[1, :2] = 0


@pytest.fixture(autouse=True)
def _registered():
    hf.register()


def built(name: str, implementation: str = "regard"):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    model.set_attn_implementation(implementation)
    return model


def inputs_of(model):
    inputs = {"input_ids": IDS, "attention_mask": LEFT}
    return inputs | ({"decoder_input_ids": IDS.flip(1)} if model.config.is_encoder_decoder else {})


def recorded(name: str):
    model = built(name)
    with torch.no_grad(), hf.record(model) as calls:
        model(**inputs_of(model))
    return calls


def eager_weights(name: str):
    """Per kind of attention, the weights of each layer."""
    model = built(name, "eager")
    with torch.no_grad():
        out = model(**inputs_of(model), output_attentions=True)
    return {kind: [part.numpy() for part in out[kind]] for kind in out if kind.endswith("attentions")}


def agree(ours, theirs):
    """Equal but for rows that may attend nothing: regard gives 0 there, eager the mean over all keys."""
    empty = (ours == 0).all(-1, keepdims=True)
    np.testing.assert_allclose(ours, np.where(empty, 0, theirs), rtol=0, atol=2e-6)
    assert not empty.all()


@pytest.mark.parametrize("name", ["bert", "llama", "mistral", "gemma2", "gpt-oss"])
def test_weights_afterwards_are_the_models_weights(name):
    """Layer by layer the weights equal those that eager returns."""
    calls = recorded(name)
    assert [(call.index, call.layer) for call in calls] == [(0, 0), (1, 1)]
    for call, theirs in zip(calls, eager_weights(name)["attentions"], strict=True):
        assert call.shape == theirs.shape
        agree(call.weights(), theirs)


@pytest.mark.parametrize(
    ("name", "words"), [("t5", ("SelfAttention", "EncDecAttention")), ("bart", ("self_attn", "encoder_attn"))]
)
def test_names_tell_encoder_decoder_and_cross_attention_apart(name, words):
    """An encoder-decoder gives three kinds of calls, told by their names, with eager's weights."""
    calls, want = recorded(name), eager_weights(name)
    own, cross = words
    kinds = {
        "encoder_attentions": [call for call in calls if "encoder." in call.name and "decoder." not in call.name],
        "decoder_attentions": [call for call in calls if "decoder." in call.name and own in call.name],
        "cross_attentions": [call for call in calls if "decoder." in call.name and cross in call.name],
    }
    for kind, found in kinds.items():
        assert [call.layer for call in found] == [0, 1]
        for call, theirs in zip(found, want[kind], strict=True):
            agree(call.weights(), theirs)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_any_rectangle(name):
    """Rows, keys and heads may be chosen in every way that an axis can be indexed; nothing else is computed."""
    call = recorded(name)[1]
    whole = call.weights()
    np.testing.assert_array_equal(
        call.weights(rows=[5, 0], keys=slice(1, 4), heads=[3, 1]), whole[:, [3, 1]][:, :, [5, 0], 1:4]
    )
    np.testing.assert_array_equal(call.weights(rows=-1, keys=2, heads=2), whole[:, 2:3, -1:, 2:3])
    np.testing.assert_array_equal(call.weights(heads=np.array([True, False, False, True])), whole[:, [0, 3]])
    assert call.weights(heads=[], rows=[1]).shape == (2, 0, 1, 7)
    for outside in ({"heads": 4}, {"heads": "all"}, {"rows": 7}, {"keys": [9]}):
        with pytest.raises(Refused, match="fix  "):
            call.weights(**outside)


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "t5"])
def test_generation_with_a_cache(name, cache):
    """Several calls per module, each with the keys of its moment, though a static cache has been overwritten since."""
    options = {"attention_mask": LEFT, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    options |= {} if cache is None else {"cache_implementation": cache}
    model = built(name)
    with hf.record(model) as calls:
        model.generate(IDS, **options)
    model.set_attn_implementation("eager")
    out = model.generate(IDS, **options, output_attentions=True, return_dict_in_generate=True)
    steps = out.decoder_attentions if model.config.is_encoder_decoder else out.attentions
    own = [
        call
        for call in calls
        if call.name.endswith("self_attn") or ("decoder" in call.name and "SelfAttention" in call.name)
    ]
    assert len(own) == 12 and len(steps) == 6
    for call, theirs in zip(own, (layer.numpy() for step in steps for layer in step), strict=True):
        agree(call.weights(), theirs)


def test_a_call_is_plain_data():
    """It can be saved and read elsewhere, and gives the same weights."""
    call = recorded("gpt-oss")[0]
    assert isinstance(call, regard.torch.hf.RecordedCall)
    again = pickle.loads(pickle.dumps(call))
    assert isinstance(call.q, np.ndarray) and isinstance(call.k, np.ndarray) and repr(again.mask) == repr(call.mask)
    np.testing.assert_array_equal(again.weights(), call.weights())


def test_what_the_user_changes_later_does_not_matter():
    """A mask of the user's own is copied, once for all layers."""
    model = built("llama")
    mask = torch.rand(2, 1, 7, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    with torch.no_grad(), hf.record(model) as calls:
        model(input_ids=IDS, attention_mask=mask)
    before = calls[0].weights()
    mask.fill_(True)
    np.testing.assert_array_equal(calls[0].weights(), before)
    assert (before == 0).any() and calls[0].mask is calls[1].mask


def test_only_this_model_inside_this_block():
    """Other models, and calls after the block, are not recorded; contexts may be nested."""
    first, second = built("llama"), built("bert")
    with torch.no_grad(), hf.record(first) as outer:
        second(input_ids=IDS)
        assert outer == []
        first(input_ids=IDS)
        with hf.record(first) as inner, hf.record(second) as other:
            first(input_ids=IDS)
            second(input_ids=IDS)
    with torch.no_grad():
        first(input_ids=IDS)
    assert (len(outer), len(inner), len(other)) == (4, 2, 2)
    assert all("self_attn" in call.name for call in inner)


def test_only_this_thread():
    """A call of the same model in another thread belongs to that thread."""
    model = built("bert")

    def elsewhere():
        with torch.no_grad():
            model(input_ids=IDS)

    with torch.no_grad(), hf.record(model) as calls:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert calls == []
        model(input_ids=IDS)
    assert len(calls) == 2


def test_a_model_on_another_implementation_is_refused():
    """The recorder says what the model runs on and how to change it."""
    with pytest.raises(Refused, match="set_attn_implementation"), hf.record(built("bert", "sdpa")):
        pass


def test_a_block_without_a_call_is_refused():
    """Silence would look like a model without attention."""
    with pytest.raises(Refused, match="no attention call"), hf.record(built("bert")):
        pass
    model = T.DebertaV2Model(T.DebertaV2Config(**TEXT)).eval()
    for part in model.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation_internal = "regard"
    with torch.no_grad(), pytest.raises(Refused, match="no attention call"), hf.record(model):
        model(input_ids=IDS)


def test_an_error_inside_the_block_is_the_error():
    """What went wrong in the block is what is reported, not the missing calls."""
    with pytest.raises(KeyError), hf.record(built("bert")):
        raise KeyError("mine")
