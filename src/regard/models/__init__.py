"""Small models that train on the user's own text, pictures and tables.

config           what a model is made of, as data
blocks           attention, feed-forward and norms, stacked
language_model   GPT and Llama
generation       writing text: how tokens are chosen, when to stop
encoder_decoder  one text to another
classifier       a text to a label
vision           a picture to a label
data             the user's own text and tables, vocabularies, batches
training         the loop, runs, checkpoints, reports
"""

from __future__ import annotations

import importlib

from ..common.public import belongs

# Names are loaded when they are asked for: a vocabulary needs no torch.
ROOMS = {
    "ClassifierConfig": "classifier",
    "Config": "config",
    "EncoderDecoder": "encoder_decoder",
    "LanguageModel": "language_model",
    "SequenceClassifier": "classifier",
    "TranslationConfig": "encoder_decoder",
    "VisionConfig": "vision",
    "VisionTransformer": "vision",
    "generate": "generation",
    "load": "training.checkpoint",
    "save": "training.checkpoint",
    "stream": "generation",
}

__all__ = [
    "ClassifierConfig",
    "Config",
    "EncoderDecoder",
    "LanguageModel",
    "SequenceClassifier",
    "TranslationConfig",
    "VisionConfig",
    "VisionTransformer",
    "generate",
    "load",
    "save",
    "stream",
]


def __getattr__(name: str):
    if name in ROOMS:
        return belongs(getattr(importlib.import_module(f".{ROOMS[name]}", __name__), name), __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
