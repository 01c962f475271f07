"""Writing text with a language model. Begin with decoding.py: `stream`, the loop over tokens.

decoding  the loop: the model on a cache, a token for each sequence, until all have stopped
sampling  how the next token is chosen: temperature, top-k, top-p, min-p
stops     when a text ends: tokens and texts that stop it
"""

from .decoding import generate, stream

__all__ = ["generate", "stream"]
