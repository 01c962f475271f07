"""Masks and padding that the caller gives: healthy models stay silent, and faults behind them are found."""

import random

import pytest
import torch
import transformers
from torch import nn
from transformers.models.llama import modeling_llama

from bench.audit_alarms.of_torch import decoder, encoder, layer, multihead, transformer
from regard.audits import audit
from regard.torch.hf.tiny_models import config_class, random_model, tiny_config, tiny_model
from tests.audits.small_audits import audited, checked, healthy
from tests.support.small_model import BEHAVIOUR


def tokens(choose, prefix="", left=True):
    """What tokenizer(padding=True) returns for one text, with padding at a random end."""
    n, count = choose.choice([9, 12, 15]), choose.choice([1, 3, 4])
    ids, mask = torch.randint(3, 50, (1, n)), torch.ones(1, n, dtype=torch.long)
    at = slice(0, count) if left and choose.random() < 0.5 else slice(n - count, n)
    ids[:, at], mask[:, at] = 0, 0
    return {f"{prefix}input_ids": ids, f"{prefix}attention_mask": mask}


@pytest.mark.parametrize("name", ["llama", "gemma2", "bloom", "opt", "modernbert"])
def test_padding_in_the_given_mask(name):
    """What a model returns for padding is undefined, and generation starts from the real tokens."""
    choose, model = random.Random(name), tiny_model(name)
    for implementation in ("eager", "sdpa") if model._supports_sdpa else ("eager",):
        model.set_attn_implementation(implementation)
        healthy(audit(model, inputs=tokens(choose), checks=BEHAVIOUR), "padding-leak", "batch-dependence")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["t5", "marian", "led", "m2m_100"])
def test_masks_of_encoder_and_decoder(name):
    """Padding of the decoder is not decoded; encoder and decoder may have the same length."""
    choose = random.Random(f"{name} 5496")  # 15 and 9 tokens
    model = tiny_model(name)
    inputs = tokens(choose) | tokens(choose, "decoder_", left=False)
    same = tokens(choose)
    same |= {f"decoder_{key}": part.flip(1) if key == "input_ids" else part * 0 + 1 for key, part in same.items()}

    for given in (inputs, same):
        healthy(audit(model, inputs=given, checks=BEHAVIOUR), "cache", "future-leak", "padding-leak")


HEADED = ["llama", "gpt2", "bert", "deberta-v2", "modernbert", "xlnet", "t5"]
HEADS = ["SequenceClassification", "TokenClassification", "QuestionAnswering"]
HEADS_OF = [(name, head) for name in HEADED for head in HEADS]
HEADS_OF += [("bart", head) for head in HEADS if head != "TokenClassification"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "head"), HEADS_OF)
def test_heads_for_tokens_and_for_texts(name, head):
    """One output for all tokens, for each of them, or of a decoder whose input the model makes itself."""
    mapping = getattr(transformers, f"AutoModelFor{head}")._model_mapping
    config = tiny_config(config_class(name), decoder_start_token_id=0)
    inputs = tokens(random.Random(name + head))
    if config.is_encoder_decoder:
        last = inputs["attention_mask"][0].nonzero().max()
        inputs["input_ids"][0, last] = config.eos_token_id  # marks the text's end

    healthy(audit(random_model(mapping[type(config)], config), inputs=inputs, checks=BEHAVIOUR))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["bart", "pegasus", "t5", "marian", "led"])
def test_a_decoder_that_is_given_no_input(name):
    """What a tokenizer returns is enough: the decoder gets random tokens."""
    inputs = tokens(random.Random(name))
    healthy(audit(tiny_model(name), inputs=inputs, checks=BEHAVIOUR), "future-leak", "padding-leak")


def test_given_token_types_are_passed_in_every_step():
    """Inputs with an entry for each token are sliced, not dropped, where tokens are decoded one by one."""
    inputs = {"input_ids": torch.randint(3, 50, (1, 15)), "token_type_ids": torch.arange(15)[None] % 7 + 3}

    healthy(audit(tiny_model("gpt2"), inputs=inputs, checks=["cache"]), "cache")


@pytest.mark.parametrize("make", [encoder, layer, decoder, transformer, multihead])
def test_modules_of_torch_with_masks(make):
    """Causal masks, padding masks, and other numbers of queries and keys, by name and by position."""
    for number in range(6):
        choose = random.Random(f"{make.__name__} {number}")
        torch.manual_seed(number)
        module, arguments = make(choose)

        healthy(audit(module, **arguments))


def test_keys_that_a_cross_attention_does_not_mask():
    """With other numbers of queries and keys, padding is added to keys and values, not to queries."""

    class Ignoring(nn.MultiheadAttention):
        def forward(self, query, key, value, key_padding_mask=None):
            return super().forward(query, key, value, need_weights=False)

    inputs = (torch.randn(1, 12, 16), *[torch.randn(1, 7, 16)] * 2, torch.arange(7)[None] > 4)

    assert checked(audited(Ignoring(16, 2, batch_first=True), inputs, None, ["padding-leak"]).findings) == {
        "padding-leak"
    }


def test_speech_models_decode_random_tokens():
    """Inputs are tried one after the other: what one of them lacks says nothing about the next."""
    for name in ("whisper", "speech_to_text"):
        healthy(audit(tiny_model(name), checks=["future-leak", "cache"]), "future-leak", "cache")


@pytest.mark.parametrize("more", ["labels", "nothing", "embeddings"])
def test_what_is_passed_beside_the_tokens(more):
    """Labels, arguments that are None, and embeddings as the input of the decoder."""
    model = tiny_model("bart")
    given = tokens(random.Random(more)) | {"decoder_input_ids": torch.randint(3, 50, (1, 11))}
    if more == "labels":
        given["labels"] = given["decoder_input_ids"]
    elif more == "nothing":
        given["attention_mask"] = None
    else:
        given["decoder_inputs_embeds"] = torch.randn(1, *given.pop("decoder_input_ids").shape[1:], model.config.d_model)

    found = audit(model, inputs=given, checks=["future-leak", "padding-leak", "cache"])
    healthy(found, "future-leak", "padding-leak")


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_text_that_fills_the_table_of_positions(name):
    """No padding can be added, and nothing generated after it: what remains is checked."""
    model = tiny_model(name, max_position_embeddings=24)

    found = audit(model, inputs={"input_ids": torch.randint(3, 50, (1, 24))}, checks=BEHAVIOUR)

    assert found.findings == () and "padding-leak" in checked(found.passed), str(found)


def test_a_model_that_raises_while_decoding_has_a_fault(monkeypatch):
    """It takes a cache, so an error with one is no remark."""
    own = modeling_llama.LlamaAttention.forward

    def failing(self, hidden_states, *args, **kwargs):
        if hidden_states.shape[1] == 1:
            raise IndexError("one token")
        return own(self, hidden_states, *args, **kwargs)

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", failing)
    (found,) = audit(tiny_model("llama"), checks=["cache", "position-offset"]).findings

    assert (found.check, found.severity) == ("cache", "fault") and "IndexError: one token" in found.measured
