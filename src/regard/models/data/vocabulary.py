"""Vocabularies: conversion between text and tokens, by bytes or by byte-level byte pair encoding (BPE)."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...common.errors import refuse
from ...common.optional import requires_extra


class Bytes:
    """Byte vocabulary: the 256 bytes of UTF-8, and the end-of-document token. `size` is the number of tokens.

    Examples:
        >>> Bytes().encode("né").tolist()
        [110, 195, 169]
        >>> Bytes().spell([110, 195, 169, 256]).decode()
        'né'
    """

    size, end = 257, 256

    def encode(self, text: str) -> np.ndarray:
        """Converts a text to int64 tokens."""
        return np.frombuffer(text.encode(), np.uint8).astype(np.int64)

    def spell(self, tokens: Iterable[int]) -> bytes:
        """Converts tokens to UTF-8 bytes; `end` becomes the empty string."""
        return bytes(token for token in tokens if token != self.end)

    def to_dict(self) -> dict[str, Any]:
        """Converts the vocabulary to a dict that can be written as JSON, for `from_dict`."""
        return {"kind": "bytes"}


class Pairs:
    """Byte-level byte pair encoding, trained and run by the `tokenizers` library.

    Text is not normalized and every byte has a token, so every text is reproduced byte for byte. No text encodes to
    the end-of-document token.

    Args:
        tokenizer: a byte-level BPE `tokenizers.Tokenizer`.

    Source:
        Sennrich et al. 2016.

    Examples:
        >>> pairs = Pairs.train(["the theme of the thesis"], size=260)
        >>> pairs.spell(pairs.encode("the thesis")), pairs.size
        (b'the thesis', 260)
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.end = tokenizer.get_vocab_size()
        self.size = self.end + 1
        codes = {character: byte for byte, character in enumerate(_characters())}
        tokens = (tokenizer.id_to_token(number) for number in range(self.end))
        self.pieces = [bytes(codes[character] for character in token) for token in tokens] + [b""]

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Pairs:
        """Trains a vocabulary.

        Args:
            texts: the training texts.
            size: number of tokens, including the end-of-document token. The result is smaller if the texts have too few
                repeated pairs.

        Returns:
            The vocabulary.

        Raises:
            Refused: `size` is less than 257, or the package tokenizers is not installed.
        """
        if size < Bytes.size:
            raise refuse(
                "train",
                "the vocabulary is too small",
                f"{size} tokens",
                f"{Bytes.size} or more: every byte, and the end-of-document token",
                "increase --vocabulary, or use --tokenizer bytes",
            )
        tokenizers = _library()
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        made.train_from_iterator(
            texts, tokenizers.trainers.BpeTrainer(vocab_size=size - 1, initial_alphabet=alphabet, show_progress=False)
        )
        return cls(made)

    def encode(self, text: str) -> np.ndarray:
        """Converts a text to int64 tokens."""
        return np.array(self.tokenizer.encode(text).ids, np.int64)

    def spell(self, tokens: Iterable[int]) -> bytes:
        """Converts tokens to UTF-8 bytes; `end` becomes the empty string."""
        return b"".join(self.pieces[token] for token in tokens)

    def to_dict(self) -> dict[str, Any]:
        """Converts the vocabulary to a dict that can be written as JSON, for `from_dict`."""
        return {"kind": "bpe", "tokenizer": json.loads(self.tokenizer.to_str())}


Vocabulary: TypeAlias = Bytes | Pairs


class Decoder:
    """Incremental decoder from tokens to text: bytes of an incomplete character are buffered.

    Args:
        vocabulary: the vocabulary of the tokens.

    Examples:
        >>> decoder = Decoder(Bytes())
        >>> [decoder.more([token]) for token in "né".encode()]
        ['n', '', 'é']
    """

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self, tokens: Sequence[int]) -> str:
        """Decodes the next tokens.

        Args:
            tokens: the next tokens.

        Returns:
            The characters that are now complete.
        """
        return self._decoder.decode(self.vocabulary.spell(tokens))

    def rest(self) -> str:
        """Ends the text.

        Returns:
            The replacement character � for each incomplete character in the buffer.
        """
        return self._decoder.decode(b"", final=True)


def from_dict(found: dict[str, Any]) -> Vocabulary:
    """Builds a vocabulary from the result of `to_dict`.

    Args:
        found: the result of `to_dict`.

    Returns:
        The vocabulary.

    Raises:
        Refused: the package tokenizers is required but not installed.

    Examples:
        >>> from_dict(Bytes().to_dict()).size
        257
    """
    if found["kind"] == "bytes":
        return Bytes()
    tokenizers = _library()
    return Pairs(tokenizers.Tokenizer.from_str(json.dumps(found["tokenizer"])))


def _library() -> Any:
    with requires_extra("vocabulary", "train"):
        import tokenizers
    return tokenizers


def _characters() -> list[str]:
    """The character that represents each byte in a byte-level tokenizer: itself if printable, else one from U+0100
    on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]
