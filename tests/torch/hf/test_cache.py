"""Caches that append in place hold what transformers' own hold, after every operation."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    DynamicCache,
    FalconH1Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MoshiConfig,
)
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from regard.ledger.counting.passes import held
from regard.torch.hf import Cache, register
from regard.torch.hf.cache import GrowingLayer, GrowingWindow
from regard.torch.hf.stored_cache import StoredLayer
from tests.support.refusals import refusing

SIZES = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16}


def rounded(rows):
    """Rows as 8 bits hold them."""
    scales = rows.float().abs().amax(-1, keepdim=True) / 127
    return ((rows.float() / scales.where(scales > 0, 1)).round().clamp(-127, 127) * scales).to(rows.dtype)


class Rounding:
    def update(self, keys, values, *args, **kwargs):
        return super().update(rounded(keys), rounded(values), *args, **kwargs)


class Rounded(Rounding, DynamicLayer):
    pass


class RoundedWindow(Rounding, DynamicSlidingWindowLayer):
    pass


KINDS = {
    "all": (GrowingLayer, DynamicLayer),
    "pages": (lambda: StoredLayer(None, storage=None, pages=None), DynamicLayer),
    "8 bits": (lambda: StoredLayer(None, storage="int8", pages=None), Rounded),
    "window": (lambda: GrowingWindow(5), lambda: DynamicSlidingWindowLayer(5)),
    "window that can be cropped": (
        lambda: recording(GrowingWindow(5)),
        lambda: recording(DynamicSlidingWindowLayer(5)),
    ),
}


def recording(layer):
    layer.activate_past_recording()
    return layer


STEPS = {
    "append": lambda layer, n: layer,
    "crop": lambda layer, n: layer.crop(-min(n, layer.get_seq_length())),
    "reorder": lambda layer, n: layer.reorder_cache(torch.arange(layer.keys.shape[0]).flip(0)),
    "repeat": lambda layer, n: layer.batch_repeat_interleave(2),
    "select": lambda layer, n: layer.batch_select_indices(torch.tensor([0])),
    "reset": lambda layer, n: layer.reset(),
    "deep copy": lambda layer, n: copy.deepcopy(layer),
    "copy": lambda layer, n: copy.copy(layer),
    "pickle": lambda layer, n: pickle.loads(pickle.dumps(layer)),
    "gradients": lambda layer, n: append(layer, n, torch.enable_grad()),
    "inference": lambda layer, n: append(layer, n, torch.inference_mode()),
}


def append(layer, n, mode):
    """n rows behind those of the layer; returns the keys and values that attention gets, in memory of their own."""
    batch = layer.keys.shape[0] if layer.is_initialized and layer.keys.numel() else 2
    rows = torch.arange(batch * 3 * n * 2.0).reshape(batch, 3, n, 2) + 1000 * layer.get_seq_length() + n
    with mode:
        return [each.clone() for each in layer.update(rows, -rows)]


@given(st.sampled_from(list(KINDS)), st.lists(st.tuples(st.sampled_from(list(STEPS)), st.integers(1, 70)), max_size=12))
def test_every_operation(kind, steps):
    """Any sequence of appending, cropping, reordering, copying and saving."""
    mine, theirs = (make() for make in KINDS[kind])
    for step, n in steps:
        for found, expected in zip(*(append(each, n, torch.no_grad()) for each in (mine, theirs)), strict=True):
            assert torch.equal(found, expected)
        crop = step == "crop"
        if crop and kind == "window":
            continue
        results = [STEPS[step](each, n) for each in (mine, theirs)]
        if isinstance(results[0], DynamicLayer):
            mine, theirs = results
        elif results[0] is not None:
            assert all(map(torch.equal, *results))
        assert mine.get_seq_length() == theirs.get_seq_length() and mine.get_mask_sizes(3) == theirs.get_mask_sizes(3)
        if mine.is_initialized:
            assert torch.equal(mine.keys, theirs.keys) and torch.equal(mine.values, theirs.values)


def test_a_token_copies_no_key():
    """The rows that were there stay where they are, until their memory is full."""
    layer = GrowingLayer()
    append(layer, 1000, torch.no_grad())
    places = set()
    for _ in range(300):
        append(layer, 1, torch.no_grad())
        places.add(layer.keys.data_ptr())
    assert len(places) == 1


def test_the_ledger_counts_what_it_holds():
    """The bytes of keys and values, and not those of the room behind them."""
    cache = Cache(LlamaConfig(**SIZES))
    with torch.no_grad():
        for number in range(2):
            cache.update(torch.zeros(1, 4, 9, 4), torch.zeros(1, 4, 9, 4), number)
    assert held("past_key_values", cache) == (2 * 2 * 4 * 9 * 4 * 4, 0)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_go_on_alone(copied):
    """What a cache removes and appends does not change a copy of it, which shares no memory."""
    layer = GrowingLayer()
    append(layer, 3, torch.no_grad())
    other = copied(layer)
    kept = other.keys.clone()
    layer.crop(-2)
    append(layer, 2, torch.no_grad())
    assert not torch.equal(layer.keys, kept) and torch.equal(other.keys, kept)


def test_gradients_of_what_was_appended_before():
    """A tensor that autograd has saved does not change when more is appended."""
    layer, rows, weights = (
        GrowingLayer(),
        torch.ones(1, 1, 2, 3, requires_grad=True),
        torch.ones((), requires_grad=True),
    )
    first, _ = layer.update(rows, rows)
    loss = (first * weights).sum()
    layer.update(rows * 2, rows)
    loss.backward()
    assert weights.grad == 6 and torch.equal(rows.grad, torch.ones(1, 1, 2, 3))


WAYS = {
    "greedy": {},
    "sampling": {"do_sample": True},
    "beams": {"num_beams": 3},
    "a prompt's own words": {"prompt_lookup_num_tokens": 3},
    "chunks of the prompt": {"prefill_chunk_size": 4},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("window", [False, True])
def test_generated_tokens_are_the_same(way, window):
    """`generate` with transformers' own cache and with those of regard, one of which is the default after register():
    greedy and sampled tokens, beams, assisted decoding (crop), chunked prefill, padding on the left. A cache in 8 bits
    gives the logits of transformers' cache of rows that are rounded as documented.
    """
    register()
    torch.manual_seed(0)
    model = (
        MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=5))
        if window
        else LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))
    ).eval()
    model.double().set_attn_implementation("regard")
    ids = torch.arange(22).reshape(2, 11) % 7 + 3
    real = torch.ones_like(ids)
    real[0, :4] = 0
    if way == "a prompt's own words":
        ids, real = ids[1:], real[1:]
    config = model.config
    usual, own, precise = (DynamicCache(config=config) for _ in range(3))
    own.layers = [KINDS["window" if window else "all"][1]() for _ in own.layers]
    precise.layers = [RoundedWindow(5) if window else Rounded() for _ in own.layers]
    found = []
    for cache in (own, Cache(config), usual, precise, Cache(config, storage="int8")):
        torch.manual_seed(1)
        more = WAYS[way] | {"past_key_values": cache, "output_logits": True, "return_dict_in_generate": True}
        found.append(model.generate(ids, attention_mask=real, max_new_tokens=12, pad_token_id=0, **more))

    assert {type(layer) for layer in usual.layers} == {GrowingWindow if window else GrowingLayer}
    for expected, results in ((found[0], found[1:3]), (found[3], found[4:])):
        for result in results:
            assert torch.equal(result.sequences, expected.sequences)
            torch.testing.assert_close(result.logits, expected.logits)


LLAMA = LlamaConfig(**SIZES, num_key_value_heads=2)


@pytest.mark.parametrize(
    ("config", "options", "title"),
    [
        (LLAMA, {"storage": "int4"}, "unknown storage"),
        (LLAMA, {"pages": -1}, "pages"),
        (MoshiConfig(), {"pages": 4}, "the masks of this model have no window"),
        (FalconH1Config(num_hidden_layers=1), {"storage": "int8"}, "a layer has more than keys and values"),
    ],
)
def test_caches_that_cannot_be(config, options, title):
    with refusing(title):
        Cache(config, **options)


def test_a_full_cache_goes_on_with_what_it_has():
    """The pages are those of its size; what does not fit is refused, and a shorter text continues as it would have."""
    register()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LLAMA).eval()
    model.set_attn_implementation("regard")
    ids = torch.arange(130)[None] % 60
    cache = Cache(LLAMA, storage="int8", pages=1)
    with torch.no_grad():
        model(ids[:, :100], past_key_values=cache)
        with refusing("the storage is full"):
            model(ids[:, 100:], past_key_values=cache)
        found = model(ids[:, 100:128], past_key_values=cache).logits
        expected = model(ids[:, :128], past_key_values=Cache(LLAMA, storage="int8")).logits[:, 100:]
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0)
    assert [layer.store.nbytes for layer in cache.layers] == [128 * 2 * (4 + 4 + 8)] * 2


def test_stored_rows_are_only_read():
    """Operators of torch get copies; what would write to them, or needs their gradients, is refused."""
    layer = StoredLayer(None, storage="int8", pages=None)
    keys, values = layer.update(*torch.randn(2, 1, 2, 3, 8))
    for copied in (keys + 0, torch.zeros(1, 2, 3, 8).copy_(keys), copy.deepcopy(keys), torch.from_dlpack(keys)):
        assert type(copied) is torch.Tensor and torch.equal(copied, keys)
    with refusing("cannot be written to"):
        values.zero_()
    with refusing("has no gradients"):
        layer.update(torch.ones(1, 2, 1, 8, requires_grad=True), torch.ones(1, 2, 1, 8))
    assert layer.get_seq_length() == 3
