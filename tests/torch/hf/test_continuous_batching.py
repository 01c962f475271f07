"""Continuous batching: each request of `generate_batch` gets the tokens that its prompt gets alone."""

import torch
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from regard.torch.hf.continuous_batching import Requests
from tests.support.lanes import by_name
from tests.torch.hf.models import GREEDY, built

SIZES = {"vocab_size": 60, "max_position_embeddings": 512}
TEXT = torch.randint(3, 60, (400,), generator=torch.Generator().manual_seed(0)).tolist()
MIXED = [TEXT[-length:] for length in (300, 5, 130, 1, 200, 129)]
ALIKE = [TEXT[:260], TEXT[:280], TEXT[:200] + TEXT[-9:], TEXT[:260]]  # that share pages of what they begin with
CHUNKS = {"max_batch_tokens": 150}  # so that long prompts come in several calls, beside rows of other requests
CASES = {
    "whole": ("llama", MIXED, {}, {}),
    "a window": ("mistral", MIXED, {"sliding_window": 140}, CHUNKS),
    "windows, capped scores": ("gemma2", MIXED, {"sliding_window": 40}, CHUNKS),
    "windows, sinks": ("gpt_oss", MIXED, {"sliding_window": 40}, {}),
    "small pages": ("mistral", MIXED, {"sliding_window": 140}, {"page_size": 16}),
    "shared prefixes": ("llama", ALIKE, {}, {"max_requests_per_batch": 1}),
    "too few pages": ("llama", MIXED, {}, {"num_blocks": 4}),
}


@by_name("name, texts, model, settings", CASES)
def test_tokens(monkeypatch, name, texts, model, settings):
    """Pages of 128 positions are read in place, and smaller ones are copied."""
    in_place, usual = [], Requests._steps
    monkeypatch.setattr(Requests, "_steps", lambda *call: in_place.append(call) or usual(*call))
    model = built(name, **SIZES, **model).double()
    rules = GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0)
    usual_settings = {"max_memory_percent": 0.01, "page_size": 128, "max_batch_tokens": 512}
    found = model.generate_batch(texts, rules, ContinuousBatchingConfig(**usual_settings | settings))
    found = [found[name].generated_tokens for name in sorted(found, key=lambda name: int(name.rsplit("_")[-1]))]

    assert bool(in_place) == ("page_size" not in settings)
    model.set_attn_implementation("eager")
    for text, tokens in zip(texts, found, strict=True):
        ids = torch.tensor([text])
        alone = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, **GREEDY)
        assert tokens == alone[0, len(text) :].tolist()
