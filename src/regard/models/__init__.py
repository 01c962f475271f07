"""Small transformer models for text, images and tables.

Start with language_model.py: a GPT or Llama decoder in one file. It consists of a Config, an embedding and blocks; the
other models are built from the same parts.

config           model configurations
blocks           token and position embeddings; attention, feed-forward and normalization layers, stacked
language_model   GPT and Llama: next-token prediction
encoder          bidirectional text encoder, and text classification: an encoder and a linear layer
encoder_decoder  sequence to sequence, for example translation
vision           image classification
data/            text files, tables, vocabularies, batches
training/        training loop, run folders, checkpoints, classification, reports
generation       text generation: decoding loop, sampling, stop sequences
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..common.optional import requires_extra
from ..common.public import belongs, no_attribute

if TYPE_CHECKING:
    from .config import Config
    from .encoder import ClassifierConfig, SequenceClassifier
    from .encoder_decoder import EncoderDecoder, TranslationConfig
    from .generation import generate, stream
    from .language_model import LanguageModel
    from .training.checkpoint import load, save
    from .vision import VisionConfig, VisionTransformer

# Public names are imported on first access: a vocabulary does not need torch.
MODULES = {
    "ClassifierConfig": "encoder",
    "Config": "config",
    "EncoderDecoder": "encoder_decoder",
    "LanguageModel": "language_model",
    "SequenceClassifier": "encoder",
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


def __getattr__(name: str) -> Any:
    if name in MODULES:
        with requires_extra(f"regard.models.{name}", "train"):
            return belongs(getattr(importlib.import_module(f".{MODULES[name]}", __name__), name), __name__)
    raise no_attribute(__name__, name)
