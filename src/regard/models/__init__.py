"""Small models that train on the user's own text, pictures and tables.

Begin with language_model.py: a decoder of GPT or Llama in one file. It is made of a Config, an embedding and blocks;
the other models are put together from the same parts.

config           what a model is made of, as data
embedding        tokens and their positions as vectors
blocks           attention, feed-forward and norms, stacked
language_model   GPT and Llama: the next token
encoder          vectors of a whole text, read in both directions
classifier       a text to a label: an encoder and a linear layer
encoder_decoder  one text to another
vision           a picture to a label
data/            the user's own text and tables, vocabularies, batches
training/        the loop, a run in a folder, checkpoints, classification, reports
generation/      writing text: how the next token is chosen, and when to stop
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
