"""Models in files: what was written comes back bit for bit, and what is damaged or foreign is refused by name."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from regard.common.errors import Refused
from regard.models import ClassifierConfig, Config, LanguageModel, SequenceClassifier, VisionConfig, VisionTransformer
from regard.models.data.vocabulary import Bytes, Pairs
from regard.models.training import checkpoint

pytest.importorskip("safetensors", reason="safetensors is not installed")

SMALL = {"d_model": 16, "layers": 1, "heads": 2}


def language_model(**parts):
    return LanguageModel(Config(vocabulary=257, context=8, **SMALL, **parts))


MODELS = {
    "tied": lambda: language_model(tied=True),
    "untied": lambda: language_model(tied=False),
    "learned": lambda: language_model(positions="learned"),
    "classifier": lambda: SequenceClassifier(ClassifierConfig(vocabulary=257, classes=3, **SMALL)),
    "vision": lambda: VisionTransformer(VisionConfig(height=4, width=4, patch=2, channels=1, classes=3, **SMALL)),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_comes_back_bit_for_bit(kind, tmp_path):
    """Every tensor and the config of every kind of model, tied weights stay tied, and what was noted is there."""
    model = MODELS[kind]()
    checkpoint.save(tmp_path, model, vocabulary=Bytes(), note=[1, "two"])
    again = checkpoint.load(tmp_path)

    assert again.kind == type(model).__name__ and again.model.config == model.config
    assert again.about == {"note": [1, "two"]} and again.vocabulary.size == 257 and not again.model.training
    before, after = model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert len(list(model.parameters())) == len(list(again.model.parameters()))


def test_a_trained_vocabulary_comes_back(tmp_path):
    """A byte pair vocabulary spells the same tokens after it was saved with a model."""
    pairs = Pairs.train(["the theme of the thesis is the thesis"], size=270)
    checkpoint.save(tmp_path, LanguageModel(Config(vocabulary=pairs.size, context=8, **SMALL)), vocabulary=pairs)
    again = checkpoint.load(tmp_path).vocabulary

    text = "the thésis\n\t☃"
    assert again.encode(text).tolist() == pairs.encode(text).tolist() and again.end == pairs.end
    assert again.spell(again.encode(text)).decode() == text


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path):
    """A file that lost its end, or in which any one byte differs, is refused with a sentence, never loaded and never a
    crash.
    """
    path = checkpoint.save(tmp_path, language_model(), vocabulary=Bytes())
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    random = torch.Generator().manual_seed(0)
    places = [
        *range(9),
        *torch.randint(9, header, (60,), generator=random),
        *torch.randint(header, len(whole), (60,), generator=random),
    ]
    damaged = [whole[:length] for length in (0, 1, 8, 100, header, len(whole) - 1)]
    damaged += [
        whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :] for place in map(int, places)
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(
            Refused,
            match=r"file is damaged|not written by regard|unknown format version|weights do not fit the configuration",
        ):
            checkpoint.load(tmp_path)
        assert path.read_bytes() == content  # looking changes nothing


def test_what_is_not_ours_is_refused(tmp_path):
    """Another program's file, a later version, a kind that does not exist, and weights of another shape: each by
    name.
    """
    path = tmp_path / checkpoint.NAME
    with pytest.raises(Refused, match="no model in the folder"):
        checkpoint.load(tmp_path)
    with pytest.raises(Refused, match="no model in the folder"):
        checkpoint.load(tmp_path / "nowhere")
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(Refused, match="the file was not written by regard"):
        checkpoint.load(tmp_path)
    save_file({"weight": torch.zeros(3)}, path, {"regard": "999"})
    with pytest.raises(Refused, match="unknown format version"):
        checkpoint.load(tmp_path)
    checkpoint.write(path, {}, {"kind": "Oracle", "config": {}, "about": {}})
    with pytest.raises(Refused, match="unknown model class"):
        checkpoint.load(tmp_path)
    model = language_model()
    weights = {f"model.{name}": tensor for name, tensor in checkpoint.tensors_of(model)}
    described = {"kind": "LanguageModel", "config": model.config.to_dict(), "about": {}}
    first, *_ = weights
    checkpoint.write(path, {**weights, first: torch.zeros(3), "model.extra": torch.zeros(1)}, described)
    with pytest.raises(Refused, match="has shape") as refused:
        checkpoint.load(tmp_path)
    assert len(refused.value.reasons) == 2 and "is not a weight of the model" in str(refused.value)


def test_nothing_is_pickled(tmp_path):
    """The file is a safetensors header in JSON and numbers: no byte of it is ever executed."""
    whole = checkpoint.save(tmp_path, language_model(), vocabulary=Bytes()).read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])

    last = max(part["data_offsets"][1] for name, part in header.items() if name != "__metadata__")
    assert 8 + size + last == len(whole)


@pytest.mark.parametrize("when", ["writing", "flushing", "renaming"])
def test_a_write_that_fails_leaves_the_last_file(when, tmp_path, monkeypatch):
    """A full disk or a stop at any moment of writing leaves the old file as it was, and no draft beside it."""
    import safetensors.torch

    path = checkpoint.save(tmp_path, language_model(), step=1)
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    if when == "writing":
        monkeypatch.setattr(safetensors.torch, "save_file", fail)
    elif when == "flushing":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(type(path), "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, language_model(), step=2)
    assert path.read_bytes() == before and [entry.name for entry in tmp_path.iterdir()] == [checkpoint.NAME]
