"""However a model is asked for its attention weights, it returns on regard what it returns on its own attention."""

import pytest
import torch
import transformers as T

from regard.torch.hf import attend, register
from regard.torch.hf.tiny_models import accepted, tiny_model
from tests.support.hf_models import GROUPED
from tests.torch.hf.training_scan import steady

T.logging.set_verbosity_error()

# Models that pass `output_attentions` on to their attention, and models that do not; one with a part of its own, two
# with cross-attention.
NAMES = ["llama", "bert", "gpt2", "opt", "stablelm", "siglip_vision_model", "paligemma", "bart", "t5", "moonshine"]
# How to ask: the argument; the configuration of the model, or of all its parts, before and after regard is chosen.
WAYS = ["argument", "before", "after", "all parts before", "all parts after"]


@pytest.fixture(autouse=True)
def _registered():
    register()


def asked(model, way: str, implementation: str) -> dict:
    """The model on an implementation, asked for weights in one way: the argument of its call."""
    whole = [model.config]
    configs = whole if "all parts" not in way else [part.config for part in model.modules() if hasattr(part, "config")]
    if "before" in way:
        model.set_attn_implementation("eager")
        for config in configs:
            config.output_attentions = True
    model.set_attn_implementation(implementation)
    if "after" in way:
        for config in configs:
            config._output_attentions = True  # transformers' own setter refuses, unless on eager
    return {"output_attentions": True} if way == "argument" else {}


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
        torch.manual_seed(0)
        model = tiny_model(name)
        given = accepted(model)
        with torch.no_grad():
            found.append(weights(model(**given, **asked(model, way, implementation))))
    want, found = found
    assert {n: len(parts) for n, parts in found.items()} == {n: len(parts) for n, parts in want.items()}
    assert sum(map(len, want.values())) > 0 or way in ("before", "after")  # others have the parts' own
    for part in want:
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found[part], want[part], strict=True))


def flattened(parts) -> list[torch.Tensor]:
    """Every tensor in nested tuples: of steps, and of layers."""
    return [parts] if isinstance(parts, torch.Tensor) else [each for part in parts for each in flattened(part)]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bart", "t5"])
def test_generation_gives_the_weights_of_every_step(name):
    """generate(output_attentions=True): for each token, the weights of every layer, and those of the encoder."""
    torch.manual_seed(0)
    model = tiny_model(name)
    ids, shapes, values = torch.randint(3, 50, (2, 7)), [], []
    for implementation in ("eager", "regard"):
        model.set_attn_implementation(implementation)
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=4,
            min_new_tokens=4,
            do_sample=False,
            pad_token_id=0,
            decoder_start_token_id=0 if model.config.is_encoder_decoder else None,
            output_attentions=True,
            return_dict_in_generate=True,
        )
        flat = {name: flattened(parts) for name, parts in weights(output).items() if parts is not None}
        shapes.append({n: [tuple(w.shape) for w in parts] for n, parts in flat.items()})
        values.append(flat)
    assert shapes[0] == shapes[1] and sum(map(len, shapes[0].values())) >= 8
    for part in values[0]:
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(values[0][part], values[1][part], strict=True))


@pytest.mark.spread
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("way", ["argument", "all parts before"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_collected_weights_and_checkpoints(name, way, reentrant):
    """What checkpointing computes again in the backward, where nobody collects, is what was computed before."""
    gradients = []
    for implementation in ("eager", "regard"):
        torch.manual_seed(0)
        model = tiny_model(name)
        given = accepted(steady(model))
        more = asked(model, way, implementation)
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        output = model(**given, labels=given["input_ids"], use_cache=False, **more)
        assert sum(map(len, weights(output).values())) > 0
        output.loss.backward()
        gradients.append(torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None]))
    assert (gradients[0] - gradients[1]).abs().max() < 1e-4 * gradients[0].abs().max()


def test_transformers_itself_refuses_the_configuration_of_a_model_on_regard():
    """Setting config.output_attentions on a model that runs on regard is an error, not silence."""
    model = tiny_model("llama")
    model.set_attn_implementation("regard")
    with pytest.raises(ValueError, match="output_attentions"):
        model.config.output_attentions = True


def test_nobody_pays_for_weights_that_nobody_wants():
    """Without asking, attention returns none; the argument overrules the configuration."""
    q = torch.randn(1, 2, 3, 8)
    module = torch.nn.Module()
    assert attend(module, q, q, q, None, is_causal=False)[1] is None
    module.config = T.LlamaConfig(output_attentions=True)
    assert attend(module, q, q, q, None, is_causal=False)[1].shape == (1, 2, 3, 3)
    assert attend(module, q, q, q, None, is_causal=False, output_attentions=False)[1] is None


@pytest.mark.parametrize("hook", [False, True], ids=["gradients", "changed by a hook"])
def test_weights_are_on_the_way_to_the_output(hook):
    """The gradients of the weights, and what a hook makes of them, are those of eager attention: for explanations of
    models that read or change them.
    """
    torch.manual_seed(0)
    model = T.LlamaForCausalLM(T.LlamaConfig(**GROUPED)).eval()
    found = []
    for name in ("eager", "regard"):
        model.set_attn_implementation(name)
        model.zero_grad()
        out = model(torch.arange(2, 9)[None], output_attentions=True)
        first = out.attentions[0]
        first.retain_grad()
        if hook:
            first.register_hook(lambda gradient: gradient.clamp(max=0))
        out.logits[0, -1, 1].backward()
        found.append([first.grad, *(parameter.grad.clone() for parameter in model.parameters())])
    assert found[0][0].abs().max() > 0
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-6)
