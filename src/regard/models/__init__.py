"""Small models that train on the user's own text, pictures and tables.

config.py            what a model is made of, as data
blocks.py            attention, feed-forward and norms, stacked
language_model.py    GPT and Llama
generation.py        text from a model, with sampling.py
encoder_decoder.py   one text to another
classifier.py        a text to a label
vision.py            a picture to a label
"""

from __future__ import annotations

import importlib

# Names are loaded when they are asked for: a vocabulary needs no torch.
ROOMS = {"Config": "config", "LanguageModel": "language_model", "generate": "generation", "stream": "generation"}

__all__ = ["Config", "LanguageModel", "generate", "stream"]


def __getattr__(name: str):
    if name in ROOMS:
        return getattr(importlib.import_module(f".{ROOMS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
