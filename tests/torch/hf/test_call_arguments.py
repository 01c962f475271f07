"""Every argument that reaches attention is used, known to belong elsewhere, or refused, for all of transformers."""

import inspect
from collections import Counter

import pytest
import torch
import transformers as T
from transformers.loss import loss_utils
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs
from transformers.utils import TransformersKwargs

from regard import Refused
from regard.torch.hf import attend, call_arguments, register
from regard.torch.hf.tiny_models import accepted, families, tiny_model
from tests import ROOT
from tests.torch.hf.reaching_arguments import reaching

T.logging.set_verbosity_error()

USED = set(inspect.signature(attend).parameters) - {"kwargs"}
IGNORED = {name for names in call_arguments.IGNORED.values() for name in names}
KNOWN = USED | IGNORED | set(call_arguments.REFUSED)
# Every kind of composition: one model, one with images, one with another family's text model, an encoder and a decoder.
SAMPLE = [
    "llama",
    "bert",
    "clip",
    "blip-2",
    "gemma4",
    "gemma4_unified",
    "paligemma",
    "internvl",
    "blt",
    "t5",
    "seamless_m4t",
]


@pytest.fixture(autouse=True)
def _registered():
    register()


def call(**kwargs):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    return attend(torch.nn.Identity(), q, k, v, None, **kwargs)[0]


def test_an_argument_has_one_meaning():
    """Nothing is both used and ignored, ignored and refused, or listed twice."""
    listed = Counter(
        [*USED, *(name for names in call_arguments.IGNORED.values() for name in names), *call_arguments.REFUSED]
    )
    assert max(listed.values()) == 1


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_belongs_elsewhere_changes_nothing(name):
    """An ignored argument leaves every bit as it was, whatever it is."""
    want = call()
    for value in (True, 7, torch.ones(1, 5), ["anything"]):
        assert torch.equal(want, call(**{name: value}))


@pytest.mark.parametrize("name", [*sorted(call_arguments.REFUSED), "labls", "temperature"])
def test_what_would_change_the_result_is_refused(name):
    """A refused or an unknown argument says what it is and what to do, unless it is None."""
    with pytest.raises(Refused, match=f"the argument {name} is not supported") as caught:
        call(**{name: torch.ones(1)})
    (reason,) = caught.value.reasons
    assert reason.given and reason.expected and reason.fix
    assert torch.equal(call(), call(**{name: None}))


def test_the_arguments_of_the_loss_are_known():
    """Whatever a loss of a language model takes from the call, attention takes without complaint."""
    made = {"logits", "source", "target", "vocab_size"}  # by the model, for its loss
    for loss in (loss_utils.ForCausalLMLoss, loss_utils.ForMaskedLMLoss, loss_utils.fixed_cross_entropy):
        takes = set(inspect.signature(loss).parameters) - {"kwargs"}
        assert takes - made <= IGNORED and takes & IGNORED


def test_the_arguments_of_all_models_are_known():
    """What transformers documents for the call of any model is used, ignored or refused."""
    names = {*TransformersKwargs.__annotations__, *FlashAttentionKwargs.__annotations__}
    assert len(names) > 10 and names <= KNOWN


@pytest.mark.parametrize("name", SAMPLE)
def test_what_reaches_attention_is_known(name):
    """Read from the code of the models: every name that one of their parts passes down to attention is listed."""
    found = reaching(name)
    assert found and {n: path for n, path in found.items() if n not in KNOWN} == {}


def test_the_reader_finds_what_is_known_to_arrive():
    """The reader of the models' code is not blind: these names do arrive."""
    assert "labels" in reaching("gemma4") and "decoder_input_ids" in reaching("blip-2")
    assert {"dropout", "scaling"} <= reaching("bert").keys() and "labels" not in reaching("llama")


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(families()))
def test_what_reaches_attention_is_known_everywhere(name):
    """The same for every architecture that can be built."""
    try:
        found = reaching(name)
    except Exception as error:  # third-party code, on a configuration that it was not written for
        pytest.skip(f"not built: {error}"[:80])
    assert {n: path for n, path in found.items() if n not in KNOWN} == {}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["llama", "gemma4", "gemma4_unified", "paligemma"])
def test_a_loss_takes_its_arguments_through_the_model(name):
    """A model with labels has eager's loss and gradients, and so it has with each argument of the loss."""
    torch.manual_seed(0)
    model = tiny_model(name)
    given = accepted(model)
    labels = given["input_ids"].masked_fill(given["input_ids"] > 50, -100)
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].contiguous()
    for more in ({}, {"num_items_in_batch": torch.tensor(5)}, {"ignore_index": 3}, {"shift_labels": shifted}):
        if "ignore_index" in more:
            more = {**more, "labels": labels.masked_fill(labels < 0, 3)}
        losses, gradients = [], []
        for implementation in ("eager", "regard"):
            model.set_attn_implementation(implementation)
            model.zero_grad()
            losses.append(model(**{**given, "labels": labels, **more}).loss)
            losses[-1].backward()
            gradients.append(torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None]))
        assert torch.allclose(*losses, rtol=1e-4)
        assert (gradients[0] - gradients[1]).abs().max() < 1e-3 * gradients[0].abs().max() > 0


def test_the_ignored_arguments_are_documented():
    """The guide lists every ignored argument, under what it belongs to."""
    guide = (ROOT / "docs" / "how-to" / "transformers.md").read_text(encoding="utf-8")
    for group, names in call_arguments.IGNORED.items():
        assert f"| {group} | {', '.join(f'`{name}`' for name in names)} |" in guide
