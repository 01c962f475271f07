"""A step of training on regard is no worse than on a model's own attention, however it keeps tensors."""

import pytest
import transformers as T

from regard.torch.hf import attend, register
from regard.torch.hf.tiny_models import mappings
from tests.torch.hf import training_scan
from tests.torch.hf.training_scan import KINDS, scanned


@pytest.mark.parametrize("name", ["llama", "paligemma", "gpt_oss"])
def test_a_step_is_no_worse(name):
    """With labels where the model takes them, and every kind of checkpointing and offloading that it supports."""
    assert scanned(name) == dict.fromkeys(KINDS, "same")


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(mappings()))
def test_no_architecture_is_worse(name):
    """The same for all of transformers: where its own attention trains, regard trains."""
    found = scanned(name)
    assert not [said for said in found.values() if said.startswith("worse")], found


def test_a_worse_step_is_found(monkeypatch):
    """The gradients of an attention that forgets the scale are wrong, in every kind of step."""
    register()
    monkeypatch.setattr(training_scan, "register", register_without_scale)
    assert all(said.startswith("worse") for said in scanned("llama").values())
    register()


def register_without_scale():
    """Registers, in place of regard, an attention that forgets the scale."""
    T.AttentionInterface.register("regard", lambda *args, scaling=None, **more: attend(*args, scaling=1.0, **more))
