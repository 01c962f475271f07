"""However a model is asked for its attention weights, it returns on regard what it returns on its own attention."""

import pytest
import torch
import transformers as T

from regard.torch.hf import attend
from regard.torch.hf.tiny_models import accepted
from tests.torch.hf.models import built, on, tokens
from tests.torch.hf.training_scan import steady

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
