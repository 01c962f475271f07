"""A step of training on regard is no worse than on a model's own attention, however it keeps tensors."""

import pytest
import torch
import transformers as T

from regard.torch.hf import attend, register
from regard.torch.hf.tiny_models import mappings
from tests.torch.hf import training_scan
from tests.torch.hf.training_scan import KINDS, Step, scanned, verdict

# A decoder, two with labels that reach attention, images in text, learned position biases, cross-attention, sinks,
# images, sound.
SAMPLE = ["llama", "gemma4", "gemma4_unified", "paligemma", "t5", "bart", "gpt_oss", "vit", "whisper"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_step_is_no_worse(name):
    """With labels where the model takes them, and every kind of checkpointing and offloading that it supports."""
    found = scanned(name)
    assert {kind: word for kind, (word, _) in found.results.items()} == dict.fromkeys(KINDS, "same"), found
    assert found.labels == (name not in ("vit",))


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(mappings()))
def test_no_architecture_is_worse(name):
    """The same for all of transformers: where its own attention trains, regard trains."""
    found = scanned(name)
    assert not [each for each in found.results.values() if each[0] == "worse"], found


def test_a_worse_step_is_found(monkeypatch):
    """An error, a missing gradient and a wrong gradient are each worse; what fails on both sides is not."""
    gradients = {"a": torch.ones(3), "b": torch.ones(3)}
    good, failed = Step(gradients), Step({}, "KeyError: 1")
    assert verdict(good, good, good, 1e-6) == ("same", "")
    assert verdict(good, failed, good, 1e-6) == ("worse", "KeyError: 1")
    assert verdict(good, Step({"a": torch.ones(3)}), good, 1e-6)[0] == "worse"
    assert verdict(good, Step({**gradients, "b": torch.ones(3) + 1e-3}), good, 1e-6)[0] == "worse"
    assert verdict(failed, failed, good, 1e-6)[0] == "fails" and verdict(failed, good, good, 1e-6)[0] == "better"
    register()
    monkeypatch.setattr(training_scan, "register", register_without_scale)
    assert {word for word, _ in scanned("llama").results.values()} == {"worse"}
    register()


def register_without_scale():
    """Registers, in place of regard, an attention that forgets the scale."""
    T.AttentionInterface.register("regard", lambda *args, scaling=None, **more: attend(*args, scaling=1.0, **more))
