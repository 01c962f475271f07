"""Text generation. Start with decoding.py: `stream`, the decoding loop.

decoding  the loop: the model with a key/value cache, one token per sequence and step
sampling  how the next token is chosen: temperature, top-k, top-p, min-p
stops     stop sequences: tokens and strings that end the generation
"""

from .decoding import generate, stream

__all__ = ["generate", "stream"]
