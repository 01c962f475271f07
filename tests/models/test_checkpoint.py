"""Models in files: what was written comes back bit for bit, and what is damaged or foreign is refused by name."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from regard.models import (
    ClassifierConfig,
    Config,
    EncoderDecoder,
    LanguageModel,
    SequenceClassifier,
    TranslationConfig,
    VisionConfig,
    VisionTransformer,
)
from regard.models.data.vocabulary import Bytes
from regard.models.training import checkpoint
from tests.support.lanes import by_name
from tests.support.refusals import refusing

SMALL = {"d_model": 16, "layers": 1, "heads": 2}


def language_model(**parts):
    return LanguageModel(Config(vocabulary=257, context=8, **SMALL, **parts))


MODELS = {
    "tied": lambda: language_model(tied=True),
    "untied": lambda: language_model(tied=False),
    "classifier": lambda: SequenceClassifier(ClassifierConfig(vocabulary=257, classes=3, **SMALL)),
    "encoder-decoder": lambda: EncoderDecoder(TranslationConfig(vocabulary=257, context=8, encoder_layers=1, **SMALL)),
    "vision": lambda: VisionTransformer(VisionConfig(height=4, width=4, patch=2, channels=1, classes=3, **SMALL)),
}


@by_name("make", MODELS)
def test_a_model_comes_back_bit_for_bit(make, tmp_path):
    """Every tensor and the config of every kind of model, tied weights stay tied, and what was noted is there."""
    model = make()
    checkpoint.save(tmp_path, model, vocabulary=Bytes(), note=[1, "two"])
    again = checkpoint.load(tmp_path)

    assert again.kind == type(model).__name__ and again.model.config == model.config
    assert again.about == {"note": [1, "two"]} and again.vocabulary.size == 257 and not again.model.training
    torch.testing.assert_close(again.model.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert len(list(model.parameters())) == len(list(again.model.parameters()))


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path):
    """A file that lost its end, or in which any one byte differs, is refused with a sentence, never loaded and never a
    crash.
    """
    path = checkpoint.save(tmp_path, language_model(), vocabulary=Bytes())
    whole = path.read_bytes()
    header, random = 8 + int.from_bytes(whole[:8], "little"), np.random.default_rng(0)
    damaged = [whole[:length] for length in (0, 1, 8, 100, header, len(whole) - 1)]
    for place in (*range(9), *random.integers(9, header, 60), *random.integers(header, len(whole), 60)):
        damaged.append(bytearray(whole))
        damaged[-1][place] ^= 1 << place % 8
    for content in damaged:
        path.write_bytes(content)
        refused(
            tmp_path,
            "file is damaged|not written by regard|unknown format version|do not fit the configuration",
        )
        assert path.read_bytes() == content  # looking changes nothing


def refused(folder, wording):
    """The reasons why a folder is not loaded."""
    with refusing(wording) as caught:
        checkpoint.load(folder)
    return caught.value.reasons


def test_what_is_not_ours_is_refused(tmp_path):
    """Another program's file, a later version, a kind that does not exist, and weights of another shape: each by
    name.
    """
    path, model = tmp_path / checkpoint.NAME, language_model()
    for folder in (tmp_path, tmp_path / "nowhere"):
        refused(folder, "no model in the folder")
    save_file({"weight": torch.zeros(3)}, path)
    refused(tmp_path, "the file was not written by regard")
    save_file({"weight": torch.zeros(3)}, path, {"regard": "999"})
    refused(tmp_path, "unknown format version")
    checkpoint.write(path, {}, {"kind": "Oracle", "config": {}, "about": {}})
    refused(tmp_path, "unknown model class")
    weights = {f"model.{name}": tensor for name, tensor in checkpoint.tensors_of(model)}
    weights |= {next(iter(weights)): torch.zeros(3), "model.extra": torch.zeros(1)}
    checkpoint.write(path, weights, {"kind": "LanguageModel", "config": model.config.to_dict(), "about": {}})
    reasons = refused(tmp_path, "has shape")
    assert len(reasons) == 2 and "is not a weight of the model" in str(reasons)


@pytest.mark.parametrize("when", ["safetensors.torch.save_file", "os.fsync", "pathlib.Path.replace"])
def test_a_write_that_fails_leaves_the_last_file(when, tmp_path, monkeypatch):
    """A full disk or a stop at any moment of writing leaves the old file as it was, and no draft beside it."""
    path = checkpoint.save(tmp_path, language_model(), step=1)
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(when, fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, language_model(), step=2)
    assert path.read_bytes() == before and [entry.name for entry in tmp_path.iterdir()] == [checkpoint.NAME]
