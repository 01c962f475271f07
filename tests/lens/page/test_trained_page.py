"""The page of a model of `regard train` or `regard classify`: another text goes through the same model."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.lens.open_model import OpenModel
from regard.lens.runs.codes import FINE_ERROR, decode
from regard.lens.viewer import page
from regard.lens.viewer.server import Server
from regard.models import ClassifierConfig, Config, LanguageModel, SequenceClassifier
from regard.models.data.vocabulary import Bytes
from regard.models.training import checkpoint
from tests.support.browser import Opened

pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A language model and a classifier with random weights, as training saves them."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    language = LanguageModel(Config(vocabulary=257, d_model=32, layers=2, heads=4))
    checkpoint.save(folder / "run", language, vocabulary=Bytes())
    config = ClassifierConfig(vocabulary=257, d_model=32, layers=1, heads=2, classes=2)
    checkpoint.save(folder / "classifier", SequenceClassifier(config), vocabulary=Bytes(), classes=["good", "b<i>ad"])
    return folder


@pytest.mark.sweep
def test_another_text_is_typed(chromium, models):
    """The text is continued, its tokens and candidates are those of `look`, and the weights are those of its run."""
    first = rg.look(models / "run", "one text", generate=3)
    expected = rg.look(models / "run", "two né", generate=3)
    with Server(first, record=OpenModel.of(first)) as server:
        view = Opened(chromium, server.address)
        assert view.tab.input_value("#live-text") == "one text"
        view.tab.fill("#live-text", "two né")
        view.tab.wait_for_selector("#about >> text=two né")
        view.settled()
        tokens = view.tab.evaluate("runs[state.run].axes.text.tokens")
        row = view.asks("row", view.state("run"), 1, 2, 9)
        candidates = view.tab.locator("#steps-candidates li bdi").all_inner_texts()
        assert view.text("#steps-said").startswith("Step 3 of 3") and not view.said, view.said
        view.context.close()
    assert len(tokens) == len(expected.axes["text"]) == 7 + 3 and len(candidates) == 8
    assert candidates[0] == tokens[9]
    found = decode(np.array(row["coarse"]), np.array(row["fine"]))
    np.testing.assert_allclose(
        found, expected.calls[1].weights(heads=2, rows=9)[0, 0], rtol=FINE_ERROR * 1.01, atol=1e-6
    )


def test_the_page_says_what_a_classifier_predicts(opened, models):
    """In its first line, as text; where the text is from is among the facts of the run."""
    run = rg.look(models / "classifier", "a text")
    view = opened(page(run))
    name, chance = run.facts["predicted"][0]
    said = view.text("#about")
    assert f"predicts {name} (" in said and f"{100 * chance:.1f} %" in said
    assert view.tab.eval_on_selector_all("#about i", "nodes => nodes.length") == 0
    with torch.no_grad():
        logits = checkpoint.load(models / "classifier").model(torch.tensor([list(b"a text")]))[0]
    np.testing.assert_allclose(chance, logits.double().softmax(-1).max(), atol=1e-6)
