"""Writing text with a language model: how the next token is chosen, when to stop, and the loop over them."""

from .decoding import generate, stream

__all__ = ["generate", "stream"]
