"""An induction head forms in a small model that learns to copy, and the detector finds it."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.models import Config, LanguageModel
from regard.models.training.loop import Recipe, Training

VOCABULARY, LENGTH, BATCH, STEPS = 32, 48, 32, 600


def repeated(number):
    """Texts (BATCH, LENGTH) that repeat a random part of 8 to 24 different tokens, and the tokens to predict: only
    those that an earlier part of the text determines. The length of the part varies, so no fixed distance copies it.
    """
    random = torch.Generator().manual_seed(number)
    texts, targets = [], []
    for _ in range(BATCH):
        size = int(torch.randint(8, 25, (), generator=random))
        text = torch.randperm(VOCABULARY, generator=random)[:size].repeat(LENGTH // size + 2)
        following = text[1 : LENGTH + 1].clone()
        following[: size - 1] = -100
        texts.append(text[:LENGTH])
        targets.append(following)
    return torch.stack(texts), torch.stack(targets)


def attention_only():
    """Two layers of four heads, without feed-forward layers."""
    torch.manual_seed(0)
    model = LanguageModel(Config(vocabulary=VOCABULARY, d_model=64, layers=2, heads=4, context=LENGTH))
    for block in model.stack.blocks:
        block.feed_forward = torch.nn.Identity()
    return model


@pytest.fixture(scope="module")
def models():
    """The model before and after training, in evaluation mode."""
    before, after = attention_only().eval(), attention_only()
    recipe = Recipe(steps=STEPS, learning_rate=3e-3, warmup=20, weight_decay=0.0)
    for _ in Training(after, recipe, lambda number: after(*repeated(number))[1]):
        pass
    return before, after.eval()


def detected(model, text):
    """The figures of both layers for a text of token numbers."""
    run = rg.look(model, inputs=torch.tensor([text]), tokens=[f" {token}" for token in text])
    return [call.figures for call in run.calls], run


@pytest.mark.sweep
@pytest.mark.slow
def test_an_induction_head_forms_in_layer_two(models):
    """Where the model copies, a head of the second layer attends to what followed the token before; no head of the
    first layer does, one of which attends to the previous token. The untrained model has neither.
    """
    texts, targets = repeated(10**6)
    with torch.no_grad():
        logits = models[1](texts)
    right = (logits.argmax(-1) == targets)[targets >= 0]
    assert right.float().mean() > 0.95

    for text in texts[:4].tolist():
        (first, second), run = detected(models[1], text)
        untrained = np.concatenate([layer["induction"] for layer in detected(models[0], text)[0]])
        assert second["induction"].max() > 0.6 > 0.2 > first["induction"].max()
        assert second["induction"].max() > untrained.max() + 0.5
        assert first["previous"].max() > 0.4 > 0.2 > second["previous"].max()
        best, size = int(second["induction"].argmax()), len(set(text))
        weights = run.calls[1].weights(heads=best)[0]
        # By hand: row i attends to i + 1 − size, 2 · size, …: what followed each earlier occurrence of its token.
        on = [weights[i, i + 1 - size :: -size].sum() for i in range(size, LENGTH)]
        np.testing.assert_allclose(second["induction"][best], np.mean(on), atol=1e-5)


@pytest.mark.sweep
@pytest.mark.slow
def test_the_model_copies_where_the_detector_has_numbers(models):
    """In rows whose token is new the detector has no number, and the model predicts no better than chance; from the
    first repetition on it predicts nearly every token.
    """
    texts, _ = repeated(10**6 + 1)
    text = texts[0].tolist()
    size = len(set(text))
    (_, second), run = detected(models[1], text)
    rows = run.calls[1].rows["induction"][int(second["induction"].argmax())]
    assert np.isnan(rows[:size]).all() and np.isfinite(rows[size:]).all()
    with torch.no_grad():
        chances = models[1](texts[:1])[0].softmax(-1)
    of_next = chances[torch.arange(LENGTH - 1), texts[0, 1:]].numpy()
    assert of_next[: size - 2].mean() < 0.2 < 0.9 < of_next[size:].mean()
