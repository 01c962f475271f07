"""What a model refuses: a config that cannot work, and a call that does not fit."""

import pytest
import torch

from regard.models import (
    ClassifierConfig,
    Config,
    LanguageModel,
    SequenceClassifier,
    TranslationConfig,
    VisionConfig,
    VisionTransformer,
)
from regard.models.config import TextConfig
from regard.models.encoder import Encoder
from tests.models.test_models import SMALL
from tests.support.refusals import whats

TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])
WRITER, MEMORY = Config(**SMALL), torch.zeros(1, 2, 24)
JUDGE = ClassifierConfig(**SMALL, classes=2)
PICTURE = VisionConfig(height=8, width=8, patch=4, classes=2)


def writes(**more):
    return lambda: LanguageModel(WRITER)(TOKENS[:1], **more)


@pytest.mark.parametrize(
    "make, expected",
    [
        (
            lambda: Config(vocabulary=0, d_model=2.5, heads=4, norm="batch", dropout=1, bias=1, window=0),
            [
                "d_model is not an integer",
                "unknown norm",
                "bias is not a boolean",
                "dropout is out of range",
                "vocabulary is too small",
                "window is too small",
            ],
        ),
        (
            lambda: Config(vocabulary=9, d_model=30, heads=4, kv_heads=3, softcap=-1.0),
            ["softcap is out of range", "d_model is not divisible by heads", "heads is not divisible by kv_heads"],
        ),
        (lambda: Config(vocabulary=9, d_model=12, heads=4), ["rotary positions need an even head size"]),
        (lambda: ClassifierConfig(vocabulary=9, classes=1, pooling="max"), ["classes is too small", "unknown pooling"]),
        (lambda: VisionConfig(height=8, width=9, patch=4, classes=2), ["width is not divisible by patch"]),
        (lambda: TranslationConfig(vocabulary=9, encoder_layers=0), ["encoder_layers is too small"]),
    ],
)
def test_a_config_that_cannot_work_is_refused(make, expected):
    """All reasons at once, before there is a weight."""
    assert whats(make) == expected


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda: LanguageModel(WRITER)(torch.zeros(3)), ["tokens have the wrong dtype or shape"]),
        (
            writes(cache=[], positions=torch.arange(3)),
            ["the cache belongs to another model", "positions cannot be combined with a cache"],
        ),
        (writes(rows=[2]), ["rows requires a cache"]),
        (writes(memory=MEMORY), ["the block has no cross-attention"]),
        (lambda: Encoder(TextConfig(**SMALL))(TOKENS, lengths=[3, 0]), ["lengths are invalid"]),
        (lambda: SequenceClassifier(JUDGE).packed(TOKENS[0], [1, 1]), ["lengths do not match the tokens"]),
        (lambda: VisionTransformer(PICTURE)(torch.zeros(1, 1, 8, 8)), ["the images do not fit the model"]),
    ],
)
def test_a_call_that_does_not_fit_is_refused(call, expected):
    """All reasons at once, in the words of the model."""
    assert whats(call) == expected
