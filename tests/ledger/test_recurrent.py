"""Recurrent layers without data: shapes and states as of the model's own code, operations of the definition."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers as T
from torch.utils._pytree import tree_leaves

import regard as rg
from regard.ledger.build import subject
from regard.ledger.counting.passes import ran, run
from regard.ledger.stand_ins import STAND_INS, noted
from regard.torch.hf.tiny_models import config_class, model_class, tiny_config

T.logging.set_verbosity_error()

# A tiny model of each kind: Mamba, Mamba-2, gated delta rule, Kimi's delta rule, short convolutions.
KINDS = ("jamba", "bamba", "qwen3_next", "kimi_linear", "lfm2")


def tiny(name):
    """A tiny configuration of the architecture."""
    return tiny_config(config_class(name))


def states(name, phase, tokens, batch=2):
    """(path, operations) of the recurrences of one pass."""
    _, found, _ = ran(subject(tiny(name)), tokens, batch, phase)
    return [(path, state.flops) for path, state in found.recurrences]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("tokens", [1, 5, 70])
def test_states_and_outputs_have_the_shapes_of_the_models_own_code(name, tokens):
    """With data on the CPU, transformers' own functions run: the cache and the outputs are as large."""
    config = tiny(name)
    real = model_class(name)._from_config(config, attn_implementation="eager").eval()
    ids = torch.zeros(2, tokens, dtype=torch.long)
    with torch.no_grad():
        own = real(input_ids=ids, use_cache=True)
    made = subject(config)
    with torch.device("meta"), torch.no_grad(), noted(made.model, lambda: ""):
        ours = made.model(input_ids=ids.to("meta"), use_cache=True)
    assert ours.logits.shape == own.logits.shape

    def sizes(cache):
        """The shapes of all arrays of a cache."""
        arrays = tree_leaves([vars(layer) for layer in cache.layers])
        return [each.shape for each in arrays if isinstance(each, torch.Tensor) and each.ndim > 1]

    assert sizes(ours.past_key_values) == sizes(own.past_key_values) != []


@pytest.mark.parametrize("name", ["jamba", "bamba", "qwen3_next", "kimi_linear"])
def test_a_recurrence_costs_as_much_token_by_token(name):
    """n tokens at once have n times the operations of one token after others, and B sequences B times those of one."""
    one = dict(states(name, "decode", 9))
    assert one and dict(states(name, "prefill", 13)) == {path: 13 * flops for path, flops in one.items()}
    assert dict(states(name, "decode", 9, batch=6)) == {path: 3 * flops for path, flops in one.items()}


def test_operations_of_the_definition():
    """Mamba-2: two products with each number of the state, of heads · depth · state size numbers."""
    config = tiny("bamba")
    numbers = config.mamba_n_heads * config.mamba_d_head * config.mamba_d_state
    assert [flops for _, flops in states("bamba", "prefill", 7, batch=3)] == [4 * numbers * 7 * 3]


def held(name):
    """The functions of the architecture's file that a pass replaces."""
    module = __import__(model_class(name).__module__, fromlist=["x"])
    return {each: getattr(module, each) for each in STAND_INS if hasattr(module, each)}


def test_everything_is_put_back_after_an_error():
    """A pass that fails in the middle leaves transformers as it was."""
    before = held("qwen3_next")
    model = subject(tiny("qwen3_next")).model
    model.lm_head.register_forward_hook(lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError), torch.device("meta"):
        run(model, {"input_ids": torch.zeros(1, 4, dtype=torch.long, device="meta")}, "prefill")
    assert before and held("qwen3_next") == before


def test_another_thread_computes_meanwhile():
    """While a pass runs in one thread, and while passes begin and end, the model computes in another as before."""
    torch.manual_seed(0)
    model = model_class("bamba")._from_config(tiny("bamba"), attn_implementation="eager").eval()
    ids = torch.randint(3, 50, (2, 9))
    before = held("bamba")
    with torch.no_grad():
        expected = model(input_ids=ids).logits

    def computed():
        """The logits that another thread computes now."""
        with ThreadPoolExecutor(1) as other:
            return other.submit(torch.no_grad()(model), input_ids=ids).result().logits

    made = subject(tiny("bamba"))
    with noted(made.model, lambda: "") as outer:
        with noted(made.model, lambda: ""):
            assert torch.equal(computed(), expected)
        assert torch.equal(computed(), expected) and not outer.states
    assert held("bamba") == before


@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_a_model_without_attention_decodes_with_its_states(name):
    """What it keeps for the next token does not grow with the tokens before it."""
    sizes = {"num_heads": 4, "head_dim": 16, "n_groups": 1} if name == "mamba2" else {}
    config = config_class(name)(hidden_size=32, num_hidden_layers=2, vocab_size=64, **sizes)
    short, long = (rg.cost(config, tokens=tokens, phase="decode") for tokens in (8, 80))

    assert short.memory.states == long.memory.states > 0 == short.memory.kv_cache.value
    assert short.forward == long.forward and short.recurrent.formula > 0
