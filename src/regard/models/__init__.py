"""Small models that train on the user's own text, pictures and tables.

config.py            what a model is made of, as data
blocks.py            attention, feed-forward and norms, stacked
language_model.py    GPT and Llama
generation.py        writing, with sampling.py and stops.py
encoder_decoder.py   one text to another
classifier.py        a text to a label
vision.py            a picture to a label
"""

from __future__ import annotations

import importlib

# Names are loaded when they are asked for: a vocabulary needs no torch.
ROOMS = {
    "ClassifierConfig": "classifier", "Config": "config", "EncoderDecoder": "encoder_decoder", "LanguageModel": "language_model",
    "SequenceClassifier": "classifier", "TranslationConfig": "encoder_decoder", "VisionConfig": "vision",
    "VisionTransformer": "vision", "generate": "generation", "load": "training.checkpoint", "save": "training.checkpoint", "stream": "generation",
}  # fmt: skip

__all__ = [
    "ClassifierConfig", "Config", "EncoderDecoder", "LanguageModel", "SequenceClassifier", "TranslationConfig", "VisionConfig",
    "VisionTransformer", "generate", "load", "save", "stream",
]  # fmt: skip


def __getattr__(name: str):
    if name in ROOMS:
        return getattr(importlib.import_module(f".{ROOMS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
