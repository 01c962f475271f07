"""Names of models that are not found: what is offered instead."""

import random

import pytest

from regard.torch.hf.load_model import near_model
from tests.common.test_keywords import misspelt
from tests.support.command import refused


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A folder with a model, and a cache with another."""
    from huggingface_hub import constants

    (tmp_path / "translator").mkdir()
    (tmp_path / "translator" / "config.json").write_text("{}")
    (tmp_path / "hub" / "models--openai-community--gpt2-medium").mkdir(parents=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["translator", "openai-community/gpt2-medium", "all-MiniLM-L6-v2"])
def test_one_letter(known, name, seed):
    """A folder here, a downloaded model and the default are found by a name with one wrong letter."""
    wrong = misspelt(name, random.Random(seed))
    if wrong != name:
        assert f"did you mean {name!r}?" in near_model(wrong, "check it")


def test_architectures_and_other_words(known):
    """An architecture is not a model; a word that is like nothing gets the usual advice."""
    for name in ("lama", "owner/lama"):
        assert near_model(name, "check it").startswith("llama is an architecture, without trained weights")
    assert near_model("gpt2", "check it") == "check it; an architecture alone has no trained weights"
    assert near_model("zzz/qqq", "check it") == "check it"
    assert near_model("./translater", "check it").startswith("did you mean 'translator'?")


@pytest.mark.sweep  # the hub's own retries take half a minute without a network
@pytest.mark.parametrize("words", [["audit", "translater"], ["look", "translater", "Hello."]])
def test_the_commands(known, words):
    """`audit` and `look`, without the network."""
    assert "did you mean 'translator'?" in refused(*words, HF_HUB_OFFLINE="1")
