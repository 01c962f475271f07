"""The page of a model of `regard classify`."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.lens.viewer import page
from regard.models import ClassifierConfig, SequenceClassifier
from regard.models.data.vocabulary import Bytes
from regard.models.training import checkpoint

pytest.importorskip("safetensors", reason="safetensors is not installed")


def test_the_page_says_what_a_classifier_predicts(opened, tmp_path):
    """In its first line, as text; where the text is from is among the facts of the run."""
    torch.manual_seed(0)
    model = SequenceClassifier(ClassifierConfig(vocabulary=257, d_model=32, layers=1, heads=2, classes=2))
    checkpoint.save(tmp_path, model, vocabulary=Bytes(), classes=["good", "b<i>ad"])
    run = rg.look(tmp_path, "a text")
    view = opened(page(run))
    name, chance = run.facts["predicted"][0]
    said = view.text("#about")
    assert f"predicts {name} (" in said and f"{100 * chance:.1f} %" in said
    assert view.each("#about i") == []
    with torch.no_grad():
        logits = model.eval()(torch.tensor([list(b"a text")]))[0]
    np.testing.assert_allclose(chance, logits.double().softmax(-1).max(), atol=1e-6)
